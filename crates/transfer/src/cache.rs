//! A disk cache for reads.
//!
//! It is a [`Store`] around a store. A `get` that is pinned to a version, or of an object that
//! [has one](GetOptions::unchanging) for ever, is served from the disk where the disk has it; everything else passes through, so readers, windows and small files stay
//! as they are, and whoever stacks a cache is no business of its.
//!
//! **Why pinned reads need nobody's consent.** A tag names content: what was received under a tag is
//! right under that tag for ever, and a new version of the object has another name here. The old one
//! ages out; at once if the write went through this store. Whoever must know that a version is still
//! the present one (an append that is based on it) asks with [`GetOptions::fresh`].
//!
//! **On the disk** (`folder`, `entry`, `header`, `block`) a version is two files: a sparse copy of
//! the object, byte for byte at the same offset, and an index with a CRC-32C of each block of
//! 128 KiB. Data is written first, and nothing is synced: a block that does not match its checksum
//! is missing, is fetched again, and is counted. So the worst that a crash can do is a miss.
//!
//! **In** (`tee`, `edges`, `queue`, `keeper`): received memory is taken over by reference when a block
//! is whole, queued, and written by one thread. What arrives of a block in two requests is put
//! together. Readers are not let ahead of it by more than the queue:
//! what was read once is there. When the disk is slow, full or unwilling nobody waits for it, and bytes
//! are not cached.
//!
//! **Out** (`delivery`, `hit`): blocks are read into the memory of whoever asked and compared there
//! before anything is given out. What lies between blocks that the disk has is asked of the store.
//! A version of which every block was compared or written here is also lent out as a file
//! (`soundness`), for a kernel that reads by itself.
//!
//! **Bounds** (`table`, `ledger`, `bounds`): bytes are counted as the file system allocates them,
//! reserved before they are written. The versions used longest ago make room, whole; who has them
//! open reads on. The times of use outlive a restart as the times of the index files.

mod block;
mod bounds;
mod contents;
mod delivery;
mod edges;
mod entry;
mod folder;
mod header;
mod hit;
mod keeper;
mod ledger;
mod metrics;
mod name;
mod queue;
mod shared;
mod soundness;
mod store;
mod table;
mod tee;
#[cfg(test)]
mod tests;
mod version;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, atomic::AtomicBool},
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use penstock_base::{BufferPool, DirectoryLock, MIB, Reclaim, metrics::Registry};
#[cfg(doc)]
use penstock_object::GetOptions;
use penstock_object::Store;
use thiserror::Error;

pub(crate) use block::BLOCK;
pub use bounds::KeepFree;
pub use contents::CacheContents;

use self::{
    contents::is_below,
    edges::Edges,
    folder::{Folder, Found},
    keeper::Keeper,
    ledger::Ledger,
    metrics::Metrics,
    queue::Queue,
    shared::Shared,
    store::CachedStore,
    table::Table,
};
use crate::lock::lock;

/// The part of the memory budget that may wait to be written, as a divisor, and the most.
const QUEUE_DIVISOR: u64 = 4;
const QUEUE_MAX: u64 = 128 * MIB;

/// The part of the memory budget that is set aside for blocks of which a part has arrived, as a
/// divisor, and the most: a few for each of some dozens of readers.
const EDGES_DIVISOR: u64 = 16;
const EDGES_MAX: u64 = 8 * MIB;

/// How long what waits may take to be written when the cache is closed.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);

/// Settings of a [`DiskCache`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CacheSettings {
    /// Where the files are. Made, private to its user, if it is not there.
    pub directory: PathBuf,
    /// Bytes that they may occupy. Default: half of what the file system would have free without
    /// them when the cache is opened.
    pub size: Option<u64>,
    /// What must stay free on the file system.
    pub keep_free: KeepFree,
}

/// Why a cache cannot be opened or looked at.
#[derive(Debug, Error)]
pub enum CacheError {
    /// Another process has it.
    #[error(
        "the cache directory `{}` is used by process {pid}: give each mount a directory of its own",
        .directory.display()
    )]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// The process; 0 if it did not say.
        pid: u32,
    },
    /// The system refused something.
    #[error("{what} `{}`: {error}", .path.display())]
    Io {
        /// What could not be done.
        what: &'static str,
        /// To which file or directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl CacheError {
    fn io(what: &'static str, path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        Self::Io { what, path, error }
    }
}

