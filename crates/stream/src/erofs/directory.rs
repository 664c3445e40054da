//! The blocks of a directory.
//!
//! Each block stands alone: heads of 12 bytes, then the names in the same order, without ends; the
//! first head tells where the names begin and so how many there are. Lookups search the blocks by
//! their first names, so names rise bytewise over the whole directory, `.` and `..` among them.

use std::io;

use super::{Entry, inode::entry_type};
use crate::{
    BLOCK_SIZE,
    image::{entries::NodeKind, output::Output},
};

/// Bytes of an entry without its name.
const HEAD_SIZE: usize = 12;

/// The entries that every directory has, whose numbers are filled in later.
const SPECIAL: [&[u8]; 2] = [b".", b".."];

#[derive(Debug, Clone, Copy)]
struct Head {
    node: u64,
    name_start: u16,
    kind: u8,
}

/// Packs the entries of one directory after the other into blocks.
#[derive(Debug, Default)]
pub(super) struct DirectoryBlocks {
    heads: Vec<Head>,
    names: Vec<u8>,
    /// Where the directory's blocks begin; none was written yet without it.
    start: Option<u64>,
    /// Bytes in whole blocks.
    written: u64,
    /// The encoded block that was not written as a whole one.
    tail: Vec<u8>,
    /// How many of [`SPECIAL`] were added, and where in the directory.
    specials: usize,
    special_offsets: [u64; 2],
}

impl DirectoryBlocks {
    /// Forgets the directory before.
    pub(super) fn begin(&mut self) {
        self.heads.clear();
        self.names.clear();
        self.tail.clear();
        self.start = None;
        self.written = 0;
        self.specials = 0;
    }

    /// Adds the entry behind those before it.
    pub(super) fn add(&mut self, entry: &Entry<'_>, output: &mut Output) -> io::Result<()> {
        while let Some(special) = SPECIAL.get(self.specials)
            && *special < entry.name
        {
            self.add_special(output)?;
        }
        self.append(entry, output)
    }

    /// Adds what is missing; the last block becomes the tail.
    pub(super) fn end(&mut self, output: &mut Output) -> io::Result<()> {
        while self.specials < SPECIAL.len() {
            self.add_special(output)?;
        }
        self.encode();
        Ok(())
    }

    /// Writes the tail as a block, after which there is none.
    pub(super) fn write_tail(&mut self, output: &mut Output) -> io::Result<()> {
        self.write_block(output)?;
        output.align(BLOCK_SIZE)
    }

    /// What is to follow the inode.
    pub(super) fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// Bytes of the directory, where the last block counts only as far as it is used.
    pub(super) fn size(&self) -> u64 {
        self.written + self.tail.len() as u64
    }

    /// The first block, or 0 if there is none.
    pub(super) fn start_block(&self) -> u32 {
        (self.start.unwrap_or(0) / BLOCK_SIZE) as u32
    }

    /// Where the image keeps the numbers of `.` and `..` when the tail lies at `behind`.
    pub(super) fn link_positions(&self, behind: u64) -> [u64; 2] {
        let whole = self.written;
        self.special_offsets.map(|offset| match self.start {
            // A tail that was written as a block counts as written.
            Some(start) if offset < whole => start + offset,
            _ => behind + (offset - whole),
        })
    }

    fn add_special(&mut self, output: &mut Output) -> io::Result<()> {
        let index = self.specials;
        self.specials += 1;
        let entry = Entry {
            name: SPECIAL[index],
            node: 0,
            kind: NodeKind::Directory,
        };
        self.append(&entry, output)?;
        let before = (self.heads.len() - 1) * HEAD_SIZE;
        self.special_offsets[index] = self.written + before as u64;
        Ok(())
    }

    fn append(&mut self, entry: &Entry<'_>, output: &mut Output) -> io::Result<()> {
        let used = self.heads.len() * HEAD_SIZE + self.names.len();
        if used + HEAD_SIZE + entry.name.len() > BLOCK_SIZE as usize {
            self.encode();
            self.tail.resize(BLOCK_SIZE as usize, 0);
            self.write_block(output)?;
        }
        self.heads.push(Head {
            node: entry.node,
            name_start: self.names.len() as u16,
            kind: entry_type(entry),
        });
        self.names.extend_from_slice(entry.name);
        Ok(())
    }

    /// Makes the tail of the entries that wait.
    fn encode(&mut self) {
        let names_start = (self.heads.len() * HEAD_SIZE) as u16;
        self.tail.clear();
        for head in &self.heads {
            let mut bytes = [0; HEAD_SIZE];
            bytes[..8].copy_from_slice(&head.node.to_le_bytes());
            bytes[8..10].copy_from_slice(&(names_start + head.name_start).to_le_bytes());
            bytes[10] = head.kind;
            self.tail.extend_from_slice(&bytes);
        }
        self.tail.extend_from_slice(&self.names);
        self.heads.clear();
        self.names.clear();
    }

    fn write_block(&mut self, output: &mut Output) -> io::Result<()> {
        if self.start.is_none() {
            output.align(BLOCK_SIZE)?;
            self.start = Some(output.position());
        }
        output.write(&self.tail)?;
        self.written += self.tail.len() as u64;
        self.tail.clear();
        Ok(())
    }
}
