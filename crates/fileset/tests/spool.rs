//! With `durability=local` small files wait for the bucket on this disk.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use penstock_base::clock;
use penstock_fileset::engine::{
    Barrier, EmbeddedEngine, EmbeddedLock, EmbeddedSettings, Engine, EngineError, EngineResult,
    query, transact,
};
use penstock_object::Operation;
use penstock_object_testing::Fault;
use penstock_vfs::{OpenOptions, RemoveKind, Volume, WritePlace};

use support::{
    Place, ROOT, file,
    some::{away, content, expect_some, name, store_some},
};

fn waiting(place: &Place) -> (u64, u64) {
    place.waiting()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_written_synced_and_read_while_the_bucket_is_away() {
    let mut place = Place::spooled().await;
    away(&place);
    store_some(&place, 50).await;
    expect_some(&place, 50).await;
    let made = place.make(ROOT, "synced", file(0o644)).await.unwrap();
    let handle = place.open(made, OpenOptions::READ_WRITE).await.unwrap();
    let written = place.write(handle, WritePlace::At(0), b"bytes").await;
    written.unwrap();
    place.sync(handle).await.unwrap();
    place.crash().await;
    expect_some(&place, 50).await;
    assert_eq!(place.content(ROOT, "synced").await.unwrap(), b"bytes");
    place.is_whole_without_the_bucket().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_saved_one_after_the_other_shares_objects() {
    let mut place = Place::spooled().await;
    let begun = clock::now();
    store_some(&place, 2000).await;
    assert_eq!(place.volume.shut_down().await, []);
    let puts = place.faults.calls(Operation::Put);
    // One for each 4 MiB and for each 5 s that they took.
    let most = 3 + begun.elapsed().as_secs() / 5;
    assert!(puts <= most, "{puts} requests for 8 MB");
    assert_eq!(waiting(&place), (0, 0));
    place.crash().await;
    assert_eq!(waiting(&place), (0, 0));
    expect_some(&place, 2000).await;
    place.is_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mount_goes_on_with_what_a_killed_one_left() {
    let mut place = Place::spooled().await;
    store_some(&place, 100).await;
    place.crash().await;
    place.until(|| async { waiting(&place) == (0, 0) }).await;
    assert_eq!(place.faults.calls(Operation::Put), 1);
    expect_some(&place, 100).await;
    place.is_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_uploaded_stays_and_unmounting_tells() {
    let mut place = Place::spooled().await;
    store_some(&place, 10).await;
    away(&place);
    let failed = place.volume.shut_down().await;
    assert_eq!(failed.len(), 1, "{failed:?}");
    place.faults.clear();
    place.crash().await;
    place.until(|| async { waiting(&place) == (0, 0) }).await;
    expect_some(&place, 10).await;
    place.is_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_removed_before_it_was_uploaded_costs_no_request() {
    let mut place = Place::spooled().await;
    store_some(&place, 20).await;
    for number in 0..20 {
        let inode = place.find(ROOT, &name(number)).await.unwrap().inode;
        let removed = place.remove(ROOT, &name(number), RemoveKind::File).await;
        removed.unwrap();
        place.forget_all(inode);
    }
    place.until(|| async { waiting(&place) == (0, 0) }).await;
    assert_eq!(place.faults.calls(Operation::Put), 0);
    assert_eq!(place.faults.calls(Operation::DeleteMany), 0);
    assert_eq!(place.volume.shut_down().await, []);
    place.crash().await;
    place.is_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unmounting_ends_though_a_removed_file_is_still_being_saved() {
    let (place, gate) = Place::spooled_and_gated().await;
    let inode = place.make(ROOT, "removed", file(0o644)).await.unwrap();
    let handle = place.open(inode, OpenOptions::WRITE).await.unwrap();
    let written = place.write(handle, WritePlace::At(0), b"bytes").await;
    written.unwrap();
    gate.hold(1);
    let saving = place.clone();
    let saving = tokio::spawn(async move { saving.sync(handle).await });
    gate.reached.notified().await;
    let removed = place.remove(ROOT, "removed", RemoveKind::File).await;
    removed.unwrap();
    place.forget_all(inode);
    place.until(|| place.is_gone(inode)).await;
    let ending = place.clone();
    let ending = tokio::spawn(async move { ending.volume.shut_down().await });
    // It has looked at the object, which somebody holds.
    clock::sleep(Duration::from_millis(200)).await;
    gate.go_on();
    saving.await.unwrap().unwrap_err();
    let ended = clock::deadline(Duration::from_secs(10), ending).await;
    assert_eq!(ended.unwrap().unwrap(), []);
}

/// What removed files left in the object may be cleared away just then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_saved_into_an_object_of_removed_ones_stays() {
    let (place, gate) = Place::spooled_and_gated().await;
    let kept = place.make(ROOT, "kept", file(0o644)).await.unwrap();
    store_some(&place, 1).await;
    let inode = place.find(ROOT, &name(0)).await.unwrap().inode;
    gate.hold_sync();
    let removed = place.remove(ROOT, &name(0), RemoveKind::File).await;
    removed.unwrap();
    place.forget_all(inode);
    gate.reached.notified().await;
    let handle = place.open(kept, OpenOptions::WRITE).await.unwrap();
    let written = place.write(handle, WritePlace::At(0), &content(1)).await;
    written.unwrap();
    place.sync(handle).await.unwrap();
    place.close(handle).await.unwrap();
    gate.go_on();
    place
        .until(|| async { place.volume.unsaved().bytes == 0 })
        .await;
    assert!(place.content(ROOT, "kept").await.unwrap() == content(1));
    place.is_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_removed_while_its_object_is_uploaded_leaves_nothing() {
    let mut place = Place::spooled().await;
    store_some(&place, 1).await;
    let slow = Fault::Delay(Duration::from_millis(300));
    place.faults.rate(Some(Operation::Put), 1.0, slow);
    // The upload begins with the next mount.
    place.crash().await;
    place
        .until(|| async { place.faults.calls(Operation::Put) == 1 })
        .await;
    let inode = place.find(ROOT, &name(0)).await.unwrap().inode;
    let removed = place.remove(ROOT, &name(0), RemoveKind::File).await;
    removed.unwrap();
    place.forget_all(inode);
    place.until(|| async { waiting(&place) == (0, 0) }).await;
    assert_eq!(place.volume.shut_down().await, []);
    place
        .until(|| async { place.objects().await.is_empty() })
        .await;
    place.crash().await;
    place.is_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_without_room_sends_small_files_to_the_bucket_at_once() {
    let place = Place::spooled().await;
    place.break_spool();
    store_some(&place, 3).await;
    assert_eq!(place.faults.calls(Operation::Put), 3);
    expect_some(&place, 3).await;
    place.is_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_runs_go_to_the_bucket_at_once() {
    let place = Place::spooled().await;
    let large = vec![7; 5 << 20];
    place.store(ROOT, "large", &large).await.unwrap();
    assert_eq!(waiting(&place), (0, 0));
    assert_eq!(place.objects().await.len(), 2);
    assert!(place.content(ROOT, "large").await.unwrap() == large);
    place.is_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_at_once_share_an_object_and_nobody_reads_anothers_bytes() {
    let mut place = Place::spooled().await;
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let place = place.clone();
            tokio::spawn(async move {
                for number in (writer * 100)..(writer * 100 + 100) {
                    let stored = place.store(ROOT, &name(number), &content(number)).await;
                    stored.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    expect_some(&place, 800).await;
    place.crash().await;
    expect_some(&place, 800).await;
    place.until(|| async { waiting(&place) == (0, 0) }).await;
    expect_some(&place, 800).await;
    place.is_whole().await;
}

/// The log of an operation may reach the disk before its data does, if nobody syncs it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_undoes_what_refers_to_bytes_that_it_took() {
    let mut place = Place::spooled().await;
    let mut handles = Vec::new();
    for name in ["synced", "closed"] {
        let made = place.make(ROOT, name, file(0o644)).await.unwrap();
        handles.push(place.open(made, OpenOptions::READ_WRITE).await.unwrap());
    }
    let write = async |handle, number| {
        let bytes = content(number);
        let written = place.write(handle, WritePlace::At(0), &bytes);
        written.await.unwrap();
    };
    write(handles[0], 1).await;
    place.sync(handles[0]).await.unwrap();
    write(handles[0], 2).await;
    place.close(handles[0]).await.unwrap();
    write(handles[1], 3).await;
    place.close(handles[1]).await.unwrap();
    // The worker has written the log by then.
    clock::sleep(Duration::from_millis(100)).await;
    place.lose_power(content(1).len() as u64).await;
    assert!(place.content(ROOT, "synced").await.unwrap() == content(1));
    assert!(place.content(ROOT, "closed").await.unwrap().is_empty());
    place.store(ROOT, "closed", &content(4)).await.unwrap();
    place.crash().await;
    assert!(place.content(ROOT, "closed").await.unwrap() == content(4));
    place.until(|| async { waiting(&place) == (0, 0) }).await;
    assert!(place.content(ROOT, "synced").await.unwrap() == content(1));
    place.is_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_was_written_is_made_durable_at_once_while_the_volume_goes_on() {
    let mut place = Place::spooled().await;
    let mut handles = Vec::new();
    for (name, number) in [("open", 1), ("closed", 2)] {
        let made = place.make(ROOT, name, file(0o644)).await.unwrap();
        let handle = place.open(made, OpenOptions::READ_WRITE).await.unwrap();
        let bytes = content(number);
        let written = place.write(handle, WritePlace::At(0), &bytes);
        written.await.unwrap();
        handles.push(handle);
    }
    place.close(handles[1]).await.unwrap();
    place.volume.make_durable().await.unwrap();
    place.lose_power(u64::MAX).await;
    assert!(place.content(ROOT, "open").await.unwrap() == content(1));
    assert!(place.content(ROOT, "closed").await.unwrap() == content(2));
    place.is_whole().await;
}

/// Counts, and fails when it is told to.
#[derive(Debug, Default)]
struct Counting {
    passes: AtomicU64,
    fails: AtomicU64,
}

impl Barrier for Counting {
    fn pass(&self) -> std::io::Result<()> {
        self.passes.fetch_add(1, Ordering::SeqCst);
        match self.fails.load(Ordering::SeqCst) {
            0 => Ok(()),
            _ => Err(std::io::Error::other("the disk broke")),
        }
    }

    fn has(&self, _puts: &[(bytes::Bytes, bytes::Bytes)]) -> bool {
        true
    }
}

async fn put(engine: &EmbeddedEngine) -> EngineResult<()> {
    put_value(engine, b"key", bytes::Bytes::new()).await
}

async fn put_value(
    engine: &EmbeddedEngine,
    key: &'static [u8],
    value: bytes::Bytes,
) -> EngineResult<()> {
    transact(engine, move |transaction| -> EngineResult<()> {
        transaction.put(key, value.clone());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn nothing_is_durable_before_the_barrier_passed() {
    let directory = tempfile::tempdir().unwrap();
    let settings = EmbeddedSettings {
        directory: directory.path().to_owned(),
        memory: 8 << 20,
    };
    let barrier = Arc::new(Counting::default());
    let lock = EmbeddedLock::take(&settings).unwrap();
    let engine = EmbeddedEngine::open_locked(lock, Some(barrier.clone())).unwrap();
    let before = barrier.passes.load(Ordering::SeqCst);
    put(&engine).await.unwrap();
    engine.sync().await.unwrap();
    assert!(barrier.passes.load(Ordering::SeqCst) > before);
    barrier.fails.store(1, Ordering::SeqCst);
    put(&engine).await.unwrap();
    let synced = clock::deadline(Duration::from_secs(30), engine.sync());
    assert!(matches!(synced.await.unwrap(), Err(EngineError::Io(_))));
}

/// Keeps what is on the disk when it is asked to pass, as a power cut just then would, and has lost what `lost` refers to.
#[derive(Debug)]
struct CutOff {
    directory: PathBuf,
    left: PathBuf,
    is_armed: AtomicBool,
}

impl Barrier for CutOff {
    fn pass(&self) -> std::io::Result<()> {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            support::copy(&self.directory, &self.left);
        }
        Ok(())
    }

    fn has(&self, puts: &[(bytes::Bytes, bytes::Bytes)]) -> bool {
        puts.iter().all(|(key, _)| &key[..] != b"lost")
    }
}

#[tokio::test]
async fn a_power_cut_in_a_checkpoint_leaves_a_log_that_goes_on() {
    let [first, left, again] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let barrier = Arc::new(CutOff {
        directory: first.path().to_owned(),
        left: left.path().to_owned(),
        is_armed: AtomicBool::new(false),
    });
    let open = |directory: &tempfile::TempDir| {
        let settings = EmbeddedSettings {
            directory: directory.path().to_owned(),
            memory: 8 << 20,
        };
        EmbeddedEngine::open_locked(EmbeddedLock::take(&settings)?, Some(barrier.clone()))
    };
    let engine = open(&first).unwrap();
    put(&engine).await.unwrap();
    engine.sync().await.unwrap();
    barrier.is_armed.store(true, Ordering::SeqCst);
    // As much as begins a checkpoint.
    let much = vec![0; 2 << 20].into();
    put_value(&engine, b"lost", much).await.unwrap();
    engine.close().await.unwrap();
    let engine = open(&left).unwrap();
    put(&engine).await.unwrap();
    engine.sync().await.unwrap();
    support::copy(left.path(), again.path());
    let engine = open(&again).unwrap();
    let lost = query(&engine, |reads| reads.get(b"lost")).await;
    assert_eq!(lost.unwrap(), None);
}

/// The file of an object stayed, which may be what filled the disk, and was sent again every ten seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_bucket_has_takes_no_room_on_a_full_disk() {
    let (mut place, gate) = Place::spooled_and_gated().await;
    store_some(&place, 1).await;
    gate.refuse(1);
    assert_eq!(place.volume.shut_down().await, []);
    assert_eq!(waiting(&place), (0, 0));
    assert_eq!(place.faults.calls(Operation::Put), 1);
    place.crash().await;
    expect_some(&place, 1).await;
    place.is_whole().await;
}
