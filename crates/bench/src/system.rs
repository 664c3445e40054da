//! What is asked of the kernel beyond std: signals, waiting, processor time, unmounting.
//!
//! `rustix` has most of it. Unsafe is what it has not: handlers of signals, the processor clocks of other processes and
//! of children that ended, and a `close` that says whether it worked.

use std::{
    fs::File,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, IntoRawFd, OwnedFd},
    path::Path,
    process::Child,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use penstock_base::clock;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    mount::{UnmountFlags, unmount},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
    time::{ClockId, clock_gettime},
};

/// The exit code of a program that a signal told to end.
const INTERRUPTED_CODE: i32 = 130;
/// Signals that come sooner after the first one are the same wish to stop: `timeout -s INT` sends one to
/// the program and one to its group, and a terminal's reaches the shell as well as us.
const SAME_WISH_MS: u64 = 1000;
/// Between looks at something that takes a moment.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// When the user first asked us to stop, in milliseconds of the monotonic clock; 0 if never.
static INTERRUPTED_AT: AtomicU64 = AtomicU64::new(0);

/// Makes Ctrl-C, a hang-up and SIGTERM set a flag, see [`interrupted`]. A second one that comes later than
/// [`SAME_WISH_MS`] ends the process at once; the watchdog then cleans up.
pub(crate) fn catch_interrupts() {
    // What the clock needs is made ready before a handler reads it.
    monotonic_ms();
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
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000).max(1)
}

/// Makes this process live on when the terminal or the user ends the others.
pub(crate) fn ignore_interrupts() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
        // SAFETY: ignoring a signal touches no memory of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

pub(crate) fn interrupted() -> bool {
    INTERRUPTED_AT.load(Ordering::Relaxed) > 0
}

pub(crate) fn pause(duration: Duration) {
    // An interruption ends the wait.
    let _ = poll(&mut [], Timespec::try_from(duration).ok().as_ref());
}

/// Asks again and again until there is an answer, for as long as `limit`.
pub(crate) fn until<T>(
    limit: Duration,
    between: Duration,
    mut ask: impl FnMut() -> Option<T>,
) -> Option<T> {
    let deadline = clock::now() + limit;
    loop {
        let answer = ask();
        if answer.is_some() || clock::now() > deadline {
            return answer;
        }
        pause(between);
    }
}

/// How `child` ends, if it does within `limit`; an error says that nobody knows.
pub(crate) fn ends_within(
    child: &mut Child,
    limit: Duration,
) -> Option<io::Result<std::process::ExitStatus>> {
    until(limit, LOOK, || child.try_wait().transpose())
}

/// A descriptor that becomes readable when the process ends.
pub(crate) fn process_descriptor(pid: u32) -> io::Result<OwnedFd> {
    let pid = process_of(pid).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

fn process_of(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// Waits until `source` is readable, at most for `limit`. An interruption ends the wait too.
pub(crate) fn wait_readable(source: &impl AsFd, limit: Duration) {
    let mut sources = [PollFd::new(source, PollFlags::IN)];
    let _ = poll(&mut sources, Timespec::try_from(limit).ok().as_ref());
}

pub(crate) fn terminate(pid: u32) {
    signal(pid, Signal::TERM);
}

pub(crate) fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

fn signal(pid: u32, signal: Signal) {
    // Init is never meant.
    if let Some(process) = process_of(pid).filter(|process| !process.is_init()) {
        // It may have ended in this moment.
        let _ = kill_process(process, signal);
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

pub(crate) fn own_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime)
        .try_into()
        .unwrap_or_default()
}

/// Processor time of the children of this process that ended and were waited for, and of theirs.
pub(crate) fn children_time() -> Duration {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` is a valid place for the result.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) } != 0 {
        return Duration::ZERO;
    }
    // SAFETY: the call succeeded, so it filled `usage`.
    let usage = unsafe { usage.assume_init() };
    let duration = |time: libc::timeval| {
        let [seconds, micros] = [time.tv_sec, time.tv_usec].map(|part| part.max(0) as u64);
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    };
    duration(usage.ru_utime) + duration(usage.ru_stime)
}

/// Takes a mount out of the file tree, even while files in it are open.
pub(crate) fn detach(mountpoint: &Path) -> io::Result<()> {
    Ok(unmount(
        mountpoint,
        UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    )?)
}

/// Closes a file and says whether that worked, which `drop` does not.
pub(crate) fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor was taken out of its owner, so it is closed exactly once.
    if unsafe { libc::close(file.into_raw_fd()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
