//! The stream of an open file, and writes that arrived before their turn in it.
//!
//! A door may serve the pieces of one large write from several threads, so a piece can arrive
//! before the one in front of it. It waits until the gap is filled. How many may wait, and how
//! many bytes, is bounded: they hold memory that the piece in front may need.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use penstock_base::{MIB, clock};
use tokio::sync::{MutexGuard, watch};

use crate::open_file::stream::WriteStream;

/// Writes of one file that may wait for the one in front of them.
pub(super) const AHEAD_WRITES_MAX: usize = 256;
/// Bytes of one file that may wait, if the memory budget is large.
pub(super) const AHEAD_BYTES_MAX: u64 = 64 * MIB;
/// The share of the memory budget that writes of one file may hold while they wait.
pub(super) const AHEAD_BUDGET_SHARE: u64 = 4;
/// How long a write waits after the file last grew.
pub(super) const AHEAD_GRACE: Duration = Duration::from_secs(1);

/// The one stream of writes into a file, and the writes that wait for their turn in it.
#[derive(Debug)]
pub(crate) struct StreamedBody {
    pub(super) stream: tokio::sync::Mutex<WriteStream>,
    /// Announces that the write stream moved on, to writes that wait for their turn.
    pub(super) progress: watch::Sender<u64>,
    pub(super) ahead: Mutex<Ahead>,
}

/// How much waits now.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    writes: usize,
    bytes: u64,
}

impl StreamedBody {
    /// Nothing is written yet.
    pub(super) fn new() -> Self {
        Self {
            stream: tokio::sync::Mutex::default(),
            progress: watch::Sender::new(0),
            ahead: Mutex::default(),
        }
    }

    /// The write stream, once nobody else uses it.
    pub(crate) async fn stream(&self) -> MutexGuard<'_, WriteStream> {
        self.stream.lock().await
    }

    /// Wakes the writes that wait for their turn.
    pub(super) fn announce(&self, end: u64) {
        self.progress.send_replace(end);
    }
}

/// A write that waits for its turn.
#[derive(Debug)]
pub(super) struct Waiting<'body> {
    body: &'body StreamedBody,
    bytes: u64,
}

impl<'body> Waiting<'body> {
    /// Joins the writes that wait, or `None` if there are too many.
    pub(super) fn join(body: &'body StreamedBody, bytes: u64, budget: u64) -> Option<Self> {
        let bytes_max = AHEAD_BYTES_MAX.min(budget / AHEAD_BUDGET_SHARE);
        let mut ahead = body.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        if ahead.writes >= AHEAD_WRITES_MAX || ahead.bytes + bytes > bytes_max {
            return None;
        }
        ahead.writes += 1;
        ahead.bytes += bytes;
        Some(Self { body, bytes })
    }

    /// Waits until the file has moved on. Returns `false` when that takes too long.
    pub(super) async fn turn(&self, progress: &mut watch::Receiver<u64>) -> bool {
        loop {
            match clock::deadline(AHEAD_GRACE, progress.changed()).await {
                Ok(moved) => return moved.is_ok(),
                // The stream is in use: a write or an upload is under way, only slowly.
                Err(_) if self.body.stream.try_lock().is_err() => {}
                Err(_) => return false,
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let ahead = self.body.ahead.lock();
        let mut ahead = ahead.unwrap_or_else(PoisonError::into_inner);
        ahead.writes -= 1;
        ahead.bytes -= self.bytes;
    }
}
