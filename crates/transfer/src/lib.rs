//! Moves object bytes between a store and memory.
//!
//! - [`Reader`]: reads of one version of one object, with read-ahead where access is sequential.
//! - [`ExtentReader`]: the same of a file whose bytes lie in many objects.
//! - [`Codec`]: how parts of an object may be compressed, which the readers of extents undo.
//! - [`Writer`]: a sequential stream into one object, in one PUT or a multipart upload.
//! - [`Appender`]: a sequential stream to the end of an appendable object.
//! - [`staging`]: the write-back area, where files are written anywhere before they are saved.
//! - [`DiskCache`]: a store around a store that keeps what was read on the disk.
//! - [`MemoryCache`]: one that keeps short ranges in memory, and fetches ahead across small things of one object.
//!
//! Readers and writers draw every byte they hold from the [`BufferPool`]'s budget. Bodies are received straight
//! into pooled blocks and read where they lie; what is written is kept as it came in, unless it is
//! so small that it would pin more memory than it has bytes.
//!
//! Requests run as tokio tasks, one per part. What an engine of another kind would have to
//! replace is only [`Store`], whose `get` fills whatever [`penstock_object::BodySink`] it is given.

mod cache;
mod codec;
mod error;
mod estimate;
mod forgetting;
mod lock;
mod memory;
mod memory_cache;
mod metrics;
mod reader;
mod settings;
pub mod staging;
mod writer;

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use penstock_base::{BufferPool, Payload, Reclaim, Reservation, metrics::Registry};
use penstock_object::{ETag, Key, PutOptions, Store};
use tokio::sync::{Semaphore, SemaphorePermit};

pub use cache::{CacheContents, CacheError, CacheSettings, DiskCache, KeepFree};
pub use codec::{Codec, Decoder, Encoder, ZSTD_LEVELS};
pub use error::{TransferError, TransferResult};
pub use memory_cache::MemoryCache;
pub use reader::{Extent, ExtentReader, FileRead, Frames, Grains, MapPart, Reader, Refused};
pub use settings::TransferSettings;
pub use writer::{Appender, Finished, WriteStart, Writer};

use crate::{
    estimate::PathEstimate,
    memory::SetAside,
    metrics::Metrics,
    reader::{Habit, Origin, ReadAhead, Readers},
    writer::CleanUps,
};

/// Pieces of all objects that are fetched to be sent again at the same time, each in memory.
const RESENDS_MAX: usize = 3;

/// One version of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectVersion {
    /// The object.
    pub key: Key,
    /// Its version. An empty tag, where nobody knows it, is any version of that size.
    pub etag: ETag,
    /// Bytes in that version, or [`ObjectVersion::ANY_SIZE`] where only parts of it are asked for.
    pub size: u64,
}

impl ObjectVersion {
    /// Nobody knows how large it is.
    pub const ANY_SIZE: u64 = u64::MAX;

    /// What a request insists on: none where the tag is not known.
    pub(crate) fn pinned(&self) -> Option<&ETag> {
        (!self.etag.as_str().is_empty()).then_some(&self.etag)
    }

    /// Whether it may be of this version that it has so many bytes.
    pub(crate) fn fits(&self, size: u64) -> bool {
        self.size == size || self.size == Self::ANY_SIZE
    }

    /// Whether what the store has is this version.
    pub(crate) fn is(&self, etag: &ETag, size: u64) -> bool {
        self.fits(size) && self.pinned().is_none_or(|pinned| pinned == etag)
    }
}

/// What readers and writers of one mount share.
#[derive(Debug)]
pub struct Transfer {
    store: Arc<dyn Store>,
    pool: Arc<BufferPool>,
    settings: TransferSettings,
    metrics: Metrics,
    path: PathEstimate,
    read_ahead: Arc<ReadAhead>,
    readers: Arc<Readers>,
    habit: Habit,
    set_aside: SetAside,
    clean_ups: CleanUps,
    makes_copies: AtomicBool,
    resends: Semaphore,
}

impl Transfer {
    /// Moves bytes of `store` through memory of `pool`, with default settings.
    pub fn new(store: Arc<dyn Store>, pool: Arc<BufferPool>) -> Arc<Self> {
        Self::with_settings(store, pool, TransferSettings::default(), &Registry::new())
    }

