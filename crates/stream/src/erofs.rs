//! Writes an EROFS image: names, sizes and times; the bytes of files lie on other disks.
//!
//! ```text
//! block 0   superblock, device table (behind block 1 when it is long)
//! block 1   the root's inode, so that its number fits the 16 bits of the superblock
//! then      inodes of files and links as they come; when a directory is left, its blocks
//!           and behind them its inode
//! ```
//!
//! Inodes are extended ones, 64 bytes, since compact ones have neither times nor large sizes. That
//! of a file is followed by a chunk index of 8 bytes, which names a disk and the block on it
//! where the file begins; a chunk is as large as the file, up to 8 TiB. Disk `n` is device
//! `n + 1`, and 32 bits count the blocks of a disk: 16 TiB. Nothing else is used of the format, so
//! kernels from 6.1 on (which have all features of 5.16) mount it.
//!
//! A directory is written when it is left, because only then its names can be sorted, with `.` and
//! `..` among them. What does not fill a block follows the inode, so a small directory costs no
//! block of its own. The number of a directory is not known before it was written, and its
//! subdirectories are written before it: their `..` is patched then.
//!
//! The same calls make the same bytes: the volume's UUID is made of the contents, nothing of the
//! time or the machine.

mod directory;
mod inode;
mod superblock;

use std::{io, path::Path};

use directory::DirectoryBlocks;
use inode::{ChunkIndex, InodeBytes, InodeHead, Layout};
use superblock::{Superblock, device_table, device_table_start, header_end};

use crate::{
    BLOCK_SIZE, DISK_BLOCKS_MAX, FileNode, ImageSummary, ImageWriter, Permissions, Timestamp,
    image::{
        check_name, check_target,
        entries::{DIRECTORIES_MEMORY, Entry, NodeKind},
        open::{OpenDirectories, OpenDirectory},
        output::Output,
    },
};

/// Inodes begin at multiples of this many bytes, and are numbered by it.
const SLOT_SIZE: u64 = 32;

/// Where the root's inode lies.
const ROOT_POSITION: u64 = BLOCK_SIZE;

/// What an EROFS image is made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErofsSettings {
    /// Owner and modes of everything.
    pub permissions: Permissions,
    /// Data disks, which [`ImageWriter::finish`] tells the sizes of.
    pub disks: u16,
    /// What tools show as the name of the volume; 15 bytes of it are kept.
    pub volume_name: String,
    /// Bytes of directory entries in memory before they go to a file beside the image.
    pub directories_memory: usize,
}

impl Default for ErofsSettings {
    fn default() -> Self {
        Self {
            permissions: Permissions::default(),
            disks: 1,
            volume_name: String::new(),
            directories_memory: DIRECTORIES_MEMORY,
        }
    }
}

/// What is kept of a directory that is open.
#[derive(Debug, Default)]
struct Open {
    subdirectories: u32,
    /// Where subdirectories name their parent, which is not known yet.
    parent_links: Vec<u64>,
}

/// See the head of the module.
#[derive(Debug)]
pub struct ErofsWriter {
    output: Output,
    settings: ErofsSettings,
    open: OpenDirectories<Open>,
    blocks: DirectoryBlocks,
    inodes: u64,
    summary: ImageSummary,
}

/// Where a directory was written.
struct Written {
    number: u64,
    /// Where its entry `..` keeps the number of the parent.
    parent_link: u64,
}

impl ErofsWriter {
    /// Into a new file at `path`, which must not be there yet.
    pub fn create(path: &Path, settings: ErofsSettings) -> io::Result<Self> {
        let mut output = Output::create(path)?;
        let header = header_end(settings.disks);
        while output.position() < header {
            output.write(&[0])?;
            output.align(BLOCK_SIZE)?;
        }
        let memory = settings.directories_memory;
        Ok(Self {
            open: OpenDirectories::new(Open::default(), memory, output.folder()),
            output,
            settings,
            blocks: DirectoryBlocks::default(),
            inodes: 1,
            summary: ImageSummary {
                directories: 1,
                ..ImageSummary::default()
            },
        })
    }

