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
use penstock_vfs::{FileKind, OpenOptions, RenameMode, Volume};

use crate::support::{Bed, READ, WRITE};

/// Numbers that look random, the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
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
    let synced = bed.volume.sync(handle, false).await;
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
