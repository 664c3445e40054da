//! Writes in the order of their places.
//!
//! A client sends the pieces of a file at once, and they may overtake each other on the way. A volume that writes files
//! from front to back takes them only in their order: one that is early waits for those that belong in front of it, for
//! a while.

use penstock_base::clock;
use tokio::sync::watch;

use crate::limits::ORDER_DEADLINE;

/// How far a file is written.
#[derive(Debug)]
pub(super) struct Order(watch::Sender<u64>);

impl Order {
    /// A file with so many bytes.
    pub(super) fn new(size: u64) -> Self {
        Self(watch::Sender::new(size))
    }

    /// Waits until the file reaches to `offset`, or so long that nobody will write what is missing. The volume then
    /// says what it thinks of that.
    pub(super) async fn wait(&self, offset: u64) {
        let mut end = self.0.subscribe();
        let reached = end.wait_for(|end| *end >= offset);
        // The sender is in `self`, so waiting cannot fail.
        let _ = clock::deadline(ORDER_DEADLINE, reached).await;
    }

    /// The file is written so far by now.
    pub(super) fn grows_to(&self, end: u64) {
        self.0
            .send_if_modified(|known| std::mem::replace(known, end.max(*known)) < end);
    }

    /// The file was given this size.
    pub(super) fn cut_to(&self, size: u64) {
        self.0.send_replace(size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_waits_for_those_in_front_of_it_and_not_for_ever() {
        let order = Order::new(10);
        let begun = clock::now();
        order.wait(0).await;
        order.wait(10).await;
        assert_eq!(begun.elapsed().as_secs(), 0);
        tokio::join!(order.wait(20), async {
            tokio::task::yield_now().await;
            order.grows_to(20);
        });
        assert_eq!(begun.elapsed().as_secs(), 0);
        order.wait(21).await;
        assert_eq!(begun.elapsed(), ORDER_DEADLINE);
    }
}
