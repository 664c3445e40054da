//! With `durability=store` small files are with the metadata first, and are brought into objects behind.

#![allow(clippy::unwrap_used)]

mod support;

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use penstock_base::{BufferPool, MemoryBudget, clock};
use penstock_fileset::{
    Ahead, FilesetVolume, Format, Inlined,
    check::check_data,
    engine::{
        EmbeddedSettings, Engine, EngineResult, MemoryEngine, Reads, ShippedEngine,
        ShippedSettings, Transaction, query, transact,
    },
    format_of,
    garbage::{Sweep, collect_garbage},
    snapshots,
};
use penstock_object::{ErrorKind, Key, ListOptions, Operation, PutOptions, Store};
use penstock_object_testing::{Fault, Faults, Faulty, MemoryStore};
use penstock_transfer::Transfer;
use penstock_vfs::{
    Access, Allocation, AttributeChanges, Dentry, HandleId, Identity, Inode, OpenOptions, Position,
    RemoveKind, Volume, WritePlace,
};

use support::{
    Place, ROOT, directory, file,
    some::{away, content, expect_some, name, store_some},
};

/// Bytes of a file that is brought into an object at once.
const LARGE: usize = (64 << 10) + 1;

/// Makes a file as a program does: what it makes it has open.
async fn make(place: &Place, number: usize) -> HandleId {
    let (by, name) = (Identity::root(), support::name(&name(number)));
    let options = Some(OpenOptions::WRITE);
    let made = place
        .volume
        .make(&by, Dentry::new(ROOT, &name), file(0o644), options);
    made.await.unwrap().opened.unwrap().handle
}

async fn create(place: &Place, number: usize) {
    let handle = make(place, number).await;
    let bytes = content(number);
    place
        .write(handle, WritePlace::At(0), &bytes)
        .await
        .unwrap();
    place.close(handle).await.unwrap();
}

/// Keys with bytes of files.
async fn contents(engine: &dyn Engine) -> usize {
    let look = |reads: &dyn Reads| -> EngineResult<usize> {
        let mut count = 0;
        reads.scan(&b"d"[..]..&b"e"[..], &mut |_, _| {
            count += 1;
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(count)
    };
    query(engine, look).await.unwrap()
}

/// A machine with a log in a bucket, and nothing else of that.
struct Machine {
    place: Place,
    _directory: tempfile::TempDir,
}

fn settings(directory: &Path, store: &Arc<dyn Store>) -> ShippedSettings {
    ShippedSettings {
        local: EmbeddedSettings {
            directory: directory.to_owned(),
            memory: 16 << 20,
        },
        store: Arc::clone(store),
        identity: 7,
    }
}

impl Machine {
    async fn first(bucket: &Arc<dyn Store>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let engine = ShippedEngine::create(&settings(directory.path(), bucket)).await;
        let engine = engine.unwrap();
        let made = FilesetVolume::format(&engine, &Identity::root(), Format::new(7)).await;
        made.unwrap();
        Self::with(directory, engine, bucket).await
    }

    /// One that has the bucket alone.
    async fn attached(bucket: &Arc<dyn Store>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let engine = ShippedEngine::attach(&settings(directory.path(), bucket), &|_| ()).await;
        Self::with(directory, engine.unwrap(), bucket).await
    }

    async fn with(
        directory: tempfile::TempDir,
        engine: ShippedEngine,
        bucket: &Arc<dyn Store>,
    ) -> Self {
        let (engine, bucket) = (Arc::new(engine), Arc::clone(bucket));
        Self {
            place: Place::sharing_with(engine, bucket, support::Small::Inlined).await,
            _directory: directory,
        }
    }
}

async fn keys(bucket: &Arc<dyn Store>, prefix: &str) -> usize {
    let options = ListOptions {
        prefix: prefix.to_owned(),
        ..ListOptions::default()
    };
    bucket.list(options).await.unwrap().objects.len()
}

/// It was two, of which one waited for the other, and each file was an object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_close_of_a_small_file_is_one_request() {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let faults = Faults::new(1);
    let bucket: Arc<dyn Store> = Arc::new(Faulty::new(memory, Arc::clone(&faults)));
    let begun = clock::now();
    let machine = Machine::first(&bucket).await;
    let before = faults.calls(Operation::Put);
    for number in 0..100 {
        create(&machine.place, number).await;
    }
    let puts = faults.calls(Operation::Put) - before;
    // Packs, and the log of what nobody waits for.
    let others = begun.elapsed().as_secs() * 2;
    assert!((100..=100 + others).contains(&puts), "{puts}");
    expect_some(&machine.place, 100).await;
    assert_eq!(machine.place.volume.shut_down().await, []);
    let objects = keys(&bucket, "data/").await as u64;
    assert!((1..=1 + others).contains(&objects), "{objects}");
}

/// Each waited for a request, as if something had been written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_close_of_a_file_to_which_nothing_was_written_waits_for_no_request() {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let faults = Faults::new(1);
    let bucket: Arc<dyn Store> = Arc::new(Faulty::new(memory, Arc::clone(&faults)));
    let machine = Machine::first(&bucket).await;
    let (begun, before) = (clock::now(), faults.calls(Operation::Put));
    for number in 0..100 {
        let made = make(&machine.place, number).await;
        machine.place.close(made).await.unwrap();
    }
    // What nobody waits for is there within a second.
    let most = 2 + begun.elapsed().as_secs();
    let puts = faults.calls(Operation::Put) - before;
    assert!(puts <= most, "{puts}");
}

