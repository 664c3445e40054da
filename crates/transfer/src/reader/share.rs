//! The memory that read-ahead may occupy, shared by all streams of all readers.
//!
//! A stream that joins makes the shares of the others smaller, but what they hold stays until it is
//! read or given back. Where a limit was set, what is fetched ahead is therefore paid for besides, and
//! is not fetched when that is spent.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use penstock_base::{MemoryBudget, Reservation, metrics::Gauge};

/// Counts the streams that fetch ahead.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    bytes: u64,
    limit: Option<Arc<MemoryBudget>>,
    streams: AtomicUsize,
    window_bytes: Arc<Gauge>,
}

/// What a part that was fetched ahead has of the limit, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Ahead(Option<Reservation>);

impl Ahead {
    /// Gives some of it back.
    pub(crate) fn release(&mut self, bytes: u64) {
        if let Some(paid) = &mut self.0 {
            drop(paid.split(bytes.min(paid.bytes())));
        }
    }
}

impl ReadAhead {
    /// `bytes` to share, at most `limit`; the sum of all windows is shown in `window_bytes`.
    pub(crate) fn new(bytes: u64, limit: Option<u64>, window_bytes: Arc<Gauge>) -> Arc<Self> {
        Arc::new(Self {
            bytes: bytes.min(limit.unwrap_or(u64::MAX)),
            limit: limit.map(MemoryBudget::new),
            streams: AtomicUsize::new(0),
            window_bytes,
        })
    }

    /// Bytes that one more stream could occupy.
    pub(crate) fn share_of_another(&self) -> u64 {
        self.bytes / (self.streams.load(Ordering::Relaxed) as u64 + 1)
    }

    /// Pays for `bytes` that are fetched ahead; none when the limit is reached.
    pub(crate) fn pay(&self, bytes: u64) -> Option<Ahead> {
        match &self.limit {
            None => Some(Ahead::default()),
            Some(limit) => limit.try_reserve(bytes).map(|paid| Ahead(Some(paid))),
        }
    }

    /// Makes one more stream share the memory.
    pub(crate) fn join(self: &Arc<Self>) -> StreamShare {
        self.streams.fetch_add(1, Ordering::Relaxed);
        StreamShare {
            read_ahead: Arc::clone(self),
            window: 0,
        }
    }
}

/// One stream's place among those that share. Leaves on drop.
#[derive(Debug)]
pub(crate) struct StreamShare {
    read_ahead: Arc<ReadAhead>,
    window: u64,
}

impl StreamShare {
    /// Bytes that this stream may occupy now.
    pub(crate) fn bytes(&self) -> u64 {
        let streams = self.read_ahead.streams.load(Ordering::Relaxed).max(1);
        self.read_ahead.bytes / streams as u64
    }

    /// Shows the stream's window in the metrics.
    pub(crate) fn show_window(&mut self, window: u64) {
        if window != self.window {
            self.read_ahead.window_bytes.add(window);
            self.read_ahead.window_bytes.subtract(self.window);
            self.window = window;
        }
    }
}

impl Drop for StreamShare {
    fn drop(&mut self) {
        self.show_window(0);
        self.read_ahead.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use penstock_base::KIB;

    use super::*;

    #[test]
    fn shares_are_equal_and_return_when_a_stream_ends() {
        let gauge = Arc::<Gauge>::default();
        let read_ahead = ReadAhead::new(100, None, Arc::clone(&gauge));
        let mut first = read_ahead.join();
        assert_eq!(first.bytes(), 100);
        let second = read_ahead.join();
        first.show_window(30);
        assert_eq!((first.bytes(), second.bytes(), gauge.value()), (50, 50, 30));
        drop(first);
        assert_eq!((second.bytes(), gauge.value()), (100, 0));
    }

    #[test]
    fn a_limit_is_kept_whatever_the_shares_are() {
        let read_ahead = ReadAhead::new(100 * KIB, Some(60 * KIB), Arc::default());
        assert_eq!(read_ahead.share_of_another(), 60 * KIB);
        let mut first = read_ahead.pay(52 * KIB).expect("free");
        assert!(read_ahead.pay(20 * KIB).is_none());
        first.release(32 * KIB);
        let _second = read_ahead.pay(40 * KIB).expect("given back");
        first.release(100 * KIB);
        assert!(read_ahead.pay(20 * KIB).is_some());
    }
}
