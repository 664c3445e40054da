//! The label of a fileset as anybody may write it: whatever it says of its key, it says so to who has the key, and to nobody else.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_fileset::try_to_read_label;

fuzz_target!(|bytes: &[u8]| {
    try_to_read_label(bytes);
});
