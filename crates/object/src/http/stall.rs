//! Noticing that a body makes no progress.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use penstock_base::clock;

/// Ticks without progress after which a transfer counts as stalled.
const TICKS: u32 = 4;

/// Watches one transfer. The clock is not read per piece of data: progress sets a flag, and a
/// timer, started only when there is something to wait for, looks at the flag a few times per
/// limit. A stall is noticed after one to one and a quarter limits.
pub(super) struct StallWatch {
    limit: Duration,
    progress: bool,
    idle_ticks: u32,
    timer: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl StallWatch {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            progress: false,
            idle_ticks: 0,
            timer: None,
        }
    }

    /// Something moved.
    pub(super) fn progressed(&mut self) {
        self.progress = true;
    }

    /// Ready when nothing moved for the limit. Call it when the transfer has to wait.
    pub(super) fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let tick = self.limit / TICKS;
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(clock::sleep(tick)));
            std::task::ready!(timer.as_mut().poll(cx));
            self.timer = None;
            self.idle_ticks = if self.progress {
                0
            } else {
                self.idle_ticks + 1
            };
            self.progress = false;
            if self.idle_ticks >= TICKS {
                return Poll::Ready(());
            }
        }
    }
}
