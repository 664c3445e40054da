//! Random writes leave a file whose chunks have few extents, and no operation grows with what is saved.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    collections::HashMap,
    ops::{ControlFlow, Range},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use penstock_base::{FsError, KIB, MIB, clock};
use penstock_fileset::{
    compression::Compression,
    engine::{
        Engine, EngineError, EngineResult, Operation, Query, Reads, Transaction, Visitor, query,
        transact,
    },
};
use penstock_object::{ErrorKind, Operation as Request};
use penstock_object_testing::Fault;
use penstock_vfs::{AttributeChanges, HandleId, Inode, OpenOptions, RemoveKind, WritePlace};
use proptest::prelude::*;

use support::{Place, ROOT, Small, file};

const PAGE: u64 = 4 * KIB;
const CHUNK: u64 = 4 * MIB;
/// What a step may change, and what its last chunk and its last objects bring.
const STEP_MAX: usize = 1300 << 10;
/// Extents at which a save folds first, and what the saves of a test bring meanwhile.
const EXTENTS_MAX: usize = 1100;

/// An engine that measures operations, and fails one of them.
#[derive(Debug)]
struct Measured {
    inner: Arc<dyn Engine>,
    largest: Arc<AtomicUsize>,
    until_failure: AtomicI64,
}

struct Counting<'a> {
    inner: &'a mut dyn Transaction,
    changed: HashMap<Vec<u8>, usize>,
}

impl Reads for Counting<'_> {
    fn get(&self, key: &[u8]) -> EngineResult<Option<Bytes>> {
        self.inner.get(key)
    }

    fn scan(&self, range: Range<&[u8]>, visit: Visitor<'_>) -> EngineResult<()> {
        self.inner.scan(range, visit)
    }
}

impl Transaction for Counting<'_> {
    fn put(&mut self, key: &[u8], value: Bytes) {
        let length = key.len() + value.len();
        self.changed.insert(key.to_vec(), length);
        self.inner.put(key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        self.changed.insert(key.to_vec(), key.len());
        self.inner.delete(key);
    }
}

#[async_trait::async_trait]
impl Engine for Measured {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        self.inner.run_query(query).await
    }

    async fn run(&self, mut operation: Operation) -> EngineResult<()> {
        if self.until_failure.fetch_sub(1, Ordering::SeqCst) == 1 {
            return Err(EngineError::Full("as it was told".to_owned()));
        }
        let largest = Arc::clone(&self.largest);
        let measured = move |transaction: &mut dyn Transaction| {
            let mut counting = Counting {
                inner: transaction,
                changed: HashMap::new(),
            };
            let verdict = operation(&mut counting);
            largest.fetch_max(counting.changed.values().sum(), Ordering::SeqCst);
            verdict
        };
        self.inner.run(Box::new(measured)).await
    }

    async fn sync(&self) -> EngineResult<()> {
        self.inner.sync().await
    }

    async fn close(&self) -> EngineResult<()> {
        self.inner.close().await
    }
}

async fn measured() -> (Place, Arc<Measured>) {
    let mut made = None;
    let around = |inner| {
        let measured = Arc::new(Measured {
            inner,
            largest: Arc::default(),
            until_failure: AtomicI64::new(0),
        });
        made = Some(Arc::clone(&measured));
        measured as Arc<dyn Engine>
    };
    let place = Place::around(around).await;
    (place, made.unwrap())
}

