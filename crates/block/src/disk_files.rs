//! The volume beneath loop devices: one read-only file for each disk, and nothing else.

use std::{
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use penstock_base::{FileName, FsError, FsResult, Payload};
use penstock_vfs::{
    Attributes, Dentry, DirectorySink, Disk, Entry, Features, FileKind, HandleId, Identity, Inode,
    ListFrom, Lookup, OpenOptions, Opened, Position, Statistics, Volume,
};

/// Nothing here ever changes.
const TTL: Duration = Duration::from_secs(24 * 3600);

/// The inode of the first disk; the root has 1.
const FIRST: u64 = 2;

/// Disks as files that are called by their number.
pub(crate) struct DiskFiles {
    disks: Vec<Arc<dyn Disk>>,
}

impl DiskFiles {
    pub(crate) fn new(disks: Vec<Arc<dyn Disk>>) -> Self {
        Self { disks }
    }

    fn disk(&self, number: u64) -> FsResult<&Arc<dyn Disk>> {
        let index = number.checked_sub(FIRST).ok_or(FsError::IsADirectory)?;
        let index = usize::try_from(index).map_err(|_| FsError::NotFound)?;
        self.disks.get(index).ok_or(FsError::NotFound)
    }

    fn entry(&self, inode: Inode) -> FsResult<Entry> {
        let (kind, permissions, size) = match inode {
            Inode::ROOT => (FileKind::Directory, 0o500, 0),
            Inode(number) => (FileKind::Regular, 0o400, self.disk(number)?.size()),
        };
        Ok(Entry {
            attributes: Attributes {
                permissions,
                size,
                ..Attributes::new(inode, kind, SystemTime::UNIX_EPOCH)
            },
            entry_ttl: TTL,
            attributes_ttl: TTL,
        })
    }
}

/// The disk that a file is called after.
fn index_of(name: &FileName) -> Option<u64> {
    std::str::from_utf8(name.as_bytes()).ok()?.parse().ok()
}

#[async_trait]
impl Volume for DiskFiles {
    fn features(&self) -> Features {
        Features::READ_ONLY
    }

    async fn lookup(&self, _: &Identity, dentry: Dentry<'_>) -> FsResult<Lookup> {
        let index = index_of(dentry.name);
        let inode = index.and_then(|index| index.checked_add(FIRST));
        let entry = inode.and_then(|inode| self.entry(Inode(inode)).ok());
        Ok(entry.map_or(Lookup::Absent(TTL), Lookup::Found))
    }

    async fn parent(&self, _: &Identity, directory: Inode) -> FsResult<Entry> {
        self.entry(directory)
    }

    async fn attributes(&self, _: &Identity, inode: Inode) -> FsResult<Entry> {
        self.entry(inode)
    }

    async fn open(&self, _: &Identity, inode: Inode, options: OpenOptions) -> FsResult<Opened> {
        Ok(Opened {
            passes_once: true,
            ..Opened::to_read(&self.entry(inode)?.attributes, options)?
        })
    }

    async fn read(&self, _: &Identity, at: Position, length: u32) -> FsResult<Payload> {
        let Position { handle, offset } = at;
        let disk = self.disk(handle.0)?;
        let left = disk.size().saturating_sub(offset);
        let length = length.min(u32::try_from(left).unwrap_or(u32::MAX));
        if length == 0 {
            return Ok(Payload::new());
        }
        let payload = disk.read(offset, length).await?;
        if payload.len() != length as usize {
            let had = payload.len();
            let text = format!("a disk gave {had} bytes where {length} were asked for");
            return Err(FsError::Io(text));
        }
        Ok(payload)
    }

    async fn read_directory(
        &self,
        _: HandleId,
        from: ListFrom<'_>,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        let position = match from {
            ListFrom::Position(position) => position,
            // The disks are called by their number.
            ListFrom::After(name) => index_of(name).map_or(0, |last| last + 1),
        };
        for index in position..self.disks.len() as u64 {
            let name = FileName::new(index.to_string().as_bytes()).expect("a number is a name");
            let entry = self.entry(Inode(FIRST + index))?;
            if sink.push(index + 1, &name, &entry) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    async fn statistics(&self, _: &Identity, _: Inode) -> FsResult<Statistics> {
        Ok(Statistics {
            block_size: 4096,
            blocks: self.disks.iter().map(|disk| disk.size() / 4096).sum(),
            blocks_free: 0,
            blocks_available: 0,
            files: self.disks.len() as u64,
            files_free: 0,
            name_length_max: 255,
        })
    }
}