/// How a file is changed without a write.
#[derive(Debug, Clone, Copy)]
enum Altering {
    /// By its name, while nobody has it open.
    Beside,
    Truncating,
    /// By a handle that may not write.
    TruncatingToRead,
    Resizing,
    Reserving,
    Copying,
}

impl Altering {
    const ALL: [Self; 6] = [
        Self::Beside,
        Self::Truncating,
        Self::TruncatingToRead,
        Self::Resizing,
        Self::Reserving,
        Self::Copying,
    ];

    /// Changes a file of 4,096 bytes, and returns the handle and how long it is then.
    async fn change(self, place: &Place) -> (HandleId, u64) {
        let inode = place.find(ROOT, &name(0)).await.unwrap().inode;
        let mut options = match self {
            Self::TruncatingToRead => OpenOptions::READ,
            _ => OpenOptions::READ_WRITE,
        };
        options.truncate = matches!(self, Self::Truncating | Self::TruncatingToRead);
        let resize = async |size| {
            let changes = AttributeChanges {
                size: Some(size),
                ..AttributeChanges::default()
            };
            place.change(inode, changes).await.unwrap();
        };
        if matches!(self, Self::Beside) {
            resize(20).await;
        }
        let handle = place.open(inode, options).await.unwrap();
        match self {
            Self::Beside => (handle, 20),
            Self::Truncating | Self::TruncatingToRead => (handle, 0),
            Self::Resizing => {
                resize(10).await;
                (handle, 10)
            }
            Self::Reserving => {
                let reserve = Allocation::Reserve { keep_size: false };
                place.allocate(handle, 0..9000, reserve).await.unwrap();
                (handle, 9000)
            }
            Self::Copying => {
                let (source, target) = [0, 9000].map(|offset| Position { handle, offset }).into();
                let by = Identity::root();
                let copied = place.volume.copy_range(&by, source, target, 4096);
                copied.await.unwrap();
                (handle, 13_096)
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_makes_durable_what_was_changed_before_it_without_a_write() {
    for altering in Altering::ALL {
        let bucket: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let first = Machine::first(&bucket).await;
        create(&first.place, 0).await;
        let (handle, size) = altering.change(&first.place).await;
        first.place.close(handle).await.unwrap();
        let second = Machine::attached(&bucket).await;
        let found = second.place.find(ROOT, &name(0)).await.unwrap();
        assert_eq!(found.size, size, "{altering:?}");
    }
}

/// A door asks no handle to say something at its close that was opened as one that has nothing to say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_that_truncated_has_something_to_say_when_it_is_closed() {
    let place = Place::inlined().await;
    create(&place, 0).await;
    let inode = place.find(ROOT, &name(0)).await.unwrap().inode;
    for (access, truncate) in [
        (Access::Read, false),
        (Access::Read, true),
        (Access::Write, false),
    ] {
        let options = OpenOptions {
            truncate,
            ..OpenOptions::to(access)
        };
        let opened = place.volume.open(&Identity::root(), inode, options).await;
        let opened = opened.unwrap();
        let says_nothing = access == Access::Read && !truncate;
        assert_eq!(opened.closes_silently, says_nothing, "{options:?}");
        place.close(opened.handle).await.unwrap();
    }
}

/// Who opened it again and closed it was told that all is well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_behind_one_that_failed_says_what_is_not_durable_still() {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let faults = Faults::new(1);
    let bucket: Arc<dyn Store> = Arc::new(Faulty::new(memory, Arc::clone(&faults)));
    let machine = Machine::first(&bucket).await;
    let place = &machine.place;
    create(place, 0).await;
    let refuse = Fault::fail(ErrorKind::Unavailable);
    faults.rate(Some(Operation::Put), 1.0, refuse);
    let inode = place.find(ROOT, &name(0)).await.unwrap().inode;
    let handle = place.open(inode, OpenOptions::WRITE).await.unwrap();
    place
        .write(handle, WritePlace::At(0), b"new")
        .await
        .unwrap();
    assert!(place.close(handle).await.is_err());
    let again = place.open(inode, OpenOptions::WRITE).await.unwrap();
    assert!(
        place.close(again).await.is_err(),
        "the bucket has nothing of it"
    );
    faults.clear();
    let again = place.open(inode, OpenOptions::WRITE).await.unwrap();
    place.close(again).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_closed_is_there_on_another_machine_though_no_object_has_it() {
    let bucket: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let first = Machine::first(&bucket).await;
    store_some(&first.place, 20).await;
    assert_eq!(keys(&bucket, "data/").await, 0);
    let second = Machine::attached(&bucket).await;
    expect_some(&second.place, 20).await;
    let place = &second.place;
    place.until(|| async { place.waiting() == (0, 0) }).await;
    assert_eq!(keys(&bucket, "data/").await, 1);
    expect_some(place, 20).await;
    place.is_whole().await;
    assert_eq!(contents(&*place.engine).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_mount_loses_nothing_and_the_next_one_brings_it_into_an_object() {
    let mut place = Place::inlined().await;
    let begun = clock::now();
    store_some(&place, 50).await;
    expect_some(&place, 50).await;
    place.is_whole_without_the_bucket().await;
    place.crash().await;
    expect_some(&place, 50).await;
    place.until(|| async { place.waiting() == (0, 0) }).await;
    // One for each 5 s that they took.
    let objects = place.objects().await.len() as u64;
    assert!(
        (1..=1 + begun.elapsed().as_secs() / 5).contains(&objects),
        "{objects}"
    );
    assert_eq!(contents(&*place.engine).await, 0);
    expect_some(&place, 50).await;
    place.is_whole().await;
}

/// Its bytes are sent once more, to where they are already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_between_the_object_and_the_end_of_its_keys_costs_a_request() {
    let (mut place, gate) = Place::inlined_and_gated().await;
    store_some(&place, 5).await;
    gate.hold(1);
    let volume = Arc::clone(&place.volume);
    let ending = tokio::spawn(async move { volume.shut_down().await });
    gate.reached.notified().await;
    assert_eq!(place.objects().await.len(), 1);
    assert_eq!(contents(&*place.engine).await, 5);
    place.crash().await;
    gate.go_on();
    ending.await.unwrap();
    expect_some(&place, 5).await;
    place.until(|| async { place.waiting() == (0, 0) }).await;
    assert_eq!(place.faults.calls(Operation::Put), 2);
    assert_eq!(place.objects().await.len(), 1);
    expect_some(&place, 5).await;
    place.is_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_large_or_more_than_there_is_room_for_is_an_object_at_once() {
    let place = Place::inlined().await;
    place.store(ROOT, "large", &[1; LARGE]).await.unwrap();
    assert_eq!(place.waiting(), (0, 0));
    assert_eq!(place.objects().await.len(), 1);
    away(&place);
    let mut stored = 0;
    let refused = loop {
        let name = format!("small-{stored}");
        match place.store(ROOT, &name, &[2; 60 << 10]).await {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 1000);
    };
    is_told(&refused);
    let (bytes, objects) = place.waiting();
    assert!((7 << 20..=8 << 20).contains(&bytes), "{bytes}");
    assert!((2..=3).contains(&objects), "{objects}");
    place.faults.clear();
    assert_eq!(place.volume.shut_down().await, []);
    assert_eq!(place.waiting(), (0, 0));
}

/// What a close said is that of the store.
fn is_told(refused: &penstock_base::FsError) {
    assert!(
        matches!(
            refused,
            penstock_base::FsError::Io(_) | penstock_base::FsError::TimedOut(_)
        ),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_removed_before_it_is_an_object_costs_no_request() {
    let mut place = Place::inlined().await;
    store_some(&place, 20).await;
    for number in 0..20 {
        let inode = place.find(ROOT, &name(number)).await.unwrap().inode;
        let removed = place.remove(ROOT, &name(number), RemoveKind::File).await;
        removed.unwrap();
        place.forget_all(inode);
    }
    place.until(|| async { place.waiting() == (0, 0) }).await;
    assert_eq!(place.faults.calls(Operation::Put), 0);
    assert_eq!(place.faults.calls(Operation::DeleteMany), 0);
    assert_eq!(contents(&*place.engine).await, 0);
    assert_eq!(place.volume.shut_down().await, []);
    place.crash().await;
    place.is_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_brought_into_an_object_stays_and_is_sent_again() {
    let mut place = Place::inlined().await;
    store_some(&place, 10).await;
    away(&place);
    let failed = place.volume.shut_down().await;
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].0, "bytes that are in the log alone");
    place.faults.clear();
    place.crash().await;
    expect_some(&place, 10).await;
    place.until(|| async { place.waiting() == (0, 0) }).await;
    expect_some(&place, 10).await;
    place.is_whole().await;
}

/// One part of a file after the other: what follows in the file lies elsewhere in the object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_files_that_are_saved_by_turns_are_read_before_and_after() {
    let place = Place::inlined().await;
    let mut files = Vec::new();
    for text in ["a", "b"] {
        let inode = place.make(ROOT, text, file(0o644)).await.unwrap();
        let handle = place.open(inode, OpenOptions::READ_WRITE).await.unwrap();
        files.push((handle, Vec::new()));
    }
    for part in 0..40_u8 {
        let (handle, expected) = &mut files[usize::from(part % 2)];
        let bytes = vec![part + 1; 1000 + usize::from(part)];
        let at = WritePlace::At(expected.len() as u64);
        place.write(*handle, at, &bytes).await.unwrap();
        place.sync(*handle).await.unwrap();
        expected.extend(bytes);
    }
    for is_object in [false, true] {
        if is_object {
            place.until(|| async { place.waiting() == (0, 0) }).await;
        }
        for (handle, expected) in &files {
            assert!(place.read_all(*handle, expected.len()).await == *expected);
        }
    }
    let ahead = place.ahead.as_ref();
    let report = check_data(&*place.engine, place.transfer(), ahead).await;
    assert!(report.unwrap().is_clean());
}

/// Garbage is collected by a command that knows nothing of what waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_beside_leaves_what_is_no_object_yet_to_the_next_mount() {
    let mut place = Place::inlined().await;
    store_some(&place, 3).await;
    let inode = place.find(ROOT, &name(0)).await.unwrap().inode;
    for number in 0..3 {
        place.find(ROOT, &name(number)).await.unwrap();
        let removed = place.remove(ROOT, &name(number), RemoveKind::File).await;
        removed.unwrap();
    }
    place.crash().await;
    let sweep = Sweep {
        grace: Duration::ZERO,
        dry_run: false,
    };
    let store = Inlined::open(Arc::clone(&place.engine), Arc::clone(&place.bucket)).await;
    let pool = BufferPool::new(MemoryBudget::new(16 << 20));
    let transfer = Transfer::new(store.unwrap(), pool);
    let collected = collect_garbage(Arc::clone(&place.engine), transfer, sweep).await;
    collected.unwrap();
    place.until(|| async { place.waiting() == (0, 0) }).await;
    assert!(place.is_gone(inode).await);
    assert_eq!(contents(&*place.engine).await, 0);
    place.is_whole().await;
}

/// Bytes that are gone from the metadata are missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_bytes_are_told_and_never_read_as_something_else() {
    let place = Place::inlined().await;
    store_some(&place, 2).await;
    let damage = |transaction: &mut dyn Transaction| {
        let mut keys: Vec<Bytes> = Vec::new();
        transaction.scan(&b"d"[..]..&b"e"[..], &mut |key, _| {
            keys.push(Bytes::copy_from_slice(key));
            std::ops::ControlFlow::Continue(())
        })?;
        transaction.delete(&keys[0]);
        EngineResult::Ok(())
    };
    transact(&*place.engine, damage).await.unwrap();
    assert!(place.content(ROOT, &name(0)).await.is_err());
    assert_eq!(place.content(ROOT, &name(1)).await.unwrap(), content(1));
    let ahead: Option<&Ahead> = place.ahead.as_ref();
    let report = check_data(&*place.engine, place.transfer(), ahead).await;
    assert_eq!(report.unwrap().findings.len(), 1);
    let inode: Inode = place.find(ROOT, &name(0)).await.unwrap().inode;
    place.forget_all(inode);
}

/// It had saved one file more, which the log in the bucket did not have when another machine took that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_who_was_shut_out_sends_once_more_is_whole_for_who_has_the_log() {
    let bucket: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let faults = Faults::new(1);
    let way: Arc<dyn Store> = Arc::new(Faulty::new(Arc::clone(&bucket), Arc::clone(&faults)));
    let first = Machine::first(&way).await;
    store_some(&first.place, 5).await;
    let late = first.place.make(ROOT, "late", file(0o644)).await.unwrap();
    let late = first.place.open(late, OpenOptions::WRITE).await.unwrap();
    faults.rate(None, 1.0, Fault::fail(ErrorKind::Unavailable));
    let (at, bytes) = (WritePlace::At(0), content(9));
    first.place.write(late, at, &bytes).await.unwrap();
    first.place.close(late).await.unwrap_err();
    let second = Machine::attached(&bucket).await;
    let place = &second.place;
    place.until(|| async { place.waiting() == (0, 0) }).await;
    faults.clear();
    let before = faults.calls(Operation::Put);
    assert_ne!(first.place.volume.shut_down().await, []);
    assert_ne!(faults.calls(Operation::Put), before, "it was sent again");
    assert_eq!(keys(&bucket, "data/").await, 1);
    expect_some(place, 5).await;
    place.is_whole().await;
}

/// The answer was lost, and the bucket had it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_removed_after_an_upload_that_seemed_to_fail_leaves_nothing_in_the_bucket() {
    let place = Place::inlined().await;
    store_some(&place, 5).await;
    let lost = Fault::LoseAnswer(ErrorKind::Unavailable);
    place.faults.queue(Operation::Put, [lost]);
    let is_there = || async { place.objects().await.len() == 1 };
    place.until(is_there).await;
    for number in 0..5 {
        let inode = place.find(ROOT, &name(number)).await.unwrap().inode;
        let removed = place.remove(ROOT, &name(number), RemoveKind::File).await;
        removed.unwrap();
        place.forget_all(inode);
    }
    place.until(|| async { place.waiting() == (0, 0) }).await;
    assert_eq!(place.volume.shut_down().await, []);
    assert_eq!(place.objects().await, Vec::<String>::new());
}

/// The object is old enough meanwhile, and has what others saved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_saved_slowly_is_in_the_object_that_it_refers_to() {
    let (place, gate) = Place::inlined_and_gated().await;
    let slow = place.make(ROOT, "slow", file(0o644)).await.unwrap();
    let handle = place.open(slow, OpenOptions::WRITE).await.unwrap();
    let (at, bytes) = (WritePlace::At(0), content(9));
    place.write(handle, at, &bytes).await.unwrap();
    store_some(&place, 3).await;
    gate.hold(1);
    let saving = place.clone();
    let saving = tokio::spawn(async move { saving.close(handle).await });
    gate.reached.notified().await;
    clock::sleep(Duration::from_secs(6)).await;
    assert_eq!(place.objects().await.len(), 0);
    gate.go_on();
    saving.await.unwrap().unwrap();
    place.until(|| async { place.waiting() == (0, 0) }).await;
    assert_eq!(contents(&*place.engine).await, 0);
    assert!(place.content(ROOT, "slow").await.unwrap() == bytes);
    expect_some(&place, 3).await;
    place.is_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_snapshots_alone_need_is_brought_into_an_object_whose_length_is_known_then() {
    let place = Place::inlined().await;
    store_some(&place, 3).await;
    let all = place.find(ROOT, ".snapshot").await.unwrap().inode;
    place.make(all, "kept", directory(0o755)).await.unwrap();
    for number in 0..3 {
        let inode = place.find(ROOT, &name(number)).await.unwrap().inode;
        let removed = place.remove(ROOT, &name(number), RemoveKind::File).await;
        removed.unwrap();
        place.forget_all(inode);
        place.until(|| place.is_gone(inode)).await;
    }
    place.until(|| async { place.waiting() == (0, 0) }).await;
    assert_eq!(place.objects().await.len(), 1);
    place.is_whole().await;
    let held = snapshots::holding(&*place.engine).await.unwrap();
    assert_eq!((held.total.objects, held.total.bytes), (1, 3 * 4096));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_know_of_bytes_with_the_metadata_is_refused_from_the_first_mount_on() {
    for (place, version) in [(Place::new().await, 1), (Place::inlined().await, 8)] {
        let format = format_of(&*place.engine).await.unwrap();
        assert_eq!(format.version, version);
    }
}

/// A kill came between its PUT and the end of its keys, and then nobody needed it any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_beside_deletes_an_object_of_which_keys_are_left() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
    let made = FilesetVolume::format(&*engine, &Identity::root(), Format::new(7)).await;
    made.unwrap();
    let object = [1_u64.to_be_bytes(), 2_u64.to_be_bytes()].concat();
    let left = move |transaction: &mut dyn Transaction| {
        transaction.put(&[&b"G"[..], &object].concat(), Bytes::new());
        let key = [&b"d"[..], &object, &[0; 4]].concat();
        transaction.put(&key, Bytes::from_static(b"bytes"));
        EngineResult::Ok(())
    };
    transact(&*engine, left).await.unwrap();
    let bucket: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let key = Key::new("data/02/0000000000000001-0000000000000002").unwrap();
    let bytes = penstock_base::Payload::from(Bytes::from_static(b"bytes"));
    let put = bucket.put(&key, bytes, PutOptions::default()).await;
    put.unwrap();
    let sweep = Sweep {
        grace: Duration::ZERO,
        dry_run: false,
    };
    let inlined = Inlined::open(Arc::clone(&engine), Arc::clone(&bucket)).await;
    let pool = BufferPool::new(MemoryBudget::new(16 << 20));
    let transfer = Transfer::new(inlined.unwrap(), pool);
    let collected = collect_garbage(Arc::clone(&engine), transfer, sweep).await;
    assert_eq!(collected.unwrap().pending.objects, 0);
    assert_eq!(keys(&bucket, "data/").await, 0);
    // The next mount finds keys of an object of which it knows nothing.
    let place = Place::sharing_with(engine, bucket, support::Small::Inlined).await;
    place.until(|| async { place.waiting() == (0, 0) }).await;
    assert_eq!(contents(&*place.engine).await, 0);
}
