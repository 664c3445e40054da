//! What compression costs and spares: a file of the sources of this program, again and again, and one of noise, written and read
//! through a volume over a bucket in memory:
//! `cargo run --release -p penstock-fileset --example compression_rates [MIB]`.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

use std::{path::Path, sync::Arc, time::Instant};

use bytes::Bytes;
use penstock_base::{BufferPool, FileName, MemoryBudget};
use penstock_fileset::{
    FilesetVolume, Format,
    compression::{self, Compression},
    engine::{EmbeddedEngine, EmbeddedSettings, Engine},
    usage,
};
use penstock_object::Store;
use penstock_object_testing::MemoryStore;
use penstock_transfer::Transfer;
use penstock_vfs::{
    Dentry, Exclusivity, Identity, Inode, New, NewKind, OpenOptions, Position, Volume, WritePlace,
};
use rustix::time::{ClockId, clock_gettime};

const WRITE: usize = 1 << 20;
const READ: u32 = 128 << 10;
const ROUNDS: usize = 3;

/// Seconds of all threads.
fn processor() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn sources(directory: &Path, text: &mut Vec<u8>) {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            text.extend(std::fs::read(path).unwrap());
        }
    }
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u64;
    let words = (0..length / 8).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes()
    });
    words.collect()
}

async fn open(engine: &Arc<EmbeddedEngine>, store: &Arc<MemoryStore>) -> Arc<FilesetVolume> {
    let pool = BufferPool::new(MemoryBudget::new(512 << 20));
    let transfer = Transfer::new(Arc::clone(store) as Arc<dyn Store>, pool);
    let engine: Arc<dyn Engine> = engine.clone();
    FilesetVolume::open(engine, transfer).await.unwrap()
}

/// Wall and processor seconds.
async fn timed(work: impl Future<Output = ()>) -> (f64, f64) {
    let (began, before) = (Instant::now(), processor());
    work.await;
    (began.elapsed().as_secs_f64(), processor() - before)
}

async fn round(content: &Bytes, setting: Compression, size: usize) -> [f64; 5] {
    let directory = tempfile::tempdir().unwrap();
    let settings = EmbeddedSettings {
        directory: directory.path().to_owned(),
        memory: 64 << 20,
    };
    let engine = Arc::new(EmbeddedEngine::open(&settings).unwrap());
    let by = Identity::new(0, 0, []);
    let format = FilesetVolume::format(&*engine, &by, Format::new(1));
    format.await.unwrap();
    compression::set(&*engine, setting).await.unwrap();
    let store = Arc::new(MemoryStore::new());
    let volume = open(&engine, &store).await;
    let (name, new) = (
        FileName::new(&b"file"[..]).unwrap(),
        New {
            kind: NewKind::Regular,
            permissions: 0o644,
            umask: 0,
            exclusivity: Exclusivity::New,
        },
    );
    let made = volume.make(&by, Dentry::new(Inode::ROOT, &name), new, None);
    let inode = made.await.unwrap().entry.attributes.inode;
    let opened = volume.open(&by, inode, OpenOptions::WRITE).await.unwrap();
    let handle = opened.handle;
    let piece = |at: usize| {
        let start = at % (content.len() - WRITE);
        content.slice(start..start + WRITE)
    };
    let written = timed(async {
        for at in (0..size).step_by(WRITE) {
            let place = WritePlace::At(at as u64);
            volume.write(&by, handle, place, piece(at)).await.unwrap();
        }
        volume.sync(handle, 0..u64::MAX, false).await.unwrap();
    });
    let written = written.await;
    volume.release(handle).await;
    let usage = usage(&*engine).await.unwrap();
    let volume = open(&engine, &store).await;
    volume.hold(&by, inode).await.unwrap();
    let opened = volume.open(&by, inode, OpenOptions::READ).await.unwrap();
    let handle = opened.handle;
    let read = timed(async {
        for offset in (0..size as u64).step_by(READ as usize) {
            let read = volume.read(&by, Position { handle, offset }, READ);
            assert_eq!(read.await.unwrap().len(), READ as usize);
        }
    });
    let read = read.await;
    let ratio = usage.bytes as f64 / (usage.bytes - usage.spared) as f64;
    [written.0, written.1, read.0, read.1, ratio]
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mebibytes = std::env::args().nth(1);
    let mebibytes = mebibytes.map_or(512, |text| text.parse().unwrap());
    let (size, gib) = (mebibytes << 20, mebibytes as f64 / 1024.0);
    let mut text = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut text);
    let contents = [("text", text), ("noise", noise(64 << 20))];
    println!("what, setting: ratio; write s/GiB, CPU-s/GiB; read s/GiB, CPU-s/GiB");
    for (what, content) in contents {
        let content = Bytes::from(content);
        for setting in [
            Compression::None,
            Compression::Lz4,
            Compression::Zstd(1),
            Compression::Zstd(3),
            Compression::Zstd(9),
        ] {
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                rounds.push(round(&content, setting, size).await);
            }
            let median = |column: usize| {
                let mut values: Vec<_> = rounds.iter().map(|round| round[column]).collect();
                values.sort_by(f64::total_cmp);
                values[ROUNDS / 2] / gib
            };
            println!(
                "{what}, {setting}: {:.2}; {:.2}, {:.2}; {:.2}, {:.2}",
                rounds[0][4],
                median(0),
                median(1),
                median(2),
                median(3)
            );
        }
    }
}
