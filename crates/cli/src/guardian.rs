//! A small process that lets programs go when the one that serves their mount is killed.
//!
//! ```text
//! penstock mount -+- serves the mount
//!                 +- guardian: holds what cuts the connection to the kernel, and waits
//! ```
//!
//! A killed process is gone when its last thread is. One that sleeps in the kernel, which waits for a page of the
//! mount, stays: it keeps `/dev/fuse` open, so the kernel goes on waiting for an answer, and with it every
//! program that uses the mount. Only another process can end that.
//!
//! The guardian is split off before there are threads. It holds nothing of the mount but a
//! [`ConnectionAbort`], which it gets when the mount is there. The kernel sends it a signal when the first thread
//! of the mount's process ends (`PR_SET_PDEATHSIG`); pipes and descriptors of processes tell of an end only when
//! every thread is gone. It then cuts the connection, which does nothing to a mount that ended in good order, and
//! ends. A guardian that ends before was killed: the mount hears the end of the line between them, and says so. It
//! has threads then, and cannot split off another.

use std::{
    io,
    os::{fd::AsFd, unix::net::UnixStream},
};

use penstock_fuse::ConnectionAbort;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use tokio::io::AsyncReadExt as _;

use crate::{
    control, descriptors,
    system::{self, Forked},
};

/// What `ps` and `pgrep` show, so that `killall penstock` kills the mount's process only.
const NAME: &std::ffi::CStr = c"penstock-guard";

/// What the kernel sends when the mount's process ends. Programs of people send it to none.
const PARENT_ENDED: Signal = Signal::URG;

/// The end of the process that serves the mount.
#[derive(Debug)]
pub(crate) struct Guardian(UnixStream);

impl Guardian {
    /// Splits the guardian off. Must be called before there are threads, by the thread that lasts as long as
    /// the mount is served.
    pub(crate) fn post() -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let serving = getpid();
        match system::fork()? {
            Forked::Parent(_) => Ok(Self(ours)),
            Forked::Child => {
                drop(ours);
                // There is nobody to tell.
                let _ = guard(&theirs, serving);
                system::end_at_once(0);
            }
        }
    }

    /// Gives it what cuts the connection.
    pub(crate) fn watch(&self, abort: &ConnectionAbort) -> io::Result<()> {
        descriptors::send(&self.0, &[abort.as_fd()], b"connection")
    }

    /// Waits until the guardian has ended. Must be called within a runtime.
    pub(crate) fn end(&self) -> io::Result<impl Future<Output = ()> + use<>> {
        let line = self.0.try_clone()?;
        line.set_nonblocking(true)?;
        let mut line = tokio::net::UnixStream::from_std(line)?;
        Ok(async move {
            // It never says anything.
            let _ = line.read(&mut [0]).await;
        })
    }
}

/// Waits until the process that serves the mount ends, and cuts the connection.
fn guard(socket: &UnixStream, serving: Pid) -> io::Result<()> {
    system::block_signals();
    set_parent_process_death_signal(Some(PARENT_ENDED))?;
    rustix::thread::set_name(NAME)?;
    system::keep_only(socket)?;
    // What the mount was started in must not stay busy.
    std::env::set_current_dir("/")?;
    let Some(received) = descriptors::receive(socket)? else {
        // There never was a mount.
        return Ok(());
    };
    let abort = received.descriptors.into_iter().next();
    let abort = ConnectionAbort::from(abort.ok_or(io::ErrorKind::InvalidData)?);
    while is_alive(serving) {
        // The dead process is the sender; a signal of others may stand in its place if both came at once.
        if system::wait_for_signal(PARENT_ENDED)? == serving.as_raw_nonzero().get() {
            break;
        }
    }
    abort.cut()
}

fn is_alive(serving: Pid) -> bool {
    let number = serving.as_raw_nonzero().get().unsigned_abs();
    getppid() == Some(serving) && !control::has_died(number)
}