/// The extents of each chunk of a file, by how many these are.
async fn extents(place: &Place, inode: Inode) -> Vec<usize> {
    let key = |inode: u64| [&b"C"[..], &inode.to_be_bytes()].concat();
    let look = |reads: &dyn Reads| -> EngineResult<Vec<usize>> {
        let mut found = Vec::new();
        reads.scan(&key(inode.0)..&key(inode.0 + 1), &mut |_, value| {
            found.push(count(value));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    };
    query(&*place.engine, look).await.unwrap()
}

fn count(value: &[u8]) -> usize {
    let (mut at, mut found) = (1, 0);
    while at < value.len() {
        let length = u32::from_le_bytes(value[at + 20..at + 24].try_into().unwrap());
        let grains = 4 * length.div_ceil(128 << 10) as usize;
        at += 40 + grains;
        if value[0] == 2 {
            at += 1 + if value[at] == 0 { 0 } else { grains };
        }
        found += 1;
    }
    found
}

/// A file of some size, written and saved in order, with a handle.
async fn written(place: &Place, size: u64) -> (Inode, HandleId, Vec<u8>) {
    let inode = place.make(ROOT, "file", file(0o644)).await.unwrap();
    let handle = place.open(inode, OpenOptions::READ_WRITE).await.unwrap();
    let content = vec![1; size as usize];
    for start in (0..size).step_by(1 << 20) {
        let end = size.min(start + MIB);
        let piece = &content[start as usize..end as usize];
        let written = place.write(handle, WritePlace::At(start), piece);
        written.await.unwrap();
    }
    place.sync(handle).await.unwrap();
    (inode, handle, content)
}

async fn write(place: &Place, handle: HandleId, model: &mut Vec<u8>, (start, data): (u64, &[u8])) {
    let end = start as usize + data.len();
    model.resize(model.len().max(end), 0);
    model[start as usize..end].copy_from_slice(data);
    let written = place.write(handle, WritePlace::At(start), data);
    written.await.unwrap();
}

/// A file of one chunk that is about to be saved with many extents.
async fn riddled(place: &Place) -> (Inode, HandleId, Vec<u8>) {
    let (inode, handle, mut model) = written(place, CHUNK).await;
    for page in (0..600).step_by(2) {
        write(place, handle, &mut model, (page * PAGE, &[2; 4096])).await;
    }
    (inode, handle, model)
}

/// Numbers that look random, always the same.
fn scattered(count: u64, below: u64) -> impl Iterator<Item = u64> {
    (1..=count).map(move |n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % below)
}

/// Each touched chunk's whole list of extents was in one operation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_of_many_fragmented_chunks_makes_no_large_operation() {
    let (place, engine) = measured().await;
    let (size, pages) = (64 * CHUNK, 64 * CHUNK / PAGE);
    let inode = place.make(ROOT, "file", file(0o644)).await.unwrap();
    let handle = place.open(inode, OpenOptions::READ_WRITE).await.unwrap();
    let mut model = vec![0; size as usize];
    for round in 0..4 {
        for page in scattered(7000, pages).map(|page| (page + round * 7919) % pages) {
            let data = [round as u8 + 1; 4096];
            write(&place, handle, &mut model, (page * PAGE, &data)).await;
        }
        place.sync(handle).await.unwrap();
    }
    let largest = engine.largest.load(Ordering::SeqCst);
    assert!(largest > 64 << 10, "{largest} bytes: nothing was measured");
    assert!(largest < STEP_MAX, "an operation of {largest} bytes");
    model.truncate(place.attributes(inode).await.size as usize);
    assert!(place.read_all(handle, model.len()).await == model);
    place.close(handle).await.unwrap();
    place.is_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_that_fails_between_its_steps_loses_nothing() {
    let (place, engine) = measured().await;
    let chunks = 2500;
    let inode = place.make(ROOT, "file", file(0o644)).await.unwrap();
    let handle = place.open(inode, OpenOptions::READ_WRITE).await.unwrap();
    for chunk in 0..chunks {
        let at = WritePlace::At(chunk * CHUNK + chunk);
        place.write(handle, at, &chunk.to_le_bytes()).await.unwrap();
    }
    engine.until_failure.store(2, Ordering::SeqCst);
    assert_eq!(place.sync(handle).await, Err(FsError::NoSpace));
    let stored = extents(&place, inode).await.len();
    assert!(0 < stored && stored < chunks as usize, "{stored} chunks");
    let whole = place.attributes(inode).await;
    assert_eq!(whole.allocated, chunks * 8);
    let expect_all = async || {
        for chunk in 0..chunks {
            let read = place.read(handle, chunk * CHUNK + chunk, 8).await;
            assert_eq!(read.unwrap(), chunk.to_le_bytes());
        }
    };
    expect_all().await;
    place.sync(handle).await.unwrap();
    assert_eq!(extents(&place, inode).await.len(), chunks as usize);
    expect_all().await;
    assert_eq!(place.attributes(inode).await.size, whole.size);
    place.close(handle).await.unwrap();
    place.is_whole().await;
}

#[tokio::test]
async fn an_operation_that_no_record_should_hold_is_refused_and_changes_nothing() {
    let place = Place::new().await;
    let put = transact(&*place.engine, |transaction| -> EngineResult<()> {
        transaction.put(b"small", Bytes::from_static(b"x"));
        transaction.put(b"large", vec![0; 65 << 20].into());
        Ok(())
    });
    assert!(matches!(put.await, Err(EngineError::TooLarge(_))));
    let look = |reads: &dyn Reads| -> EngineResult<_> { reads.get(b"small") };
    assert_eq!(query(&*place.engine, look).await, Ok(None));
    place.store(ROOT, "file", b"goes on").await.unwrap();
    place.is_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_overwrites_leave_few_extents() {
    random_overwrites(Place::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_overwrites_of_what_is_compressed_leave_few_extents() {
    let place = Place::new().await;
    place
        .volume
        .set_compression(Compression::Lz4)
        .await
        .unwrap();
    random_overwrites(place).await;
}

async fn random_overwrites(place: Place) {
    let (inode, handle, mut model) = written(&place, 2 * CHUNK).await;
    let pages: Vec<_> = scattered(2000, 2 * CHUNK / PAGE).collect();
    for (number, page) in pages.into_iter().enumerate() {
        let data = [number as u8; 4096];
        write(&place, handle, &mut model, (page * PAGE, &data)).await;
        if number % 16 == 0 {
            place.sync(handle).await.unwrap();
        }
    }
    place.sync(handle).await.unwrap();
    place
        .until(|| async { extents(&place, inode).await.iter().all(|it| *it < 300) })
        .await;
    assert!(place.read_all(handle, model.len()).await == model);
    place.close(handle).await.unwrap();
    place.is_whole().await;
}

#[derive(Debug, Clone)]
enum Step {
    /// Pages from one on, so many, each a step behind the last.
    Pages(u64, u64, u64),
    Save,
    Cut(u64),
    Fail,
    Heal,
    Reopen,
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u64..2000, 50u64..400, 2u64..7).prop_map(|(at, count, by)| Step::Pages(at, count, by)),
        4 => Just(Step::Save),
        1 => (0..2 * CHUNK).prop_map(Step::Cut),
        1 => Just(Step::Fail),
        2 => Just(Step::Heal),
        1 => Just(Step::Reopen),
        3 => Just(Step::Read),
    ]
}

async fn run_steps(steps: Vec<Step>, (small, compression): (Small, Compression)) {
    let mut place = Place::with_small(small).await;
    place.volume.set_compression(compression).await.unwrap();
    let (inode, mut handle, mut model) = written(&place, 2 * CHUNK).await;
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Pages(at, count, by) => {
                for page in (0..count).map(|nth| (at + nth * by) % 2000) {
                    let data = [number as u8; 3000];
                    write(&place, handle, &mut model, (page * PAGE + page, &data)).await;
                }
            }
            // What fails is saved later.
            Step::Save => drop(place.sync(handle).await),
            Step::Cut(size) => {
                model.resize(size as usize, 0);
                let changes = AttributeChanges {
                    size: Some(size),
                    ..AttributeChanges::default()
                };
                place.change(inode, changes).await.unwrap();
            }
            Step::Fail => {
                let fault = Fault::fail(ErrorKind::Unavailable);
                place.faults.rate(None, 0.3, fault);
            }
            Step::Heal => place.faults.clear(),
            Step::Reopen => {
                place.faults.clear();
                place.sync(handle).await.unwrap();
                place.crash().await;
                handle = place.open(inode, OpenOptions::READ_WRITE).await.unwrap();
            }
            Step::Read => {
                place.faults.clear();
                assert!(place.read_all(handle, model.len()).await == model);
            }
        }
        tokio::task::yield_now().await;
    }
    place.faults.clear();
    place.sync(handle).await.unwrap();
    assert!(place.read_all(handle, model.len()).await == model);
    let most = extents(&place, inode).await.into_iter().max();
    assert!(most.unwrap_or(0) < EXTENTS_MAX + 800, "{most:?}");
    place.close(handle).await.unwrap();
    place.is_whole().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn folding_changes_no_byte_whatever_fails(
        steps in prop::collection::vec(step(), 1..30),
        small in prop::sample::select(&Small::ALL[..]),
        compression in prop_oneof![
            Just(Compression::None),
            Just(Compression::Lz4),
            Just(Compression::Zstd(1)),
        ],
    ) {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
            .block_on(run_steps(steps, (small, compression)));
    }
}

/// It waited 10 s for each of them, one after the other, though it could do without the bucket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_waits_for_folds_once_however_many_chunks_it_touches() {
    let place = Place::spooled().await;
    let chunks = 4;
    let (inode, handle, mut model) = written(&place, chunks * CHUNK).await;
    let never = Fault::Delay(Duration::from_secs(3600));
    place.faults.rate(Some(Request::Get), 1.0, never);
    for at in (0..chunks * CHUNK).step_by(6000) {
        write(&place, handle, &mut model, (at, b"part")).await;
    }
    place.sync(handle).await.unwrap();
    let crowded = extents(&place, inode).await;
    assert!(crowded.iter().all(|it| *it > 1100), "{crowded:?}");
    let begun = clock::now();
    for _ in 0..2 {
        for chunk in 0..chunks {
            write(&place, handle, &mut model, (chunk * CHUNK, b"again")).await;
        }
        place.sync(handle).await.unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(18), "{begun:?}");
    place.faults.clear();
}