    /// Moves bytes of `store` through memory of `pool`, and tells `registry` how it goes.
    pub fn with_settings(
        store: Arc<dyn Store>,
        pool: Arc<BufferPool>,
        settings: TransferSettings,
        registry: &Registry,
    ) -> Arc<Self> {
        let settings = settings.clamped();
        let metrics = Metrics::register(registry);
        let budget = pool.budget();
        let share = (budget.total() as f64 * settings.read_ahead_share) as u64;
        let limit = settings.read_ahead_max;
        let read_ahead = ReadAhead::new(share, limit, Arc::clone(&metrics.window_bytes));
        let readers = Arc::new(Readers::new());
        let reclaimer: Arc<dyn Reclaim> = Arc::<Readers>::clone(&readers);
        budget.register(Arc::downgrade(&reclaimer));
        Arc::new(Self {
            set_aside: SetAside::new(store.capabilities().part_size_min),
            store,
            pool,
            settings,
            metrics,
            path: PathEstimate::default(),
            read_ahead,
            readers,
            habit: Habit::default(),
            clean_ups: CleanUps::default(),
            makes_copies: AtomicBool::new(false),
            resends: Semaphore::new(RESENDS_MAX),
        })
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The memory.
    pub fn pool(&self) -> &Arc<BufferPool> {
        &self.pool
    }

    /// Opens one version of an object for reading. No request is made yet.
    pub fn reader(self: &Arc<Self>, version: ObjectVersion) -> Reader {
        Reader::new(Arc::clone(self), version)
    }

    /// Opens a file whose bytes lie in many objects for reading. No request is made yet.
    pub fn extent_reader(self: &Arc<Self>) -> ExtentReader {
        ExtentReader::new(Arc::clone(self))
    }

    /// Bytes of the budget that [`Transfer::fetch`] needs for `length` bytes.
    pub fn cost(length: u64) -> u64 {
        memory::cost(length)
    }

    /// Receives a part of one version, which must not be empty nor reach beyond its end, in one
    /// GET. `memory` pays for it and should hold [`Transfer::cost`] of its length. Fails with
    /// `PreconditionFailed` when the object is another version now. Nothing is fetched ahead and
    /// nothing is kept. Dropping the future gives the request up.
    pub async fn fetch(
        self: &Arc<Self>,
        version: ObjectVersion,
        range: Range<u64>,
        memory: Reservation,
    ) -> TransferResult<Payload> {
        reader::fetch_range(self, version, range, (memory, Origin::Anywhere)).await
    }

    /// The same from the store itself, whatever caches on the way have.
    pub async fn fetch_anew(
        self: &Arc<Self>,
        version: ObjectVersion,
        range: Range<u64>,
        memory: Reservation,
    ) -> TransferResult<Payload> {
        reader::fetch_range(self, version, range, (memory, Origin::TheStore)).await
    }

    /// Begins to write an object. No request is made yet.
    pub fn writer(self: &Arc<Self>, key: Key, start: WriteStart, options: PutOptions) -> Writer {
        Writer::new(Arc::clone(self), key, start, options)
    }

    /// The settings in force.
    pub fn settings(&self) -> &TransferSettings {
        &self.settings
    }

    /// Waits until the unfinished uploads of writers that failed or were dropped have been removed
    /// from the store, or that failed once more: at most about two minutes. Dropping the future gives those removals up.
    pub async fn settle(&self) {
        self.clean_ups.wait().await;
    }

    /// Whether the store was seen to make a part of what it has.
    pub(crate) fn makes_copies(&self) -> bool {
        self.makes_copies.load(Ordering::Relaxed)
    }

    pub(crate) fn saw_copy(&self) {
        self.makes_copies.store(true, Ordering::Relaxed);
    }

    /// Waits until one more piece may be fetched to be sent again.
    pub(crate) async fn resend_turn(&self) -> SemaphorePermit<'_> {
        let turn = self.resends.acquire().await;
        turn.expect("the semaphore is never closed")
    }

    pub(crate) fn clean_ups(&self) -> &CleanUps {
        &self.clean_ups
    }

    pub(crate) fn set_aside(&self) -> &SetAside {
        &self.set_aside
    }

    /// Parts that are being uploaded or copied.
    pub fn uploads_under_way(&self) -> u64 {
        self.metrics.uploads_in_flight.value()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) fn path(&self) -> &PathEstimate {
        &self.path
    }

    pub(crate) fn read_ahead(&self) -> &Arc<ReadAhead> {
        &self.read_ahead
    }

    pub(crate) fn habit(&self) -> &Habit {
        &self.habit
    }

    pub(crate) fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Memory for a read that somebody waits for. Fails with `OutOfMemory` after the time in the
    /// settings; dropping the future leaves the line.
    pub async fn read_memory(&self, bytes: u64) -> TransferResult<Reservation> {
        let memory = self.set_aside.for_read(self.pool.budget(), bytes);
        memory::in_time(self.settings.memory_wait, memory).await
    }
}