/// A disk cache, open. Closed on drop: what waits is written then, for a few seconds.
#[derive(Debug)]
pub struct DiskCache {
    shared: Arc<Shared>,
    pool: Arc<BufferPool>,
    keeper: Mutex<Option<JoinHandle<()>>>,
    /// Held as long as the cache is open.
    _lock: DirectoryLock,
}

impl DiskCache {
    /// Opens the cache and begins to look what is there, in the background; nothing is served and
    /// nothing written before that is done.
    ///
    /// Fails when the directory cannot be made and when another process uses it.
    pub fn open(
        settings: &CacheSettings,
        pool: &Arc<BufferPool>,
        registry: &Registry,
    ) -> Result<Arc<Self>, CacheError> {
        let folder = Folder::of(&settings.directory);
        let held = folder.take()?;
        let shared = shared(folder, settings, pool, registry);
        let reclaimer: Arc<dyn Reclaim> = Arc::<Queue>::clone(&shared.queue);
        pool.budget().register(Arc::downgrade(&reclaimer));
        let keeper = Keeper::new(Arc::clone(&shared));
        let thread = thread::Builder::new().name("disk-cache".to_owned());
        let started = thread.spawn(move || keeper.run());
        let keeper = started.map_err(|error| {
            CacheError::io("no thread for the cache in", &settings.directory, error)
        })?;
        Ok(Arc::new(Self {
            shared,
            pool: Arc::clone(pool),
            keeper: Mutex::new(Some(keeper)),
            _lock: held,
        }))
    }

    /// `store` with this cache in front of it. `identity` tells it from every other store whose
    /// objects this directory may hold, and names no credentials.
    pub fn around(&self, store: Arc<dyn Store>, identity: &str) -> Arc<dyn Store> {
        let shared = Arc::clone(&self.shared);
        let pool = Arc::clone(&self.pool);
        Arc::new(CachedStore::new(store, identity.to_owned(), shared, pool))
    }

    /// Blocks until it is known what was there at the start, at most `patience`. Says whether it
    /// is.
    pub fn wait_until_ready(&self, patience: Duration) -> bool {
        self.shared.wait_until_ready(patience)
    }

    /// Blocks until everything that was received so far is written, at most `patience`. Says
    /// whether it is.
    pub fn settle(&self, patience: Duration) -> bool {
        self.shared.queue.settle(patience)
    }

    /// Removes the versions of objects whose keys start with `prefix`, and returns what that was.
    /// Reads that are under way go on. Blocks as long as the disk takes.
    pub fn remove(&self, prefix: &str) -> CacheContents {
        let names = lock(&self.shared.table).names();
        let mut removed = CacheContents::default();
        for name in names {
            let found = Found {
                name,
                bytes: 0,
                used: SystemTime::UNIX_EPOCH,
            };
            if prefix.is_empty() || is_below(&self.shared.folder, &found, prefix) {
                self.shared.drop_what_waits(&(name..=name));
                removed.bytes += self.shared.remove(name);
                removed.objects += 1;
            }
        }
        removed
    }

    /// Writes what waits, for a few seconds, and takes nothing more. Blocks.
    pub fn close(&self) {
        self.shared.queue.close();
        let settled = self.shared.queue.settle(CLOSE_PATIENCE);
        if let Some(keeper) = lock(&self.keeper).take()
            && settled
        {
            // A panic was reported when it happened.
            let _ = keeper.join();
        }
    }
}

impl Drop for DiskCache {
    fn drop(&mut self) {
        self.close();
    }
}

fn shared(
    folder: Folder,
    settings: &CacheSettings,
    pool: &BufferPool,
    registry: &Registry,
) -> Arc<Shared> {
    let metrics = Metrics::register(registry);
    let ledger = Ledger::new(Arc::clone(&metrics.used_bytes));
    let waiting_max = (pool.budget().total() / QUEUE_DIVISOR).min(QUEUE_MAX);
    let edges_max = (pool.budget().total() / EDGES_DIVISOR).min(EDGES_MAX);
    Arc::new(Shared {
        folder,
        table: Mutex::new(Table::new(Arc::clone(&ledger))),
        ledger,
        queue: Queue::new(
            waiting_max,
            Arc::clone(&metrics.skipped_bytes),
            Arc::clone(&metrics.waiting_bytes),
        ),
        edges: Edges::new(
            pool.budget().try_reserve(edges_max),
            Arc::clone(&metrics.skipped_bytes),
        ),
        metrics,
        size: settings.size,
        keep_free: settings.keep_free,
        paused: AtomicBool::new(false),
        ready: Mutex::new(false),
        became_ready: Condvar::new(),
    })
}
