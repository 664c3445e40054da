//! The system calls that std does not wrap, each behind a safe function.

use std::{
    ffi::CStr,
    fs::File,
    io,
    net::{TcpListener, TcpStream},
    ops::Range,
    time::Duration,
};

use rustix::{
    fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create, sendfile},
    io::retry_on_intr,
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap},
    net::{SendFlags, Shutdown, listen, send, shutdown, sockopt},
    time::{ClockId, clock_gettime},
};

/// The most that one call may move; keeps lengths inside every kernel limit.
const CALL_MAX: u64 = 1 << 30;
const HUGE_PAGE: usize = 2 << 20;
/// Since Linux 6.1; older kernels say that they do not know it, and `rustix` does not.
const MADV_COLLAPSE: i32 = 25;

/// A file that lives in memory only.
pub(crate) fn memory_file(name: &CStr) -> io::Result<File> {
    Ok(File::from(memfd_create(name, MemfdFlags::CLOEXEC)?))
}

/// A shared mapping of a file, aligned so that the file's huge pages are those of the mapping.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Of the reservation that the mapping lies in.
    reserved: *mut u8,
    reserved_length: usize,
    start: *mut u8,
    length: usize,
}

// SAFETY: a mapping is plain memory; who may touch which part is up to those that get slices.
unsafe impl Send for Mapping {}
// SAFETY: as above; its own methods only ask the kernel for things.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `length` bytes, a multiple of the huge page's size.
    pub(crate) fn new(file: &File, length: usize) -> io::Result<Self> {
        let reserved_length = length + HUGE_PAGE;
        let anywhere = std::ptr::null_mut();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: asks for new address space wherever there is some.
        let reserved =
            unsafe { mmap_anonymous(anywhere, reserved_length, ProtFlags::empty(), flags) }?;
        let offset = reserved.align_offset(HUGE_PAGE);
        let start = reserved.cast::<u8>().wrapping_add(offset);
        let mapping = Self {
            reserved: reserved.cast(),
            reserved_length,
            start,
            length,
        };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: replaces a part of the reservation above, which nobody else knows of.
        unsafe { mmap(start.cast(), length, protection, flags, file, 0) }?;
        Ok(mapping)
    }

    /// The address of a part of it.
    pub(crate) fn at(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(
            offset <= self.length && length <= self.length - offset,
            "inside the mapping"
        );
        self.start.wrapping_add(offset)
    }

    /// Makes memory present, so that touching it cannot fail.
    pub(crate) fn populate(&self, offset: usize, length: usize) -> io::Result<()> {
        let start = self.at(offset, length);
        // SAFETY: the range lies in the mapping, and the advice changes nothing that is in it.
        unsafe { madvise(start.cast(), length, Advice::LinuxPopulateWrite) }?;
        Ok(())
    }

    /// Makes a huge page of memory of which some is present.
    pub(crate) fn collapse(&self, offset: usize, length: usize) -> io::Result<()> {
        let start = self.at(offset, length);
        // SAFETY: the range lies in the mapping, and the advice changes nothing that is in it.
        match unsafe { libc::madvise(start.cast(), length, MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the reservation with the mapping in it is ours, and slices of it are borrowed
        // from what owns this.
        let _ = unsafe { munmap(self.reserved.cast(), self.reserved_length) };
    }
}

/// Gives the memory behind `range` of a memory file back to the system.
pub(crate) fn punch_hole(file: &File, range: Range<u64>) -> io::Result<()> {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, mode, range.start, range.end - range.start)?;
    Ok(())
}

/// Sends bytes and says that more follow, so that they share a packet with what follows.
pub(crate) fn send_more(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
        let sent = retry_on_intr(|| send(stream, bytes, flags))?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// Sends part of a file without copying it through this process; returns how much went.
pub(crate) fn send_file(stream: &TcpStream, file: &File, range: Range<u64>) -> io::Result<u64> {
    let mut offset = range.start;
    let length = (range.end - range.start).min(CALL_MAX) as usize;
    let sent = retry_on_intr(|| sendfile(stream, file, Some(&mut offset), length))?;
    Ok(sent as u64)
}

/// Makes the next close send a reset instead of a proper end.
pub(crate) fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(stream, Some(Duration::ZERO))?)
}

/// Fixes how much may wait to be sent, in bytes. The system may give less.
pub(crate) fn set_send_buffer(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(stream, bytes)?)
}

/// Lets `length` connections wait to be accepted; std fixes it at 128.
pub(crate) fn set_backlog(listener: &TcpListener, length: i32) -> io::Result<()> {
    Ok(listen(listener, length)?)
}

/// Wakes a thread that is blocked in `accept`.
pub(crate) fn stop_listening(listener: &TcpListener) -> io::Result<()> {
    Ok(shutdown(listener, Shutdown::Both)?)
}

/// Processor time that this process has used.
pub(crate) fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.try_into().unwrap_or_default()
}
