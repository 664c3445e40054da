//! Reads objects of a snapshot.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
};

use penstock_base::{FsError, FsResult, MIB, Mutex, Payload, metrics::Registry};
use penstock_transfer::{Reader, Transfer, TransferError};

use super::{Metrics, damaged::Damaged, failure};
use crate::{
    MappedObject, ObjectMap,
    cache::{Found, ObjectCache},
    prefetch::Prefetcher,
};

/// Bytes in the largest object that is fetched whole by a read of any part of it.
pub const SMALL_OBJECT_MAX: u64 = MIB;

/// Large objects of whose readers it is remembered where they are.
const READERS_MAX: usize = 256;

/// How objects are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataSettings {
    /// Every read is one GET of exactly what is read: no cache, nothing fetched ahead.
    pub direct: bool,
    /// Bytes of small objects that are kept in memory, within the memory budget. At most half of
    /// the budget makes sense.
    pub cache_bytes: u64,
}

impl DataSettings {
    /// With half of a memory budget for the cache.
    pub fn within(memory_budget: u64) -> Self {
        Self {
            direct: false,
            cache_bytes: memory_budget / 2,
        }
    }
}

/// Reads objects of one snapshot, for all of its disks and files.
#[derive(Debug)]
pub struct DataPath {
    map: Arc<ObjectMap>,
    transfer: Arc<Transfer>,
    settings: DataSettings,
    cache: Arc<ObjectCache>,
    prefetcher: Prefetcher,
    readers: Mutex<Readers>,
    damaged: Damaged,
    metrics: Arc<Metrics>,
}

impl DataPath {
    /// Reads the objects of `map` through `transfer`, and tells `registry` how it goes.
    pub fn new(
        map: Arc<ObjectMap>,
        transfer: Arc<Transfer>,
        settings: DataSettings,
        registry: &Registry,
    ) -> Arc<Self> {
        let metrics = Arc::new(Metrics::register(registry));
        let (of_cache, counters) = (Arc::clone(&transfer), Arc::clone(&metrics));
        let cache = ObjectCache::new(of_cache, settings.cache_bytes, counters);
        let prefetcher = Prefetcher::new(Arc::clone(&map), Arc::clone(&cache));
        Arc::new(Self {
            map,
            transfer,
            settings,
            cache,
            prefetcher,
            readers: Mutex::default(),
            damaged: Damaged::default(),
            metrics,
        })
    }

    /// The objects that can be read.
    pub fn map(&self) -> &Arc<ObjectMap> {
        &self.map
    }

    /// How objects are read.
    pub fn settings(&self) -> DataSettings {
        self.settings
    }

    /// Reads a range of an object, which must not reach beyond its end. Fails with `Stale` when
    /// the object is not the one in the snapshot any more. Dropping the future gives up the read
    /// and every GET that nobody else waits for. Must be called within a tokio runtime.
    pub async fn read(&self, object: &MappedObject, range: Range<u64>) -> FsResult<Payload> {
        if range.is_empty() {
            return Ok(Payload::new());
        }
        let read = if self.settings.direct && !self.damaged.has(object.number) {
            self.read_exactly(object, range).await
        } else if object.size <= SMALL_OBJECT_MAX {
            self.read_small(object, range).await
        } else {
            self.read_large(object, range).await
        };
        read.map_err(|error| match error {
            Failure::Transfer(error) => {
                let meaning = failure::of_read(&object.key, &error, &self.metrics);
                if matches!(meaning, FsError::Corrupt(_)) && object.size <= SMALL_OBJECT_MAX {
                    self.damaged.note(object.number);
                }
                meaning
            }
            Failure::File(error) => error,
        })
    }

    async fn read_exactly(
        &self,
        object: &MappedObject,
        range: Range<u64>,
    ) -> Result<Payload, Failure> {
        let version = object.version()?;
        let cost = Transfer::cost(range.end - range.start);
        let memory = self.transfer.read_memory(cost).await?;
        Ok(self.transfer.fetch(version, range, memory).await?)
    }

    async fn read_small(
        &self,
        object: &MappedObject,
        range: Range<u64>,
    ) -> Result<Payload, Failure> {
        let found = self.cache.demand(object.number, object.version()?);
        if !self.settings.direct {
            let waits = matches!(found, Found::Coming(_));
            self.prefetcher.touched(object.number, waits);
        }
        let whole = match found {
            Found::Held(payload) => payload,
            Found::Coming(flight) => flight.await?,
        };
        Ok(whole.slice(&range))
    }

    async fn read_large(
        &self,
        object: &MappedObject,
        range: Range<u64>,
    ) -> Result<Payload, Failure> {
        if range.start == 0 {
            self.prefetcher.touched(object.number, false);
        }
        let reader = self.reader(object)?;
        let length = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
        Ok(reader.read(range.start, length).await?)
    }

    fn reader(&self, object: &MappedObject) -> FsResult<Arc<Reader>> {
        let mut readers = self.readers.lock();
        if let Some(reader) = readers.find(object.number) {
            return Ok(reader);
        }
        let reader = Arc::new(self.transfer.reader(object.version()?));
        let evicted = readers.add(object.number, Arc::clone(&reader));
        drop(readers);
        drop(evicted);
        Ok(reader)
    }
}

/// Why a read failed.
enum Failure {
    Transfer(TransferError),
    File(FsError),
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        Self::Transfer(error)
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        Self::File(error)
    }
}

/// Readers of large objects by number, at most [`READERS_MAX`].
#[derive(Debug, Default)]
struct Readers {
    readers: HashMap<u32, (u64, Arc<Reader>)>,
    /// The least recently used first.
    order: BTreeMap<u64, u32>,
    last_use: u64,
}

impl Readers {
    fn find(&mut self, number: u32) -> Option<Arc<Reader>> {
        let (used, reader) = self.readers.get_mut(&number)?;
        self.order.remove(used);
        self.last_use += 1;
        *used = self.last_use;
        self.order.insert(*used, number);
        Some(Arc::clone(reader))
    }

    /// Returns the one that has to go.
    fn add(&mut self, number: u32, reader: Arc<Reader>) -> Option<Arc<Reader>> {
        self.last_use += 1;
        self.order.insert(self.last_use, number);
        self.readers.insert(number, (self.last_use, reader));
        let (_, oldest) = (self.readers.len() > READERS_MAX)
            .then(|| self.order.pop_first())
            .flatten()?;
        self.readers.remove(&oldest).map(|(_, reader)| reader)
    }
}
