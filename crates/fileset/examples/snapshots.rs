//! How long a snapshot takes of many files, and what creates cost without one and with one:
//! `cargo run --release -p penstock-fileset --example snapshots [FILES]`.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

use std::{sync::Arc, time::Instant};

use penstock_base::{BufferPool, FileName, MemoryBudget};
use penstock_fileset::{
    FilesetVolume, Format,
    engine::{EmbeddedEngine, EmbeddedSettings},
};
use penstock_object_testing::MemoryStore;
use penstock_transfer::Transfer;
use penstock_vfs::{
    Dentry, Exclusivity, Identity, Inode, Lookup, New, NewKind, OpenOptions, RemoveKind, Volume,
};

const ROUNDS: usize = 7;
const CREATES: u64 = 20_000;

fn new(kind: NewKind<'static>) -> New<'static> {
    New {
        kind,
        permissions: 0o755,
        umask: 0,
        exclusivity: Exclusivity::New,
    }
}

struct Bench {
    volume: Arc<FilesetVolume>,
    by: Identity,
    last: u64,
}

impl Bench {
    async fn new(directory: &std::path::Path) -> Self {
        let settings = EmbeddedSettings {
            directory: directory.to_owned(),
            memory: 256 << 20,
        };
        let engine = Arc::new(EmbeddedEngine::open(&settings).unwrap());
        let by = Identity::new(0, 0, []);
        FilesetVolume::format(&*engine, &by, Format::new(1))
            .await
            .unwrap();
        let pool = BufferPool::new(MemoryBudget::new(64 << 20));
        let transfer = Transfer::new(Arc::new(MemoryStore::new()), pool);
        let volume = FilesetVolume::open(engine, transfer).await.unwrap();
        Self {
            volume,
            by,
            last: 0,
        }
    }

    async fn make(&self, parent: Inode, text: &str, kind: NewKind<'static>) -> Inode {
        let name = FileName::new(text.as_bytes()).unwrap();
        let open = matches!(kind, NewKind::Regular).then_some(OpenOptions::WRITE);
        let made = self
            .volume
            .make(&self.by, Dentry::new(parent, &name), new(kind), open)
            .await
            .unwrap();
        if let Some(opened) = made.opened {
            self.volume.release(opened.handle).await;
        }
        let inode = made.entry.attributes.inode;
        self.volume.forget(inode, 1);
        inode
    }

    /// Creates a second, in a new directory.
    async fn creates(&mut self, count: u64) -> f64 {
        self.last += 1;
        let text = format!("directory-{}", self.last);
        let directory = self.make(Inode::ROOT, &text, NewKind::Directory).await;
        self.creates_in(directory, count).await
    }

    async fn creates_in(&mut self, directory: Inode, count: u64) -> f64 {
        let begun = Instant::now();
        for _ in 0..count {
            self.last += 1;
            let text = format!("file-{}", self.last);
            self.make(directory, &text, NewKind::Regular).await;
        }
        count as f64 / begun.elapsed().as_secs_f64()
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let files = std::env::args().nth(1);
    let files = files.map_or(100_000, |files| files.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(directory.path()).await;
    bench.creates(files).await;
    for _ in 0..ROUNDS {
        println!(
            "no snapshot:        {:8.0} creates/s",
            bench.creates(CREATES).await
        );
    }
    let name = FileName::new(b".snapshot").unwrap();
    let at = Dentry::new(Inode::ROOT, &name);
    let Lookup::Found(shelf) = bench.volume.lookup(&bench.by, at).await.unwrap() else {
        return;
    };
    let shelf = shelf.attributes.inode;
    let old = bench.make(Inode::ROOT, "old", NewKind::Directory).await;
    for round in 0..ROUNDS {
        let text = format!("snapshot-{round}");
        let begun = Instant::now();
        bench.make(shelf, &text, NewKind::Directory).await;
        println!(
            "taking one:         {:8.2} ms",
            begun.elapsed().as_secs_f64() * 1e3
        );
        let there = bench.creates(CREATES).await;
        println!("with one:           {there:8.0} creates/s in a new directory");
        let there = bench.creates_in(old, CREATES).await;
        println!("with one:           {there:8.0} creates/s in one that it has");
        let name = FileName::new(text.as_bytes()).unwrap();
        let at = Dentry::new(shelf, &name);
        let kind = RemoveKind::Directory;
        bench.volume.remove(&bench.by, at, kind).await.unwrap();
    }
    bench.volume.shut_down().await;
}
