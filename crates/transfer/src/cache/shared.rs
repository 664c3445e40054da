//! What the thread that writes and those who read share.

use std::{
    io,
    ops::RangeInclusive,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use penstock_base::clock;
use tracing::warn;

use super::{
    bounds::KeepFree, edges::Edges, entry::Entry, folder::Folder, header::Header, ledger::Ledger,
    metrics::Metrics, name::VersionName, queue::Queue, table::Table,
};
use crate::lock::lock;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) folder: Folder,
    pub(super) table: Mutex<Table>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) queue: Arc<Queue>,
    pub(super) edges: Arc<Edges>,
    pub(super) metrics: Metrics,
    /// The bound that was given.
    pub(super) size: Option<u64>,
    pub(super) keep_free: KeepFree,
    /// The disk refuses writes.
    pub(super) paused: AtomicBool,
    pub(super) ready: Mutex<bool>,
    pub(super) became_ready: Condvar,
}

impl Shared {
    /// The files of a version for use, if they are there and their header `fits`.
    pub(super) fn find(
        &self,
        name: VersionName,
        fits: impl FnOnce(&Header) -> bool,
    ) -> Option<Arc<Entry>> {
        let now = clock::wall_time();
        let found = lock(&self.table).look_up(name, now)?;
        let entry = match found.entry {
            Some(entry) => fits(&entry.header).then_some(entry),
            None => self.open(name, fits),
        }?;
        if found.touch {
            // Only the order of eviction after a restart depends on it.
            let _ = entry.touch(now);
        }
        Some(entry)
    }

    fn open(&self, name: VersionName, fits: impl FnOnce(&Header) -> bool) -> Option<Arc<Entry>> {
        match Entry::open(&self.folder, name, fits, &self.ledger) {
            Ok(Some(entry)) => lock(&self.table).opened(entry),
            // Files that are damaged, of something else or gone are of no use.
            Ok(None) => {
                self.remove(name);
                None
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.remove(name);
                None
            }
            Err(_) => None,
        }
    }

    /// Removes a version and returns the bytes that it occupied.
    pub(super) fn remove(&self, name: VersionName) -> u64 {
        let Some(leaving) = lock(&self.table).remove(name) else {
            return 0;
        };
        self.folder.remove(name);
        let bytes = leaving.bytes;
        leaving.gone(&self.ledger);
        self.count_objects();
        bytes
    }

    /// Drops what of the versions with these names is about to be written.
    pub(super) fn drop_what_waits(&self, names: &RangeInclusive<VersionName>) {
        self.edges.forget(names);
        self.queue.forget(names);
    }

    /// Removes all versions with these names, and what of them is about to be written.
    pub(super) fn forget(&self, names: RangeInclusive<VersionName>) {
        self.drop_what_waits(&names);
        let known = lock(&self.table).within(*names.start(), *names.end());
        for name in known {
            self.remove(name);
        }
    }

    /// Block `index` of a version does not match its checksum, or cannot be read.
    pub(super) fn damaged(&self, entry: &Entry, index: u64) {
        self.metrics.corrupt_blocks.increment();
        if !entry.told.swap(true, Ordering::Relaxed) {
            let key = &entry.header.key;
            warn!(
                block = index,
                "`{key}`: its copy in the disk cache is damaged; damaged blocks \
                   are fetched from the store again"
            );
        }
        if entry.forget(index).is_err() {
            self.remove(entry.name);
        }
    }

    /// Shows how many versions there are.
    pub(super) fn count_objects(&self) -> usize {
        let count = lock(&self.table).len();
        self.metrics.objects.set(count as u64);
        count
    }

    pub(super) fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// What was on the disk at the start is known.
    pub(super) fn set_ready(&self) {
        *lock(&self.ready) = true;
        self.became_ready.notify_all();
    }

    /// Waits for [`Shared::set_ready`], at most `patience`. Says whether it came.
    pub(super) fn wait_until_ready(&self, patience: Duration) -> bool {
        let ready = lock(&self.ready);
        let waited = self
            .became_ready
            .wait_timeout_while(ready, patience, |ready| !*ready);
        let (ready, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *ready
    }
}