    fn add_entry(&mut self, name: &[u8], node: u64, kind: NodeKind) -> io::Result<()> {
        check_name(name)?;
        self.open.add(&Entry { name, node, kind })
    }

    fn head(&mut self, kind: NodeKind, size: u64, modified: Timestamp) -> InodeHead {
        self.inodes += 1;
        InodeHead {
            kind,
            permissions: self.settings.permissions,
            size,
            modified,
            number: self.inodes as u32,
            links: 1,
        }
    }

    /// Writes all blocks of a directory but its end, which stays in `self.blocks`.
    fn write_blocks(&mut self, left: &mut OpenDirectory<Open>) -> io::Result<()> {
        self.blocks.begin();
        let mut sorted = self.open.sort(left)?;
        while let Some(entry) = sorted.next_entry()? {
            self.blocks.add(&entry, &mut self.output)?;
        }
        self.blocks.end(&mut self.output)?;
        self.open.reuse(sorted);
        Ok(())
    }

    /// Writes a directory and says where.
    fn write_directory(
        &mut self,
        left: &mut OpenDirectory<Open>,
        modified: Timestamp,
    ) -> io::Result<Written> {
        self.write_blocks(left)?;
        let tail = self.blocks.tail().len() as u64;
        let position = if Layout::fits_inline(tail) {
            self.place_inode(tail)?
        } else {
            self.blocks.write_tail(&mut self.output)?;
            self.place_inode(0)?
        };
        let inode = self.directory_inode(&left.own, modified);
        self.output.write(&inode)?;
        let behind = self.output.position();
        self.output.write(self.blocks.tail())?;
        self.link_directory(&left.own, position, behind)
    }

    /// The root lies in a block that waits for it.
    fn write_root(
        &mut self,
        root: &mut OpenDirectory<Open>,
        modified: Timestamp,
    ) -> io::Result<Vec<u8>> {
        self.write_blocks(root)?;
        if !Layout::fits_inline(self.blocks.tail().len() as u64) {
            self.blocks.write_tail(&mut self.output)?;
        }
        let mut inode = self.directory_inode(&root.own, modified).to_vec();
        let behind = ROOT_POSITION + inode.len() as u64;
        inode.extend_from_slice(self.blocks.tail());
        self.output.patch(ROOT_POSITION, &inode)?;
        let written = self.link_directory(&root.own, ROOT_POSITION, behind)?;
        let number = written.number.to_le_bytes();
        self.output.patch(written.parent_link, &number)?;
        Ok(inode)
    }

    fn directory_inode(&mut self, open: &Open, modified: Timestamp) -> InodeBytes {
        let mut head = self.head(NodeKind::Directory, self.blocks.size(), modified);
        head.links = open.subdirectories.saturating_add(2);
        let start = self.blocks.start_block();
        let layout = if self.blocks.tail().is_empty() {
            Layout::Plain { start }
        } else {
            Layout::Inline { start }
        };
        head.encode(layout)
    }

    /// Fills in what depends on the place of a directory, whose inline end lies at `behind`.
    fn link_directory(&mut self, open: &Open, position: u64, behind: u64) -> io::Result<Written> {
        let number = position / SLOT_SIZE;
        let bytes = number.to_le_bytes();
        let [itself, parent_link] = self.blocks.link_positions(behind);
        self.output.patch(itself, &bytes)?;
        for link in &open.parent_links {
            self.output.patch(*link, &bytes)?;
        }
        Ok(Written {
            number,
            parent_link,
        })
    }

    /// Moves on to where an inode with `inline` bytes behind it can lie, which must be within a
    /// block.
    fn place_inode(&mut self, inline: u64) -> io::Result<u64> {
        self.output.align(SLOT_SIZE)?;
        if inline > 0 && self.output.left_in_block() < InodeHead::SIZE + inline {
            self.output.align(BLOCK_SIZE)?;
        }
        Ok(self.output.position())
    }

