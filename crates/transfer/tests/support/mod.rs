//! A bucket in memory with a network in front: latency, shared bandwidth, counters and faults.

// Each test uses some of it; helpers of tests may panic.
#![allow(dead_code, unreachable_pub, clippy::panic, clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    mem::MaybeUninit,
    ops::Range,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{
    BufferPool, MIB, MemoryBudget, Payload,
    clock::{self, Instant},
    metrics::Registry,
};
use penstock_object::*;
use penstock_object_testing::MemoryStore;
use penstock_transfer::{
    MemoryCache, ObjectVersion, Transfer, TransferError, TransferResult, TransferSettings, Writer,
};

/// Bytes that arrive at once.
const CHUNK: usize = 256 << 10;

/// What a test store does to requests.
#[derive(Debug, Clone, Default)]
pub struct Network {
    /// Before the head of each response.
    pub latency: Duration,
    /// Bytes per second of all responses together; `None` is unlimited.
    pub bandwidth: Option<f64>,
}

/// What [`TestStore::gets`] shows for a GET without a range.
pub const WHOLE: Range<u64> = 0..u64::MAX;

/// A request that the next matching one meets with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Fails before anything happens.
    Refuse(ErrorKind),
    /// A body ends after this many bytes with `Interrupted`.
    CutAfter(u64),
    /// A body ends after this many bytes, and the store says that all is well.
    EndAfter(u64),
}

#[derive(Debug)]
pub struct TestStore {
    inner: MemoryStore,
    network: Network,
    link_free: Mutex<Option<Instant>>,
    blank: Mutex<Option<u64>>,
    /// Whether uploads are received and thrown away.
    pub discards: AtomicBool,
    /// Ranges of the GETs in the order of their arrival.
    pub gets: Mutex<Vec<Range<u64>>>,
    keys_got: Mutex<Vec<Key>>,
    /// Sizes of the parts that were sent.
    pub part_sizes: Mutex<Vec<u64>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    faults: Mutex<Vec<(Operation, Fault)>>,
    pub in_flight: AtomicU64,
    pub in_flight_max: AtomicU64,
}

impl TestStore {
    pub fn new(network: Network) -> Arc<Self> {
        Self::around(MemoryStore::like_s3(), network)
    }

    pub fn around(inner: MemoryStore, network: Network) -> Arc<Self> {
        Arc::new(Self {
            inner,
            network,
            link_free: Mutex::default(),
            blank: Mutex::default(),
            discards: AtomicBool::new(false),
            gets: Mutex::default(),
            keys_got: Mutex::default(),
            part_sizes: Mutex::default(),
            counts: Mutex::default(),
            faults: Mutex::default(),
            in_flight: AtomicU64::new(0),
            in_flight_max: AtomicU64::new(0),
        })
    }

    pub fn count(&self, operation: Operation) -> u64 {
        *self
            .counts
            .lock()
            .unwrap()
            .get(operation.name())
            .unwrap_or(&0)
    }

    /// Requests of every kind.
    pub fn total(&self) -> u64 {
        self.counts.lock().unwrap().values().sum()
    }

    /// The next request of that kind meets with `fault`; several line up.
    pub fn fail_next(&self, operation: Operation, fault: Fault) {
        self.faults.lock().unwrap().push((operation, fault));
    }

    pub fn bytes_got(&self) -> u64 {
        self.gets
            .lock()
            .unwrap()
            .iter()
            .map(|range| range.end - range.start)
            .sum()
    }

    pub fn gets(&self) -> Vec<Range<u64>> {
        self.gets.lock().unwrap().clone()
    }

    /// The same of one object.
    pub fn gets_of(&self, wanted: &str) -> Vec<Range<u64>> {
        let keys = self.keys_got.lock().unwrap();
        let gets = keys.iter().zip(self.gets());
        gets.filter(|(key, _)| key.as_str() == wanted)
            .map(|(_, range)| range)
            .collect()
    }

