//! Writes an ext4 image, for kernels without EROFS: names, sizes and times. The bytes of files
//! follow the image on one and the same device, block for block.
//!
//! ```text
//! superblock, group descriptors | a hole up to 8 MiB | directories, long links
//!   | extent trees | inode tables | block bitmaps | inode bitmaps | a hole | the data disk
//! ```
//!
//! ext4 wants to know beforehand what is known only in the end: how many inodes and blocks there
//! are. Directories do not depend on it, because an inode's number is settled when it comes. They
//! are written at once, behind room for as many descriptors as 16 TiB can have. Of each inode a
//! short record goes to a file without a name ([`records`]); when all is known, the inodes are made
//! of the records.
//!
//! There is no journal, and there are no copies of the superblock, whose places are in the midst of
//! the data. Bitmaps and inode tables of all groups lie together at the front (`flex_bg`). A
//! directory that fits a block is a list; a larger one is indexed by the hashes of its names, so
//! its entries are sorted by them ([`hash`]).
//!
//! Blocks are marked as used exactly where files lie, as the checker wants it: a hidden object
//! leaves a gap between the files.

mod directory;
mod extents;
mod geometry;
mod groups;
mod hash;
mod inode;
mod records;
mod superblock;
mod used;

use std::{io, mem, path::Path};

use directory::DirectoryWriter;
use extents::ExtentTree;
use geometry::Geometry;
use inode::{Inode, NodeBlocks};
use records::{Record, Records};
use used::UsedBlocks;

use crate::{
    BLOCK_SIZE, FileNode, ImageSummary, ImageWriter, Permissions, Timestamp,
    image::{
        check_name, check_target,
        entries::{DIRECTORIES_MEMORY, Entry, NodeKind},
        open::{OpenDirectories, OpenDirectory},
        output::Output,
    },
};

/// The inode of the root, which the format fixes.
const ROOT: u32 = 2;
/// The first inode that is not reserved.
const FIRST_FREE: u32 = 11;

/// Links of a directory that has more subdirectories than can be counted.
const LINKS_MAX: u32 = 65_000;

/// What an ext4 image is made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ext4Settings {
    /// Owner and modes of everything.
    pub permissions: Permissions,
    /// What tools show as the name of the volume; 16 bytes of it are kept.
    pub volume_name: String,
    /// Bytes of directory entries in memory before they go to a file beside the image.
    pub directories_memory: usize,
}

impl Default for Ext4Settings {
    fn default() -> Self {
        Self {
            permissions: Permissions::default(),
            volume_name: String::new(),
            directories_memory: DIRECTORIES_MEMORY,
        }
    }
}

/// What is kept of a directory that is open.
#[derive(Debug, Default)]
struct Open {
    number: u32,
    /// Where its record waits to be filled in.
    record: u64,
    /// Bytes that the entries take in blocks.
    bytes: u64,
    subdirectories: u32,
}

/// See the head of the module. The image has one data disk, and the device is one after the other.
#[derive(Debug)]
pub struct Ext4Writer {
    output: Output,
    settings: Ext4Settings,
    records: Records,
    used: UsedBlocks,
    /// Blocks that the extents of large files will take.
    extent_blocks: u64,
    open: OpenDirectories<Open>,
    next_number: u32,
    summary: ImageSummary,
    /// A name behind its hash.
    hashed: Vec<u8>,
}

impl Ext4Writer {
    /// Into a new file at `path`, which must not be there yet.
    pub fn create(path: &Path, settings: Ext4Settings) -> io::Result<Self> {
        let mut output = Output::create(path)?;
        output.skip_to(geometry::FIRST_DIRECTORY * BLOCK_SIZE)?;
        let mut records = Records::create(output.folder())?;
        let root = Open {
            number: ROOT,
            record: records.add(&Record::default())?,
            ..Open::default()
        };
        let memory = settings.directories_memory;
        Ok(Self {
            open: OpenDirectories::new(root, memory, output.folder()),
            output,
            settings,
            records,
            used: UsedBlocks::default(),
            extent_blocks: 0,
            next_number: FIRST_FREE,
            summary: ImageSummary {
                directories: 1,
                ..ImageSummary::default()
            },
            hashed: Vec::new(),
        })
    }

    fn take_number(&mut self) -> io::Result<u32> {
        let number = self.next_number;
        self.next_number = number
            .checked_add(1)
            .ok_or_else(|| io::Error::other("ext4 has at most 4 billion inodes; use EROFS"))?;
        Ok(number)
    }

    fn add_entry(&mut self, name: &[u8], number: u32, kind: NodeKind) -> io::Result<()> {
        check_name(name)?;
        self.hashed.clear();
        self.hashed.extend_from_slice(&hash::sorting_key(name));
        self.hashed.extend_from_slice(name);
        self.open.innermost().bytes += directory::entry_size(name.len()) as u64;
        self.open.add(&Entry {
            name: &self.hashed,
            node: u64::from(number),
            kind,
        })
    }

    /// Writes the blocks of a directory, and its record.
    fn write_directory(
        &mut self,
        left: &mut OpenDirectory<Open>,
        parent: u32,
        modified: Timestamp,
    ) -> io::Result<()> {
        let start = self.output.position() / BLOCK_SIZE;
        let mut sorted = self.open.sort(left)?;
        let open = &left.own;
        let mut writer = DirectoryWriter::new(&mut self.output, [open.number, parent]);
        let indexed = writer.write(&mut sorted, open.bytes)?;
        self.open.reuse(sorted);
        let blocks = self.output.position() / BLOCK_SIZE - start;
        self.extent_blocks += ExtentTree::blocks_for(blocks);
        let links = open.subdirectories.saturating_add(2);
        let record = Record {
            kind: NodeKind::Directory,
            indexed,
            links: if links > LINKS_MAX { 1 } else { links as u16 },
            size: blocks * BLOCK_SIZE,
            modified,
            start,
        };
        self.records.replace(open.record, &record)
    }

