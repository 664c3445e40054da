//! Reads that meet a write of the same bytes.
//!
//! While the WRITE of a page is under way the kernel may drop the page: it is clean by then, and not
//! locked. An open does that which does not keep the cache, a notification, and a write past the page cache.
//! Whoever reads the page next asks for it with a READ. Were that answered with what the file held before,
//! the kernel would keep the old bytes though the write succeeded, and a change through a mapping would
//! save them with it.
//!
//! So a READ waits for the WRITEs of its bytes that came before it, and is repeated when one came
//! meanwhile. Two threads may take a WRITE and the READ behind it from the kernel; the READ is too early
//! only if it is answered before the WRITE is noted here.

use std::{
    collections::HashMap,
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

/// Reads and writes under way of files that the kernel keeps pages of.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    /// Whether the kernel keeps pages of any file that can be written. It never does in a volume that
    /// opens such files `direct`, whose reads cost nothing here.
    keeps_written: AtomicBool,
    files: Mutex<HashMap<Inode, File>>,
    ended: Notify,
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
}

/// A READ under way, until this is dropped.
struct ReadUnderWay<'a> {
    overlaps: &'a Overlaps,
    inode: Inode,
    number: u64,
}

impl Overlaps {
    /// The kernel keeps pages of a file that can be written. To be called before it hears of that.
    pub(super) fn keep_written(&self) {
        self.keeps_written.store(true, Ordering::Relaxed);
    }

    /// A WRITE came.
    pub(super) fn write(
        self: &Arc<Self>,
        inode: Inode,
        range: Range<u64>,
    ) -> Option<WriteUnderWay> {
        if !self.keeps_written.load(Ordering::Relaxed) {
            return None;
        }
        let number = self.files().entry(inode).or_default().write(range);
        Some(WriteUnderWay {
            overlaps: Arc::clone(self),
            inode,
            number,
        })
    }

    /// What `read` returns when no WRITE of `range` is under way, or came meanwhile.
    pub(super) async fn read<T, F>(
        &self,
        (inode, range): (Inode, Range<u64>),
        read: impl Fn() -> F,
    ) -> T
    where
        F: Future<Output = T>,
    {
        if !self.keeps_written.load(Ordering::Relaxed) {
            return read().await;
        }
        for _ in 0..REPEATS_MAX {
            let under_way = self.begin(inode, &range).await;
            let contents = read().await;
            if !under_way.is_overtaken() {
                return contents;
            }
        }
        read().await
    }

    async fn begin(&self, inode: Inode, range: &Range<u64>) -> ReadUnderWay<'_> {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            if let Some(number) = self.files().entry(inode).or_default().read(range) {
                return ReadUnderWay {
                    overlaps: self,
                    inode,
                    number,
                };
            }
            ended.await;
        }
    }

    /// Forgets what `forget` removes of a file.
    fn forget(&self, inode: Inode, forget: impl FnOnce(&mut File)) {
        let mut files = self.files();
        if let Some(file) = files.get_mut(&inode) {
            forget(file);
            if file.writes.is_empty() && file.reads.is_empty() {
                files.remove(&inode);
            }
        }
    }

    fn files(&self) -> MutexGuard<'_, HashMap<Inode, File>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.overlaps.forget(self.inode, |file| {
            file.writes.retain(|(other, _)| *other != number);
        });
        self.overlaps.ended.notify_waiters();
    }
}

impl ReadUnderWay<'_> {
    fn is_overtaken(&self) -> bool {
        let files = self.overlaps.files();
        let mut reads = files
            .get(&self.inode)
            .into_iter()
            .flat_map(|file| &file.reads);
        reads.any(|read| read.number == self.number && read.overtaken)
    }
}

impl Drop for ReadUnderWay<'_> {
    fn drop(&mut self) {
        self.overlaps.forget(self.inode, |file| {
            file.reads.retain(|read| read.number != self.number);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use penstock_base::clock;

    use super::*;

    const FILE: Inode = Inode(7);

    fn overlaps() -> Arc<Overlaps> {
        let overlaps = Arc::<Overlaps>::default();
        overlaps.keep_written();
        overlaps
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_waits_for_the_writes_of_its_bytes_and_for_no_others() {
        let overlaps = overlaps();
        let _elsewhere = overlaps.write(FILE, 10..20);
        let _other = overlaps.write(Inode(8), 0..10);
        overlaps.read((FILE, 0..10), || async {}).await;
        let write = overlaps.write(FILE, 9..12);
        let waited = clock::now();
        tokio::join!(overlaps.read((FILE, 0..10), || async {}), async {
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
        tokio::join!(overlaps.read((FILE, 0..10), read), async {
            clock::sleep(Duration::from_secs(1)).await;
            drop(overlaps.write(FILE, 5..6));
        });
        assert_eq!(reads.get(), 2);
        assert!(overlaps.files().is_empty(), "nothing is kept of what ended");
    }

    #[tokio::test(start_paused = true)]
    async fn writes_that_never_end_do_not_keep_a_read_for_ever() {
        let overlaps = overlaps();
        let reads = Cell::new(0);
        let read = || async {
            reads.set(reads.get() + 1);
            drop(overlaps.write(FILE, 0..1));
        };
        overlaps.read((FILE, 0..10), read).await;
        assert_eq!(reads.get(), REPEATS_MAX + 1);
    }
}
