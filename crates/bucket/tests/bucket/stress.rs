//! Many tasks on one volume at once, on several threads.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use penstock_base::clock;
use penstock_bucket::{BucketSettings, MetadataSettings};
use penstock_vfs::{
    Allocation, AttributeChanges, FileKind, HandleId, OpenOptions, RenameMode, TimeChange, Volume,
};

use crate::support::{Bed, CALLER, READ, READ_WRITE, WRITE};

/// Numbers that look random, the same in each run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        // Knuth's multiplier; the upper bits are the good ones.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % sides
    }

    fn path(&mut self) -> String {
        let names = ["a", "b", "c", "d"];
        let depth = 1 + self.roll(3);
        let parts: Vec<&str> = (0..depth).map(|_| names[self.roll(names.len())]).collect();
        parts.join("/")
    }
}

async fn wander(bed: Arc<Bed>, seed: u64, successes: Arc<AtomicU64>) {
    let mut dice = Dice(seed);
    for _ in 0..300 {
        let (path, other) = (dice.path(), dice.path());
        let succeeded = match dice.roll(10) {
            0 => bed.mkdir(&path).await.is_ok(),
            1 => bed.rmdir(&path).await.is_ok(),
            2 => bed.unlink(&path).await.is_ok(),
            3 => bed
                .rename_as(&path, &other, RenameMode::Replace)
                .await
                .is_ok(),
            4 => bed.read_file(&path).await.is_ok(),
            5 => bed.ls(&path).await.is_ok(),
            6 => bed.stat(&path).await.is_ok(),
            7 => append(&bed, &path).await.is_ok(),
            _ => bed.write_file(&path, path.as_bytes()).await.is_ok(),
        };
        successes.fetch_add(u64::from(succeeded), Ordering::Relaxed);
    }
}

async fn append(bed: &Bed, path: &str) -> Result<(), penstock_base::FsError> {
    let handle = bed
        .open(
            path,
            OpenOptions {
                append: true,
                ..WRITE
            },
        )
        .await?;
    let written = bed.write(handle, 0, "+").await;
    let synced = bed.sync(handle).await;
    bed.close(handle).await.and(written).and(synced)
}

#[test]
fn many_tasks_at_once_neither_hang_nor_diverge() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let bed = Arc::new(Bed::new());
        let successes = Arc::<AtomicU64>::default();
        let tasks: Vec<_> = (0..8)
            .map(|seed| tokio::spawn(wander(Arc::clone(&bed), seed, Arc::clone(&successes))))
            .collect();
        for task in tasks {
            clock::deadline(Duration::from_secs(120), task)
                .await
                .unwrap()
                .unwrap();
        }
        assert!(successes.load(Ordering::Relaxed) > 300);
        assert_eq!(bed.volume.shut_down().await, []);
        assert_eq!(bed.metric("bucket_open_handles"), 0);
        // What this mount believes is what the bucket has.
        assert_eq!(tree(&bed).await, tree(&bed.fresh()).await);
        bed.forget_all();
        assert_eq!(bed.metric("bucket_inodes"), 1);
    });
}

async fn tree(bed: &Bed) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        for name in bed.ls(&directory).await.unwrap() {
            let path = format!("{directory}{name}");
            let stat = bed.stat(&path).await.unwrap();
            if stat.kind == FileKind::Directory {
                directories.push(format!("{path}/"));
            } else {
                let handle = bed.open(&path, READ).await.unwrap();
                bed.read(handle, 0, 100).await.unwrap();
                bed.close(handle).await.unwrap();
            }
            found.insert(path, stat.size);
        }
    }
    found
}

/// What a change of the same file does again and again, until it is told to end.
#[derive(Clone, Copy)]
enum Disturbance {
    Times,
    Renames,
}

