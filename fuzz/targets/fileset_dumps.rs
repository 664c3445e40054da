//! A dump of a fileset's metadata as anybody may write it: it is read or refused, in bounded memory.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_fileset::dumps::try_to_read_dump;

fuzz_target!(|bytes: &[u8]| {
    try_to_read_dump(bytes);
});
