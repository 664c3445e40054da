//! Time, from one place.
//!
//! Monotonic time is tokio's, so that a test which pauses the runtime's clock drives every
//! deadline and every expiry. Wall time is only for what leaves the process: signatures and
//! time stamps of files.

#![allow(clippy::disallowed_methods)]

use std::{
    future::Future,
    time::{Duration, SystemTime},
};

pub use tokio::time::Instant;

/// Monotonic time now.
pub fn now() -> Instant {
    Instant::now()
}

/// Wall-clock time now.
pub fn wall_time() -> SystemTime {
    SystemTime::now()
}

/// Waits for `duration`.
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Blocks the thread for `duration`, in a command that has nothing else to do and no runtime.
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// The deadline passed before the work was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("deadline of {0:?} passed")]
pub struct DeadlinePassed(pub Duration);

/// Runs `work` for at most `limit`. What is unfinished then is dropped.
pub async fn deadline<T>(
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<T, DeadlinePassed> {
    tokio::time::timeout(limit, work)
        .await
        .map_err(|_| DeadlinePassed(limit))
}
