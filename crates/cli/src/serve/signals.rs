//! Signals to a mount.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, Outcome};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// Leave (SIGTERM, SIGINT).
    End,
    /// Open the log file again (SIGHUP).
    ReopenLog,
}

/// The signals that a mount listens to.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// From now on these signals no longer end the process.
    pub(super) fn listen() -> Outcome<Self> {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(
                    format!("cannot listen to signals: {error}"),
                    "raise the limit of open files",
                )
            })
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// The next signal.
    pub(super) async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.terminate.recv() => Request::End,
            _ = self.interrupt.recv() => Request::End,
            _ = self.hang_up.recv() => Request::ReopenLog,
        }
    }

    /// Waits for a signal to leave; others are passed over.
    pub(super) async fn asked_to_end(&mut self) {
        while self.next().await != Request::End {}
    }
}