    /// Makes the inodes of their records, and writes what they need.
    fn write_inodes(&mut self, geometry: &Geometry) -> io::Result<Vec<u32>> {
        let mut directories = vec![0; geometry.groups as usize];
        let mut extent_block = geometry.extents_start;
        self.output.skip_to(geometry.inode_position(1))?;
        let mut reader = mem::take(&mut self.records).into_reader()?;
        let mut number = ROOT;
        while let Some((record, target)) = reader.next_record()? {
            self.output.skip_to(geometry.inode_position(number))?;
            let blocks = match record.kind {
                NodeKind::Symlink if !target.is_empty() => NodeBlocks::Target(target),
                _ => {
                    let start = match record.kind {
                        NodeKind::File => geometry.data_start + record.start,
                        _ => record.start,
                    };
                    let count = record.size.div_ceil(BLOCK_SIZE);
                    let tree = ExtentTree::build(start, count, extent_block);
                    for (index, block) in tree.blocks.iter().enumerate() {
                        let at = (extent_block + index as u64) * BLOCK_SIZE;
                        self.output.patch(at, block)?;
                    }
                    extent_block += tree.blocks.len() as u64;
                    NodeBlocks::Extents(tree)
                }
            };
            if record.kind == NodeKind::Directory {
                directories[geometry.group_of(number) as usize] += 1;
            }
            let inode = Inode {
                record: &record,
                permissions: self.settings.permissions,
            };
            self.output.write(&inode.encode(&blocks))?;
            number = if number == ROOT {
                FIRST_FREE
            } else {
                number + 1
            };
        }
        Ok(directories)
    }
}

impl ImageWriter for Ext4Writer {
    fn enter(&mut self, name: &[u8]) -> io::Result<()> {
        check_name(name)?;
        let number = self.take_number()?;
        let record = self.records.add(&Record::default())?;
        let own = Open {
            number,
            record,
            ..Open::default()
        };
        self.open.enter(name, own);
        Ok(())
    }

    fn leave(&mut self, modified: Timestamp) -> io::Result<()> {
        let mut left = self.open.leave()?;
        let parent = self.open.innermost();
        parent.subdirectories = parent.subdirectories.saturating_add(1);
        let parent = parent.number;
        self.write_directory(&mut left, parent, modified)?;
        self.summary.directories += 1;
        self.add_entry(&left.name, left.own.number, NodeKind::Directory)
    }

    fn file(&mut self, name: &[u8], node: &FileNode) -> io::Result<()> {
        if node.start.disk > 0 {
            return Err(io::Error::other("an ext4 image has one data disk only"));
        }
        let blocks = node.size.div_ceil(BLOCK_SIZE);
        if blocks > extents::FILE_BLOCKS_MAX {
            return Err(io::Error::other(
                "ext4 has no files of 16 TiB or more; use EROFS",
            ));
        }
        self.extent_blocks += ExtentTree::blocks_for(blocks);
        self.used.add(node.start.block, blocks);
        let number = self.take_number()?;
        self.records.add(&Record {
            kind: NodeKind::File,
            indexed: false,
            links: 1,
            size: node.size,
            modified: node.modified,
            start: node.start.block,
        })?;
        self.summary.files += 1;
        self.add_entry(name, number, NodeKind::File)
    }

    fn symlink(&mut self, name: &[u8], target: &[u8], modified: Timestamp) -> io::Result<()> {
        check_target(target)?;
        let number = self.take_number()?;
        let mut record = Record {
            kind: NodeKind::Symlink,
            indexed: false,
            links: 1,
            size: target.len() as u64,
            modified,
            start: self.output.position() / BLOCK_SIZE,
        };
        if target.len() <= inode::TARGET_MAX {
            record.start = 0;
            self.records.add_link(&record, target)?;
        } else {
            self.output.write(target)?;
            self.output.align(BLOCK_SIZE)?;
            self.records.add(&record)?;
        }
        self.add_entry(name, number, NodeKind::Symlink)
    }

    fn finish(
        mut self: Box<Self>,
        modified: Timestamp,
        disk_blocks: &[u64],
    ) -> io::Result<ImageSummary> {
        let [data_blocks] = disk_blocks else {
            return Err(io::Error::other("an ext4 image has exactly one data disk"));
        };
        let mut root = self.open.finish()?;
        self.write_directory(&mut root, ROOT, modified)?;
        let geometry = Geometry::new(
            self.next_number - 1,
            self.output.position() / BLOCK_SIZE,
            self.extent_blocks,
            *data_blocks,
        )?;
        let directories = self.write_inodes(&geometry)?;
        let name = self.settings.volume_name.as_bytes();
        let uuid = self
            .output
            .fingerprint(&[name, &geometry.blocks.to_le_bytes()])?;
        let groups = groups::Groups {
            geometry: &geometry,
            data: self.used.runs(),
            directories: &directories,
        };
        let free_blocks = groups.write(&mut self.output)?;
        let superblock = superblock::Superblock {
            geometry: &geometry,
            free_blocks,
            uuid,
            volume_name: &self.settings.volume_name,
        };
        self.output.patch(superblock::START, &superblock.encode())?;
        self.output.skip_to(geometry.data_start * BLOCK_SIZE)?;
        self.summary.bytes = self.output.finish()?;
        Ok(self.summary)
    }
}
