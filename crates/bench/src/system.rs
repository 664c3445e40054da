//! System calls that std does not wrap.

use std::{
    ffi::CString,
    fs::File,
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, FromRawFd, IntoRawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The exit code of a program that a signal told to end.
const INTERRUPTED_CODE: i32 = 130;

/// Signals that come sooner after the first one are the same wish to stop: `timeout -s INT` sends one to
/// the program and one to its group, and a terminal's reaches the shell as well as us.
const SAME_WISH_MS: u64 = 1000;

/// When the user first asked us to stop, in milliseconds of the monotonic clock; 0 if never.
static INTERRUPTED_AT: AtomicU64 = AtomicU64::new(0);

/// Makes Ctrl-C, a hang-up and SIGTERM set a flag, see [`interrupted`]. A second one that comes later than
/// [`SAME_WISH_MS`] ends the process at once; the watchdog then cleans up.
pub(crate) fn catch_interrupts() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler = note_interrupt as extern "C" fn(libc::c_int);
        // SAFETY: the handler only touches an atomic, reads the clock and calls `_exit`, all of which
        // are allowed in a signal handler.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

extern "C" fn note_interrupt(_: libc::c_int) {
    let now = monotonic_ms();
    let first = INTERRUPTED_AT.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_err_and(|first| now.saturating_sub(first) > SAME_WISH_MS) {
        // SAFETY: ends the process without running anything of it; allowed in a signal handler.
        unsafe { libc::_exit(INTERRUPTED_CODE) };
    }
}

/// Milliseconds of the monotonic clock, never 0. Allowed in a signal handler, which ours of `base` is not.
fn monotonic_ms() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills the structure that is passed, which lives until the call returns.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000).max(1)
}

/// Makes this process live on when the terminal or the user ends the others.
pub(crate) fn ignore_interrupts() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
        // SAFETY: ignoring a signal touches no memory of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Whether the user asked us to stop.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED_AT.load(Ordering::Relaxed) > 0
}

/// Waits.
pub(crate) fn pause(duration: Duration) {
    let milliseconds = i32::try_from(duration.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: no entries are passed, so the call only waits.
    unsafe { libc::poll(std::ptr::null_mut(), 0, milliseconds) };
}

/// A descriptor that becomes readable when the process ends.
pub(crate) fn process_descriptor(pid: u32) -> io::Result<File> {
    // SAFETY: the call takes plain numbers and returns a new descriptor or -1.
    let number = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let number = i32::try_from(number).unwrap_or(-1);
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { File::from_raw_fd(number) })
}

/// Waits until `source` is readable, at most for `limit`. An interruption ends the wait too.
pub(crate) fn wait_readable(source: &impl AsRawFd, limit: Duration) {
    let mut poll = libc::pollfd {
        fd: source.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let milliseconds = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one valid entry is passed, for as long as the call lasts.
    unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
}

/// Asks a process to end.
pub(crate) fn terminate(pid: u32) {
    signal(pid, libc::SIGTERM);
}

/// Ends a process.
pub(crate) fn kill(pid: u32) {
    signal(pid, libc::SIGKILL);
}

fn signal(pid: u32, signal: libc::c_int) {
    let Ok(pid) = libc::pid_t::try_from(pid) else {
        return;
    };
    // 0 and 1 are never meant: our own group, and init.
    if pid > 1 {
        // SAFETY: a signal to another process touches no memory of ours.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Processor time of a running process with all its threads, those that ended too; `None` when
/// there is no such process.
pub(crate) fn processor_time(pid: u32) -> Option<Duration> {
    let mut clock = 0;
    let pid = libc::pid_t::try_from(pid).ok()?;
    // SAFETY: `clock` is a valid place for the result.
    if unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } != 0 {
        return None;
    }
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` is a valid place for the result.
    if unsafe { libc::clock_gettime(clock, time.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so it filled `time`.
    let time = unsafe { time.assume_init() };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    Some(Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?))
}

/// Processor time of this process.
pub(crate) fn own_time() -> Duration {
    usage(libc::RUSAGE_SELF)
}

/// Processor time of the children of this process that ended and were waited for, and of theirs.
pub(crate) fn children_time() -> Duration {
    usage(libc::RUSAGE_CHILDREN)
}

fn usage(who: libc::c_int) -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` is a valid place for the result.
    if unsafe { libc::getrusage(who, usage.as_mut_ptr()) } != 0 {
        return Duration::ZERO;
    }
    // SAFETY: the call succeeded, so it filled `usage`.
    let usage = unsafe { usage.assume_init() };
    duration(usage.ru_utime) + duration(usage.ru_stime)
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

/// Ticks per second in which /proc counts processor time.
pub(crate) fn ticks_per_second() -> f64 {
    // SAFETY: the call takes a number and returns one.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

/// Takes a mount out of the file tree; with `lazy` even while files in it are open.
pub(crate) fn unmount(mountpoint: &Path, lazy: bool) -> io::Result<()> {
    let path = CString::new(mountpoint.as_os_str().as_bytes())?;
    let flags = libc::UMOUNT_NOFOLLOW | if lazy { libc::MNT_DETACH } else { 0 };
    // SAFETY: the path is a string that ends with NUL and lives as long as the call.
    if unsafe { libc::umount2(path.as_ptr(), flags) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Whether we may drop the page cache and unmount by ourselves.
pub(crate) fn is_root() -> bool {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Closes a file and says whether that worked, which `drop` does not.
pub(crate) fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor was taken out of its owner, so it is closed exactly once.
    if unsafe { libc::close(file.into_raw_fd()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
