//! Reads that meet a write of the same bytes.
//!
//! While the WRITE of a page is under way the kernel may drop the page: it is clean by then, and not
//! locked. An open does that which does not keep the cache, a notification, and a write past the page cache.
//! Whoever reads the page next asks for it with a READ. Were that answered with what the file held before,
//! the kernel would keep the old bytes though the write succeeded, and a change through a mapping would
//! save them with it.
//!
//! So a READ waits for the WRITEs of its bytes that came before it, and is repeated when one came
//! meanwhile. Two threads may take a WRITE and the READ behind it from the kernel, and the READ may be answered
//! before the WRITE is noted here. The numbers that the kernel gives its requests tell of that: the WRITE drops
//! the page then before it is answered.
//!
//! A write past the page cache drops its pages before it is sent. Of asynchronous I/O that is all: a READ that was sent and
//! answered in between left a page that nobody drops any more, so each such write is late that meets an answered READ.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use penstock_vfs::Inode;
use tokio::sync::Notify;

/// How often a READ is answered anew. Only writes past the page cache can overtake one again and again.
const REPEATS_MAX: usize = 8;

/// The last READs that are remembered for WRITEs which come late. A thread would have to sleep between two
/// instructions while the others answer more, or between the drop and the request that follows it.
const ANSWERED_MAX: usize = 256;

/// The place of a request in the order in which the kernel sent them.
pub(super) type Sent = u64;

/// Which request it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct By {
    pub(super) sent: Sent,
    /// It goes past the page cache.
    pub(super) is_direct: bool,
}

/// Reads and writes under way of files that the kernel keeps pages of.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    /// Whether the kernel keeps pages of any file that can be written. It never does in a volume that
    /// opens such files `direct`, whose reads cost nothing here.
    keeps_written: AtomicBool,
    table: Mutex<Table>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<Inode, File>,
    answered: VecDeque<Answered>,
    /// How many READs were answered.
    answers: u64,
}

/// A READ that was answered, of which the kernel keeps pages.
#[derive(Debug)]
struct Answered {
    number: u64,
    inode: Inode,
    sent: Sent,
    range: Range<u64>,
}

impl Answered {
    /// Whether the kernel may keep what it told though a WRITE of these bytes was noted now.
    fn is_met(&self, (inode, range): (Inode, &Range<u64>), by: By) -> bool {
        let is_kept = by.is_direct || self.sent > by.sent;
        self.inode == inode && is_kept && overlap(&self.range, range)
    }
}

#[derive(Debug, Default)]
struct File {
    next: u64,
    writes: Vec<(u64, Range<u64>)>,
    reads: Vec<Read>,
}

#[derive(Debug)]
struct Read {
    number: u64,
    range: Range<u64>,
    /// A WRITE of some of its bytes came meanwhile.
    overtaken: bool,
}

/// A WRITE under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct WriteUnderWay {
    overlaps: Arc<Overlaps>,
    inode: Inode,
    number: u64,
    /// A READ of some of its bytes was answered before this was noted, and the kernel keeps what that told.
    is_late: bool,
}

/// A READ under way, until this is dropped.
struct ReadUnderWay<'a> {
    overlaps: &'a Overlaps,
    inode: Inode,
    number: u64,
    by: By,
}

impl WriteUnderWay {
    /// Whether the kernel may keep what the file held before.
    pub(super) fn is_late(&self) -> bool {
        self.is_late
    }
}

impl Overlaps {
    /// The kernel keeps pages of a file that can be written. To be called before it hears of that.
    pub(super) fn keep_written(&self) {
        self.keeps_written.store(true, Ordering::Relaxed);
    }

    /// A WRITE came.
    pub(super) fn write(
        self: &Arc<Self>,
        (inode, range): (Inode, Range<u64>),
        by: By,
    ) -> Option<WriteUnderWay> {
        if !self.keeps_written.load(Ordering::Relaxed) {
            return None;
        }
        let mut table = self.table();
        let mut answered = table.answered.iter();
        let is_late = answered.any(|read| read.is_met((inode, &range), by));
        let number = table.files.entry(inode).or_default().write(range);
        Some(WriteUnderWay {
            overlaps: Arc::clone(self),
            inode,
            number,
            is_late,
        })
    }

