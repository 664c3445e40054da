//! Archives as somebody may write them: whatever the bytes, they are members with maps that fit, or damage, and
//! the reader comes to an end.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_tools::archive::{Damage, Reader};

fuzz_target!(|bytes: &[u8]| {
    let mut reader = Reader::new(bytes);
    // Each answer takes a block at least, or is the last.
    for _ in 0..=bytes.len() / 512 + 1 {
        match reader.next_member() {
            Ok(None) | Err(Damage::Io(_) | Damage::Cut(_) | Damage::NoEnd(_)) => return,
            Ok(Some(member)) => {
                let mut end = 0;
                for (offset, length) in member.ranges() {
                    assert!(offset >= end && length > 0);
                    end = offset + length;
                }
                assert!(end <= member.size && member.stored() <= member.size);
            }
            Err(_) => {}
        }
    }
    unreachable!("the reader does not come to an end");
});
