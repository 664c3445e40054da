//! Files that must open and take what is written to them: a failure ends the test.
//!
//! Tests that expect one call [`crate::system`], whose answers these are.

use std::{os::fd::OwnedFd, path::Path};

use crate::system;

/// Flags of a file to read and write, whether or not it exists.
pub const ANY: i32 = libc::O_RDWR | libc::O_CREAT;

/// `open`, with the flags as they are.
#[track_caller]
pub fn open(path: &Path, flags: i32) -> OwnedFd {
    system::open(path, flags).expect("it opens")
}

/// One `pwrite` that takes all of `data`.
#[track_caller]
pub fn write(file: &OwnedFd, offset: u64, data: &[u8]) {
    assert_eq!(system::write_at(file, data, offset), Ok(data.len()));
}
