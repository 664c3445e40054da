//! Waiting for a condition, with a limit.

use std::{
    thread,
    time::{Duration, Instant},
};

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How long a test waits for something before it fails.
#[derive(Debug, Clone, Copy)]
pub struct Patience(pub Duration);

impl Patience {
    /// Patience of some seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// Polls until `condition` holds, and fails the test naming `what` when it does not in time.
    pub fn until(self, what: &str, mut condition: impl FnMut() -> bool) {
        let found = self.find(|| condition().then_some(()));
        assert!(found.is_some(), "waited {:?} in vain for: {what}", self.0);
    }

    /// Polls until `probe` finds something or time is up.
    pub fn find<T>(self, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
        let started = Instant::now();
        loop {
            if let Some(found) = probe() {
                return Some(found);
            }
            if started.elapsed() > self.0 {
                return None;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}
