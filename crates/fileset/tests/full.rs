//! A full disk of the metadata: what must be written fails, what is there is read, and writing goes on when there is
//! room. Making such a disk takes root.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    sync::MutexGuard,
    time::Duration,
};

use bytes::Bytes;
use penstock_base::{FsError, Mutex, clock};
use penstock_fileset::engine::{
    EmbeddedEngine, EmbeddedSettings, Engine, EngineError, EngineResult, query, transact,
};
use tempfile::TempDir;

use support::{Place, ROOT};

/// A command that one test starts has the files of the others open until it runs, and their locks with them.
static ALONE: Mutex<()> = Mutex::new(());

/// A file system of 16 MiB, unmounted on drop.
struct SmallDisk(TempDir, #[allow(dead_code)] MutexGuard<'static, ()>);

impl SmallDisk {
    fn new() -> Option<Self> {
        let alone = ALONE.lock();
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"])
            .arg(directory.path())
            .output();
        let is_mounted = mounted.is_ok_and(|output| output.status.success());
        if !is_mounted {
            penstock_skips::skipped("mounting a small disk takes root");
        }
        is_mounted.then(|| Self(directory, alone))
    }

    /// Takes all room but `left` bytes.
    fn fill(&self, left: u64) {
        let mut file = File::create(self.filler()).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub(left)).unwrap();
    }

    fn make_room(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }

    fn engine(&self) -> EmbeddedEngine {
        let settings = EmbeddedSettings {
            directory: self.0.path().join("metadata"),
            memory: 8 << 20,
        };
        EmbeddedEngine::open(&settings).unwrap()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

/// Bytes of a value that is put.
const VALUE: usize = 20 << 10;

fn key(number: u64) -> Bytes {
    // In no order, so that many pages of the tree change.
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Bytes::from(format!("{scattered:016x}"))
}

async fn put(engine: &dyn Engine, number: u64) -> EngineResult<()> {
    let key = key(number);
    let change = transact(engine, move |transaction| -> EngineResult<()> {
        transaction.put(&key, Bytes::from(vec![number as u8; VALUE]));
        Ok(())
    });
    change.await?;
    engine.sync().await
}

async fn has(engine: &dyn Engine, number: u64) -> bool {
    let key = key(number);
    let value = query(engine, |reads| reads.get(&key)).await.unwrap();
    value.is_some_and(|value| value == vec![number as u8; VALUE])
}

/// Puts keys from `next` on until there is no room, and returns the first that was refused.
async fn put_until_full(engine: &dyn Engine, mut next: u64) -> u64 {
    let refused = loop {
        match put(engine, next).await {
            Ok(()) => next += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, EngineError::Full(_)), "{refused}");
    next
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    clock::deadline(Duration::from_secs(30), what)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_of_the_metadata_has_no_space_and_takes_no_reads_away() {
    let Some(disk) = SmallDisk::new() else { return };
    let place = Place::on(disk.0.path()).await;
    place.store(ROOT, "kept", b"before").await.unwrap();
    disk.fill(0);
    let mut stored = 0;
    let refused = loop {
        match place.store(ROOT, &format!("f{stored}"), b"more").await {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, FsError::NoSpace);
    assert_eq!(place.content(ROOT, "kept").await.unwrap(), b"before");
    let again = place.store(ROOT, "again", b"more").await;
    assert_eq!(again, Err(FsError::NoSpace));
    disk.make_room();
    place.store(ROOT, "after", b"more").await.unwrap();
    for name in ["kept", "after"] {
        assert!(place.content(ROOT, name).await.is_ok());
    }
    place.is_whole().await;
}

/// Wherever the room ends: in the log, in the tree, or between them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fills_at_any_point_of_a_checkpoint_loses_nothing() {
    let Some(disk) = SmallDisk::new() else { return };
    for left in (0..12).map(|step| step * 300_000) {
        let engine = disk.engine();
        disk.fill(left);
        let next = in_time(put_until_full(&engine, 0)).await;
        for number in 0..next {
            assert!(
                has(&engine, number).await,
                "{number} of {next}, {left} left"
            );
        }
        disk.make_room();
        in_time(put(&engine, next)).await.unwrap();
        in_time(engine.close()).await.unwrap();
        drop(engine);
        let engine = disk.engine();
        for number in 0..=next {
            assert!(
                has(&engine, number).await,
                "{number} of {next}, {left} left"
            );
        }
        drop(engine);
        forget(disk.0.path());
    }
}

fn forget(disk: &Path) {
    std::fs::remove_dir_all(disk.join("metadata")).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_on_a_full_disk_is_closed_and_opened_when_there_is_room() {
    let Some(disk) = SmallDisk::new() else { return };
    for left in [0, 1_500_000] {
        let engine = disk.engine();
        disk.fill(left);
        let next = in_time(put_until_full(&engine, 0)).await;
        // What was refused was not synced, so that it may be lost.
        let closed = in_time(engine.close()).await;
        assert!(
            matches!(closed, Ok(()) | Err(EngineError::Full(_))),
            "{closed:?}"
        );
        drop(engine);
        disk.make_room();
        let engine = disk.engine();
        for number in 0..next {
            assert!(
                has(&engine, number).await,
                "{number} of {next}, {left} left"
            );
        }
        in_time(put(&engine, next)).await.unwrap();
        in_time(engine.close()).await.unwrap();
        drop(engine);
        forget(disk.0.path());
    }
}