    /// What `read` returns when no WRITE of `range` is under way, or came meanwhile.
    pub(super) async fn read<T, F>(
        &self,
        (inode, range): (Inode, Range<u64>),
        by: By,
        read: impl Fn() -> F,
    ) -> T
    where
        F: Future<Output = T>,
    {
        if !self.keeps_written.load(Ordering::Relaxed) {
            return read().await;
        }
        for _ in 0..REPEATS_MAX {
            let under_way = self.begin((inode, &range), by).await;
            let contents = read().await;
            if under_way.ends() {
                return contents;
            }
        }
        let contents = read().await;
        self.table().note_answered((inode, range), by);
        contents
    }

    /// Forgets the READs of a file that were answered before `dropped`, which has the kernel drop its pages, begins.
    pub(super) async fn forget_answered(&self, inode: Inode, dropped: impl Future<Output = ()>) {
        let answers = self.table().answers;
        dropped.await;
        let is_left = |read: &Answered| read.inode != inode || read.number > answers;
        self.table().answered.retain(is_left);
    }

    async fn begin(&self, (inode, range): (Inode, &Range<u64>), by: By) -> ReadUnderWay<'_> {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            if let Some(number) = self.table().files.entry(inode).or_default().read(range) {
                return ReadUnderWay {
                    overlaps: self,
                    inode,
                    number,
                    by,
                };
            }
            ended.await;
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Forgets what `forget` removes of a file.
    fn forget(&mut self, inode: Inode, forget: impl FnOnce(&mut File)) {
        if let Some(file) = self.files.get_mut(&inode) {
            forget(file);
            if file.writes.is_empty() && file.reads.is_empty() {
                self.files.remove(&inode);
            }
        }
    }

    fn note_answered(&mut self, (inode, range): (Inode, Range<u64>), by: By) {
        if by.is_direct {
            return;
        }
        if self.answered.len() == ANSWERED_MAX {
            self.answered.pop_front();
        }
        self.answers += 1;
        self.answered.push_back(Answered {
            number: self.answers,
            inode,
            sent: by.sent,
            range,
        });
    }
}

impl File {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn write(&mut self, range: Range<u64>) -> u64 {
        for read in &mut self.reads {
            read.overtaken |= overlap(&read.range, &range);
        }
        let number = self.number();
        self.writes.push((number, range));
        number
    }

