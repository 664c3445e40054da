//! What the FUSE door itself costs: a mount with nothing behind it.
//!
//! `read` is 1 TiB of bytes that are in memory already, `sink` takes whatever is written and forgets
//! it. What a real mount needs beyond this is the volume's doing.
//!
//! ```text
//! cargo run --release -p penstock-fuse --example null_volume -- /mnt/null
//! fio --name=r --filename=/mnt/null/read --rw=read --bs=1M --size=8G
//! cat /proc/$(pidof null_volume)/stat
//! umount /mnt/null
//! ```

#![allow(clippy::disallowed_methods)]

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{
    BufferPool, FileName, FsError, FsResult, GIB, MIB, MemoryBudget, Payload, clock,
    metrics::Registry,
};
use penstock_fuse::{FuseSettings, Session};
use penstock_vfs::{
    AttributeChanges, Attributes, Dentry, DirectorySink, Entry, Features, FileKind, HandleId,
    Identity, Inode, ListFrom, Lookup, OpenOptions, Opened, Position, Statistics, Volume,
    WritePlace, Written,
};

const READ: Inode = Inode(2);
const SINK: Inode = Inode(3);
const SIZE: u64 = 1024 * GIB;
const TTL: Duration = Duration::from_secs(3600);

/// More than a core's own cache, as received bytes are.
const SOURCE_BYTES: usize = 8 << 20;

struct NullVolume {
    source: Bytes,
}

fn entry(inode: Inode) -> Entry {
    let is_root = inode == Inode::ROOT;
    let kind = if is_root {
        FileKind::Directory
    } else {
        FileKind::Regular
    };
    Entry {
        attributes: Attributes {
            permissions: if is_root { 0o755 } else { 0o666 },
            size: if inode == READ { SIZE } else { 0 },
            ..Attributes::new(inode, kind, clock::wall_time())
        },
        entry_ttl: TTL,
        attributes_ttl: TTL,
    }
}

#[async_trait]
impl Volume for NullVolume {
    fn features(&self) -> Features {
        Features {
            random_writes: true,
            ..Features::READ_ONLY
        }
    }

    async fn parent(&self, _: &Identity, directory: Inode) -> FsResult<Entry> {
        Ok(entry(directory))
    }

    async fn lookup(&self, _: &Identity, dentry: Dentry<'_>) -> FsResult<Lookup> {
        Ok(match dentry.name.as_bytes() {
            b"read" => Lookup::Found(entry(READ)),
            b"sink" => Lookup::Found(entry(SINK)),
            _ => Lookup::Absent(TTL),
        })
    }

    async fn attributes(&self, _: &Identity, inode: Inode) -> FsResult<Entry> {
        Ok(entry(inode))
    }

    async fn set_attributes(
        &self,
        _: &Identity,
        inode: Inode,
        _: AttributeChanges,
    ) -> FsResult<Entry> {
        Ok(entry(inode))
    }

    async fn open(&self, _: &Identity, inode: Inode, _: OpenOptions) -> FsResult<Opened> {
        Ok(Opened {
            passes_once: inode == SINK,
            is_unchanged: inode == READ,
            ..Opened::new(HandleId(inode.0))
        })
    }

    async fn read(&self, _: &Identity, at: Position, length: u32) -> FsResult<Payload> {
        let room = SOURCE_BYTES - length as usize;
        let start = usize::try_from(at.offset).unwrap_or(0) % room;
        Ok(self.source.slice(start..start + length as usize).into())
    }

    async fn write(&self, _: &Identity, _: HandleId, _: WritePlace, _: Bytes) -> FsResult<Written> {
        Ok(Written::ACCEPTED)
    }

    async fn read_directory(
        &self,
        _: HandleId,
        from: ListFrom<'_>,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        let ListFrom::Position(position) = from else {
            return Err(FsError::Unsupported("the door counts"));
        };
        for (place, name, inode) in [(1, "read", READ), (2, "sink", SINK)] {
            let name = FileName::new(name.as_bytes()).expect("a plain name");
            if place > position
                && let ControlFlow::Break(()) = sink.push(place, &name, &entry(inode))
            {
                break;
            }
        }
        Ok(())
    }

    async fn statistics(&self, _: &Identity, _: Inode) -> FsResult<Statistics> {
        Ok(Statistics {
            block_size: 4096,
            blocks: SIZE / 4096,
            blocks_free: 0,
            blocks_available: 0,
            files: 2,
            files_free: 0,
            name_length_max: 255,
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = std::env::args()
        .nth(1)
        .ok_or("usage: null_volume DIRECTORY")?;
    let volume = NullVolume {
        source: vec![0x5a; SOURCE_BYTES].into(),
    };
    let session = Session::mount(
        Arc::new(volume),
        FuseSettings::new(place, "null"),
        BufferPool::new(MemoryBudget::new(256 * MIB)),
        Registry::new(),
        tokio::runtime::Handle::current(),
    );
    session.await?.wait().await;
    Ok(())
}
