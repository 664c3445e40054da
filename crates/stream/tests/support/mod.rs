//! A snapshot of a bucket in memory, with a network in front of it.

// Each test uses some of it; helpers of tests may panic.
#![allow(dead_code, unreachable_pub, clippy::panic, clippy::unwrap_used)]

use std::{ops::Range, sync::Arc, time::Duration};

use penstock_base::{BufferPool, MIB, MemoryBudget, Payload, metrics::Registry};
use penstock_object::{Key, Operation, PutOptions, RetrySettings, Store, layers::standard};
use penstock_object_testing::{Fault, Faults, Faulty, MemoryStore};
use penstock_stream::{
    BLOCK_SIZE, BlockAddress, DataPath, DataSettings, MappedObject, ObjectMap, ObjectMapWriter,
    Placement, SnapshotObject, StreamDisk, Timestamp,
};
use penstock_transfer::{Transfer, TransferSettings};
use penstock_vfs::Disk;

/// How a bench is made.
#[derive(Debug, Clone)]
pub struct Setup {
    pub disks: u16,
    pub direct: bool,
    pub budget: u64,
    pub cache: Option<u64>,
    pub latency: Duration,
    pub memory_wait: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            disks: 1,
            direct: false,
            budget: 256 * MIB,
            cache: None,
            latency: Duration::ZERO,
            memory_wait: Duration::from_secs(60),
        }
    }
}

pub struct Bench {
    _folder: tempfile::TempDir,
    /// The bucket behind all layers.
    pub bucket: Arc<MemoryStore>,
    pub faults: Arc<Faults>,
    pub budget: Arc<MemoryBudget>,
    pub registry: Arc<Registry>,
    pub data: Arc<DataPath>,
    pub disks: Vec<Arc<StreamDisk>>,
    /// What the disks should hold.
    pub images: Vec<Vec<u8>>,
    pub places: Vec<BlockAddress>,
}

/// Byte `index` of the object `key`.
pub fn content(key: &str, range: Range<u64>) -> Vec<u8> {
    let seed = key.bytes().fold(17u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    range
        .map(|index| ((seed ^ index).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
        .collect()
}

/// So many objects of the same size.
pub fn many(count: usize, size: u64) -> Vec<(String, u64)> {
    (0..count)
        .map(|index| (format!("dir{:03}/file{index:06}", index / 1000), size))
        .collect()
}

pub async fn put(bucket: &dyn Store, key: &str, body: Vec<u8>) -> String {
    let key = Key::new(key).expect("valid");
    let stored = bucket
        .put(&key, Payload::from(body), PutOptions::default())
        .await
        .expect("stored");
    stored.etag.as_str().to_owned()
}

/// The map of objects that have these tags.
pub fn write_map(
    path: &std::path::Path,
    objects: &[(String, u64, String)],
    disks: u16,
) -> (Vec<BlockAddress>, Vec<u64>) {
    let mut writer = ObjectMapWriter::create(path).expect("created");
    let mut placement = Placement::new(disks);
    let mut places = Vec::new();
    for (key, size, etag) in objects {
        let object = SnapshotObject {
            key: key.as_bytes(),
            size: *size,
            modified: Timestamp::default(),
            etag,
            target: "",
        };
        let start = placement.place(*size);
        writer.add(&object, start).expect("added");
        places.push(start);
    }
    writer.finish().expect("finished");
    (places, placement.blocks().to_vec())
}

impl Setup {
    /// Stores objects, which must be in order, and makes a snapshot of them.
    pub async fn bench(self, objects: &[(String, u64)]) -> Bench {
        let bucket = Arc::new(MemoryStore::like_s3());
        let mut tagged = Vec::new();
        for (key, size) in objects {
            let etag = put(bucket.as_ref(), key, content(key, 0..*size)).await;
            tagged.push((key.clone(), *size, etag));
        }
        let faults = Faults::new(1);
        let inner: Arc<dyn Store> = Arc::<MemoryStore>::clone(&bucket);
        let store: Arc<dyn Store> = Arc::new(Faulty::new(inner, Arc::clone(&faults)));
        self.around(bucket, store, faults, &tagged)
    }

    fn around(
        self,
        bucket: Arc<MemoryStore>,
        store: Arc<dyn Store>,
        faults: Arc<Faults>,
        objects: &[(String, u64, String)],
    ) -> Bench {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("map");
        let (places, blocks) = write_map(&path, objects, self.disks);
        let images = images(objects, &places, &blocks);
        let map = Arc::new(ObjectMap::open(&path).expect("whole"));
        let registry = Registry::new();
        if !self.latency.is_zero() {
            faults.rate(Some(Operation::Get), 1.0, Fault::Delay(self.latency));
        }
        let store = standard(store, 256, &RetrySettings::default_for_tests(), &registry);
        let budget = MemoryBudget::new(self.budget);
        let transfer = Transfer::with_settings(
            store,
            BufferPool::new(Arc::clone(&budget)),
            TransferSettings {
                memory_wait: self.memory_wait,
                ..TransferSettings::default()
            },
            &registry,
        );
        let settings = DataSettings {
            direct: self.direct,
            cache_bytes: self.cache.unwrap_or(self.budget / 2),
        };
        let data = DataPath::new(map, transfer, settings, &registry);
        let disk = |disk| Arc::new(StreamDisk::new(Arc::clone(&data), disk));
        Bench {
            disks: (0..self.disks).map(disk).collect(),
            _folder: folder,
            bucket,
            faults,
            budget,
            registry,
            data,
            images,
            places,
        }
    }
}

/// Settings of retries for tests.
trait ForTests {
    fn default_for_tests() -> Self;
}

impl ForTests for RetrySettings {
    fn default_for_tests() -> Self {
        Self {
            attempts_max: 10,
            total: Duration::from_secs(120),
            ride_out: true,
        }
    }
}

fn images(
    objects: &[(String, u64, String)],
    places: &[BlockAddress],
    blocks: &[u64],
) -> Vec<Vec<u8>> {
    let empty = |blocks: &u64| vec![0; (blocks.max(&1) * BLOCK_SIZE) as usize];
    let mut images: Vec<Vec<u8>> = blocks.iter().map(empty).collect();
    for ((key, size, _), place) in objects.iter().zip(places) {
        let start = (place.block * BLOCK_SIZE) as usize;
        let image = &mut images[usize::from(place.disk)];
        image[start..start + *size as usize].copy_from_slice(&content(key, 0..*size));
    }
    images
}

impl Bench {
    pub fn object(&self, number: usize) -> MappedObject {
        self.data.map().object(number as u32).expect("sound")
    }

    /// Reads all blocks of an object through its disk and checks them.
    pub async fn check_whole(&self, number: usize) {
        let place = self.places[number];
        let length = self.object(number).blocks() * BLOCK_SIZE;
        self.check(place.disk, place.block * BLOCK_SIZE, length as u32)
            .await;
    }

    /// Reads from a disk and checks what it says.
    pub async fn check(&self, disk: u16, offset: u64, length: u32) {
        let disk_number = usize::from(disk);
        let read = self.disks[disk_number].read(offset, length).await;
        let read = read.expect("read").to_vec();
        let expected = &self.images[disk_number][offset as usize..][..length as usize];
        assert!(read == expected, "wrong bytes at {offset} of disk {disk}");
    }

    pub fn gets(&self) -> u64 {
        self.faults.calls(Operation::Get)
    }

    pub fn metric(&self, name: &str) -> u64 {
        let samples = self.registry.samples();
        let found = samples.iter().find(|sample| sample.name == name);
        found.unwrap_or_else(|| panic!("no metric {name}")).value
    }
}