    pub async fn uploads(&self) -> usize {
        self.inner
            .list_uploads("", None)
            .await
            .expect("listed")
            .uploads
            .len()
    }

    /// Puts an object of `size` pattern bytes, without any delay or count.
    pub async fn fill(&self, key: &str, size: u64) -> ObjectVersion {
        let key = Key::new(key).expect("valid");
        let body = Payload::from(pattern(0..size));
        let stored = self
            .inner
            .put(&key, body, PutOptions::default())
            .await
            .expect("stored");
        ObjectVersion {
            key,
            etag: stored.etag,
            size,
        }
    }

    /// From now on every GET finds an object of `size` zero bytes, which costs no memory.
    pub fn blank(&self, key: &str, size: u64) -> ObjectVersion {
        *self.blank.lock().unwrap() = Some(size);
        ObjectVersion {
            key: Key::new(key).expect("valid"),
            etag: ETag::new("blank"),
            size,
        }
    }

    async fn find(&self, key: &Key, options: GetOptions, body: &mut Body) -> ObjectResult<Got> {
        let Some(size) = *self.blank.lock().unwrap() else {
            return self.inner.get(key, options, body).await;
        };
        let range = options.range.unwrap_or(0..size);
        body.bytes = vec![0; (range.end - range.start) as usize];
        let info = ObjectInfo {
            size,
            etag: ETag::new("blank"),
            modified: clock::wall_time(),
            kind: ObjectKind::Normal,
            storage_class: String::new(),
            content_type: String::new(),
            metadata: UserMetadata::new(),
            checksum: None,
        };
        let got = Got { info, range };
        body.got = Some(got.clone());
        Ok(got)
    }

    pub async fn content(&self, key: &Key) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        let got = self.inner.get(key, GetOptions::default(), &mut body).await;
        got.ok().map(|_| body)
    }

    async fn arrive(&self, operation: Operation) -> ObjectResult<Option<Fault>> {
        *self
            .counts
            .lock()
            .unwrap()
            .entry(operation.name())
            .or_default() += 1;
        if !self.network.latency.is_zero() {
            clock::sleep(self.network.latency).await;
        }
        let fault = {
            let mut faults = self.faults.lock().unwrap();
            let index = faults.iter().position(|(of, _)| *of == operation);
            index.map(|index| faults.remove(index).1)
        };
        match fault {
            Some(Fault::Refuse(kind)) => Err(ObjectError::new(kind, operation, "injected")),
            other => Ok(other),
        }
    }

    /// Waits until `bytes` have passed through the link that all requests share.
    async fn pass(&self, bytes: usize) {
        let Some(bandwidth) = self.network.bandwidth else {
            return tokio::task::yield_now().await;
        };
        let passed = {
            let mut link = self.link_free.lock().unwrap();
            let start = link.unwrap_or_else(clock::now).max(clock::now());
            let end = start + Duration::from_secs_f64(bytes as f64 / bandwidth);
            *link = Some(end);
            end
        };
        tokio::time::sleep_until(passed).await;
    }
}

/// Counts a request until it is dropped.
struct Going<'a>(&'a TestStore);

impl<'a> Going<'a> {
    fn begin(store: &'a TestStore) -> Self {
        let now = store.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        store.in_flight_max.fetch_max(now, Ordering::SeqCst);
        Self(store)
    }
}

impl Drop for Going<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Keeps the head of a response back until the body is delivered.
#[derive(Default)]
struct Body {
    got: Option<Got>,
    bytes: Vec<u8>,
}

// SAFETY: `unfilled` is the same memory until it is advanced over.
#[allow(unsafe_code)]
unsafe impl BodySink for Body {
    fn begin(&mut self, got: &Got) {
        self.got = Some(got.clone());
    }
    fn filled(&self) -> u64 {
        self.bytes.len() as u64
    }
    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        BodySink::unfilled(&mut self.bytes)
    }
    unsafe fn advance(&mut self, count: usize) {
        // SAFETY: passed on.
        unsafe { BodySink::advance(&mut self.bytes, count) }
    }
}

