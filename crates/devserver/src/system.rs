//! The system calls that std does not wrap, each behind a safe function.

use std::{
    ffi::CStr,
    fs::File,
    io,
    net::{TcpListener, TcpStream},
    ops::Range,
    os::fd::{AsRawFd, FromRawFd},
    time::Duration,
};

/// The most that one call may move; keeps lengths inside every kernel limit.
const CALL_MAX: u64 = 1 << 30;
const HUGE_PAGE: usize = 2 << 20;
/// Since Linux 6.1; older kernels say that they do not know it.
const MADV_COLLAPSE: i32 = 25;

/// A file that lives in memory only.
pub(crate) fn memory_file(name: &CStr) -> io::Result<File> {
    // SAFETY: the name is a valid C string, and the result is checked before use.
    let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(unsafe { File::from_raw_fd(descriptor) })
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
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: asks for new address space wherever there is some.
        let reserved =
            unsafe { libc::mmap(anywhere, reserved_length, libc::PROT_NONE, flags, -1, 0) };
        if reserved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let offset = reserved.align_offset(HUGE_PAGE);
        let start = reserved.cast::<u8>().wrapping_add(offset);
        let mapping = Self {
            reserved: reserved.cast(),
            reserved_length,
            start,
            length,
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: replaces a part of the reservation above, which nobody else knows of.
        let mapped =
            unsafe { libc::mmap(start.cast(), length, protection, flags, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
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
        self.advise(offset, length, libc::MADV_POPULATE_WRITE)
    }

    /// Makes a huge page of memory of which some is present.
    pub(crate) fn collapse(&self, offset: usize, length: usize) -> io::Result<()> {
        self.advise(offset, length, MADV_COLLAPSE)
    }

    fn advise(&self, offset: usize, length: usize, advice: i32) -> io::Result<()> {
        let start = self.at(offset, length);
        // SAFETY: the range lies in the mapping, and neither advice changes what is in it.
        check(unsafe { libc::madvise(start.cast(), length, advice) } as isize).map(drop)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the reservation with the mapping in it is ours, and slices of it are borrowed
        // from what owns this.
        unsafe { libc::munmap(self.reserved.cast(), self.reserved_length) };
    }
}

/// Gives the memory behind `range` of a memory file back to the system.
pub(crate) fn punch_hole(file: &File, range: Range<u64>) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let (offset, length) = (range.start, range.end - range.start);
    // SAFETY: plain integers and a descriptor that `file` keeps open.
    let result = unsafe {
        libc::fallocate(
            file.as_raw_fd(),
            mode,
            offset.cast_signed(),
            length.cast_signed(),
        )
    };
    check(result as isize).map(drop)
}

/// Sends bytes and says that more follow, so that they share a packet with what follows.
pub(crate) fn send_more(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let flags = libc::MSG_MORE | libc::MSG_NOSIGNAL;
        // SAFETY: pointer and length describe `bytes`.
        let sent = check_or_retry(|| unsafe {
            libc::send(
                stream.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                flags,
            )
        })?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// Sends part of a file without copying it through this process; returns how much went.
pub(crate) fn send_file(stream: &TcpStream, file: &File, range: Range<u64>) -> io::Result<u64> {
    let mut offset: libc::off_t = range.start.cast_signed();
    let length = (range.end - range.start).min(CALL_MAX) as usize;
    // SAFETY: `offset` lives across the call, the descriptors are kept open by their owners.
    let sent = check_or_retry(|| unsafe {
        libc::sendfile(
            stream.as_raw_fd(),
            file.as_raw_fd(),
            &raw mut offset,
            length,
        )
    })?;
    Ok(sent as u64)
}

/// Makes the next close send a reset instead of a proper end.
pub(crate) fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the pointer and the length describe `linger`.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    check(result as isize).map(drop)
}

/// Fixes how much may wait to be sent, in bytes. The system may give less.
pub(crate) fn set_send_buffer(stream: &TcpStream, bytes: libc::c_int) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `bytes`.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    check(result as isize).map(drop)
}

/// Lets `length` connections wait to be accepted; std fixes it at 128.
pub(crate) fn set_backlog(listener: &TcpListener, length: i32) -> io::Result<()> {
    // SAFETY: a descriptor that `listener` keeps open; listening again only changes the backlog.
    check(unsafe { libc::listen(listener.as_raw_fd(), length) } as isize).map(drop)
}

/// Wakes a thread that is blocked in `accept`.
pub(crate) fn stop_listening(listener: &TcpListener) -> io::Result<()> {
    // SAFETY: a descriptor that `listener` keeps open.
    check(unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) } as isize).map(drop)
}

/// Processor time that this process has used.
pub(crate) fn process_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place to write to.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    if result != 0 {
        return Duration::ZERO;
    }
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn check_or_retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match check(call()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
