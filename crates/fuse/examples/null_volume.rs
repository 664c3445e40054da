//! Measures the door alone: a volume with nothing behind it.
//!
//! `null_volume mount DIRECTORY [THREADS | ring]` mounts it until DIRECTORY is unmounted. Any name that
//! begins with a size, such as `4GiB` or `4KiB-17`, is a file of that size, made of bytes from
//! memory; what is written is dropped. Files in `direct/` bypass the page cache.
//!
//! `null_volume stat DIRECTORY COUNT THREADS` looks COUNT fresh names up and says how many that
//! were per second.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::exit
)]

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{
    BLOCK_SIZE, BufferPool, ByteSize, FileName, FsError, FsResult, MIB, MemoryBudget, Payload,
    metrics::Registry,
};
use penstock_fuse::{FuseSettings, Session};
use penstock_vfs::{
    AttributeChanges, Attributes, Caller, Created, DirectorySink, Entry, FileKind, HandleId, Inode,
    Lookup, OpenOptions, Opened, RemoveKind, RenameMode, Statistics, Volume,
};

/// The directory whose files bypass the page cache.
const DIRECT: Inode = Inode(2);
const TTL: Duration = Duration::from_secs(3600);

struct NullVolume {
    block: Bytes,
    sizes: Mutex<HashMap<Inode, u64>>,
    next: AtomicU64,
}

impl NullVolume {
    fn new(pool: &Arc<BufferPool>) -> Self {
        let (mut writer, view) = pool.try_take(BLOCK_SIZE).unwrap().share();
        writer.copy_from(&vec![0x5a; BLOCK_SIZE]);
        Self {
            block: view.slice(0..BLOCK_SIZE),
            sizes: Mutex::default(),
            next: AtomicU64::new(3),
        }
    }

    /// Inodes of files in `direct/` are odd, all others even.
    fn add(&self, parent: Inode, size: u64) -> Entry {
        let number = self.next.fetch_add(1, Ordering::Relaxed) * 2;
        let inode = Inode(number + u64::from(parent == DIRECT));
        self.sizes.lock().unwrap().insert(inode, size);
        entry(inode, FileKind::Regular, size)
    }

    fn opened(inode: u64) -> Opened {
        Opened {
            handle: HandleId(inode),
            direct: inode % 2 == 1,
            keep_cache: true,
            skip_flush: true,
        }
    }
}

fn entry(inode: Inode, kind: FileKind, size: u64) -> Entry {
    let now = SystemTime::UNIX_EPOCH;
    Entry {
        attributes: Attributes {
            inode,
            kind,
            permissions: 0o755,
            links: 1,
            uid: 0,
            gid: 0,
            size,
            accessed: now,
            modified: now,
            changed: now,
        },
        entry_ttl: TTL,
        attributes_ttl: TTL,
    }
}

#[async_trait]
impl Volume for NullVolume {
    async fn lookup(&self, _: Caller, parent: Inode, name: &FileName) -> FsResult<Lookup> {
        if name.as_str() == "direct" {
            return Ok(Lookup::Found(entry(DIRECT, FileKind::Directory, 0)));
        }
        let size = name.as_str().split('-').next().unwrap_or_default();
        match size.parse::<ByteSize>() {
            Ok(size) => Ok(Lookup::Found(self.add(parent, size.0))),
            Err(_) => Ok(Lookup::Absent(Duration::ZERO)),
        }
    }

    fn forget(&self, inode: Inode, _: u64) {
        self.sizes.lock().unwrap().remove(&inode);
    }

    async fn attributes(&self, _: Caller, inode: Inode) -> FsResult<Entry> {
        if inode == Inode::ROOT || inode == DIRECT {
            return Ok(entry(inode, FileKind::Directory, 0));
        }
        let size = self.sizes.lock().unwrap().get(&inode).copied();
        Ok(entry(inode, FileKind::Regular, size.unwrap_or(0)))
    }

    async fn set_attributes(
        &self,
        caller: Caller,
        inode: Inode,
        _: AttributeChanges,
    ) -> FsResult<Entry> {
        self.attributes(caller, inode).await
    }

    async fn read_symlink(&self, _: Caller, _: Inode) -> FsResult<Bytes> {
        Err(FsError::Unsupported("links"))
    }

