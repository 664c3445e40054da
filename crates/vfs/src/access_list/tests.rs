use std::time::SystemTime;

use proptest::prelude::*;

use super::*;
use crate::{Inode, permission};

const OWNER: Owner = Owner { uid: 10, gid: 20 };

fn file(permissions: u16) -> Attributes {
    Attributes {
        permissions,
        uid: OWNER.uid,
        gid: OWNER.gid,
        ..Attributes::new(Inode(9), FileKind::Regular, SystemTime::UNIX_EPOCH)
    }
}

fn list(entries: &[(Who, u16)]) -> FsResult<AccessList> {
    let entry = |(who, bits): &(Who, u16)| AccessEntry {
        who: *who,
        may: AccessMask::of_bits(*bits),
    };
    AccessList::new(entries.iter().map(entry).collect::<Vec<_>>())
}

/// `u::rw-,u:30:rwx,g::r--,g:40:-w-,m::rw-,o::---`
fn usual() -> AccessList {
    list(&[
        (Who::Owner, 6),
        (Who::User(30), 7),
        (Who::OwningGroup, 4),
        (Who::Group(40), 2),
        (Who::Mask, 6),
        (Who::Others, 0),
    ])
    .unwrap()
}

/// The check access algorithm, sentence by sentence as acl(5) has it.
fn as_acl_5_says(list: &AccessList, by: &Identity, requested: u16) -> bool {
    let entries: Vec<_> = list
        .entries()
        .iter()
        .map(|entry| (entry.who, entry.may.bits()))
        .collect();
    let contains = |bits: u16| bits & requested == requested;
    let single = |wanted: Who| {
        let found = entries.iter().find(|(who, _)| *who == wanted);
        found.map(|(_, bits)| *bits)
    };
    let mask = single(Who::Mask);
    // 1. If the effective user ID of the process matches the user ID of the file object owner ...
    if by.uid == OWNER.uid {
        return contains(single(Who::Owner).unwrap());
    }
    // 2. else if the effective user ID matches the qualifier of any entry of type ACL_USER ...
    if let Some(bits) = single(Who::User(by.uid)) {
        return contains(bits) && contains(mask.unwrap());
    }
    // 3. else if the effective group ID or any of the supplementary group IDs match the file group or the qualifier of
    // any entry of type ACL_GROUP ...
    let matches = |who: &Who| match who {
        Who::OwningGroup => by.is_member_of(OWNER.gid),
        Who::Group(gid) => by.is_member_of(*gid),
        _ => false,
    };
    if entries.iter().any(|(who, _)| matches(who)) {
        return match mask {
            Some(mask) => {
                let mut groups = entries.iter().filter(|(who, _)| matches(who));
                contains(mask) && groups.any(|(_, bits)| contains(*bits))
            }
            None => contains(single(Who::OwningGroup).unwrap()),
        };
    }
    // 4. else if the ACL_OTHER entry contains the requested permissions ...
    contains(single(Who::Others).unwrap())
}

/// Users and groups are few, so that they meet.
fn any_list() -> impl Strategy<Value = AccessList> {
    let named = || proptest::collection::btree_map(8_u32..13, 0_u16..8, 0..4);
    let bits = 0_u16..8;
    let single = (
        bits.clone(),
        bits.clone(),
        bits.clone(),
        proptest::option::of(bits),
    );
    (named(), named(), single).prop_map(|(users, groups, (owner, group, others, mask))| {
        let needs_mask = !users.is_empty() || !groups.is_empty();
        let mask = mask.or(needs_mask.then_some(5));
        let mut entries = vec![(Who::Owner, owner)];
        entries.extend(users.into_iter().map(|(id, bits)| (Who::User(id), bits)));
        entries.push((Who::OwningGroup, group));
        let groups = groups.into_iter();
        entries.extend(groups.map(|(id, bits)| (Who::Group(id + 10), bits)));
        entries.extend(mask.map(|bits| (Who::Mask, bits)));
        entries.push((Who::Others, others));
        list(&entries).unwrap()
    })
}

fn anybody() -> impl Strategy<Value = Identity> {
    let groups = proptest::collection::vec(17_u32..24, 0..3);
    (8_u32..14, 17_u32..24, groups).prop_map(|(uid, gid, groups)| Identity::new(uid, gid, groups))
}

