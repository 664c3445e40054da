//! Objects of a fileset's log and of its checkpoints as anybody may write them: whatever the bytes, they are what was
//! written, or damaged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_fileset::engine::try_to_read;

fuzz_target!(|bytes: &[u8]| {
    try_to_read(bytes);
});