#[async_trait]
impl Store for TestStore {
    fn below(&self) -> Below<'_> {
        Below::Store(&self.inner)
    }

    async fn head(&self, key: &Key, options: HeadOptions) -> ObjectResult<ObjectInfo> {
        self.arrive(Operation::Head).await?;
        self.inner.head(key, options).await
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        let _going = Going::begin(self);
        self.keys_got.lock().unwrap().push(key.clone());
        self.gets
            .lock()
            .unwrap()
            .push(options.range.clone().unwrap_or(WHOLE));
        let fault = self.arrive(Operation::Get).await?;
        let mut body = Body::default();
        let mut got = self.find(key, options, &mut body).await?;
        sink.begin(body.got.as_ref().expect("begun"));
        let limit = match fault {
            Some(Fault::CutAfter(limit) | Fault::EndAfter(limit)) => limit as usize,
            _ => body.bytes.len(),
        };
        let arriving = &body.bytes[..limit.min(body.bytes.len())];
        let mut delivered = 0;
        for chunk in arriving.chunks(CHUNK) {
            self.pass(chunk.len()).await;
            delivered += sink.copy_from(chunk) as u64;
        }
        if matches!(fault, Some(Fault::CutAfter(_))) {
            return Err(ObjectError::new(
                ErrorKind::Interrupted,
                Operation::Get,
                "cut",
            ));
        }
        got.range.end = got.range.start + delivered;
        Ok(got)
    }

    async fn put(&self, key: &Key, body: Payload, options: PutOptions) -> ObjectResult<Stored> {
        self.arrive(Operation::Put).await?;
        self.pass(body.len()).await;
        self.inner.put(key, body, options).await
    }

    async fn append(
        &self,
        key: &Key,
        position: u64,
        body: Payload,
        options: PutOptions,
    ) -> ObjectResult<Appended> {
        self.arrive(Operation::Append).await?;
        self.inner.append(key, position, body, options).await
    }

    async fn copy(&self, source: &Key, target: &Key, options: CopyOptions) -> ObjectResult<Stored> {
        self.arrive(Operation::Copy).await?;
        self.inner.copy(source, target, options).await
    }

    async fn delete(&self, key: &Key) -> ObjectResult<()> {
        self.inner.delete(key).await
    }

    async fn delete_many(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        self.inner.delete_many(keys).await
    }

    async fn list(&self, options: ListOptions) -> ObjectResult<ListPage> {
        self.inner.list(options).await
    }

    async fn create_upload(&self, key: &Key, options: PutOptions) -> ObjectResult<UploadId> {
        self.arrive(Operation::CreateUpload).await?;
        self.inner.create_upload(key, options).await
    }

    async fn upload_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        body: Payload,
    ) -> ObjectResult<Part> {
        let _going = Going::begin(self);
        self.part_sizes.lock().unwrap().push(body.len() as u64);
        self.arrive(Operation::UploadPart).await?;
        self.pass(body.len()).await;
        if self.discards.load(Ordering::SeqCst) {
            return Ok(Part {
                number,
                etag: ETag::new("discarded"),
                size: body.len() as u64,
                checksum: None,
            });
        }
        // What the bucket keeps must not occupy the budget of the client.
        let sent = Payload::from(body.to_vec());
        drop(body);
        self.inner.upload_part(key, upload, number, sent).await
    }

    async fn copy_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        copy: PartCopy,
    ) -> ObjectResult<Part> {
        self.arrive(Operation::CopyPart).await?;
        self.inner.copy_part(key, upload, number, copy).await
    }

    async fn complete_upload(
        &self,
        key: &Key,
        upload: &UploadId,
        parts: &[Part],
        options: CompleteOptions,
    ) -> ObjectResult<Stored> {
        self.arrive(Operation::CompleteUpload).await?;
        if self.discards.load(Ordering::SeqCst) {
            return Ok(Stored {
                etag: ETag::new("discarded"),
                checksum: None,
            });
        }
        self.inner
            .complete_upload(key, upload, parts, options)
            .await
    }

    async fn abort_upload(&self, key: &Key, upload: &UploadId) -> ObjectResult<()> {
        self.arrive(Operation::AbortUpload).await?;
        self.inner.abort_upload(key, upload).await
    }

    async fn list_uploads(
        &self,
        prefix: &str,
        continuation: Option<&str>,
    ) -> ObjectResult<UploadPage> {
        self.inner.list_uploads(prefix, continuation).await
    }

    async fn put_symlink(
        &self,
        key: &Key,
        target: &Key,
        options: PutOptions,
    ) -> ObjectResult<Stored> {
        self.inner.put_symlink(key, target, options).await
    }

    async fn get_symlink(&self, key: &Key) -> ObjectResult<Key> {
        self.inner.get_symlink(key).await
    }
}

