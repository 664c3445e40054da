//! Which block of a disk is which byte of an object.
//!
//! The map is one file, written in one pass beside the image, in the order of keys:
//!
//! ```text
//! groups of 16 records | a table for each disk | where groups begin | where tables begin | footer
//! ```
//!
//! - A **record** has an object's key (less what it shares with the key before it in its group),
//!   tag (hexadecimal ones in half the bytes), size and time. Records are numbered from 0.
//! - A disk's **table** has four bytes of first block and four of record number for each object
//!   that has bytes, in rising order: finding a block is one binary search.
//!
//! Beside its key and tag an object takes 8.5 bytes to be found and about 10 for size and time; ten
//! million with keys of 40 bytes take 0.5 GB. The file is mapped and its pages are proven when they
//! are touched (`checked_file`), so opening takes no time and memory is the kernel's to take back.
//! While it is written a page for each disk and 8 bytes for each group are held in memory.

mod iterate;
mod record;
mod table;
#[cfg(test)]
mod tests;
mod writer;

use std::{ops::Range, path::Path};

use penstock_base::{FsError, FsResult};
use penstock_object::{ETag, Key};
use penstock_transfer::ObjectVersion;
use smallvec::SmallVec;

pub use self::{iterate::MappedObjects, writer::ObjectMapWriter};
use self::{
    record::Decoder,
    table::{ENTRY, Table},
};
use crate::{BLOCK_SIZE, BlockAddress, SnapshotError, Timestamp, checked_file::CheckedFile};

const MAGIC: [u8; 8] = *b"PnstMap1";

/// Records in a group.
const GROUP: u32 = 16;

/// Bytes of the footer.
const FOOTER: u64 = 24;

/// Bytes that say where a table is and how much of the disk is occupied.
const TABLE_ENTRY: u64 = 24;

/// An object of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedObject {
    /// Its number in the order of keys, from 0.
    pub number: u32,
    /// The key below the path that was listed.
    pub key: Vec<u8>,
    /// Bytes in the object.
    pub size: u64,
    /// When it was written.
    pub modified: Timestamp,
    /// Its version.
    pub etag: String,
}

impl MappedObject {
    /// The version that may be read. Fails with `NameTooLong` for keys that no store serves.
    pub fn version(&self) -> FsResult<ObjectVersion> {
        let key = std::str::from_utf8(&self.key).ok();
        let key = key.and_then(|key| Key::new(key).ok());
        Ok(ObjectVersion {
            key: key.ok_or(FsError::NameTooLong)?,
            etag: ETag::new(&self.etag),
            size: self.size,
        })
    }

    /// Blocks that it occupies.
    pub fn blocks(&self) -> u64 {
        self.size.div_ceil(BLOCK_SIZE)
    }
}

/// An object and its first block on some disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedObject {
    /// Its first block.
    pub block: u64,
    /// The object.
    pub object: MappedObject,
}

/// The map, ready to be asked. All errors say that the file is damaged.
#[derive(Debug)]
pub struct ObjectMap {
    file: CheckedFile,
    records: u32,
    /// Where the groups end and the tables begin.
    groups_end: u64,
    /// Where it is written where groups begin.
    groups: u64,
    tables: Vec<Table>,
}

impl ObjectMap {
    /// Opens the map at `path`.
    pub fn open(path: &Path) -> Result<Self, SnapshotError> {
        let file = CheckedFile::open(path, MAGIC)?;
        let footer = file.length().checked_sub(FOOTER);
        let footer = footer.ok_or_else(|| file.damaged("its length"))?;
        let records = file.number(footer)?;
        let (groups_end, groups) = (file.number(footer + 8)?, file.number(footer + 16)?);
        let records = u32::try_from(records).map_err(|_| file.damaged("the number of records"))?;
        let tables_at = groups.saturating_add(u64::from(records.div_ceil(GROUP)) * 8);
        let tables = Table::read_all(&file, tables_at..footer)?;
        Ok(Self {
            file,
            records,
            groups_end,
            groups,
            tables,
        })
    }

    /// Objects in the map, also those without bytes.
    pub fn objects_count(&self) -> u32 {
        self.records
    }

    /// Disks over which they are spread.
    pub fn disks(&self) -> u16 {
        self.tables.len() as u16
    }

    /// Blocks of a disk up to the last one that is occupied.
    pub fn disk_blocks(&self, disk: u16) -> u64 {
        self.table(disk).map_or(0, |table| table.blocks)
    }

    /// The object that occupies a block, if there is one.
    pub fn find(&self, address: BlockAddress) -> Result<Option<MappedObject>, SnapshotError> {
        let BlockAddress { disk, block } = address;
        let found = self.overlapping(disk, block..block.saturating_add(1))?;
        Ok(found.into_iter().next().map(|placed| placed.object))
    }

    /// The objects that occupy any of the blocks of a disk, in order.
    pub fn overlapping(
        &self,
        disk: u16,
        blocks: Range<u64>,
    ) -> Result<SmallVec<[PlacedObject; 1]>, SnapshotError> {
        let mut found = SmallVec::new();
        let Some(table) = self.table(disk) else {
            return Ok(found);
        };
        let first = table.first_after(&self.file, blocks.start)?;
        for index in first.saturating_sub(1)..table.entries {
            let (block, number) = table.entry(&self.file, index)?;
            if block >= blocks.end {
                break;
            }
            let object = self.object(number)?;
            if block + object.blocks() > blocks.start {
                found.push(PlacedObject { block, object });
            }
        }
        Ok(found)
    }

    /// The object of a number below [`ObjectMap::objects_count`].
    pub fn object(&self, number: u32) -> Result<MappedObject, SnapshotError> {
        let mut decoder = self.decoder(number)?;
        for _ in 0..=number % GROUP {
            self.decode(&mut decoder)?;
        }
        self.decoded(&decoder, number)
    }

    /// All objects in the order of their keys.
    pub fn objects(&self) -> MappedObjects<'_> {
        MappedObjects::new(self)
    }

    /// Stands before the first record of the group of `number`.
    fn decoder(&self, number: u32) -> Result<Decoder<'_>, SnapshotError> {
        if number >= self.records {
            return Err(self.file.damaged("the number of a record"));
        }
        let group = number / GROUP;
        let start = self.group_start(group)?;
        let is_last = group == (self.records - 1) / GROUP;
        let end = if is_last {
            self.groups_end
        } else {
            self.group_start(group + 1)?
        };
        Ok(Decoder::new(self.file.bytes(start..end)?))
    }

    fn group_start(&self, group: u32) -> Result<u64, SnapshotError> {
        let offset = self.groups.saturating_add(u64::from(group) * 8);
        self.file.number(offset)
    }

    fn decode(&self, decoder: &mut Decoder<'_>) -> Result<(), SnapshotError> {
        decoder.next().ok_or_else(|| self.file.damaged("a record"))
    }

    fn decoded(&self, decoder: &Decoder<'_>, number: u32) -> Result<MappedObject, SnapshotError> {
        let etag = decoder.etag().ok_or_else(|| self.file.damaged("a tag"))?;
        Ok(MappedObject {
            number,
            key: decoder.key.clone(),
            size: decoder.size,
            modified: decoder.modified,
            etag,
        })
    }

    fn table(&self, disk: u16) -> Option<&Table> {
        self.tables.get(usize::from(disk))
    }
}
