//! The system calls that the standard library does not have.
//!
//! Everything `unsafe` of this crate is here, each call behind a safe
//! function that checks what it can.

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString},
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
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
    let parts_count = libc::c_int::try_from(parts.len()).map_err(io::Error::other)?;
    // SAFETY: an `IoSlice` has the layout of an `iovec` and borrows valid memory.
    let count = unsafe { libc::writev(device.as_raw_fd(), parts.as_ptr().cast(), parts_count) };
    if count < 0 {
        return Err(io::Error::last_os_error());
    }
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
    let target = path_text(target)?;
    // SAFETY: all four are NUL-terminated strings that live through the call.
    let status = unsafe {
        libc::mount(
            arguments.source.as_ptr(),
            target.as_ptr(),
            arguments.kind.as_ptr(),
            arguments.flags,
            arguments.options.as_ptr().cast(),
        )
    };
    checked(status)
}

/// Unmounts what is at `target`, never following a symbolic link.
pub(crate) fn unmount(target: &Path, flags: libc::c_int) -> io::Result<()> {
    let target = path_text(target)?;
    // SAFETY: a NUL-terminated string that lives through the call.
    checked(unsafe { libc::umount2(target.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) })
}

/// Asks a file system for its sizes, only to see whether it answers.
pub(crate) fn file_system_statistics(path: &Path) -> io::Result<()> {
    let path = path_text(path)?;
    let mut statistics = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: a NUL-terminated string, and memory for the answer, live through the call.
    checked(unsafe { libc::statfs(path.as_ptr(), statistics.as_mut_ptr()) })
}

/// The effective user and group of this process.
pub(crate) fn effective_ids() -> (u32, u32) {
    // SAFETY: these calls have no arguments and cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Bytes in a page of memory.
pub(crate) fn page_size() -> usize {
    // SAFETY: a plain query.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Receives one descriptor over a socket, as `fusermount3` sends it.
pub(crate) fn receive_descriptor(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let mut byte = 0_u8;
    let mut data = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let mut control = [0_u64; 8];
    // SAFETY: an all-zero header is valid, and the pointers put into it outlive the call.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = std::mem::size_of_val(&control) as _;
    // SAFETY: `message` points at memory that is valid for writes of the sizes given.
    let count =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if count < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(descriptor_in(&message))
}

fn descriptor_in(message: &libc::msghdr) -> Option<OwnedFd> {
    // SAFETY: the kernel has filled `message`, whose control buffer is alive and aligned; the
    // descriptor in it belongs to nobody else.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message).as_ref()?;
        let ours = header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS;
        let descriptor = libc::CMSG_DATA(header).cast::<RawFd>();
        ours.then(|| OwnedFd::from_raw_fd(descriptor.read_unaligned()))
    }
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

fn path_text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
}

fn checked(status: libc::c_int) -> io::Result<()> {
    if status < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
