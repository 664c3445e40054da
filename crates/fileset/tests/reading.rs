//! How files are read: which requests that takes, and that nothing is shown that is not so.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use penstock_base::{FsError, KIB, MIB, MemoryBudget, clock, metrics::Registry};
use penstock_fileset::{
    FilesetVolume, Format,
    engine::{Engine, MemoryEngine},
};
use penstock_object::{ErrorKind, Key, Operation, PutOptions};
use penstock_object_testing::{Fault, Faults, Faulty, MemoryStore};
use penstock_transfer::MemoryCache;
use penstock_vfs::{
    Allocation, AttributeChanges, HandleId, Identity, Inode, OpenOptions, WritePlace,
};
use proptest::prelude::*;

use support::{Place, ROOT, file};

const GRAIN: u64 = 128 * KIB;

/// A byte for each place, such that no two pages are alike.
fn content(size: u64) -> Vec<u8> {
    let word = |index: u64| (index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 17).to_le_bytes();
    let mut bytes: Vec<u8> = (0..size / 8 + 1).flat_map(word).collect();
    bytes.truncate(size as usize);
    bytes
}

/// A file that was written from its beginning to its end, and is saved.
async fn written(place: &Place, size: u64) -> (Inode, Vec<u8>) {
    let content = content(size);
    let inode = place.make(ROOT, "file", file(0o644)).await.unwrap();
    let handle = place.open(inode, OpenOptions::WRITE).await.unwrap();
    for start in (0..size).step_by(1 << 20) {
        let piece = &content[start as usize..size.min(start + MIB) as usize];
        let written = place.write(handle, WritePlace::At(start), piece);
        written.await.unwrap();
    }
    place.close(handle).await.unwrap();
    (inode, content)
}

fn gets(place: &Place) -> u64 {
    place.faults.calls(Operation::Get)
}

#[tokio::test]
async fn a_sequential_read_takes_few_more_requests_than_of_one_object() {
    let place = Place::new().await;
    let (inode, content) = written(&place, 64 * MIB).await;
    let handle = place.open(inode, OpenOptions::READ).await.unwrap();
    assert!(place.read_all(handle, content.len()).await == content);
    // An object of this size is read with 13 or 14.
    assert!(gets(&place) <= 22, "{}", gets(&place));
}

#[tokio::test]
async fn random_reads_are_a_request_each_and_fetch_nothing_ahead() {
    let place = Place::new().await;
    let (inode, content) = written(&place, 24 * MIB).await;
    let handle = place.open(inode, OpenOptions::READ).await.unwrap();
    // The first of them is near the beginning.
    for (number, place_of) in [MIB, 17 * MIB, 9 * MIB, 22 * MIB].into_iter().enumerate() {
        let read = place.read(handle, place_of, 4 << 10).await.unwrap();
        assert!(read == content[place_of as usize..place_of as usize + 4096]);
        assert_eq!(gets(&place), number as u64 + 1);
    }
    assert!(place.memory.used() <= 4 * GRAIN);
}

/// Pieces of each save of the file below, and bytes in each.
const PIECES: u64 = 100;
const PIECE: u64 = 4 * KIB;

