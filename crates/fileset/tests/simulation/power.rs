//! The power of a process: it goes at a step that was chosen before, and from then on nothing happens any more.
//!
//! A step is whatever waits outside of the process, for the store or the engine, before and behind its effect. Whoever comes
//! to one without power waits for ever, until the process is dropped.

use std::{
    future::pending,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use tokio::sync::Notify;

/// See the module.
#[derive(Debug, Default)]
pub struct Power {
    /// Steps until it goes; 0 for never.
    left: AtomicU64,
    is_gone: AtomicBool,
    gone: Notify,
}

impl Power {
    /// It goes at the `nth` step from now on; never for 0.
    pub fn cut_at(&self, nth: u64) {
        self.left.store(nth, Ordering::Relaxed);
    }

    /// Goes a step, if there is power for it.
    pub async fn step(&self) {
        let count = |left: u64| left.checked_sub(1);
        let relaxed = Ordering::Relaxed;
        if self.left.fetch_update(relaxed, relaxed, count) == Ok(1) {
            self.is_gone.store(true, relaxed);
            self.gone.notify_one();
        }
        if self.is_gone.load(relaxed) {
            pending::<()>().await;
        }
    }

    /// Returns when it is gone.
    pub async fn gone(&self) {
        self.gone.notified().await;
    }
}
