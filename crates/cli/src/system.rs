//! What the operating system knows about this process, and the few calls that std does not have.

use std::{
    fs,
    io::ErrorKind,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use rustix::process::Signal;

/// The user who runs this, by effective id.
pub(crate) fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The group of the user who runs this, by effective id.
pub(crate) fn group_id() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Leaves the terminal and the session of whoever started us.
pub(crate) fn leave_session() {
    // SAFETY: the call has no arguments; it fails only for a group leader, which a forked child
    // is not.
    unsafe { libc::setsid() };
}

/// What `fork` returned to this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forked {
    Parent(libc::pid_t),
    Child,
}

/// Splits the process in two. Fails where other threads run: the child would have none of them, but
/// the locks that they held.
pub(crate) fn fork() -> std::io::Result<Forked> {
    if !is_alone() {
        return Err(std::io::Error::other("other threads run already"));
    }
    // SAFETY: there is only this thread, so the child's memory is in a consistent state.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
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
pub(crate) fn end_at_once() -> ! {
    // SAFETY: the call ends the process and touches no memory.
    unsafe { libc::_exit(0) }
}

/// Closes everything but `socket`; the standard streams lead nowhere from now on. For a process that was split
/// from another one, whose files must not stay open because of it, and that owns nothing else.
pub(crate) fn keep_only(socket: &UnixStream) -> std::io::Result<()> {
    let null = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    for stream in 0..=libc::STDERR_FILENO {
        replace_descriptor(&null, stream)?;
    }
    drop(null);
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
pub(crate) fn wait_for_signal(signal: Signal) -> std::io::Result<i32> {
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
        let error = std::io::Error::last_os_error();
        if number > 0 {
            // SAFETY: the kernel filled it, and a signal that a process caused has a sender.
            return Ok(unsafe { received.assume_init_ref().si_pid() });
        }
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It was killed by this signal.
    Signal(i32),
    /// By itself, with this status.
    Status(i32),
}

/// Waits until a child of ours ends; none if there is no such child.
pub(crate) fn ending(pid: libc::pid_t) -> Option<Ending> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a valid place for the result, and `pid` is our own child.
        let reaped = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        let interrupted = std::io::Error::last_os_error().kind() == ErrorKind::Interrupted;
        match reaped {
            -1 if interrupted => {}
            reaped if reaped == pid => break,
            _ => return None,
        }
    }
    if libc::WIFSIGNALED(status) {
        return Some(Ending::Signal(libc::WTERMSIG(status)));
    }
    Some(Ending::Status(libc::WEXITSTATUS(status)))
}

/// How a child ended, in words; none if there is no such child.
pub(crate) fn ending_of(pid: libc::pid_t) -> Option<String> {
    ending(pid).map(|ending| match ending {
        Ending::Signal(signal) => format!("was killed by signal {signal}"),
        Ending::Status(status) => format!("ended with status {status}"),
    })
}

/// Ends a child of ours that does not answer.
pub(crate) fn kill(pid: libc::pid_t) {
    // SAFETY: signalling a child of ours touches no memory.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Makes `target` refer to the open file `source`.
pub(crate) fn replace_descriptor(source: &impl AsRawFd, target: RawFd) -> std::io::Result<()> {
    // SAFETY: both are descriptors; what `target` referred to is one of the standard streams,
    // which no object in this process owns.
    if unsafe { libc::dup2(source.as_raw_fd(), target) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

/// Waits until `source` can be read or was closed, at most for `limit`.
pub(crate) fn readable_within(source: &impl AsRawFd, limit: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd: source.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let milliseconds = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    loop {
        // SAFETY: one valid entry is passed, for as long as the call lasts.
        let ready = unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
        let interrupted = std::io::Error::last_os_error().kind() == ErrorKind::Interrupted;
        if ready >= 0 || !interrupted {
            return ready > 0;
        }
    }
}

/// Whether the reading end of the pipe that `writer` is the other end of was closed.
pub(crate) fn is_abandoned(writer: &impl AsRawFd) -> bool {
    let mut poll = libc::pollfd {
        fd: writer.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: one valid entry is passed, for as long as the call lasts.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready > 0 && poll.revents & libc::POLLERR != 0
}

/// Columns of the terminal on standard output, if it is one.
#[cfg(feature = "bench")]
pub(crate) fn terminal_width() -> Option<usize> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: `size` is a valid place for the result of this request.
    let outcome = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (outcome == 0 && size.ws_col > 0).then(|| usize::from(size.ws_col))
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
