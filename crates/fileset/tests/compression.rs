//! What is compressed is read as it was written, whatever else happens to it, and takes less room.

#![allow(clippy::unwrap_used)]

mod support;

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use bytes::Bytes;
use penstock_base::{FsError, clock};
use penstock_fileset::{
    check::{apply, check_data, plan},
    compression::Compression,
    dumps::{FrozenPages, carry},
    engine::{Engine, MemoryEngine, Reads, Transaction, query, transact},
    format_of,
    garbage::{Garbage, Sweep, collect_garbage},
    usage,
};
use penstock_object::{GetOptions, HeadOptions, Key, Operation, PutOptions};
use penstock_object_testing::Fault;
use penstock_vfs::{AttributeChanges, HandleId, Inode, OpenOptions, WritePlace};
use proptest::prelude::*;

use support::{Place, ROOT, Small, directory, file};

const LZ4: Compression = Compression::Lz4;
const ZSTD: Compression = Compression::Zstd(3);

/// Lines that differ, as those of a log do.
fn text(seed: u64, length: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(length + 64);
    let mut line = seed;
    while text.len() < length {
        line += 1;
        text.extend(
            format!(
                "{line:08} request from 10.0.0.{} took {} us\n",
                line % 199,
                line % 977
            )
            .bytes(),
        );
    }
    text.truncate(length);
    text
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed * 2 + 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as u8
    };
    (0..length).map(next).collect()
}

/// Text, noise, or both by turns.
fn data(seed: u64, length: usize) -> Vec<u8> {
    match seed % 3 {
        0 => text(seed, length),
        1 => noise(seed, length),
        _ => {
            let mut mixed = Vec::new();
            while mixed.len() < length {
                mixed.extend(text(seed, 150_000));
                mixed.extend(noise(seed, 90_000));
            }
            mixed.truncate(length);
            mixed
        }
    }
}

async fn compressing(place: Place, setting: Compression) -> Place {
    place.volume.set_compression(setting).await.unwrap();
    place
}

/// Bytes in the bucket.
async fn stored(place: &Place) -> u64 {
    let mut bytes = 0;
    for key in place.objects().await {
        let key = Key::new(key).unwrap();
        bytes += {
            let head = place.bucket.head(&key, HeadOptions::default());
            head.await.unwrap().size
        };
    }
    bytes
}

async fn is_right(place: &Place) {
    place.is_whole().await;
    let report = check_data(&*place.engine, place.transfer(), place.ahead.as_ref()).await;
    let report = report.unwrap();
    assert!(report.is_clean(), "{report:#?}");
}