/// Ranges were read one after the other, each with its own requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fold_of_many_ranges_takes_few_requests() {
    let place = Place::new().await;
    let (inode, handle, mut model) = written(&place, 0).await;
    for part in 0..2 {
        for page in (part..CHUNK / PAGE).step_by(4) {
            write(&place, handle, &mut model, (page * PAGE, &[2; 4096])).await;
        }
        place.sync(handle).await.unwrap();
    }
    place
        .until(|| async { extents(&place, inode).await == [256] })
        .await;
    let requests = place.faults.calls(Request::Get);
    assert!(requests <= 8, "{requests} requests");
    assert!(place.read_all(handle, model.len()).await == model);
    place.close(handle).await.unwrap();
    place.is_whole().await;
}

/// A fold that was overtaken found blocks missing, and told of damage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_fold_reads_is_not_deleted_meanwhile() {
    let place = Place::new().await;
    place.store(ROOT, "other", b"bytes").await.unwrap();
    let other = place.find(ROOT, "other").await.unwrap().inode;
    let gone = place.objects().await;
    let (_, handle, mut model) = riddled(&place).await;
    let slow = Fault::Delay(Duration::from_secs(2));
    place.faults.rate(Some(Request::Get), 1.0, slow);
    place.sync(handle).await.unwrap();
    let mut read = place.objects().await;
    read.retain(|key| !gone.contains(key));
    place
        .until(|| async { place.faults.calls(Request::Get) > 0 })
        .await;
    write(&place, handle, &mut model, (0, &[3; CHUNK as usize])).await;
    place.sync(handle).await.unwrap();
    let removed = place.remove(ROOT, "other", RemoveKind::File).await;
    removed.unwrap();
    place.forget_all(other);
    place
        .until(|| async { !place.objects().await.contains(&gone[0]) })
        .await;
    let left = place.objects().await;
    assert!(read.iter().all(|key| left.contains(key)), "{left:?}");
    place.faults.clear();
    assert!(place.read_all(handle, model.len()).await == model);
    place.close(handle).await.unwrap();
}

