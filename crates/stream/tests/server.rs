//! A disk over HTTP: the development server fails in passing, answers late, and counts.

mod support;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use penstock_base::{BufferPool, FsError, MIB, MemoryBudget, Secret, clock, metrics::Registry};
use penstock_devserver::{Counters, Fault, FaultRule, Operation, Server, Settings};
use penstock_object::{
    StoreSettings,
    credentials::{CredentialSettings, Credentials},
    open,
};
use penstock_stream::{BLOCK_SIZE, DataPath, DataSettings, ObjectMap, StreamDisk};
use penstock_transfer::Transfer;
use penstock_vfs::Disk;
use support::{content, many, write_map};

const BUCKET: &str = "training";
const COUNT: usize = 300;
const SIZE: u64 = 100_000;

struct Served {
    _folder: tempfile::TempDir,
    server: Server,
    budget: Arc<MemoryBudget>,
    disk: Arc<StreamDisk>,
    blocks: Vec<u64>,
}

/// A snapshot of the objects of a server, read through a client with every layer.
fn serve(direct: bool) -> Served {
    let server = Server::start(Settings::with_bucket(BUCKET)).expect("a port is free");
    let mut tagged = Vec::new();
    for (key, size) in many(COUNT, SIZE) {
        let body = content(&key, 0..size);
        server.data().put(BUCKET, &key, &body).expect("stored");
        let etag = server.data().etag(BUCKET, &key).expect("there");
        tagged.push((key, size, etag));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("map");
    let (places, _) = write_map(&path, &tagged, 1);
    let registry = Registry::new();
    let settings = StoreSettings {
        endpoint: Some(server.url()),
        region: Some("test-region".to_owned()),
        credentials: CredentialSettings {
            fixed: Some(Credentials {
                key_id: "key".to_owned(),
                secret: Secret::new("secret"),
                token: None,
                expires: None,
            }),
            ..CredentialSettings::default()
        },
        ..StoreSettings::default()
    };
    let url = format!("s3://{BUCKET}").parse().expect("valid");
    let store = open(&url, &settings, &registry).expect("valid settings");
    let budget = MemoryBudget::new(64 * MIB);
    let transfer = Transfer::new(store, BufferPool::new(Arc::clone(&budget)));
    let map = Arc::new(ObjectMap::open(&path).expect("whole"));
    let settings = DataSettings {
        direct,
        ..DataSettings::within(64 * MIB)
    };
    let data = DataPath::new(map, transfer, settings, &registry);
    Served {
        _folder: folder,
        server,
        budget,
        disk: Arc::new(StreamDisk::new(data, 0)),
        blocks: places.iter().map(|place| place.block).collect(),
    }
}

impl Served {
    async fn read(&self, number: usize) -> Result<Vec<u8>, FsError> {
        let length = SIZE.next_multiple_of(BLOCK_SIZE);
        let offset = self.blocks[number] * BLOCK_SIZE;
        let payload = self.disk.read(offset, length as u32).await?;
        Ok(payload.to_vec()[..SIZE as usize].to_vec())
    }

    /// What the server counted, once it has ended what it was asked: it counts what it has sent, and
    /// a reader may have that earlier.
    async fn counters_at_rest(&self) -> Counters {
        let waited = clock::deadline(Duration::from_secs(10), async {
            while self.server.counters().in_flight > 0 {
                clock::sleep(Duration::from_millis(1)).await;
            }
        });
        waited.await.expect("the server comes to rest");
        self.server.counters()
    }

    /// Reads all objects in some order, 32 at a time.
    async fn read_all(&self, step: usize) {
        let expected = many(COUNT, SIZE);
        let readers = (0..32).map(|reader| {
            let expected = &expected;
            async move {
                for index in (reader..COUNT).step_by(32) {
                    let number = index * step % COUNT;
                    let body = self.read(number).await.expect("read");
                    assert!(
                        body == content(&expected[number].0, 0..SIZE),
                        "object {number}"
                    );
                }
            }
        });
        join_all(readers).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_small_file_is_exactly_one_get() {
    for (direct, step) in [(true, 1), (true, 97), (false, 1), (false, 97)] {
        let served = serve(direct);
        served.read_all(step).await;
        let counters = served.counters_at_rest().await;
        assert_eq!(
            counters.total(),
            COUNT as u64,
            "direct {direct}, step {step}"
        );
        assert_eq!(counters.operation(Operation::GetObject), COUNT as u64);
        assert_eq!(counters.bytes_out, COUNT as u64 * SIZE);
        assert!(served.budget.peak() <= served.budget.total());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_in_passing_is_not_seen() {
    for direct in [true, false] {
        let served = serve(direct);
        let faults = served.server.faults();
        faults.add(FaultRule::new(Fault::SlowDown { retry_after: None }).rate(0.1));
        faults.add(FaultRule::new(Fault::CutBody { after: 40_000 }).rate(0.1));
        faults.add(FaultRule::new(Fault::Reset { after: 0 }).rate(0.05));
        served.read_all(61).await;
        assert!(served.server.counters().faults > 20);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_was_replaced_is_stale() {
    for direct in [true, false] {
        let served = serve(direct);
        let (key, _) = &many(COUNT, SIZE)[7];
        let data = served.server.data();
        data.put(BUCKET, key, &vec![1; SIZE as usize])
            .expect("stored");
        assert_eq!(served.read(7).await, Err(FsError::Stale));
        data.delete(BUCKET, key);
        assert_eq!(served.read(7).await, Err(FsError::Stale));
        assert!(served.read(8).await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_in_order_is_faster_than_the_latency_allows() {
    let served = serve(false);
    let latency = Duration::from_millis(20);
    served.server.faults().set_latency(latency);
    let began = penstock_base::clock::now();
    for number in 0..COUNT {
        served.read(number).await.expect("read");
    }
    let took = began.elapsed();
    assert!(took * 3 < latency * COUNT as u32, "{took:?}");
    assert_eq!(served.server.counters().total(), COUNT as u64);
}