    /// `None` while some of the bytes are being written.
    fn read(&mut self, range: &Range<u64>) -> Option<u64> {
        let mut writes = self.writes.iter();
        if writes.any(|(_, written)| overlap(written, range)) {
            return None;
        }
        let number = self.number();
        self.reads.push(Read {
            number,
            range: range.clone(),
            overtaken: false,
        });
        Some(number)
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Drop for WriteUnderWay {
    fn drop(&mut self) {
        let number = self.number;
        self.overlaps.table().forget(self.inode, |file| {
            file.writes.retain(|(other, _)| *other != number);
        });
        self.overlaps.ended.notify_waiters();
    }
}

impl ReadUnderWay<'_> {
    /// Ends the READ unless a WRITE overtook it, in one step: what comes then is late.
    fn ends(&self) -> bool {
        let mut table = self.overlaps.table();
        let file = table.files.get(&self.inode);
        let mut reads = file.into_iter().flat_map(|file| &file.reads);
        let read = reads.find(|read| read.number == self.number && !read.overtaken);
        let Some(range) = read.map(|read| read.range.clone()) else {
            return false;
        };
        table.note_answered((self.inode, range), self.by);
        true
    }
}

impl Drop for ReadUnderWay<'_> {
    fn drop(&mut self) {
        let number = self.number;
        self.overlaps.table().forget(self.inode, |file| {
            file.reads.retain(|read| read.number != number);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use penstock_base::clock;

    use super::*;

    const FILE: Inode = Inode(7);

    fn by(sent: Sent) -> By {
        By {
            sent,
            is_direct: false,
        }
    }

    fn direct(sent: Sent) -> By {
        By {
            is_direct: true,
            ..by(sent)
        }
    }

    fn overlaps() -> Arc<Overlaps> {
        let overlaps = Arc::<Overlaps>::default();
        overlaps.keep_written();
        overlaps
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_waits_for_the_writes_of_its_bytes_and_for_no_others() {
        let overlaps = overlaps();
        let _elsewhere = overlaps.write((FILE, 10..20), by(1));
        let _other = overlaps.write((Inode(8), 0..10), by(1));
        overlaps.read((FILE, 0..10), by(2), || async {}).await;
        let write = overlaps.write((FILE, 9..12), by(3));
        let waited = clock::now();
        tokio::join!(overlaps.read((FILE, 0..10), by(2), || async {}), async {
            clock::sleep(Duration::from_secs(5)).await;
            drop(write);
        });
        assert_eq!(waited.elapsed(), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_is_repeated_when_a_write_came_meanwhile() {
        let overlaps = overlaps();
        let reads = Cell::new(0);
        let read = || async {
            reads.set(reads.get() + 1);
            clock::sleep(Duration::from_secs(2)).await;
        };
        tokio::join!(overlaps.read((FILE, 0..10), by(2), read), async {
            clock::sleep(Duration::from_secs(1)).await;
            drop(overlaps.write((FILE, 5..6), by(3)));
        });
        assert_eq!(reads.get(), 2);
        assert!(
            overlaps.table().files.is_empty(),
            "nothing is kept of what ended"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn writes_that_never_end_do_not_keep_a_read_for_ever() {
        let overlaps = overlaps();
        let reads = Cell::new(0);
        let read = || async {
            reads.set(reads.get() + 1);
            drop(overlaps.write((FILE, 0..1), by(3)));
        };
        overlaps.read((FILE, 0..10), by(2), read).await;
        assert_eq!(reads.get(), REPEATS_MAX + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_late_when_a_read_that_was_sent_behind_it_was_answered() {
        let overlaps = overlaps();
        overlaps.read((FILE, 0..10), by(7), || async {}).await;
        let is_late = |place, sent| overlaps.write(place, by(sent)).unwrap().is_late();
        assert!(is_late((FILE, 9..12), 6));
        assert!(!is_late((FILE, 9..12), 8), "the read came first");
        assert!(!is_late((FILE, 10..12), 6), "other bytes");
        assert!(!is_late((Inode(8), 9..12), 6), "another file");
        for sent in 0..ANSWERED_MAX as u64 {
            overlaps
                .read((Inode(8), 0..1), by(100 + sent), || async {})
                .await;
        }
        assert_eq!(overlaps.table().answered.len(), ANSWERED_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_past_the_page_cache_is_late_when_the_kernel_keeps_a_read_before_it() {
        let overlaps = overlaps();
        let is_late = |place, by| overlaps.write(place, by).unwrap().is_late();
        overlaps.read((FILE, 0..10), direct(1), || async {}).await;
        assert!(!is_late((FILE, 0..10), direct(2)), "nothing is kept of it");
        overlaps.read((FILE, 0..10), by(3), || async {}).await;
        assert!(!is_late((FILE, 10..12), direct(4)), "other bytes");
        assert!(is_late((FILE, 9..12), direct(5)));
        assert!(is_late((FILE, 9..12), direct(6)), "it is there still");
        let dropped = async { overlaps.read((FILE, 0..1), by(7), || async {}).await };
        overlaps.forget_answered(FILE, dropped).await;
        assert!(!is_late((FILE, 9..12), direct(8)));
        assert!(is_late((FILE, 0..12), direct(9)), "that came meanwhile");
    }
}