/// A reader of its own fetches each piece by itself; what stands before the bucket sees that they lie side by side there.
#[tokio::test]
async fn a_file_in_pieces_of_two_objects_takes_few_requests_in_a_mount() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
    let made = FilesetVolume::format(&*engine, &Identity::root(), Format::new(1)).await;
    made.unwrap();
    let faults = Faults::new(1);
    let bucket = Arc::new(Faulty::new(
        Arc::new(MemoryStore::new()),
        Arc::clone(&faults),
    ));
    let kept = MemoryCache::around(bucket, &MemoryBudget::new(128 * MIB), &Registry::new());
    let place = Place::sharing(engine, kept).await;
    let content = content(2 * PIECES * PIECE);
    let inode = place.make(ROOT, "file", file(0o644)).await.unwrap();
    let handle = place.open(inode, OpenOptions::READ_WRITE).await.unwrap();
    for save in 0..2 {
        for piece in (save..2 * PIECES).step_by(2) {
            let start = (piece * PIECE) as usize;
            let bytes = &content[start..start + PIECE as usize];
            let written = place.write(handle, WritePlace::At(start as u64), bytes);
            written.await.unwrap();
        }
        place.sync(handle).await.unwrap();
    }
    place.close(handle).await.unwrap();
    assert_eq!(place.objects().await.len(), 2);
    let handle = place.open(inode, OpenOptions::READ).await.unwrap();
    assert!(place.read_all(handle, content.len()).await == content);
    assert!(gets(&place) >= 2 * PIECES, "{}", gets(&place));
    // Of each object 4 KiB, 8 KiB and so on.
    let fetched = faults.calls(Operation::Get);
    assert!(fetched <= 2 * 8, "{fetched}");
}

#[tokio::test]
async fn closing_a_file_gives_up_what_is_fetched_ahead() {
    let place = Place::new().await;
    let (inode, _) = written(&place, 24 * MIB).await;
    let before = place.memory.used();
    place.faults.rate(Some(Operation::Get), 1.0, Fault::Hang);
    let handle = place.open(inode, OpenOptions::READ).await.unwrap();
    for start in [0, 128 * KIB] {
        let read = place.read(handle, start, 128 << 10);
        let read = clock::deadline(Duration::from_millis(5), read).await;
        assert!(read.is_err(), "nothing arrives");
    }
    assert!(place.memory.used() > before);
    place.close(handle).await.unwrap();
    let given_up = || async { place.memory.used() == before };
    place.until(given_up).await;
}

#[tokio::test]
async fn damage_in_the_midst_of_a_file_is_told_and_the_rest_is_read() {
    let place = Place::new().await;
    let (inode, content) = written(&place, 12 * MIB).await;
    let damaged = 5 * MIB + 3 * GRAIN + 100;
    // The second of three.
    let object = place.objects().await.swap_remove(1);
    let mut bytes = content[4 << 20..8 << 20].to_vec();
    bytes[damaged as usize - (4 << 20)] ^= 1;
    let key = Key::new(&object[..]).unwrap();
    let stored = place.bucket.put(&key, bytes.into(), PutOptions::default());
    stored.await.unwrap();
    let handle = place.open(inode, OpenOptions::READ).await.unwrap();
    for start in (0..12 * MIB).step_by(64 << 10) {
        let is_damaged = start / GRAIN == damaged / GRAIN;
        match place.read(handle, start, 64 << 10).await {
            Ok(read) => {
                assert!(!is_damaged && read == content[start as usize..start as usize + 65536]);
            }
            Err(error) => {
                assert!(
                    is_damaged && matches!(error, FsError::Corrupt(_)),
                    "{start}: {error}"
                );
            }
        }
    }
}