async fn disturb(bed: Arc<Bed>, how: Disturbance, ended: Arc<AtomicU64>) {
    let inode = bed.stat("one").await.unwrap().inode;
    let mut names = ["one", "two"];
    while ended.load(Ordering::Relaxed) == 0 {
        match how {
            Disturbance::Times => {
                let changes = AttributeChanges {
                    modified: Some(TimeChange::Now),
                    ..AttributeChanges::default()
                };
                let changed = bed.volume.set_attributes(&CALLER, inode, changes).await;
                changed.unwrap();
            }
            Disturbance::Renames => {
                bed.rename(names[0], names[1]).await.unwrap();
                names.reverse();
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Writes and syncs, and looks each time at what the bucket has under either name.
async fn write_and_look(bed: &Bed, handle: HandleId, rounds: u8) {
    for round in 1..=rounds {
        bed.write(handle, 0, [round]).await.unwrap();
        bed.sync(handle).await.unwrap();
        let body = object_under_either_name(bed, round).await;
        assert_eq!(body, Some(vec![round]));
    }
}

/// The object with this byte, or whatever is there, after some looks: between two of them it may
/// be renamed.
async fn object_under_either_name(bed: &Bed, byte: u8) -> Option<Vec<u8>> {
    let mut last = None;
    for look in 0..100 {
        let found = bed.object(["one", "two"][look % 2]).await;
        if found == Some(vec![byte]) {
            return found;
        }
        last = found.or(last);
    }
    last
}

#[test]
fn what_was_synced_is_stored_whatever_becomes_of_the_file_meanwhile() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    for how in [Disturbance::Times, Disturbance::Renames] {
        runtime.block_on(async {
            let bed = Arc::new(Bed::staged_with(BucketSettings {
                metadata: MetadataSettings {
                    keep: true,
                    ..MetadataSettings::default()
                },
                ..BucketSettings::default()
            }));
            bed.put("one", "0").await;
            let handle = bed.open("one", READ_WRITE).await.unwrap();
            let ended = Arc::<AtomicU64>::default();
            let disturbing = tokio::spawn(disturb(Arc::clone(&bed), how, Arc::clone(&ended)));
            for _ in 0..4 {
                write_and_look(&bed, handle, 250).await;
            }
            ended.store(1, Ordering::Relaxed);
            disturbing.await.unwrap();
        });
    }
}

/// Zeros, or nothing more than a size, up to here.
const ALLOCATED: u64 = 1 << 19;
/// What is written at the same time ends here.
const WRITTEN: u64 = 1 << 20;

/// Writes at the end of an empty file while its front is allocated; the rest of what was written.
async fn written_beside(bed: &Arc<Bed>, allocation: Allocation) -> (u64, Vec<u8>) {
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, [1]).await.unwrap();
    let (writer, allocator) = (Arc::clone(bed), Arc::clone(bed));
    let writing = tokio::spawn(async move {
        let bytes = vec![7; (WRITTEN - ALLOCATED) as usize];
        writer.write(handle, ALLOCATED, bytes).await
    });
    let allocating = tokio::spawn(async move {
        let range = 0..ALLOCATED;
        allocator
            .volume
            .allocate(&CALLER, handle, range, allocation)
            .await
    });
    writing.await.unwrap().unwrap();
    allocating.await.unwrap().unwrap();
    bed.close(handle).await.unwrap();
    let stored = bed.object("file").await.unwrap();
    bed.unlink("file").await.unwrap();
    let rest = stored.get(ALLOCATED as usize..).unwrap_or_default();
    (stored.len() as u64, rest.to_vec())
}

#[test]
fn what_is_written_while_a_file_is_allocated_is_not_cut_off() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let bed = Arc::new(Bed::staged());
        let keep_size = false;
        for round in 0..100 {
            for allocation in [
                Allocation::Reserve { keep_size },
                Allocation::ZeroRange { keep_size },
            ] {
                let (size, rest) = written_beside(&bed, allocation).await;
                assert_eq!(size, WRITTEN, "{round}, {allocation:?}");
                assert!(rest.iter().all(|byte| *byte == 7));
            }
        }
    });
}

#[test]
fn appends_through_several_handles_do_not_overwrite_each_other() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let bed = Arc::new(Bed::staged());
        bed.put("file", "").await;
        let options = OpenOptions {
            append: true,
            ..WRITE
        };
        let (writers, rounds) = (4, 100);
        let appending: Vec<_> = (0..writers)
            .map(|writer: u8| {
                let bed = Arc::clone(&bed);
                tokio::spawn(async move {
                    let handle = bed.open("file", options).await.unwrap();
                    for _ in 0..rounds {
                        bed.write(handle, 0, [writer; 64]).await.unwrap();
                    }
                    bed.close(handle).await.unwrap();
                })
            })
            .collect();
        for appended in appending {
            appended.await.unwrap();
        }
        let stored = bed.object("file").await.unwrap();
        for writer in 0..writers {
            let bytes = stored.iter().filter(|byte| **byte == writer).count();
            assert_eq!(bytes, 64 * rounds, "of {writer}");
        }
    });
}
