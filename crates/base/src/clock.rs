//! Time, from one place.
//!
//! Monotonic time is tokio's, so that a test which pauses the runtime's clock drives every
//! deadline and every expiry. Wall time is only for what leaves the process: signatures and
//! time stamps of files.

#![allow(clippy::disallowed_methods)]

use std::{
    cell::Cell,
    future::Future,
    time::{Duration, SystemTime},
};

pub use tokio::time::Instant;

thread_local! {
    /// What [`pretend_wall_time`] was told, and when.
    static PRETENDED: Cell<Option<(SystemTime, Instant)>> = const { Cell::new(None) };
}

/// Monotonic time now.
pub fn now() -> Instant {
    Instant::now()
}

/// Wall-clock time now.
pub fn wall_time() -> SystemTime {
    match PRETENDED.get() {
        Some((begun, since)) => begun + since.elapsed(),
        None => SystemTime::now(),
    }
}

/// Lets wall-clock time on this thread be `begun` now, and go on with the monotonic time: a simulation has both in
/// its hand. Called within its runtime.
pub fn pretend_wall_time(begun: SystemTime) {
    PRETENDED.set(Some((begun, now())));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pretended_wall_time_goes_on_with_the_monotonic_one() {
        let begun = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        pretend_wall_time(begun);
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(wall_time(), begun + Duration::from_secs(3600));
    }
}
