//! The cache around a store in memory.

use std::{
    fs,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use penstock_base::{BufferPool, KIB, MIB, MemoryBudget, Payload, metrics::Registry};
use penstock_object::{
    ETag, ErrorKind, GetOptions, Got, Key, ObjectResult, PutOptions, Store, layers::Metered,
};
use penstock_object_testing::MemoryStore;
use proptest::prelude::*;

use super::*;
use crate::{ObjectVersion, Transfer};

const PATIENCE: Duration = Duration::from_secs(60);

/// A cache in a directory of its own around a store that counts.
struct Bench {
    memory: Arc<dyn Store>,
    directory: tempfile::TempDir,
    size: u64,
    registry: Arc<Registry>,
    cache: Option<Arc<DiskCache>>,
    store: Arc<dyn Store>,
}

impl Bench {
    fn new(size: u64) -> Self {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut bench = Self {
            store: Arc::clone(&memory),
            memory,
            directory: tempfile::tempdir().expect("a temporary directory"),
            size,
            registry: Registry::new(),
            cache: None,
        };
        bench.reopen();
        bench
    }

    /// Closes the cache as an unmount does, and opens it again.
    fn reopen(&mut self) {
        self.store = Arc::clone(&self.memory);
        self.cache = None;
        self.registry = Registry::new();
        let pool = BufferPool::new(MemoryBudget::new(256 * MIB));
        let settings = CacheSettings {
            directory: self.directory.path().to_owned(),
            size: Some(self.size),
            keep_free: KeepFree::default(),
        };
        let cache = DiskCache::open(&settings, &pool, &self.registry).expect("a free directory");
        assert!(cache.wait_until_ready(PATIENCE));
        let counted = Arc::new(Metered::new(Arc::clone(&self.memory), &self.registry));
        self.store = cache.around(counted, "memory");
        self.cache = Some(cache);
    }

    fn settle(&self) {
        assert!(self.cache.as_ref().expect("open").settle(PATIENCE));
    }

    async fn put(&self, name: &str, bytes: &[u8]) -> ETag {
        let payload = Payload::from(bytes.to_vec());
        let key = key(name);
        let stored = self.store.put(&key, payload, PutOptions::default());
        stored.await.expect("a put").etag
    }

    async fn get(
        &self,
        name: &str,
        etag: &ETag,
        range: Option<Range<u64>>,
    ) -> ObjectResult<(Got, Vec<u8>)> {
        let options = GetOptions {
            range,
            if_match: Some(etag.clone()),
            ..GetOptions::default()
        };
        let mut bytes = Vec::new();
        let got = self.store.get(&key(name), options, &mut bytes).await?;
        Ok((got, bytes))
    }

    /// The sum of a metric over its labels.
    fn metric(&self, name: &str) -> u64 {
        let samples = self.registry.samples();
        let named = samples.iter().filter(|sample| sample.name == name);
        named.map(|sample| sample.value).sum()
    }

    /// Waits until a metric has reached `value`.
    async fn until(&self, name: &str, value: u64) {
        let reached = async {
            while self.metric(name) < value {
                penstock_base::clock::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = penstock_base::clock::deadline(PATIENCE, reached).await;
        assert!(waited.is_ok(), "{name} is {}", self.metric(name));
    }

    /// Requests that reached the store.
    fn gets(&self) -> u64 {
        let samples = self.registry.samples();
        let gets = samples.iter().filter(|sample| {
            sample.name == "object_operations_total"
                && sample.labels.contains(&("operation", "get".to_owned()))
        });
        gets.map(|sample| sample.value).sum()
    }

    fn files(&self, ending: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for folder in fs::read_dir(self.directory.path().join("objects")).expect("made") {
            let folder = folder.expect("readable").path();
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let paths = entries.map(|entry| entry.path());
            files.extend(paths.filter(|path| path.extension().is_some_and(|end| end == ending)));
        }
        files.sort();
        files
    }

    /// Bytes that the files occupy.
    fn occupied(&self) -> u64 {
        let contents = CacheContents::of(self.directory.path()).expect("there is a cache");
        contents.bytes
    }

    /// The same while they are written. One look adds up files as they were one after the other, so it may
    /// see one before it goes and another that came for it: what the cache occupies all the time is in
    /// each of several.
    fn occupied_meanwhile(&self) -> u64 {
        let looks = (0..8).map(|_| self.occupied());
        looks.min().unwrap_or_default()
    }
}

fn key(text: &str) -> Key {
    Key::new(text).expect("valid")
}

fn pattern(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut bytes = Vec::with_capacity(length);
    for _ in 0..length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.push((state >> 24) as u8);
    }
    bytes
}

/// Flips a bit of what is there, in place: a file that is written anew has no holes any more, and takes more room than the
/// cache gave it.
fn flip(path: &Path, at: usize) {
    const PAGE: usize = 4096;
    let bytes = fs::read(path).expect("readable");
    let at = at % bytes.len();
    let page = bytes.chunks(PAGE).nth(at / PAGE).expect("it is in one");
    if page.iter().any(|byte| *byte != 0) {
        let file = fs::File::options().write(true).open(path);
        let flipped = [bytes[at] ^ 0x10];
        let written = file.and_then(|file| file.write_all_at(&flipped, at as u64));
        written.expect("writable");
    }
}

#[tokio::test]
async fn the_second_read_asks_nobody_also_after_a_restart() {
    let mut bench = Bench::new(64 * MIB);
    let body = pattern(3 * MIB as usize + 11, 1);
    let etag = bench.put("a", &body).await;
    let (first, bytes) = bench.get("a", &etag, None).await.expect("a read");
    assert!(bytes == body);
    bench.settle();
    let (second, bytes) = bench.get("a", &etag, None).await.expect("a read");
    assert!(bytes == body);
    assert_eq!((first, bench.gets()), (second, 1));
    bench.reopen();
    for range in [0..1, 5..400_000, 131_072..262_144, 3_000_000..9_000_000] {
        let (got, bytes) = bench
            .get("a", &etag, Some(range.clone()))
            .await
            .expect("a read");
        let end = range.end.min(body.len() as u64);
        assert_eq!(got.range, range.start..end);
        assert!(bytes == body[range.start as usize..end as usize]);
    }
    assert_eq!(
        (bench.gets(), bench.metric("cache_corrupt_blocks_total")),
        (0, 0)
    );
}

/// The store tells a checksum for the whole object only.
#[tokio::test]
async fn of_a_small_object_no_single_block_is_fetched() {
    let bench = Bench::new(64 * MIB);
    let body = pattern(MIB as usize, 1);
    let etag = bench.put("a", &body).await;
    for block in [0..1, 300_000..300_001] {
        let read = bench.get("a", &etag, Some(block)).await;
        read.expect("a read");
    }
    bench
        .get("a", &etag, Some(0..400_000))
        .await
        .expect("a read");
    bench.settle();
    let from_disk = bench.metric("cache_read_bytes_total");
    for expected in [0, body.len() as u64] {
        let (_, bytes) = bench.get("a", &etag, None).await.expect("a read");
        assert!(bytes == body);
        bench.settle();
        let now = bench.metric("cache_read_bytes_total");
        assert_eq!(now - from_disk, expected);
    }
}

#[tokio::test]
async fn a_block_that_arrives_in_pieces_is_kept() {
    let bench = Bench::new(64 * MIB);
    let body = pattern(MIB as usize, 1);
    let etag = bench.put("a", &body).await;
    let pieces = [0..200_000, 200_000..250_000, 600_000..MIB, 250_000..600_000];
    for piece in pieces {
        let read = bench.get("a", &etag, Some(piece.clone())).await;
        assert!(read.expect("a read").1 == body[piece.start as usize..piece.end as usize]);
    }
    bench.settle();
    let gets = bench.gets();
    let (_, bytes) = bench.get("a", &etag, None).await.expect("a read");
    assert!(bytes == body);
    assert_eq!(bench.gets(), gets);
    assert_eq!(bench.metric("cache_skipped_bytes_total"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_is_served_without_copies_and_hits_the_second_time() {
    let bench = Bench::new(64 * MIB);
    let body = pattern(9 * MIB as usize + 5, 2);
    let etag = bench.put("a", &body).await;
    let pool = BufferPool::new(MemoryBudget::new(256 * MIB));
    for pass in 0..2 {
        let transfer = Transfer::new(Arc::clone(&bench.store), Arc::clone(&pool));
        let reader = transfer.reader(ObjectVersion {
            key: key("a"),
            etag: etag.clone(),
            size: body.len() as u64,
        });
        let mut bytes = Vec::new();
        while bytes.len() < body.len() {
            let payload = reader
                .read(bytes.len() as u64, 128 << 10)
                .await
                .expect("a read");
            bytes.extend(payload.to_vec());
        }
        assert!(bytes == body);
        // The last bytes reach the reader before they are counted.
        let counted = ["cache_written_bytes_total", "cache_read_bytes_total"][pass];
        bench.until(counted, body.len() as u64).await;
        bench.settle();
        if pass == 0 {
            assert!(bench.gets() > 0);
            assert_eq!(bench.metric("cache_skipped_bytes_total"), 0);
        }
    }
    assert_eq!(bench.metric("cache_written_bytes_total"), body.len() as u64);
}

#[tokio::test]
async fn a_flipped_byte_is_noticed_counted_and_fetched_again() {
    let bench = Bench::new(64 * MIB);
    let body = pattern(MIB as usize, 1);
    let etag = bench.put("a", &body).await;
    bench.get("a", &etag, None).await.expect("a read");
    bench.settle();
    flip(&bench.files("data")[0], 300_000);
    let (_, bytes) = bench.get("a", &etag, None).await.expect("a read");
    assert!(bytes == body);
    assert_eq!(
        (bench.metric("cache_corrupt_blocks_total"), bench.gets()),
        (1, 2)
    );
    bench.settle();
    let (_, bytes) = bench.get("a", &etag, None).await.expect("a read");
    assert!(bytes == body);
    assert_eq!(
        (bench.metric("cache_corrupt_blocks_total"), bench.gets()),
        (1, 2),
        "mended"
    );
}

#[tokio::test]
async fn the_bound_holds_while_ten_times_as_much_passes() {
    const SIZE: u64 = 4 * MIB;
    let bench = Bench::new(SIZE);
    for number in 0..20 {
        let body = pattern(2 * MIB as usize, number);
        let name = number.to_string();
        let etag = bench.put(&name, &body).await;
        let (_, bytes) = bench.get(&name, &etag, None).await.expect("a read");
        assert!(bytes == body);
        assert!(
            bench.occupied_meanwhile() <= SIZE,
            "while it is being written"
        );
        bench.settle();
        assert!(bench.occupied() <= SIZE);
        assert!(bench.metric("cache_used_bytes") >= bench.occupied());
    }
    assert!(bench.metric("cache_evicted_objects_total") >= 17);
    assert!(bench.occupied() > SIZE / 4, "it is used");
}

#[tokio::test]
async fn of_an_object_that_does_not_fit_the_beginning_stays() {
    let bench = Bench::new(2 * MIB);
    let body = pattern(5 * MIB as usize, 1);
    let etag = bench.put("a", &body).await;
    for start in 0..5 {
        let range = start * MIB..(start + 1) * MIB;
        bench.get("a", &etag, Some(range)).await.expect("a read");
        bench.settle();
    }
    let gets = bench.gets();
    bench.get("a", &etag, Some(0..MIB)).await.expect("a read");
    assert_eq!(bench.gets(), gets);
    let (_, bytes) = bench.get("a", &etag, None).await.expect("a read");
    assert!(bytes == body);
    assert!(bench.occupied() <= 2 * MIB);
}

#[tokio::test]
async fn the_one_that_was_read_longest_ago_goes_also_after_a_restart() {
    let mut bench = Bench::new(3 * MIB);
    let mut tags = Vec::new();
    for name in ["a", "b"] {
        let etag = bench.put(name, &pattern(MIB as usize, 1)).await;
        bench.get(name, &etag, None).await.expect("a read");
        bench.settle();
        tags.push(etag);
    }
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1);
    let b = bench.files("index").into_iter().find(|path| {
        String::from_utf8_lossy(&fs::read(path).expect("readable")).contains("\u{1}\0b")
    });
    let file = fs::File::options()
        .write(true)
        .open(b.expect("cached"))
        .expect("ours");
    file.set_modified(old).expect("ours");
    bench.reopen();
    let etag = bench.put("c", &pattern(MIB as usize + 500_000, 1)).await;
    bench.get("c", &etag, None).await.expect("a read");
    bench.settle();
    let gets = bench.gets();
    bench.get("a", &tags[0], None).await.expect("a read");
    assert_eq!(bench.gets(), gets, "a stayed");
    bench.get("b", &tags[1], None).await.expect("a read");
    assert_eq!(bench.gets(), gets + 1, "b went");
}

#[tokio::test]
async fn a_crash_between_data_and_state_is_a_miss_and_leftovers_are_swept() {
    let mut bench = Bench::new(64 * MIB);
    let body = pattern(MIB as usize, 1);
    let etag = bench.put("a", &body).await;
    bench.get("a", &etag, None).await.expect("a read");
    bench.settle();
    // The data of the second half is there, its states are not.
    let index = bench.files("index")[0].clone();
    let bytes = fs::read(&index).expect("readable");
    fs::write(&index, &bytes[..bytes.len() - 32]).expect("writable");
    let folder = index.parent().expect("in a folder").to_owned();
    let orphan = folder.join("00112233445566778899aabbccddeeff.data");
    fs::write(&orphan, "left over").expect("writable");
    let stranger = folder.join("notes.txt");
    fs::write(&stranger, "not ours").expect("writable");
    bench.reopen();
    assert!(!orphan.exists() && stranger.exists());
    let (_, bytes) = bench.get("a", &etag, None).await.expect("a read");
    assert!(bytes == body);
    assert_eq!(
        (bench.gets(), bench.metric("cache_corrupt_blocks_total")),
        (1, 0)
    );
}

#[tokio::test]
async fn a_write_through_the_cache_ends_the_old_version_and_fresh_reads_pass() {
    let bench = Bench::new(64 * MIB);
    let old = bench.put("a", b"old").await;
    bench.get("a", &old, None).await.expect("a read");
    bench.settle();
    let new = bench.put("a", b"new").await;
    let stale = bench
        .get("a", &old, None)
        .await
        .expect_err("it was replaced");
    assert_eq!(stale.kind, ErrorKind::PreconditionFailed);
    bench.get("a", &new, None).await.expect("a read");
    bench.settle();
    // Another client writes: the cache believes the tag, a fresh read does not.
    let payload = Payload::from(b"foreign".to_vec());
    let key_of_a = key("a");
    let put = bench.memory.put(&key_of_a, payload, PutOptions::default());
    put.await.expect("a put");
    assert_eq!(bench.get("a", &new, None).await.expect("cached").1, b"new");
    let options = GetOptions {
        if_match: Some(new),
        fresh: true,
        ..GetOptions::default()
    };
    let got = bench.store.get(&key("a"), options, &mut Vec::new()).await;
    assert_eq!(
        got.expect_err("replaced").kind,
        ErrorKind::PreconditionFailed
    );
}

#[tokio::test]
async fn what_is_never_replaced_is_kept_without_a_tag_and_what_may_be_is_not() {
    let mut bench = Bench::new(64 * MIB);
    let bytes = vec![7; 300_000];
    for (name, unchanging, again) in [("a", true, 1), ("b", false, 4)] {
        bench.put(name, &bytes).await;
        let before = bench.gets();
        let mut got = Vec::new();
        let options = GetOptions {
            unchanging,
            ..GetOptions::default()
        };
        let all = bench.store.get(&key(name), options.clone(), &mut got).await;
        all.expect("a read");
        bench.settle();
        for range in [0..10, 100_000..200_000, 299_990..400_000] {
            let mut part = Vec::new();
            let options = GetOptions {
                range: Some(range.clone()),
                ..options.clone()
            };
            let read = bench.store.get(&key(name), options, &mut part).await;
            assert_eq!(read.expect("a read").range.end, range.end.min(300_000));
            assert_eq!(part.len() as u64, range.end.min(300_000) - range.start);
        }
        assert_eq!(bench.gets() - before, again, "{name}");
    }
    // It is there after a restart, and gone with the object.
    bench.reopen();
    let unchanging = GetOptions {
        unchanging: true,
        ..GetOptions::default()
    };
    let before = bench.gets();
    let key_of_a = key("a");
    let mut got = Vec::new();
    let read = bench.store.get(&key_of_a, unchanging.clone(), &mut got);
    read.await.expect("a read");
    assert_eq!(bench.gets(), before);
    bench.store.delete(&key("a")).await.expect("it is deleted");
    let read = bench
        .store
        .get(&key("a"), unchanging, &mut Vec::new())
        .await;
    assert_eq!(read.expect_err("it is gone").kind, ErrorKind::NotFound);
}

/// Whoever found that what is kept is not what is there asked the store each time from then on.
#[tokio::test]
async fn what_is_kept_without_a_tag_is_forgotten_with_a_fresh_read() {
    let bench = Bench::new(64 * MIB);
    bench.put("a", &vec![1; 200_000]).await;
    let read = async |fresh: bool| {
        let options = GetOptions {
            unchanging: true,
            fresh,
            ..GetOptions::default()
        };
        let mut bytes = Vec::new();
        let got = bench.store.get(&key("a"), options, &mut bytes).await;
        got.expect("a read");
        bench.settle();
        bytes[0]
    };
    assert_eq!(read(false).await, 1);
    let payload = Payload::from(vec![2; 200_000]);
    let key_of_a = key("a");
    let put = bench.memory.put(&key_of_a, payload, PutOptions::default());
    put.await.expect("a put");
    assert_eq!(read(false).await, 1, "it is kept");
    assert_eq!(read(true).await, 2);
    assert_eq!(read(false).await, 2, "and forgotten");
    let before = bench.gets();
    assert_eq!((read(false).await, bench.gets()), (2, before));
}

#[tokio::test]
async fn one_process_at_a_time_and_what_is_dropped_is_gone() {
    let bench = Bench::new(64 * MIB);
    let pool = BufferPool::new(MemoryBudget::new(64 * MIB));
    let settings = CacheSettings {
        directory: bench.directory.path().to_owned(),
        ..CacheSettings::default()
    };
    let second = DiskCache::open(&settings, &pool, &Registry::new());
    let text = second.expect_err("it is in use").to_string();
    assert!(
        text.contains(&format!("process {}", std::process::id())),
        "{text}"
    );
    for name in ["a/1", "a/2", "b"] {
        let etag = bench.put(name, b"x").await;
        bench.get(name, &etag, None).await.expect("a read");
    }
    bench.settle();
    let cache = bench.cache.as_ref().expect("open");
    assert_eq!(cache.remove("a/").objects, 2);
    let contents = CacheContents::of(bench.directory.path()).expect("there is a cache");
    assert_eq!(
        (contents.objects, contents.user),
        (1, Some(std::process::id()))
    );
    assert_eq!(cache.remove("").objects, 1);
    assert_eq!((bench.occupied(), bench.metric("cache_used_bytes")), (0, 0));
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, u32, u32),
    Read(u8, u64, u64),
    ReadWhole(u8),
    Settle,
    Restart,
    Flip(bool, prop::sample::Index, usize),
    Remove(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let size = 700 * KIB;
    prop_oneof![
        3 => (0..4u8, 0..size as u32, any::<u32>()).prop_map(|(key, size, seed)| Step::Put(key, size, seed)),
        6 => (0..4u8, 0..size, 1..size).prop_map(|(key, start, length)| Step::Read(key, start, length)),
        4 => (0..4u8).prop_map(Step::ReadWhole),
        3 => Just(Step::Settle),
        1 => Just(Step::Restart),
        2 => (any::<bool>(), any::<prop::sample::Index>(), any::<usize>())
            .prop_map(|(data, file, at)| Step::Flip(data, file, at)),
        1 => (0..4u8).prop_map(Step::Remove),
    ]
}

async fn compare(bench: &Bench, name: &str, range: Option<Range<u64>>) {
    let Ok(info) = bench.memory.head(&key(name), Default::default()).await else {
        return;
    };
    let got = bench.get(name, &info.etag, range.clone()).await;
    let options = GetOptions {
        range,
        ..GetOptions::default()
    };
    let mut bytes = Vec::new();
    let expected = bench.memory.get(&key(name), options, &mut bytes).await;
    match (got, expected) {
        (Ok((got, read)), Ok(expected)) => {
            assert_eq!(got, expected);
            assert!(read == bytes, "{name}");
        }
        (got, expected) => assert_eq!(
            got.err().map(|error| error.kind),
            expected.err().map(|error| error.kind)
        ),
    }
}

async fn run(steps: Vec<Step>) {
    const SIZE: u64 = MIB;
    let mut bench = Bench::new(SIZE);
    for step in steps {
        match step {
            Step::Put(name, size, seed) => {
                let body = pattern(size as usize, seed);
                bench.put(&name.to_string(), &body).await;
            }
            Step::Read(name, start, length) => {
                compare(&bench, &name.to_string(), Some(start..start + length)).await;
            }
            Step::ReadWhole(name) => compare(&bench, &name.to_string(), None).await,
            Step::Settle => bench.settle(),
            Step::Restart => bench.reopen(),
            Step::Flip(data, file, at) => {
                bench.settle();
                let files = bench.files(if data { "data" } else { "index" });
                let sound = files
                    .iter()
                    .filter(|path| path.metadata().is_ok_and(|m| m.len() > 0));
                let sound: Vec<_> = sound.collect();
                if !sound.is_empty() {
                    flip(sound[file.index(sound.len())], at);
                }
            }
            Step::Remove(name) => {
                let cache = bench.cache.as_ref().expect("open");
                cache.remove(&name.to_string());
            }
        }
        bench.settle();
        assert!(bench.metric("cache_used_bytes") <= SIZE);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_is_what_the_store_has(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(run(steps));
    }
}

#[test]
fn a_cache_that_belongs_to_another_user_is_not_used() {
    const NOBODY: u32 = 65_534;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let objects = directory.path().join("objects");
    fs::create_dir(&objects).expect("a directory");
    if std::os::unix::fs::chown(&objects, Some(NOBODY), None).is_err() {
        penstock_skips::skipped("only root can give directories away");
        return;
    }
    let pool = BufferPool::new(MemoryBudget::new(256 * MIB));
    let settings = CacheSettings {
        directory: directory.path().to_owned(),
        size: Some(MIB),
        keep_free: KeepFree::default(),
    };
    let error = DiskCache::open(&settings, &pool, &Registry::new()).expect_err("not ours");
    assert!(error.to_string().contains("another user"), "{error}");
}
