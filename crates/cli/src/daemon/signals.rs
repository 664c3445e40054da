//! Signals to a mount.

use std::collections::VecDeque;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, Outcome};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// Leave (SIGTERM, SIGINT).
    End,
    /// Open the log file again, and look at the file of exports (SIGHUP).
    Reload,
    /// Write the counters into the log (SIGUSR1).
    Report,
    /// Log the next more detailed level, after the most detailed the least (SIGUSR2).
    ChangeLogLevel,
}

/// Requests that are kept for later.
const KEPT_MAX: usize = 8;

/// The signals that a mount listens to.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user_1: Signal,
    user_2: Signal,
    /// Requests that came while only the end was waited for.
    kept: VecDeque<Request>,
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
            user_1: listen(SignalKind::user_defined1())?,
            user_2: listen(SignalKind::user_defined2())?,
            kept: VecDeque::new(),
        })
    }

    /// The next signal.
    pub(super) async fn next(&mut self) -> Request {
        match self.kept.pop_front() {
            Some(request) => request,
            None => self.received().await,
        }
    }

    async fn received(&mut self) -> Request {
        tokio::select! {
            _ = self.terminate.recv() => Request::End,
            _ = self.interrupt.recv() => Request::End,
            _ = self.hang_up.recv() => Request::Reload,
            _ = self.user_1.recv() => Request::Report,
            _ = self.user_2.recv() => Request::ChangeLogLevel,
        }
    }

    /// Waits for a signal to leave. The first of the others are kept: whoever sees the mount may send
    /// them before it is served.
    pub(super) async fn asked_to_end(&mut self) {
        loop {
            match self.received().await {
                Request::End => return,
                other if self.kept.len() < KEPT_MAX => self.kept.push_back(other),
                _ => {}
            }
        }
    }
}