async fn collected(place: &Place) -> Garbage {
    let sweep = Sweep {
        grace: Duration::ZERO,
        dry_run: true,
    };
    let found = collect_garbage(place.engine.clone(), place.transfer(), sweep).await;
    found.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_takes_less_room_and_noise_as_much_as_before() {
    for setting in [LZ4, ZSTD] {
        let place = compressing(Place::new().await, setting).await;
        let (lines, random) = (text(1, 6 << 20), noise(1, 3 << 20));
        place.store(ROOT, "text", &lines).await.unwrap();
        let of_text = stored(&place).await;
        assert!(of_text < lines.len() as u64 / 2, "{setting}: {of_text}");
        place.store(ROOT, "noise", &random).await.unwrap();
        assert_eq!(
            stored(&place).await,
            of_text + random.len() as u64,
            "{setting}"
        );
        let usage = usage(&*place.engine).await.unwrap();
        assert_eq!(usage.bytes, (lines.len() + random.len()) as u64);
        assert_eq!(usage.bytes - usage.spared, stored(&place).await);
        assert!(place.content(ROOT, "text").await.unwrap() == lines);
        assert!(place.content(ROOT, "noise").await.unwrap() == random);
        is_right(&place).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_files_share_compressed_objects() {
    let place = compressing(Place::new().await, LZ4).await;
    let mut handles = Vec::new();
    for number in 0..60 {
        let name = format!("file-{number}");
        let made = place.make(ROOT, &name, file(0o644)).await.unwrap();
        let handle = place.open(made, OpenOptions::WRITE).await.unwrap();
        let bytes = data(number, 5000);
        let written = place.write(handle, WritePlace::At(0), &bytes);
        written.await.unwrap();
        handles.push(handle);
    }
    // Who comes while a request is under way goes with the next one.
    let slow = Fault::Delay(Duration::from_millis(100));
    place.faults.rate(Some(Operation::Put), 1.0, slow);
    let closed = handles.into_iter().map(|handle| place.close(handle));
    for closed in futures_util::future::join_all(closed).await {
        closed.unwrap();
    }
    place.faults.clear();
    let objects = place.objects().await.len();
    assert!(objects < 30, "{objects}");
    assert!(stored(&place).await < 60 * 5000 * 9 / 10);
    for number in 0..60 {
        let content = place.content(ROOT, &format!("file-{number}")).await;
        assert!(content.unwrap() == data(number, 5000));
    }
    is_right(&place).await;
}

/// What files need of an object is counted as it lies there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_file_needs_of_compressed_objects_is_counted_as_it_is_stored() {
    let place = compressing(Place::new().await, ZSTD).await;
    place.store(ROOT, "file", &text(1, 4 << 20)).await.unwrap();
    let all = stored(&place).await;
    let whole = collected(&place).await;
    assert_eq!((whole.live.bytes, whole.unused_bytes), (all, 0));
    let inode = place.find(ROOT, "file").await.unwrap().inode;
    let changes = AttributeChanges {
        size: Some(3 << 20),
        ..AttributeChanges::default()
    };
    place.change(inode, changes).await.unwrap();
    let cut = collected(&place).await;
    assert_eq!(cut.live.bytes, all);
    assert!(cut.unused_bytes.abs_diff(all / 4) <= 1, "{cut:?} of {all}");
    let usage = usage(&*place.engine).await.unwrap();
    assert_eq!(usage.bytes, 3 << 20);
    assert!(
        (usage.bytes - usage.spared).abs_diff(all * 3 / 4) <= 1,
        "{usage:?}"
    );
    is_right(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_compressed_block_is_an_error_and_never_wrong_bytes() {
    for setting in [LZ4, ZSTD] {
        let mut place = compressing(Place::new().await, setting).await;
        let content = text(7, 1 << 20);
        place.store(ROOT, "file", &content).await.unwrap();
        let key = Key::new(place.objects().await.remove(0)).unwrap();
        let mut whole = Vec::new();
        let got = place.bucket.get(&key, GetOptions::default(), &mut whole);
        got.await.unwrap();
        let damages: [fn(&mut [u8]); 4] = [
            |bytes| bytes[0] ^= 0xff,
            |bytes| bytes.fill(0xff),
            |bytes| bytes.fill(0),
            |bytes| bytes.rotate_left(1),
        ];
        for (number, damage) in damages.into_iter().enumerate() {
            let mut bytes = whole.clone();
            damage(&mut bytes);
            let put = place.bucket.put(&key, bytes.into(), PutOptions::default());
            put.await.unwrap();
            place.crash().await;
            let read = place.content(ROOT, "file").await;
            assert!(
                matches!(read, Err(FsError::Corrupt(_))),
                "{setting}, {number}: {read:?}"
            );
            let report = check_data(&*place.engine, place.transfer(), None).await;
            let report = report.unwrap();
            assert_eq!(report.findings.len(), 1, "{report:?}");
            let told = report.findings[0].contains("are not those that were written");
            assert!(told, "{report:?}");
        }
        // Where nothing is damaged all the rest is read.
        let mut bytes = whole.clone();
        *bytes.last_mut().unwrap() ^= 0xff;
        let put = place.bucket.put(&key, bytes.into(), PutOptions::default());
        put.await.unwrap();
        place.crash().await;
        let inode = place.find(ROOT, "file").await.unwrap().inode;
        let handle = place.open(inode, OpenOptions::READ).await.unwrap();
        let read = place.read(handle, 0, 100_000).await.unwrap();
        assert!(read == content[..100_000]);
        place.close(handle).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_the_spool_is_compressed_there_and_a_power_cut_undoes_it() {
    let mut place = compressing(Place::spooled().await, LZ4).await;
    let mut handles = Vec::new();
    for name in ["synced", "closed"] {
        let made = place.make(ROOT, name, file(0o644)).await.unwrap();
        handles.push(place.open(made, OpenOptions::READ_WRITE).await.unwrap());
    }
    let write = async |handle, seed| {
        let bytes = text(seed, 200_000);
        let written = place.write(handle, WritePlace::At(0), &bytes);
        written.await.unwrap();
    };
    write(handles[0], 1).await;
    place.sync(handles[0]).await.unwrap();
    let (kept, _) = place.waiting();
    assert!(kept < 100_000, "{kept}");
    write(handles[0], 2).await;
    place.close(handles[0]).await.unwrap();
    write(handles[1], 3).await;
    place.close(handles[1]).await.unwrap();
    // The worker has written the log by then.
    clock::sleep(Duration::from_millis(100)).await;
    place.lose_power(kept).await;
    assert!(place.content(ROOT, "synced").await.unwrap() == text(1, 200_000));
    is_right(&place).await;
}

#[tokio::test]
async fn a_file_system_is_refused_by_older_versions_from_its_first_compression_on() {
    let place = Place::new().await;
    let version = async || format_of(&*place.engine).await.unwrap().version;
    let before = version().await;
    place
        .volume
        .set_compression(Compression::None)
        .await
        .unwrap();
    assert_eq!(version().await, before);
    assert_eq!(place.volume.compression().await, Ok(Compression::None));
    place.volume.set_compression(ZSTD).await.unwrap();
    assert_eq!(version().await, 5);
    assert_eq!(place.volume.compression().await, Ok(ZSTD));
    place
        .volume
        .set_compression(Compression::None)
        .await
        .unwrap();
    assert_eq!(version().await, 5);
    assert_eq!(place.volume.compression().await, Ok(Compression::None));
    is_right(&place).await;
}

#[derive(Debug, Clone)]
enum Step {
    /// What begins with a number, where, and how many bytes.
    Write(u64, u32, u32),
    Save,
    Cut(u32),
    Set(Compression),
    Reopen,
    Read(u32),
    Snapshot,
}

const SIZE_MAX: u32 = 9 << 20;

fn step() -> impl Strategy<Value = Step> {
    let setting = prop_oneof![Just(Compression::None), Just(LZ4), Just(ZSTD)];
    prop_oneof![
        4 => (any::<u16>(), 0..SIZE_MAX, 1u32..2 << 20).prop_map(|(seed, at, length)| {
            Step::Write(seed.into(), at, length.min(SIZE_MAX - at))
        }),
        4 => (any::<u16>(), 0..SIZE_MAX, 1u32..20_000).prop_map(|(seed, at, length)| {
            Step::Write(seed.into(), at, length.min(SIZE_MAX - at))
        }),
        4 => Just(Step::Save),
        1 => (0..SIZE_MAX).prop_map(Step::Cut),
        2 => setting.prop_map(Step::Set),
        1 => Just(Step::Reopen),
        3 => (0..SIZE_MAX).prop_map(Step::Read),
        1 => Just(Step::Snapshot),
    ]
}

/// A file with what it should hold, and what it held when snapshots were taken.
struct Bench {
    place: Place,
    inode: Inode,
    handle: HandleId,
    model: Vec<u8>,
    taken: Vec<(String, Vec<u8>)>,
}

impl Bench {
    async fn new(place: Place) -> Self {
        let inode = place.make(ROOT, "file", file(0o644)).await.unwrap();
        Self {
            handle: place.open(inode, OpenOptions::READ_WRITE).await.unwrap(),
            inode,
            place,
            model: Vec::new(),
            taken: Vec::new(),
        }
    }

    async fn make(&mut self, step: Step) {
        let place = &mut self.place;
        match step {
            Step::Write(seed, at, length) => {
                let bytes = data(seed, length as usize);
                let (start, end) = (at as usize, (at + length) as usize);
                self.model.resize(self.model.len().max(end), 0);
                self.model[start..end].copy_from_slice(&bytes);
                let written = place.write(self.handle, WritePlace::At(at.into()), &bytes);
                written.await.unwrap();
            }
            Step::Save => place.sync(self.handle).await.unwrap(),
            Step::Cut(size) => {
                self.model.resize(size as usize, 0);
                let changes = AttributeChanges {
                    size: Some(size.into()),
                    ..AttributeChanges::default()
                };
                place.change(self.inode, changes).await.unwrap();
            }
            Step::Set(setting) => place.volume.set_compression(setting).await.unwrap(),
            Step::Reopen => {
                place.sync(self.handle).await.unwrap();
                place.crash().await;
                let opened = place.open(self.inode, OpenOptions::READ_WRITE);
                self.handle = opened.await.unwrap();
            }
            Step::Read(at) => {
                let read = place.read(self.handle, at.into(), 100_000).await.unwrap();
                let start = self.model.len().min(at as usize);
                let end = self.model.len().min(start + 100_000);
                assert!(read == self.model[start..end], "at {at}");
            }
            Step::Snapshot => {
                let name = format!("s{}", self.taken.len());
                let shelf = place.find(ROOT, ".snapshot").await.unwrap().inode;
                place.make(shelf, &name, directory(0o755)).await.unwrap();
                self.taken.push((name, self.model.clone()));
            }
        }
    }

    async fn end(self) {
        let place = &self.place;
        assert!(place.read_all(self.handle, self.model.len()).await == self.model);
        let shelf = place.find(ROOT, ".snapshot").await.unwrap().inode;
        for (name, model) in &self.taken {
            let top = place.find(shelf, name).await.unwrap().inode;
            let there = place.find(top, "file").await.unwrap();
            let handle = place.open(there.inode, OpenOptions::READ).await.unwrap();
            assert!(
                place.read_all(handle, model.len()).await == *model,
                "{name}"
            );
            place.close(handle).await.unwrap();
        }
        place.close(self.handle).await.unwrap();
        is_right(place).await;
    }
}

async fn ground(small: Small, is_encrypted: bool) -> Place {
    match is_encrypted {
        false => Place::with_small(small).await,
        true => Place::encrypted_with_small(small).await,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn what_is_compressed_is_read_whatever_else_happens_to_it(
        setting in prop_oneof![Just(LZ4), Just(ZSTD)],
        steps in prop::collection::vec(step(), 1..25),
        small in prop::sample::select(&Small::ALL[..]),
        is_encrypted in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let place = ground(small, is_encrypted).await;
            let mut bench = Bench::new(compressing(place, setting).await).await;
            for step in steps {
                bench.make(step).await;
            }
            bench.end().await;
        });
    }
}

/// Somebody changes the setting again and again while files are written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_setting_is_changed_while_files_are_written() {
    let place = Place::new().await;
    let changing = {
        let place = place.clone();
        tokio::spawn(async move {
            for setting in [LZ4, Compression::None, ZSTD, Compression::Zstd(1)]
                .iter()
                .cycle()
            {
                place.volume.set_compression(*setting).await.unwrap();
                tokio::task::yield_now().await;
            }
        })
    };
    let writing = (0..40u64).map(async |seed| {
        let name = format!("file-{seed}");
        let length = 1000 + seed as usize * 20_000;
        place.store(ROOT, &name, &data(seed, length)).await.unwrap();
    });
    futures_util::future::join_all(writing).await;
    changing.abort();
    for seed in 0..40u64 {
        let content = place.content(ROOT, &format!("file-{seed}")).await.unwrap();
        assert!(content == data(seed, 1000 + seed as usize * 20_000));
    }
    is_right(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setting_holds_after_a_crash() {
    let mut place = compressing(Place::new().await, ZSTD).await;
    place.crash().await;
    assert_eq!(place.volume.compression().await, Ok(ZSTD));
    place.store(ROOT, "file", &text(1, 1 << 20)).await.unwrap();
    assert!(stored(&place).await < 1 << 19);
}

/// Keys that begin so, with their values.
async fn keys(engine: &dyn Engine, prefix: &'static [u8]) -> Vec<(Vec<u8>, Bytes)> {
    let look = |reads: &dyn Reads| {
        let (mut found, mut end) = (Vec::new(), prefix.to_vec());
        end.push(u8::MAX);
        reads.scan(prefix..&end, &mut |key, value| {
            found.push((key.to_vec(), value.clone()));
            ControlFlow::Continue(())
        })?;
        Ok::<_, FsError>(found)
    };
    query(engine, look).await.unwrap()
}

async fn put(engine: &dyn Engine, key: Vec<u8>, value: Vec<u8>) {
    let work = move |transaction: &mut dyn Transaction| {
        transaction.put(&key, Bytes::copy_from_slice(&value));
        Ok::<_, FsError>(())
    };
    transact(engine, work).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_compression_spares_is_counted_again_by_a_repair() {
    let place = compressing(Place::new().await, ZSTD).await;
    let content = text(1, 5 << 20);
    place.store(ROOT, "file", &content).await.unwrap();
    let before = usage(&*place.engine).await.unwrap();
    let (key, value) = keys(&*place.engine, b"B").await.remove(0);
    // As a version leaves it that does not know of it: the number behind all others is not there.
    put(&*place.engine, key, value[..value.len() - 8].to_vec()).await;
    put(&*place.engine, b"Uc".to_vec(), vec![7; 8]).await;
    let report = check_data(&*place.engine, place.transfer(), None).await;
    let findings = report.unwrap().findings;
    assert_eq!(findings.len(), 2, "{findings:?}");
    let planned = plan(&*place.engine).await.unwrap();
    let told: Vec<_> = planned.iter().map(|repair| repair.text.clone()).collect();
    let says = |what: &str| told.iter().any(|line| line.contains(what));
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(says("; spared by compression: 0, now "), "{told:?}");
    assert!(
        says("bytes that compression spares of the file system: "),
        "{told:?}"
    );
    apply(Arc::clone(&place.engine), planned, &|_| ())
        .await
        .unwrap();
    assert_eq!(usage(&*place.engine).await, Ok(before));
    assert!(place.content(ROOT, "file").await.unwrap() == content);
    is_right(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_compressed_is_carried_to_another_engine() {
    let place = compressing(Place::new().await, ZSTD).await;
    for seed in 0..6 {
        let name = format!("file-{seed}");
        place
            .store(ROOT, &name, &data(seed, 700_000))
            .await
            .unwrap();
    }
    place.volume.set_compression(LZ4).await.unwrap();
    place
        .store(ROOT, "file-6", &data(6, 700_000))
        .await
        .unwrap();
    let target = Arc::new(MemoryEngine::default());
    let mut pages = FrozenPages::of(&*place.engine).await.unwrap();
    let carried = carry(&mut pages, (&*target, 1), &|_| {}).await.unwrap();
    carried.publish(&*target, 1).await.unwrap();
    assert_eq!(usage(&*target).await, usage(&*place.engine).await);
    let copy = Place::sharing(target, Arc::clone(&place.bucket)).await;
    assert_eq!(copy.volume.compression().await, Ok(LZ4));
    copy.store(ROOT, "file-7", &data(9, 700_000)).await.unwrap();
    for seed in [0, 1, 2, 3, 4, 5, 6, 9u64] {
        let name = format!("file-{}", seed.min(7));
        assert!(copy.content(ROOT, &name).await.unwrap() == data(seed, 700_000));
    }
    is_right(&copy).await;
}