/// It was left to the save after that, and none came.
#[tokio::test]
async fn a_chunk_that_is_saved_while_it_is_folded_is_folded_again() {
    let place = Place::new().await;
    let (inode, handle, mut model) = riddled(&place).await;
    let slow = Fault::Delay(Duration::from_millis(300));
    place.faults.rate(Some(Request::Get), 1.0, slow);
    place.sync(handle).await.unwrap();
    place
        .until(|| async { place.faults.calls(Request::Get) > 0 })
        .await;
    for page in (600..1024).step_by(2) {
        write(&place, handle, &mut model, (page * PAGE, &[3; 4096])).await;
    }
    place.sync(handle).await.unwrap();
    place
        .until(|| async { extents(&place, inode).await[0] < 20 })
        .await;
    place.faults.clear();
    assert!(place.read_all(handle, model.len()).await == model);
    place.close(handle).await.unwrap();
    place.is_whole().await;
}

/// The bytes of a fold are being stored when the chunk is written over and cut.
#[tokio::test]
async fn a_fold_that_comes_late_changes_nothing_that_was_written_or_cut_since() {
    let place = Place::new().await;
    let (inode, handle, mut model) = riddled(&place).await;
    place.faults.rate(
        Some(Request::Get),
        1.0,
        Fault::Delay(Duration::from_millis(300)),
    );
    place.sync(handle).await.unwrap();
    let before = extents(&place, inode).await[0];
    assert!(before > 500, "{before} extents");
    write(&place, handle, &mut model, (100 * PAGE, &[3; 10_000])).await;
    place.sync(handle).await.unwrap();
    let size = 300 * PAGE + 5;
    model.truncate(size as usize);
    let changes = AttributeChanges {
        size: Some(size),
        ..AttributeChanges::default()
    };
    place.change(inode, changes).await.unwrap();
    let changes = AttributeChanges {
        size: Some(CHUNK),
        ..AttributeChanges::default()
    };
    place.change(inode, changes).await.unwrap();
    model.resize(CHUNK as usize, 0);
    place
        .until(|| async { extents(&place, inode).await[0] < 20 })
        .await;
    place.faults.clear();
    assert!(place.read_all(handle, model.len()).await == model);
    place.close(handle).await.unwrap();
    place.is_whole().await;
}
