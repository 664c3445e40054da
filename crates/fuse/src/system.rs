//! The system calls that the standard library does not have.
//!
//! `rustix` has most of them. Everything `unsafe` of this crate is here: a read into memory that nothing has
//! filled yet, and the ioctls of FUSE.

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString},
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

pub(crate) use rustix::param::page_size;
use rustix::{
    mount::{MountFlags, MountPropagationFlags, UnmountFlags},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
    process::{getegid, geteuid},
};

/// Slices in one `writev` (IOV_MAX of limits.h).
pub(crate) const SLICES_MAX: usize = 1024;

/// Reads into `head` first and what does not fit into `rest`. Returns the bytes read.
pub(crate) fn read_split(
    device: BorrowedFd<'_>,
    head: &mut [u8],
    rest: &mut [MaybeUninit<u8>],
) -> io::Result<usize> {
    let slices = [
        libc::iovec {
            iov_base: head.as_mut_ptr().cast(),
            iov_len: head.len(),
        },
        libc::iovec {
            iov_base: rest.as_mut_ptr().cast(),
            iov_len: rest.len(),
        },
    ];
    // SAFETY: both slices are exclusive and valid for writes of their length.
    let count = unsafe { libc::readv(device.as_raw_fd(), slices.as_ptr(), 2) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// The first `count` bytes of `memory`, which the kernel has just written.
///
/// # Safety
///
/// They must be initialised.
pub(crate) unsafe fn initialised(memory: &[MaybeUninit<u8>], count: usize) -> &[u8] {
    let memory = &memory[..count];
    // SAFETY: the caller vouches for the bytes; the layout is the same.
    unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), count) }
}

/// Writes all slices as one message. A message is taken whole or not at all.
pub(crate) fn write_message(device: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> io::Result<()> {
    rustix::io::writev(device, parts)?;
    Ok(())
}

/// Bits of [`mount`]'s `flags`.
pub(crate) use libc::{MS_NOATIME, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY};

/// What `mount(2)` takes beside the place.
#[derive(Debug)]
pub(crate) struct MountArguments {
    /// What the mount table shows as the device.
    pub(crate) source: CString,
    /// `fuse.` and the subtype.
    pub(crate) kind: &'static CStr,
    pub(crate) flags: libc::c_ulong,
    pub(crate) options: CString,
}

/// Mounts a file system at `target`.
pub(crate) fn mount(target: &Path, arguments: &MountArguments) -> io::Result<()> {
    let flags = u32::try_from(arguments.flags).map_err(io::Error::other)?;
    rustix::mount::mount(
        arguments.source.as_c_str(),
        target,
        arguments.kind,
        MountFlags::from_bits_retain(flags),
        arguments.options.as_c_str(),
    )?;
    Ok(())
}

/// Shows the mount at `source`, without what is mounted below it, at `target` as well.
pub(crate) fn bind(source: &Path, target: &Path) -> io::Result<()> {
    Ok(rustix::mount::mount_bind(source, target)?)
}

/// Sets the `flags` of a bind mount, and keeps to it what is mounted below it.
pub(crate) fn limit_bound(target: &Path, flags: libc::c_ulong) -> io::Result<()> {
    let flags = u32::try_from(flags).map_err(io::Error::other)?;
    let flags = MountFlags::BIND | MountFlags::from_bits_retain(flags);
    rustix::mount::mount_remount(target, flags, c"")?;
    let alone = MountPropagationFlags::PRIVATE;
    Ok(rustix::mount::mount_change(target, alone)?)
}

/// Unmounts what is at `target`, never following a symbolic link.
pub(crate) fn unmount(target: &Path, flags: libc::c_int) -> io::Result<()> {
    let flags = UnmountFlags::from_bits_retain(flags.cast_unsigned());
    rustix::mount::unmount(target, flags | UnmountFlags::NOFOLLOW)?;
    Ok(())
}

/// Asks a file system for its sizes, only to see whether it answers.
pub(crate) fn file_system_statistics(path: &Path) -> io::Result<()> {
    rustix::fs::statfs(path)?;
    Ok(())
}

/// The effective user and group of this process.
pub(crate) fn effective_ids() -> (u32, u32) {
    (geteuid().as_raw(), getegid().as_raw())
}

/// Receives one descriptor over a socket, as `fusermount3` sends it.
pub(crate) fn receive_descriptor(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut data = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.flatten().next())
}

/// `FUSE_DEV_IOC_BACKING_OPEN` and `_CLOSE` of linux/fuse.h.
const BACKING_OPEN: libc::Ioctl = 0x4010_e501;
const BACKING_CLOSE: libc::Ioctl = 0x4004_e502;

/// Lends `file` to the kernel for reads of its own. Returns the number by which it is known.
pub(crate) fn lend_file(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<u32> {
    // The layout of `fuse_backing_map`: descriptor, flags, padding.
    let request: [i32; 4] = [file.as_raw_fd(), 0, 0, 0];
    // SAFETY: the kernel reads sixteen bytes.
    let number = unsafe { libc::ioctl(device.as_raw_fd(), BACKING_OPEN, request.as_ptr()) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// Ends what [`lend_file`] began. Handles that are open keep the file.
pub(crate) fn take_file_back(device: BorrowedFd<'_>, number: u32) -> io::Result<()> {
    // SAFETY: the kernel reads four bytes.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), BACKING_CLOSE, &raw const number) })
}

/// The command of [`save`]: `_IO(0xf7, 0x50)` of linux/ioctl.h, which no driver has.
pub(crate) const SAVE: u32 = 0xf750;
/// `FUSE_SUPER_MAGIC` of linux/magic.h.
const FUSE_MAGIC: u64 = 0x6573_5546;

/// Waits until the volume behind a mount keeps what was written to `file`, or is in that directory and below it, where
/// it keeps it in the end: fsync may promise less. Call it after fsync. Does nothing for what is not on a mount that
/// knows of this.
pub fn save(file: BorrowedFd<'_>) -> io::Result<()> {
    let kind = rustix::fs::fstatfs(file)?.f_type;
    if u64::try_from(kind) != Ok(FUSE_MAGIC) {
        return Ok(());
    }
    // SAFETY: the command has no argument.
    let saved = checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::Ioctl::from(SAVE)) });
    match saved {
        Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => Ok(()),
        saved => saved,
    }
}

fn checked(status: libc::c_int) -> io::Result<()> {
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
