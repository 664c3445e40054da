//! What names cost that wait to be stored, of a number that the first argument gives:
//! `cargo run --release -p penstock-bucket --example waiting_names -- 100000`.
//!
//! Prints microseconds for each name until it waits and until it is stored, over a store in memory that answers at once,
//! and bytes of memory for each that waits.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

use std::{sync::Arc, time::Duration};

use penstock_base::{BufferPool, FileName, MIB, MemoryBudget, clock, metrics::Registry};
use penstock_bucket::{
    BucketSettings, BucketVolume, MetadataSettings, SaveBehind, Staging, StagingSettings,
};
use penstock_object::Store;
use penstock_object_testing::MemoryStore;
use penstock_transfer::Transfer;
use penstock_vfs::{Dentry, Exclusivity, Identity, Inode, New, NewKind, Volume};

/// Longer than this runs.
const LATER: Duration = Duration::from_secs(3600);
const MEMORY: u64 = 8192 * MIB;

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn volume(scratch: &std::path::Path) -> Arc<BucketVolume> {
    let settings = BucketSettings {
        save_behind: Some(SaveBehind {
            after: LATER,
            age_max: LATER,
            files_max: 1000,
        }),
        metadata: MetadataSettings {
            keep: true,
            ..MetadataSettings::default()
        },
        ..BucketSettings::default()
    };
    let budget = MemoryBudget::new(MEMORY);
    let staging = Staging::open(StagingSettings::new(scratch, "memory"), &budget).unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::like_s3());
    let transfer = Transfer::new(store, BufferPool::new(budget));
    BucketVolume::staged(transfer, settings, staging, Registry::new())
}

#[tokio::main]
async fn main() {
    let count: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let volume = volume(scratch.path());
    let (before, began) = (resident(), clock::now());
    for number in 0..count {
        let name = FileName::new(format!("link-{number:07}").as_bytes()).unwrap();
        let new = New {
            kind: NewKind::Symlink(b"target"),
            permissions: 0o777,
            umask: 0,
            exclusivity: Exclusivity::New,
        };
        let dentry = Dentry::new(Inode::ROOT, &name);
        let made = volume.make(&Identity::root(), dentry, new, None).await;
        made.unwrap();
    }
    let each = |time: Duration| time.as_micros() as u64 / count;
    let waiting = volume.unsaved().files.max(1);
    let bytes = (resident() - before) / waiting;
    println!(
        "{waiting} wait: {} us each, {bytes} bytes each",
        each(began.elapsed())
    );
    let began = clock::now();
    assert!(volume.shut_down().await.is_empty());
    println!("{count} stored: {} us each", each(began.elapsed()));
}