    async fn make_symlink(&self, _: Caller, _: Inode, _: &FileName, _: &[u8]) -> FsResult<Entry> {
        Err(FsError::Unsupported("links"))
    }

    async fn make_directory(&self, _: Caller, _: Inode, _: &FileName, _: u16) -> FsResult<Entry> {
        Err(FsError::Unsupported("directories"))
    }

    async fn remove(&self, _: Caller, _: Inode, _: &FileName, _: RemoveKind) -> FsResult<()> {
        Ok(())
    }

    async fn rename(
        &self,
        _: Caller,
        _: (Inode, &FileName),
        _: (Inode, &FileName),
        _: RenameMode,
    ) -> FsResult<()> {
        Err(FsError::Unsupported("renames"))
    }

    async fn open(&self, _: Caller, inode: Inode, _: OpenOptions) -> FsResult<Opened> {
        Ok(Self::opened(inode.0))
    }

    async fn create(
        &self,
        _: Caller,
        parent: Inode,
        _: &FileName,
        _: u16,
        _: OpenOptions,
    ) -> FsResult<Created> {
        let entry = self.add(parent, 0);
        let opened = Self::opened(entry.attributes.inode.0);
        Ok(Created { entry, opened })
    }

    async fn read(&self, _: HandleId, _: u64, length: u32) -> FsResult<Payload> {
        Ok(self.block.slice(0..length as usize).into())
    }

    async fn write(&self, _: HandleId, _: u64, _: Bytes) -> FsResult<()> {
        Ok(())
    }

    async fn flush(&self, _: HandleId) -> FsResult<()> {
        Ok(())
    }

    async fn sync(&self, _: HandleId, _: bool) -> FsResult<()> {
        Ok(())
    }

    async fn release(&self, _: HandleId) {}

    async fn open_directory(&self, _: Caller, inode: Inode) -> FsResult<HandleId> {
        Ok(HandleId(inode.0))
    }

    async fn read_directory(
        &self,
        _: HandleId,
        position: u64,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        for number in position..100_000 {
            let name = FileName::new(&format!("4KiB-{number}")).unwrap();
            let entry = entry(Inode(number + (1 << 40)), FileKind::Regular, 4096);
            if sink.push(number + 1, &name, &entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    async fn release_directory(&self, _: HandleId) {}

    async fn statistics(&self) -> FsResult<Statistics> {
        Err(FsError::Unsupported("statistics"))
    }

    async fn shut_down(&self) -> Vec<(String, FsError)> {
        Vec::new()
    }
}

fn mount(directory: &str, how: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let pool = BufferPool::new(MemoryBudget::new(256 * MIB));
    let volume = Arc::new(NullVolume::new(&pool));
    let settings = FuseSettings {
        threads: how.parse().ok().and_then(NonZeroUsize::new),
        io_uring: how == "ring",
        ..FuseSettings::new(directory, "null")
    };
    let metrics = Registry::new();
    let session = Session::mount(
        volume,
        settings,
        pool,
        Arc::clone(&metrics),
        runtime.handle().clone(),
    );
    let session = runtime.block_on(session).unwrap_or_else(|error| {
        println!("{error}");
        std::process::exit(1);
    });
    println!("{:?}", session.negotiated());
    runtime.block_on(session.wait());
    for sample in metrics.samples().iter().filter(|sample| sample.value > 0) {
        println!("{} {:?} {}", sample.name, sample.labels, sample.value);
    }
}

fn stat(directory: &Path, count: u64, threads: u64) {
    let begun = std::time::Instant::now();
    let salt = std::process::id();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for number in 0..count / threads {
                    let name = format!("4KiB-{salt}-{thread}-{number}");
                    std::fs::metadata(directory.join(name)).unwrap();
                }
            });
        }
    });
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    println!("{rate:.0} lookups/s with {threads} threads");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["mount", directory] => mount(directory, ""),
        ["mount", directory, how] => mount(directory, how),
        ["stat", directory, count, threads] => stat(
            Path::new(directory),
            count.parse().unwrap(),
            threads.parse().unwrap(),
        ),
        _ => {
            println!("null_volume mount DIRECTORY [THREADS | ring] | stat DIRECTORY COUNT THREADS");
        }
    }
}