    fn check_place(&self, node: &FileNode) -> io::Result<()> {
        if node.start.disk >= self.settings.disks {
            return Err(io::Error::other(format!(
                "disk {} is not one of the {} that the image was begun with",
                node.start.disk, self.settings.disks
            )));
        }
        let end = node.start.block + node.size.div_ceil(BLOCK_SIZE);
        if end > DISK_BLOCKS_MAX {
            return Err(disk_is_full());
        }
        Ok(())
    }
}

impl ImageWriter for ErofsWriter {
    fn enter(&mut self, name: &[u8]) -> io::Result<()> {
        check_name(name)?;
        self.open.enter(name, Open::default());
        Ok(())
    }

    fn leave(&mut self, modified: Timestamp) -> io::Result<()> {
        let mut left = self.open.leave()?;
        let written = self.write_directory(&mut left, modified)?;
        self.summary.directories += 1;
        let is_root = self.open.is_at_root();
        let parent = self.open.innermost();
        parent.subdirectories = parent.subdirectories.saturating_add(1);
        if is_root {
            let root = ROOT_POSITION / SLOT_SIZE;
            self.output
                .patch(written.parent_link, &root.to_le_bytes())?;
        } else {
            parent.parent_links.push(written.parent_link);
        }
        self.add_entry(&left.name, written.number, NodeKind::Directory)
    }

    fn file(&mut self, name: &[u8], node: &FileNode) -> io::Result<()> {
        self.check_place(node)?;
        let position = self.place_inode(0)?;
        let head = self.head(NodeKind::File, node.size, node.modified);
        if node.size == 0 {
            self.output
                .write(&head.encode(Layout::Plain { start: 0 }))?;
        } else {
            let index = ChunkIndex::of(node);
            let layout = Layout::Chunks { bits: index.bits };
            self.output.write(&head.encode(layout))?;
            for chunk in index.encoded() {
                self.output.write(&chunk)?;
            }
        }
        self.summary.files += 1;
        self.add_entry(name, position / SLOT_SIZE, NodeKind::File)
    }

    fn symlink(&mut self, name: &[u8], target: &[u8], modified: Timestamp) -> io::Result<()> {
        let size = target.len() as u64;
        check_target(target)?;
        let position = if Layout::fits_inline(size) {
            let position = self.place_inode(size)?;
            let head = self.head(NodeKind::Symlink, size, modified);
            self.output
                .write(&head.encode(Layout::Inline { start: 0 }))?;
            self.output.write(target)?;
            position
        } else {
            self.output.align(BLOCK_SIZE)?;
            let start = (self.output.position() / BLOCK_SIZE) as u32;
            self.output.write(target)?;
            let position = self.place_inode(0)?;
            let head = self.head(NodeKind::Symlink, size, modified);
            self.output.write(&head.encode(Layout::Plain { start }))?;
            position
        };
        self.add_entry(name, position / SLOT_SIZE, NodeKind::Symlink)
    }

    fn finish(
        mut self: Box<Self>,
        modified: Timestamp,
        disk_blocks: &[u64],
    ) -> io::Result<ImageSummary> {
        let mut root = self.open.finish()?;
        if disk_blocks.len() != usize::from(self.settings.disks) {
            return Err(io::Error::other("an image ends with its disks measured"));
        }
        if disk_blocks.iter().any(|blocks| *blocks > DISK_BLOCKS_MAX) {
            return Err(disk_is_full());
        }
        let root = self.write_root(&mut root, modified)?;
        self.output.align(BLOCK_SIZE)?;
        let name = self.settings.volume_name.as_bytes();
        let table = device_table(disk_blocks);
        let superblock = Superblock {
            blocks: self.output.position() / BLOCK_SIZE,
            inodes: self.inodes - 1,
            built: modified,
            uuid: self.output.fingerprint(&[&root, &table, name])?,
            volume_name: &self.settings.volume_name,
            disks: self.settings.disks,
        };
        self.output.patch(0, &superblock.encode(&table))?;
        let table_start = device_table_start(self.settings.disks);
        self.output.patch(table_start, &table)?;
        self.summary.bytes = self.output.finish()?;
        Ok(self.summary)
    }
}

fn disk_is_full() -> io::Error {
    io::Error::other("a disk of the volume would be larger than 16 TiB; use more disks")
}
