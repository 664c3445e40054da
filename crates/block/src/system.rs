//! The ioctls of loop devices (linux/loop.h), each behind a safe function.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;

const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// Bytes in the name that a loop device carries.
const LO_NAME_SIZE: usize = 64;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; LO_NAME_SIZE],
    crypt_name: [u8; LO_NAME_SIZE],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

impl LoopInfo {
    const EMPTY: Self = Self {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: 0,
        file_name: [0; LO_NAME_SIZE],
        crypt_name: [0; LO_NAME_SIZE],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    descriptor: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// What a loop device is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoopSource<'a> {
    /// Opened for reading.
    pub(crate) file: BorrowedFd<'a>,
    /// Bytes in a logical block.
    pub(crate) block_size: u32,
    /// Reads go around the page cache.
    pub(crate) direct: bool,
    /// The name that it carries; what does not fit is cut off.
    pub(crate) name: &'a str,
}

/// The number of a loop device that was free a moment ago.
pub(crate) fn free_loop(control: &File) -> io::Result<u32> {
    // SAFETY: the request takes no argument.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// Makes `device` read from `source`, read-only, until its last user closes it.
pub(crate) fn configure_loop(device: &File, source: &LoopSource<'_>) -> io::Result<()> {
    let mut info = LoopInfo::EMPTY;
    info.flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR;
    if source.direct {
        info.flags |= LO_FLAGS_DIRECT_IO;
    }
    let name = source.name.as_bytes();
    let length = name.len().min(LO_NAME_SIZE - 1);
    info.file_name[..length].copy_from_slice(&name[..length]);
    let config = LoopConfig {
        descriptor: source.file.as_raw_fd().cast_unsigned(),
        block_size: source.block_size,
        info,
        reserved: [0; 8],
    };
    // SAFETY: the argument is a complete `struct loop_config` that lives through the call, which
    // only reads it.
    let status = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    checked(status)
}

/// The name that a loop device carries; none when it is free.
pub(crate) fn loop_name(device: &File) -> io::Result<Option<String>> {
    let mut info = LoopInfo::EMPTY;
    // SAFETY: the argument is a complete `struct loop_info64`, which the call fills.
    let status = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) };
    match checked(status) {
        Ok(()) => {
            let name = info.file_name.split(|byte| *byte == 0).next();
            let name = String::from_utf8_lossy(name.unwrap_or_default());
            Ok(Some(name.into_owned()))
        }
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

fn checked(status: libc::c_int) -> io::Result<()> {
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_large_as_the_kernels() {
        assert_eq!(size_of::<LoopInfo>(), 232);
        assert_eq!(size_of::<LoopConfig>(), 304);
    }
}