/// A truncation is not over: the metadata still has what it cuts. Who looks at that must not remember it.
#[tokio::test]
async fn what_was_cut_while_somebody_read_does_not_come_back() {
    let (place, gate) = Place::gated().await;
    let (inode, content) = written(&place, 4 * MIB).await;
    let handle = place.open(inode, OpenOptions::READ_WRITE).await.unwrap();
    gate.hold(1);
    let changes = AttributeChanges {
        size: Some(4096),
        ..AttributeChanges::default()
    };
    let meanwhile = async {
        gate.reached.notified().await;
        let read = place.read(handle, 0, 4096).await.unwrap();
        assert!(read == content[..4096]);
        gate.go_on();
    };
    let (cut, ()) = futures_util::future::join(place.change(inode, changes), meanwhile).await;
    cut.unwrap();
    let written = place.write(handle, WritePlace::At(3 * MIB), b"x");
    written.await.unwrap();
    let read = place.read(handle, MIB, 4096).await.unwrap();
    assert!(read == [0; 4096], "bytes that were cut");
    place.close(handle).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_written_before_a_read_began_is_read() {
    const BLOCKS: u64 = 96;
    const BLOCK: u64 = 64 * KIB;
    let place = Place::with_memory(32 * MIB).await;
    let (inode, _) = written(&place, 1).await;
    let written: Arc<Vec<AtomicU64>> = Arc::new((0..BLOCKS).map(|_| AtomicU64::new(0)).collect());
    let is_over = Arc::new(AtomicU64::new(0));
    let writer = {
        let (place, written, is_over) = (place.clone(), written.clone(), is_over.clone());
        tokio::spawn(async move {
            let handle = place.open(inode, OpenOptions::WRITE).await.unwrap();
            for number in 1..=600_u64 {
                let block = match number <= BLOCKS {
                    true => number - 1,
                    false => number * 7919 % BLOCKS,
                };
                let bytes = number.to_le_bytes().repeat(BLOCK as usize / 8);
                let place_of = WritePlace::At(block * BLOCK);
                place.write(handle, place_of, &bytes).await.unwrap();
                written[block as usize].store(number, Ordering::SeqCst);
                if number % 16 == 0 {
                    place.sync(handle).await.unwrap();
                }
            }
            is_over.store(1, Ordering::SeqCst);
            place.close(handle).await.unwrap();
        })
    };
    let readers = (0..4).map(|reader| {
        let (place, written, is_over) = (place.clone(), written.clone(), is_over.clone());
        tokio::spawn(async move {
            let handle = place.open(inode, OpenOptions::READ).await.unwrap();
            let mut block = reader * 20;
            while is_over.load(Ordering::SeqCst) == 0 {
                let least = written[block as usize].load(Ordering::SeqCst);
                let read = place.read(handle, block * BLOCK, BLOCK as u32).await;
                let read = read.unwrap();
                let mut numbers = read.as_chunks::<8>().0.iter().copied();
                if least > 0 {
                    let first = numbers.next().map(u64::from_le_bytes).unwrap();
                    assert!(first >= least, "block {block}: {first} after {least}");
                    assert!(numbers.all(|other| u64::from_le_bytes(other) == first));
                }
                block = (block + 1) % BLOCKS;
                tokio::task::yield_now().await;
            }
            place.close(handle).await.unwrap();
        })
    });
    for task in std::iter::once(writer).chain(readers.collect::<Vec<_>>()) {
        task.await.unwrap();
    }
    place.is_whole().await;
}

/// Many who read in sequence and pause have all the memory for read-ahead. Nobody else waits for it.
#[tokio::test]
async fn no_read_waits_for_the_read_ahead_of_others() {
    let place = Place::with_memory(64 * MIB).await;
    let (inode, content) = written(&place, 48 * MIB).await;
    let mut handles = Vec::new();
    for _ in 0..100 {
        handles.push(place.open(inode, OpenOptions::READ).await.unwrap());
    }
    let pausing = handles
        .iter()
        .map(|handle| place.read_all(*handle, 1 << 20));
    join_all(pausing).await;
    let handle = place.open(inode, OpenOptions::READ).await.unwrap();
    for number in 0..40 {
        let start = number * 7_919_000 % (46 * MIB);
        let read = place.read(handle, start, 1 << 20);
        let read = clock::deadline(Duration::from_secs(5), read).await;
        let read = read.expect("memory is given back at once").unwrap();
        assert!(read == content[start as usize..(start + MIB) as usize]);
    }
    assert!(place.memory.peak() <= 64 * MIB);
}

#[derive(Debug, Clone)]
enum Step {
    Write(u64, u64),
    Save,
    Cut(u64),
    Punch(u64, u64),
    /// The next bytes of a handle, as a program reads.
    Next(usize, u32),
    At(usize, u64, u32),
    Break(Fault),
}

fn step() -> impl Strategy<Value = Step> {
    let size = 12 * MIB;
    let length = || prop_oneof![1u32..5000, Just(128 << 10), Just(1 << 20)];
    let amount = prop_oneof![3 => 1u64..3000, 1 => MIB..5 * MIB];
    let fault = prop_oneof![
        (0..2 * MIB).prop_map(|after| Fault::Cut { after }),
        (0..GRAIN).prop_map(|at| Fault::Flip { at }),
        Just(Fault::fail(ErrorKind::Unavailable)),
    ];
    prop_oneof![
        4 => (0..size, amount).prop_map(|(start, length)| Step::Write(start, length)),
        2 => Just(Step::Save),
        1 => (0..size).prop_map(Step::Cut),
        1 => (0..size, 1..3 * MIB).prop_map(|(start, length)| Step::Punch(start, length)),
        8 => (0..3usize, length()).prop_map(|(handle, length)| Step::Next(handle, length)),
        3 => (0..3usize, 0..size, length())
            .prop_map(|(handle, start, length)| Step::At(handle, start, length)),
        1 => fault.prop_map(Step::Break),
    ]
}

/// Reads, once more after a failure that was injected, and compares.
async fn check(place: &Place, model: &[u8], (handle, start, length): (HandleId, u64, u32)) {
    let mut tries = 0;
    let read = loop {
        match place.read(handle, start, length).await {
            Ok(read) => break read,
            Err(error) => assert!(tries < 20, "{error}"),
        }
        tries += 1;
    };
    let end = model.len().min(start as usize + length as usize);
    let expected = &model[(start as usize).min(end)..end];
    assert!(read == expected, "wrong bytes at {start}");
}

async fn run_steps(steps: Vec<Step>, place: Place) {
    let inode = place.make(ROOT, "file", file(0o644)).await.unwrap();
    let mut handles = Vec::new();
    for _ in 0..3 {
        let handle = place.open(inode, OpenOptions::READ_WRITE).await.unwrap();
        handles.push((handle, 0));
    }
    let (mut model, writer) = (Vec::new(), handles[0].0);
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Write(start, length) => {
                let bytes: Vec<u8> = (0..length)
                    .map(|at| (at * 7 + number as u64) as u8)
                    .collect();
                let end = (start + length) as usize;
                model.resize(model.len().max(end), 0);
                model[start as usize..end].copy_from_slice(&bytes);
                let written = place.write(writer, WritePlace::At(start), &bytes);
                written.await.unwrap();
            }
            Step::Save => place.sync(writer).await.unwrap(),
            Step::Cut(size) => {
                model.resize(size as usize, 0);
                let changes = AttributeChanges {
                    size: Some(size),
                    ..AttributeChanges::default()
                };
                place.change(inode, changes).await.unwrap();
            }
            Step::Punch(start, length) => {
                let range = start..start + length;
                let end = model.len().min(range.end as usize);
                model[(start as usize).min(end)..end].fill(0);
                let punched = place.allocate(writer, range, Allocation::PunchHole);
                punched.await.unwrap();
            }
            Step::Next(index, length) => {
                let (handle, position) = handles[index];
                check(&place, &model, (handle, position, length)).await;
                handles[index].1 = match position as usize + length as usize >= model.len() {
                    true => 0,
                    false => position + u64::from(length),
                };
            }
            Step::At(index, start, length) => {
                check(&place, &model, (handles[index].0, start, length)).await;
            }
            Step::Break(fault) => place.faults.queue(Operation::Get, [fault]),
        }
    }
    place.faults.clear();
    for (handle, _) in handles {
        place.close(handle).await.unwrap();
    }
    assert!(place.content(ROOT, "file").await.unwrap() == model);
    place.is_whole().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn reads_show_what_was_written_last(
        steps in prop::collection::vec(step(), 1..60),
        memory in prop_oneof![Just(24 * MIB), Just(128 * MIB)],
        is_encrypted in prop::bool::ANY,
    ) {
        let run = async {
            let place = match is_encrypted {
                true => Place::encrypted_with_memory(memory).await,
                false => Place::with_memory(memory).await,
            };
            run_steps(steps, place).await;
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(run);
    }
}
