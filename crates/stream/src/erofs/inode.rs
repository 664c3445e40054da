//! Inodes and chunk indexes, byte for byte.

use super::Entry;
use crate::{BLOCK_SIZE, FileNode, Permissions, Timestamp, image::entries::NodeKind};

/// `i_format`: an extended inode.
const EXTENDED: u16 = 1;

const REGULAR: u16 = 0o100_000;
const DIRECTORY: u16 = 0o040_000;
const SYMLINK: u16 = 0o120_000;

/// The chunk format: there are indexes with device numbers, not bare block numbers.
const INDEXES: u32 = 0x20;

/// The largest chunk, as a power of two of blocks: 8 TiB.
const CHUNK_BITS_MAX: u32 = 31;

/// Where the bytes of an inode lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// In blocks of this image.
    Plain { start: u32 },
    /// In blocks of this image, but what does not fill one follows the inode.
    Inline { start: u32 },
    /// In chunks of 2^bits blocks whose indexes follow the inode.
    Chunks { bits: u32 },
}

impl Layout {
    /// Whether so many bytes can follow an inode: both must lie in one block.
    pub(super) fn fits_inline(bytes: u64) -> bool {
        InodeHead::SIZE + bytes <= BLOCK_SIZE
    }

    fn format(self) -> u16 {
        let number = match self {
            Self::Plain { .. } => 0,
            Self::Inline { .. } => 2,
            Self::Chunks { .. } => 4,
        };
        EXTENDED | (number << 1)
    }

    /// The field whose meaning depends on the layout.
    fn place(self) -> u32 {
        match self {
            Self::Plain { start } | Self::Inline { start } => start,
            Self::Chunks { bits } => INDEXES | bits,
        }
    }
}

/// An inode as it lies in the image.
pub(super) type InodeBytes = [u8; InodeHead::SIZE as usize];

/// What an inode says but for where its bytes lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct InodeHead {
    pub(super) kind: NodeKind,
    pub(super) permissions: Permissions,
    pub(super) size: u64,
    pub(super) modified: Timestamp,
    /// A number for programs that know 32 bits only.
    pub(super) number: u32,
    pub(super) links: u32,
}

impl InodeHead {
    /// Bytes of an inode.
    pub(super) const SIZE: u64 = 64;

    pub(super) fn encode(&self, layout: Layout) -> InodeBytes {
        let mut bytes: InodeBytes = [0; Self::SIZE as usize];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &layout.format().to_le_bytes());
        put(4, &self.mode().to_le_bytes());
        put(8, &self.size.to_le_bytes());
        put(16, &layout.place().to_le_bytes());
        put(20, &self.number.to_le_bytes());
        put(24, &self.permissions.uid.to_le_bytes());
        put(28, &self.permissions.gid.to_le_bytes());
        put(32, &self.modified.seconds.to_le_bytes());
        put(40, &self.modified.nanoseconds.to_le_bytes());
        put(44, &self.links.to_le_bytes());
        bytes
    }

    fn mode(&self) -> u16 {
        match self.kind {
            NodeKind::File => REGULAR | self.permissions.file_mode,
            NodeKind::Directory => DIRECTORY | self.permissions.directory_mode,
            NodeKind::Symlink => SYMLINK | 0o777,
        }
    }
}

/// The chunks of a file with bytes; one, unless the file is larger than 8 TiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkIndex {
    /// The chunk is 2^bits blocks large.
    pub(super) bits: u32,
    count: u64,
    device: u16,
    start: u64,
}

impl ChunkIndex {
    pub(super) fn of(node: &FileNode) -> Self {
        let blocks = node.size.div_ceil(BLOCK_SIZE).max(1);
        let bits = blocks.next_power_of_two().trailing_zeros();
        let bits = bits.min(CHUNK_BITS_MAX);
        Self {
            bits,
            count: blocks.div_ceil(1 << bits),
            device: node.start.disk + 1,
            start: node.start.block,
        }
    }

    pub(super) fn encoded(self) -> impl Iterator<Item = [u8; 8]> {
        (0..self.count).map(move |chunk| {
            let block = (self.start + (chunk << self.bits)) as u32;
            let mut bytes = [0; 8];
            bytes[2..4].copy_from_slice(&self.device.to_le_bytes());
            bytes[4..].copy_from_slice(&block.to_le_bytes());
            bytes
        })
    }
}

/// The kind of an entry, as directories write it.
pub(super) fn entry_type(entry: &Entry<'_>) -> u8 {
    match entry.kind {
        NodeKind::File => 1,
        NodeKind::Directory => 2,
        NodeKind::Symlink => 7,
    }
}