/// Bytes after which the pattern repeats: a prime, so that no two blocks look alike.
const PERIOD: usize = 1_048_583;

static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let word = |index: u64| (index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 17).to_le_bytes();
    let mut bytes: Vec<u8> = (0..PERIOD as u64 / 8 + 1).flat_map(word).collect();
    bytes.truncate(PERIOD);
    bytes
});

/// The bytes that an object filled by a test has in `range`.
pub fn pattern(range: Range<u64>) -> Vec<u8> {
    let length = (range.end - range.start) as usize;
    let mut bytes = Vec::with_capacity(length);
    let mut start = (range.start % PERIOD as u64) as usize;
    while bytes.len() < length {
        let end = PERIOD.min(start + length - bytes.len());
        bytes.extend_from_slice(&PATTERN[start..end]);
        start = 0;
    }
    bytes
}

/// A store, the transfer on it, and what it told.
pub struct Bench {
    pub store: Arc<TestStore>,
    pub transfer: Arc<Transfer>,
    pub registry: Arc<Registry>,
}

impl Bench {
    pub fn new(store: Arc<TestStore>, memory: u64, settings: TransferSettings) -> Self {
        let pool = BufferPool::new(MemoryBudget::new(memory));
        let registry = Registry::new();
        let dynamic: Arc<dyn Store> = Arc::<TestStore>::clone(&store);
        let transfer = Transfer::with_settings(dynamic, pool, settings, &registry);
        Self {
            store,
            transfer,
            registry,
        }
    }

    /// One whose store is behind a cache in memory.
    pub fn cached(store: Arc<TestStore>, memory: u64) -> Self {
        let pool = BufferPool::new(MemoryBudget::new(memory));
        let registry = Registry::new();
        let dynamic: Arc<dyn Store> = Arc::<TestStore>::clone(&store);
        let cache = MemoryCache::around(dynamic, pool.budget(), &registry);
        let settings = TransferSettings::default();
        let transfer = Transfer::with_settings(cache, pool, settings, &registry);
        Self {
            store,
            transfer,
            registry,
        }
    }

    /// A bench with plenty of memory and no delays.
    pub fn plain() -> Self {
        Self::new(
            TestStore::new(Network::default()),
            512 * MIB,
            TransferSettings::default(),
        )
    }

    pub fn budget(&self) -> &Arc<MemoryBudget> {
        self.transfer.pool().budget()
    }

    pub fn metric(&self, name: &str) -> u64 {
        self.registry
            .samples()
            .iter()
            .filter(|sample| sample.name == name)
            .map(|sample| sample.value)
            .sum()
    }
}

/// The store's error kind behind a failed transfer.
pub fn kind<T: std::fmt::Debug>(result: TransferResult<T>) -> ErrorKind {
    match result {
        Err(TransferError::Object(error)) => error.kind,
        other => panic!("not a store's error: {other:?}"),
    }
}

/// Writes `data` in pieces of `piece` bytes.
pub async fn write_all(writer: &mut Writer, data: &[u8], piece: usize) -> TransferResult<()> {
    for piece in data.chunks(piece) {
        writer.write(Bytes::copy_from_slice(piece)).await?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

pub fn key(text: &str) -> Key {
    Key::new(text).expect("valid")
}