proptest! {
    #[test]
    fn who_may_do_what_is_what_acl_5_says(list in any_list(), by in anybody(), wanted in 0_u16..8) {
        let expected = as_acl_5_says(&list, &by, wanted);
        let file = Attributes { access_list: Some(list.clone()), ..file(list.classes()) };
        let wanted_mask = AccessMask::of_bits(wanted);
        prop_assert_eq!(permission::check(&file, &by, wanted_mask).is_ok(), expected);
        for one in AccessMask::EACH {
            let is_allowed = permission::allowed(&file, &by).contains(one);
            prop_assert_eq!(is_allowed, as_acl_5_says(&list, &by, one.bits()));
        }
    }

    #[test]
    fn a_list_that_is_a_mode_says_what_the_mode_does(mode in 0_u16..0o1000, by in anybody(), wanted in 0_u16..8) {
        let mode_list = list(&[
            (Who::Owner, mode >> 6),
            (Who::OwningGroup, mode >> 3 & 7),
            (Who::Others, mode & 7),
        ]).unwrap();
        prop_assert!(mode_list.is_mode());
        prop_assert_eq!(mode_list.classes(), mode);
        let wanted = AccessMask::of_bits(wanted);
        let by_mode = permission::check(&file(mode), &by, wanted).is_ok();
        prop_assert_eq!(mode_list.allows(OWNER, &by, wanted), by_mode);
    }

    #[test]
    fn a_list_is_what_its_attribute_says(list in any_list()) {
        let value = list.encode();
        prop_assert_eq!(AccessList::parse(&value), Ok(Some(list)));
    }

    /// What is accepted holds to the rules, is written as it was read, and nothing panics.
    #[test]
    fn attributes_of_any_bytes_are_read_or_refused(
        version in prop_oneof![9 => Just(2_u32), 1 => any::<u32>()],
        entries in proptest::collection::vec(
            (prop_oneof![Just(1_u16), Just(2), Just(4), Just(8), Just(16), Just(32), any::<u16>()],
             prop_oneof![9 => 0_u16..8, 1 => any::<u16>()],
             prop_oneof![0_u32..5, Just(u32::MAX)]),
            0..7,
        ),
        is_sorted in any::<bool>(),
        surplus in prop_oneof![9 => Just(0_usize), 1 => 1_usize..8],
    ) {
        let mut entries = entries;
        if is_sorted {
            entries.sort_by_key(|entry| entry.0);
        }
        let mut value = version.to_le_bytes().to_vec();
        for (tag, bits, id) in &entries {
            value.extend(tag.to_le_bytes());
            value.extend(bits.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value.extend(vec![0; surplus]);
        let read = AccessList::parse(&value);
        prop_assert_eq!(read.is_ok(), surplus == 0 && version == 2 && is_kernels(&entries), "{:?}", entries);
        if let Ok(Some(list)) = read {
            let again = AccessList::parse(&list.encode());
            prop_assert_eq!(again, Ok(Some(list)));
        }
    }

    #[test]
    fn any_bytes_at_all_are_read_or_refused(value in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = AccessList::parse(&value);
    }

    #[test]
    fn mode_and_list_say_the_same_after_a_change_of_either(list in any_list(), mode in 0_u16..0o10000) {
        let mut lists = AccessLists { access: Some(list.clone()), default: None };
        lists.follow(mode);
        let followed = lists.access.unwrap();
        prop_assert_eq!(followed.classes(), mode & 0o777);
        for (before, after) in list.entries().iter().zip(followed.entries()) {
            prop_assert_eq!(before.who, after.who);
            let is_kept = before.who.is_named()
                || before.who == Who::OwningGroup && list.find(Who::Mask).is_some();
            prop_assert!(!is_kept || before.may == after.may);
        }
    }

    /// Linux takes from each of owner, mask and others what who makes the file did not ask for.
    #[test]
    fn nothing_is_handed_down_that_was_not_asked_for(list in any_list(), mode in 0_u16..0o1000, umask in 0_u16..0o1000) {
        let (lists, bits) = AccessLists::of_new_file(Some(&list), FileKind::Regular, (mode, umask));
        prop_assert_eq!(bits, mode & list.classes());
        prop_assert_eq!(lists.access.is_none(), list.is_mode());
        prop_assert_eq!(lists.access.map_or(bits, |access| access.classes()), bits);
        prop_assert_eq!(lists.default, None);
        let (lists, _) = AccessLists::of_new_file(Some(&list), FileKind::Directory, (mode, umask));
        prop_assert_eq!(lists.default, Some(list));
    }
}

/// The states through which the kernel goes over a list.
fn is_kernels(entries: &[(u16, u16, u32)]) -> bool {
    let (mut state, mut needs_mask) = (1, false);
    for (tag, bits, id) in entries {
        if *bits > 7 || matches!(tag, 2 | 8) && *id == u32::MAX {
            return false;
        }
        state = match (tag, state) {
            (1, 1) | (2, 2) => 2,
            (4, 2) | (8, 8) => 8,
            (16, 8) => 32,
            (32, 32) => 0,
            (32, 8) if !needs_mask => 0,
            _ => return false,
        };
        needs_mask |= matches!(tag, 2 | 8);
    }
    entries.is_empty() || state == 0
}

#[test]
fn a_list_that_a_mode_can_say_is_kept_as_that_mode() {
    let mut lists = AccessLists {
        access: Some(usual()),
        default: None,
    };
    let value = list(&[(Who::Owner, 7), (Who::OwningGroup, 5), (Who::Others, 1)]);
    let root = Identity::new(0, 0, []);
    let set = (
        ListKind::Access,
        &value.unwrap().encode()[..],
        XattrMode::Set,
    );
    assert_eq!(lists.set((&file(0o4600), &root), set), Ok(0o4751));
    assert_eq!(lists, AccessLists::default());
}

#[test]
fn who_is_no_member_of_the_group_loses_its_set_group_id_bit() {
    let value = usual().encode();
    let set = |by: &Identity, mode| {
        let of = file(0o2600);
        AccessLists::default().set((&of, by), (ListKind::Access, &value, mode))
    };
    let (member, stranger) = (Identity::new(10, 20, []), Identity::new(10, 21, []));
    assert_eq!(set(&member, XattrMode::Set), Ok(0o2660));
    assert_eq!(set(&stranger, XattrMode::Set), Ok(0o660));
    let trusted = Identity::trusted(10, 21);
    assert_eq!(set(&trusted, XattrMode::Set), Ok(0o2660));
    assert_eq!(set(&trusted, XattrMode::SetByStranger), Ok(0o660));
}

#[test]
fn lists_are_refused_as_linux_does() {
    let directory = Attributes {
        kind: FileKind::Directory,
        ..file(0o700)
    };
    let link = Attributes {
        kind: FileKind::Symlink,
        ..file(0o777)
    };
    let (value, root) = (usual().encode(), Identity::new(0, 0, []));
    let set = |of: &Attributes, by: &Identity, kind, value: &[u8]| {
        AccessLists::default().set((of, by), (kind, value, XattrMode::Set))
    };
    let default = ListKind::Default;
    assert_eq!(set(&directory, &root, default, &value), Ok(0o700));
    let refused = set(&file(0o600), &root, default, &value);
    assert_eq!(refused, Err(FsError::PermissionDenied));
    let refused = set(&link, &root, ListKind::Access, &value);
    assert!(matches!(refused, Err(FsError::Unsupported(_))));
    let stranger = Identity::new(11, 20, []);
    let refused = set(&file(0o666), &stranger, ListKind::Access, &value);
    assert!(matches!(refused, Err(FsError::NotPermitted(_))));
    let refused = AccessList::parse(&[1, 0, 0, 0]);
    assert!(matches!(refused, Err(FsError::Unsupported(_))));
    let mut long = vec![(Who::Owner, 7)];
    long.extend((0..ENTRIES_MAX as u32).map(|id| (Who::User(id), 7)));
    long.extend([(Who::OwningGroup, 7), (Who::Mask, 7), (Who::Others, 7)]);
    assert_eq!(list(&long), Err(FsError::NoSpace));
}

#[test]
fn an_attribute_without_entries_takes_the_list_away_and_leaves_the_mode() {
    let mut lists = AccessLists {
        access: Some(usual()),
        default: None,
    };
    let root = Identity::new(0, 0, []);
    let set = (ListKind::Access, &2_u32.to_le_bytes()[..], XattrMode::Set);
    assert_eq!(lists.set((&file(0o660), &root), set), Ok(0o660));
    assert_eq!(lists, AccessLists::default());
    assert_eq!(
        lists.remove((&file(0o660), &root), ListKind::Access),
        Ok(())
    );
}

#[test]
fn root_executes_what_the_list_lets_somebody_execute() {
    let root = Identity::new(0, 0, []);
    let of = |list: AccessList| Attributes {
        access_list: Some(list.clone()),
        ..file(list.classes())
    };
    let refused = permission::check(&of(usual()), &root, AccessMask::EXECUTE);
    assert_eq!(refused, Err(FsError::PermissionDenied));
    let executable = of(usual().with_classes(0o670));
    assert_eq!(
        permission::check(&executable, &root, AccessMask::ALL),
        Ok(())
    );
}
