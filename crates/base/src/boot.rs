//! Which start of the machine this is.

use std::fs;

/// The number that the kernel made up when the machine was started; empty where it tells none. Files that were written
/// in this start of the machine are as they were written, synced or not.
pub fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_owned()
}
