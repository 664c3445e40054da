//! Reads that are under way, whoever waits for them.
//!
//! The driver gives up a connection on which an answer took too long, and asks again on another.
//! If that began the read anew, a store that is away would be asked for ever, because no read
//! would get to the end of its patience. So a read goes on without the connection, and who asks for
//! the same bytes meanwhile gets its answer.

use std::{collections::HashMap, sync::Arc, time::Duration};

use penstock_base::{Mutex, clock};
use penstock_vfs::Disk;
use tokio::sync::watch;

use crate::reading::{Answer, Place, read};

/// How long an answer is kept that nobody waits for: until a connection was made again.
const KEPT: Duration = Duration::from_secs(30);

type Waiting = watch::Receiver<Option<Answer>>;

/// A disk, and its reads that are under way.
pub(super) struct UnderWay {
    disk: Arc<dyn Disk>,
    reads: Mutex<HashMap<Place, Waiting>>,
}

impl UnderWay {
    pub(super) fn new(disk: Arc<dyn Disk>) -> Arc<Self> {
        Arc::new(Self {
            disk,
            reads: Mutex::default(),
        })
    }

    /// Reads, or waits for who reads that already. An answer that was delivered must be
    /// [forgotten](Self::forget).
    pub(super) async fn read(self: &Arc<Self>, place: Place) -> Answer {
        let mut waiting = self.begin(place);
        let answer = waiting.wait_for(Option::is_some).await;
        let answer = answer.ok().and_then(|answer| answer.clone());
        answer.unwrap_or(Err(libc::EIO))
    }

    /// The answer reached the driver.
    pub(super) fn forget(&self, place: Place) {
        self.reads.lock().remove(&place);
    }

    fn begin(self: &Arc<Self>, place: Place) -> Waiting {
        let mut reads = self.reads.lock();
        if let Some(waiting) = reads.get(&place) {
            return waiting.clone();
        }
        let (sender, waiting) = watch::channel(None);
        reads.insert(place, waiting.clone());
        drop(reads);
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let answer = read(&*this.disk, place).await;
            sender.send_replace(Some(answer));
            if clock::deadline(KEPT, sender.closed()).await.is_err() {
                this.reads
                    .lock()
                    .retain(|_, waiting| !waiting.same_channel(&sender.subscribe()));
            }
        });
        waiting
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use penstock_base::{FsResult, Payload};

    use super::*;

    struct Counting {
        reads: AtomicUsize,
        open: watch::Sender<bool>,
    }

    #[async_trait]
    impl Disk for Counting {
        fn size(&self) -> u64 {
            1 << 20
        }

        async fn read(&self, _offset: u64, length: u32) -> FsResult<Payload> {
            let number = self.reads.fetch_add(1, Ordering::SeqCst);
            let _ = self.open.subscribe().wait_for(|open| *open).await;
            Ok(vec![number as u8; length as usize].into())
        }
    }

    #[tokio::test]
    async fn a_read_that_is_asked_for_again_is_the_same_read() {
        let disk = Arc::new(Counting {
            reads: AtomicUsize::new(0),
            open: watch::Sender::new(false),
        });
        let under_way = UnderWay::new(Arc::clone(&disk) as Arc<dyn Disk>);
        let first = tokio::spawn({
            let under_way = Arc::clone(&under_way);
            async move { under_way.read((0, 4096)).await }
        });
        while disk.reads.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        first.abort();
        let again = under_way.read((0, 4096));
        disk.open.send_replace(true);
        let again = again.await.expect("read");
        assert_eq!(again.slices()[0][0], 0, "it began anew");
        under_way.forget((0, 4096));
        let next = under_way.read((0, 4096)).await.expect("read");
        assert_eq!(next.slices()[0][0], 1);
    }
}
