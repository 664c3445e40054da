//! How fast whole objects are read and written, and what that costs this process.
//!
//! ```text
//! penstock-devserver --fill bench/file:4:2GiB &
//! throughput s3://bench/ http://127.0.0.1:9000 read file0,file1 [MEMORY] [CALLS]
//! throughput s3://bench/ http://127.0.0.1:9000 write new0,new1 [MEMORY]
//! ```
//!
//! Every key has a task of its own. Reading asks for 1 MiB at a time, with CALLS reads under way at
//! once as the kernel's read-ahead has them (default 4); writing gives 2 GiB in pieces of 1 MiB that
//! come from the pool, as the kernel's requests do.

#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::{collections::VecDeque, sync::Arc, time::Duration};

use penstock_base::{
    BLOCK_SIZE, BufferPool, ByteSize, GIB, MIB, MemoryBudget, clock, metrics::Registry,
};
use penstock_object::{HeadOptions, Key, PutOptions, StoreSettings, open};
use penstock_transfer::{ObjectVersion, Transfer, TransferSettings, WriteStart};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Bytes that each writer writes.
const WRITTEN: u64 = 2 * GIB;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, endpoint, direction, keys, rest @ ..] = &arguments[..] else {
        return Err("usage: throughput SOURCE ENDPOINT read|write KEY,... [MEMORY] [CALLS]".into());
    };
    let memory = rest.first().map_or("512MiB", String::as_str);
    let memory: ByteSize = memory.parse()?;
    let calls: usize = rest.get(1).map_or("4", String::as_str).parse()?;
    let registry = Registry::new();
    let settings = StoreSettings {
        endpoint: Some(endpoint.clone()),
        anonymous: true,
        ..StoreSettings::default()
    };
    let store = open(&source.parse()?, &settings, &registry)?;
    let pool = BufferPool::new(MemoryBudget::new(memory.0));
    let transfer = Transfer::with_settings(store, pool, TransferSettings::default(), &registry);
    let tasks: Vec<_> = keys
        .split(',')
        .map(|key| {
            let (transfer, key) = (Arc::clone(&transfer), Key::new(key));
            match direction.as_str() {
                "write" => tokio::spawn(async move { write(&transfer, key?).await }),
                _ => tokio::spawn(async move { read(transfer, key?, calls).await }),
            }
        })
        .collect();
    let start = (clock::now(), cpu_seconds());
    let mut bytes = 0;
    for task in tasks {
        bytes += task.await??;
    }
    let seconds = start.0.elapsed().as_secs_f64();
    let [user, system] = [0, 1].map(|part| cpu_seconds()[part] - start.1[part]);
    let gibibytes = bytes as f64 / GIB as f64;
    println!(
        "{direction} {:.0} MiB/s, {:.3} CPU-s/GiB ({:.3} user), \
         {:.0} MiB of memory budget, {} MiB resident at most",
        gibibytes * 1024.0 / seconds,
        (user + system) / gibibytes,
        user / gibibytes,
        transfer.pool().budget().peak() as f64 / MIB as f64,
        resident_peak() / MIB,
    );
    for sample in registry.samples() {
        if sample.name.starts_with("transfer_") && sample.value > 0 {
            println!("  {} {:?} {}", sample.name, sample.labels, sample.value);
        }
    }
    Ok(())
}

async fn read(transfer: Arc<Transfer>, key: Key, calls: usize) -> Result<u64, Failure> {
    let info = transfer.store().head(&key, HeadOptions {}).await?;
    let (size, etag) = (info.size, info.etag);
    let reader = Arc::new(transfer.reader(ObjectVersion { key, etag, size }));
    let mut under_way = VecDeque::new();
    for offset in (0..size).step_by(BLOCK_SIZE) {
        if under_way.len() == calls {
            finish_first(&mut under_way).await?;
        }
        let reader = Arc::clone(&reader);
        let read = async move { reader.read(offset, BLOCK_SIZE as u32).await };
        under_way.push_back(tokio::spawn(read));
    }
    while !under_way.is_empty() {
        finish_first(&mut under_way).await?;
    }
    Ok(size)
}

async fn finish_first<T>(
    under_way: &mut VecDeque<tokio::task::JoinHandle<Result<T, penstock_transfer::TransferError>>>,
) -> Result<(), Failure> {
    if let Some(first) = under_way.pop_front() {
        first.await??;
    }
    Ok(())
}

async fn write(transfer: &Arc<Transfer>, key: Key) -> Result<u64, Failure> {
    let mut writer = transfer.writer(key, WriteStart::Empty, PutOptions::default());
    for _ in 0..WRITTEN / MIB {
        let (mut buffer, view) = transfer.pool().take(BLOCK_SIZE).await?.share();
        let room = buffer.unfilled();
        room.fill(std::mem::MaybeUninit::new(7));
        // SAFETY: all of it was initialised above.
        #[allow(unsafe_code)]
        unsafe {
            buffer.advance(BLOCK_SIZE);
        }
        writer.write(view.slice(0..BLOCK_SIZE)).await?;
    }
    Ok(writer.finish().await?.size)
}

#[allow(unsafe_code)]
fn usage() -> libc::rusage {
    // SAFETY: `usage` is plain data that the call fills.
    unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    }
}

/// User and system time of this process.
fn cpu_seconds() -> [f64; 2] {
    let seconds = |time: libc::timeval| {
        Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000).as_secs_f64()
    };
    let usage = usage();
    [seconds(usage.ru_utime), seconds(usage.ru_stime)]
}

fn resident_peak() -> u64 {
    usage().ru_maxrss as u64 * 1024
}
