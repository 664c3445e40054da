//! The processes at the other ends of sockets.

use std::{
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use penstock_base::clock;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

/// Who is at the other end of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The number of the process; 0 where it cannot be seen from here, for which rustix has no room.
    pub(crate) process: u32,
    pub(crate) user: u32,
}

impl Peer {
    pub(crate) fn of(socket: &impl AsRawFd) -> io::Result<Self> {
        let mut peer = libc::ucred {
            pid: 0,
            uid: u32::MAX,
            gid: u32::MAX,
        };
        let mut size = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: `peer` is a valid place of `size` bytes for the result of this option.
        let outcome = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &raw mut size,
            )
        };
        match outcome {
            0 => Ok(Self {
                process: peer.pid.unsigned_abs(),
                user: peer.uid,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Whether the first thread of the process of this number has ended: nothing does what the process promised any
/// more, though the kernel may hold other threads of it. `false` where the process cannot be seen.
pub fn has_died(number: u32) -> bool {
    // Not `stat`, which the kernel shows of nobody who is in execve(2).
    let status = fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
    let mut lines = status.lines();
    let state = lines.find_map(|line| line.strip_prefix("State:\t"));
    state.is_some_and(|state| state.starts_with(['Z', 'X']))
}

/// A process, ours or not, that can be waited for.
#[derive(Debug)]
pub struct Process {
    number: u32,
    handle: OwnedFd,
}

impl Process {
    /// The process of this number; none if there is none, or the kernel lends no handles.
    pub(crate) fn find(number: u32) -> Option<Self> {
        let id = Pid::from_raw(i32::try_from(number).ok()?)?;
        let handle = pidfd_open(id, PidfdFlags::empty()).ok()?;
        Some(Self { number, handle })
    }

    /// Its number, as seen from here.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Waits until it has ended, at most for `limit`; says whether it did.
    pub fn ends_within(&self, limit: Duration) -> bool {
        let until = clock::now() + limit;
        loop {
            let left = until.saturating_duration_since(clock::now());
            let left = Timespec::try_from(left).ok();
            let mut entries = [PollFd::new(&self.handle, PollFlags::IN)];
            match poll(&mut entries, left.as_ref()) {
                Ok(ready) => return ready > 0,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}
