//! Extended attributes that programs set as access lists. Whatever they are is refused, or a list that is written as it was
//! read and lets its classes be changed to any mode.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_vfs::{AccessList, AccessMask, Identity, Owner};

fuzz_target!(|data: &[u8]| {
    let Ok(Some(list)) = AccessList::parse(data) else {
        return;
    };
    assert_eq!(list.encode(), data, "what is read is what is written");
    for classes in [0, 0o750, 0o777] {
        let changed = list.with_classes(classes);
        assert_eq!(changed.classes(), classes);
        let again = AccessList::parse(&changed.encode());
        assert_eq!(again, Ok(Some(changed)));
    }
    let owner = Owner { uid: 1, gid: 2 };
    for by in [
        Identity::new(1, 2, []),
        Identity::new(3, 4, [2, 5]),
        Identity::new(6, 7, []),
    ] {
        let all = AccessMask::EACH
            .into_iter()
            .fold(AccessMask::EXISTS, AccessMask::union);
        let may_all = list.allows(owner, &by, all);
        let may_each = AccessMask::EACH.map(|one| list.allows(owner, &by, one));
        assert!(!may_all || may_each == [true; 3], "{list:?} {by:?}");
    }
});
