//! What an archive says of a member, in bytes.
//!
//! [`header`] is the block of 512 bytes that every tar has, [`pax`] the records that extend it, [`sparse`] the maps
//! of files with holes, in the four ways in which they were written over the years. [`decode`](Reader) and
//! [`encode`] put them together.

mod encode;
mod header;
mod pax;
mod reader;
mod sparse;

pub use encode::Format;
pub(super) use encode::{encode, padding};
pub use reader::{Damage, Reader};
pub(super) use sparse::RANGES_MAX;

/// Bytes of a block; everything in an archive is made of whole ones.
pub(super) const BLOCK: usize = 512;
/// Bytes that names, records or maps of one member may take: what does not fit is damage, or meant to harm.
const EXTENSION_MAX: u64 = 4 << 20;
/// Bytes that an attribute takes in memory besides its own.
const ATTRIBUTE_BYTES: usize = 80;

/// What kind of thing a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file with content.
    File,
    /// Another name of a member before.
    HardLink,
    /// A symbolic link.
    Symlink,
    /// A character device.
    Character,
    /// A block device.
    Block,
    /// A directory.
    Directory,
    /// A FIFO.
    Fifo,
    /// What this version does not know, by its letter.
    Other(u8),
}

/// A member without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its path, as it was written.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// The numbers of user and group.
    pub owner: (u64, u64),
    /// The names of user and group; empty if unknown.
    pub owner_names: (Vec<u8>, Vec<u8>),
    /// Bytes of the content, holes among them.
    pub size: u64,
    /// Seconds and nanoseconds.
    pub modified: (i64, u32),
    /// What a link leads to.
    pub link: Vec<u8>,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Extended attributes.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where data is, if there are holes: offsets and lengths.
    pub data: Option<Vec<(u64, u64)>>,
}

impl Member {
    /// One without anything.
    pub fn new(name: Vec<u8>, kind: Kind) -> Self {
        Self {
            name,
            kind,
            mode: 0,
            owner: (0, 0),
            owner_names: (Vec::new(), Vec::new()),
            size: 0,
            modified: (0, 0),
            link: Vec::new(),
            device: (0, 0),
            attributes: Vec::new(),
            data: None,
        }
    }

    /// The ranges that hold data.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        match &self.data {
            Some(data) => data.clone(),
            None if self.size == 0 => Vec::new(),
            None => vec![(0, self.size)],
        }
    }

    /// Bytes of memory that it takes, about.
    pub(super) fn weight(&self) -> u64 {
        let attributes = self.attributes.iter();
        let attributes: usize = attributes
            .map(|(name, value)| name.len() + value.len() + ATTRIBUTE_BYTES)
            .sum();
        let ranges = self.data.as_ref().map_or(0, Vec::len) * size_of::<(u64, u64)>();
        let owner_names = self.owner_names.0.len() + self.owner_names.1.len();
        let names = self.name.len() + self.link.len() + owner_names;
        (size_of::<Self>() + names + attributes + ranges) as u64
    }

    /// Bytes that the archive has of its content.
    pub fn stored(&self) -> u64 {
        match &self.data {
            Some(data) => data.iter().map(|(_, length)| length).sum(),
            None => self.size,
        }
    }
}
