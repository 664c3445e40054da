//! What the operating system knows about this process, and the few calls that std does not have.

use std::{
    fs,
    io::{self, ErrorKind},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::retry_on_intr,
    process::{Pid, Signal, WaitOptions, WaitStatus, waitpid},
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};

/// What `fork` returned to this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forked {
    Parent(Pid),
    Child,
}

/// Splits the process in two. Fails where other threads run: the child would have none of them, but
/// the locks that they held.
pub(crate) fn fork() -> io::Result<Forked> {
    if !is_alone() {
        return Err(io::Error::other("other threads run already"));
    }
    // SAFETY: there is only this thread, so the child's memory is in a consistent state.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // The child gets 0, which is no process.
        pid => Ok(Pid::from_raw(pid).map_or(Forked::Child, Forked::Parent)),
    }
}

/// Whether this is the only thread. The kernel shows one that was joined for a moment longer.
fn is_alone() -> bool {
    const LOOKS: usize = 1000;
    (0..LOOKS).any(|_| {
        std::thread::yield_now();
        thread_count() == 1
    })
}

/// Ends this process without a last word: what it shares with the one that it was split from stays.
pub(crate) fn end_at_once(code: u8) -> ! {
    // SAFETY: the call ends the process and touches no memory.
    unsafe { libc::_exit(code.into()) }
}

/// Makes the standard streams lead nowhere: lets go of the terminal, or of the pipe that a caller reads until its
/// end.
pub(crate) fn close_standard_streams() -> io::Result<()> {
    let null = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(dup2_stderr(&null)?)
}

/// Closes everything but `socket`; the standard streams lead nowhere from now on. For a process that was split
/// from another one, whose files must not stay open because of it, and that owns nothing else.
pub(crate) fn keep_only(socket: &UnixStream) -> io::Result<()> {
    close_standard_streams()?;
    let open = fs::read_dir("/proc/self/fd")?;
    let numbers: Vec<RawFd> = open
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers {
        if number > libc::STDERR_FILENO && number != socket.as_raw_fd() {
            // SAFETY: the caller never uses it again. That of the listing is closed already.
            unsafe { libc::close(number) };
        }
    }
    Ok(())
}

/// Blocks every signal that can be blocked.
pub(crate) fn block_signals() {
    let mut all = MaybeUninit::uninit();
    // SAFETY: `all` is a valid place for a set, which the first call fills.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}

/// Waits until `signal`, which must be blocked, was sent, and returns the number of the process that sent it.
pub(crate) fn wait_for_signal(signal: Signal) -> io::Result<i32> {
    let mut awaited = MaybeUninit::uninit();
    let mut received = MaybeUninit::<libc::siginfo_t>::uninit();
    // SAFETY: `awaited` is a valid place for a set, which the first call fills.
    unsafe {
        libc::sigemptyset(awaited.as_mut_ptr());
        libc::sigaddset(awaited.as_mut_ptr(), signal.as_raw());
    }
    loop {
        // SAFETY: the set was filled, and `received` is a valid place for the result.
        let number = unsafe { libc::sigwaitinfo(awaited.as_ptr(), received.as_mut_ptr()) };
        let error = io::Error::last_os_error();
        if number > 0 {
            // SAFETY: the kernel filled it, and a signal that a process caused has a sender.
            return Ok(unsafe { received.assume_init_ref().si_pid() });
        }
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Waits until a child of ours ends, and says how; none if there is no such child.
pub(crate) fn ending(child: Pid) -> Option<WaitStatus> {
    let ended = retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()));
    ended.ok().flatten().map(|(_, status)| status)
}

/// How a child ended, in words; none if there is no such child.
pub(crate) fn ending_of(child: Pid) -> Option<String> {
    let status = ending(child)?;
    Some(match status.terminating_signal() {
        Some(signal) => format!("was killed by signal {signal}"),
        None => format!("ended with status {}", status.exit_status().unwrap_or(0)),
    })
}

/// Waits until `source` can be read or was closed, at most for `limit`.
pub(crate) fn readable_within(source: &impl AsFd, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).ok();
    let mut sources = [PollFd::new(source, PollFlags::IN)];
    retry_on_intr(|| poll(&mut sources, limit.as_ref())).is_ok_and(|ready| ready > 0)
}

/// Whether the reading end of the pipe that `writer` is the other end of was closed.
pub(crate) fn is_abandoned(writer: &impl AsFd) -> bool {
    let mut ends = [PollFd::new(writer, PollFlags::empty())];
    let asked = poll(&mut ends, Some(&Timespec::default()));
    asked.is_ok() && ends[0].revents().contains(PollFlags::ERR)
}

/// Columns of the terminal on standard output, if it is one.
#[cfg(feature = "bench")]
pub(crate) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Threads of this process.
pub(crate) fn thread_count() -> usize {
    fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// Bytes of memory that this process occupies.
pub(crate) fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    kibibytes_after(&status, "VmRSS:").unwrap_or(0)
}

/// Bytes of memory in this machine.
pub(crate) fn machine_memory() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    kibibytes_after(&meminfo, "MemTotal:")
}

/// Reads `Name:   123 kB` out of a file of /proc.
fn kibibytes_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number = line.split_whitespace().next()?;
    Some(number.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_not_split() {
        let (end, until) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || until.recv());
        assert!(fork().is_err());
        drop(end);
        let _ = other.join();
    }

    #[test]
    fn reads_what_proc_tells() {
        assert!(resident_bytes() > 100_000);
        assert!(machine_memory().expect("on Linux") > resident_bytes());
        assert!(thread_count() >= 1);
    }
}
