//! The blocks of a directory.
//!
//! One that fits a block is a list of entries, each of which tells where the next one begins; the
//! last one reaches to the end of the block. A larger one begins with the index: pairs of a hash
//! and the block where names of that hash and larger ones lie. When there are too many blocks for
//! that, the pairs lead to further blocks of pairs, which lie behind all others.

use std::io;

use super::hash;
use crate::{
    BLOCK_SIZE,
    image::{
        entries::{Entry, NodeKind, Sorted},
        output::Output,
    },
};

/// Bytes of an entry before the name.
const HEAD_SIZE: usize = 8;
/// Bytes of `.` and `..` together.
const SPECIAL_SIZE: usize = 24;

/// Where the pairs begin in the first block, and in the others that have pairs.
const ROOT_PAIRS: usize = 32;
const NODE_PAIRS: usize = 8;
/// Bytes of a pair, the first of which tells how many there are in place of its hash.
const PAIR_SIZE: usize = 8;

const BLOCK: usize = BLOCK_SIZE as usize;

/// Names whose hash is the last one of the block before begin this block, too.
const CONTINUED: u32 = 1;

/// Bytes of an entry with a name of this length.
pub(super) fn entry_size(name_length: usize) -> usize {
    (HEAD_SIZE + name_length).next_multiple_of(4)
}

/// Writes one directory at the end of an image.
pub(super) struct DirectoryWriter<'a> {
    output: &'a mut Output,
    /// The numbers of the directory and its parent.
    numbers: [u32; 2],
    block: Vec<u8>,
    /// Where the last entry of the block begins.
    last: usize,
}

impl<'a> DirectoryWriter<'a> {
    pub(super) fn new(output: &'a mut Output, numbers: [u32; 2]) -> Self {
        Self {
            output,
            numbers,
            block: Vec::with_capacity(BLOCK),
            last: 0,
        }
    }

    /// Writes the entries, which take so many bytes and whose names begin with what sorted them.
    /// Says whether there is an index.
    pub(super) fn write(&mut self, sorted: &mut Sorted, bytes: u64) -> io::Result<bool> {
        let is_list = bytes + SPECIAL_SIZE as u64 <= BLOCK_SIZE;
        if is_list {
            self.push_special();
            while let Some(entry) = sorted.next_entry()? {
                self.push(entry.node as u32, &entry.name[8..], entry.kind);
            }
            self.write_block()?;
        } else {
            self.write_indexed(sorted)?;
        }
        Ok(!is_list)
    }

    fn write_indexed(&mut self, sorted: &mut Sorted) -> io::Result<()> {
        let start = self.output.position();
        self.output.write(&[0; BLOCK])?;
        // Hashes with the blocks that begin with them.
        let mut pairs = Vec::new();
        let mut last_hash = None;
        while let Some(entry) = sorted.next_entry()? {
            let Entry { name, node, kind } = entry;
            let hash = hash::of_sorting_key(name);
            if self.block.len() + entry_size(name.len() - 8) > BLOCK {
                self.write_block()?;
            }
            if self.block.is_empty() {
                let continued = last_hash == Some(hash);
                let flag = if continued { CONTINUED } else { 0 };
                pairs.push((hash | flag, pairs.len() as u32 + 1));
            }
            last_hash = Some(hash);
            self.push(node as u32, &name[8..], kind);
        }
        self.write_block()?;
        let next = pairs.len() as u32 + 1;
        let (pairs, levels) = self.write_nodes(pairs, next)?;
        let root = self.index_root(&pairs, levels)?;
        self.output.patch(start, &root)
    }

    /// Puts pairs into blocks of their own until the rest fits the first block.
    fn write_nodes(
        &mut self,
        mut pairs: Vec<(u32, u32)>,
        mut next: u32,
    ) -> io::Result<(Vec<(u32, u32)>, u8)> {
        let mut levels = 0;
        while pairs.len() > (BLOCK - ROOT_PAIRS) / PAIR_SIZE {
            let mut above = Vec::new();
            for group in pairs.chunks((BLOCK - NODE_PAIRS) / PAIR_SIZE) {
                let mut block = vec![0; NODE_PAIRS];
                // An entry without an inode that fills the block, for those who know no index.
                block[4..6].copy_from_slice(&(BLOCK as u16).to_le_bytes());
                put_pairs(&mut block, group);
                self.output.write(&block)?;
                above.push((group[0].0, next));
                next += 1;
            }
            pairs = above;
            levels += 1;
        }
        Ok((pairs, levels))
    }

    fn index_root(&mut self, pairs: &[(u32, u32)], levels: u8) -> io::Result<Vec<u8>> {
        // More levels are a feature of their own, which old kernels do not have.
        if levels > 1 {
            let why = "a directory has too many names for ext4; use EROFS";
            return Err(io::Error::other(why));
        }
        self.push_special();
        self.stretch_last();
        let mut root = std::mem::take(&mut self.block);
        root.extend_from_slice(&[0, 0, 0, 0, hash::VERSION, 8, levels, 0]);
        put_pairs(&mut root, pairs);
        Ok(root)
    }

    fn push_special(&mut self) {
        let [itself, parent] = self.numbers;
        self.push(itself, b".", NodeKind::Directory);
        self.push(parent, b"..", NodeKind::Directory);
    }

    fn push(&mut self, number: u32, name: &[u8], kind: NodeKind) {
        self.last = self.block.len();
        let size = entry_size(name.len());
        let kind = match kind {
            NodeKind::File => 1,
            NodeKind::Directory => 2,
            NodeKind::Symlink => 7,
        };
        self.block.extend_from_slice(&number.to_le_bytes());
        self.block.extend_from_slice(&(size as u16).to_le_bytes());
        self.block.push(name.len() as u8);
        self.block.push(kind);
        self.block.extend_from_slice(name);
        self.block.resize(self.last + size, 0);
    }

    /// Makes the last entry reach to the end of the block.
    fn stretch_last(&mut self) {
        let size = (BLOCK - self.last) as u16;
        self.block[self.last + 4..self.last + 6].copy_from_slice(&size.to_le_bytes());
    }

    fn write_block(&mut self) -> io::Result<()> {
        self.stretch_last();
        self.block.resize(BLOCK, 0);
        self.output.write(&self.block)?;
        self.block.clear();
        Ok(())
    }
}

/// Fills the rest of a block with pairs.
fn put_pairs(block: &mut Vec<u8>, pairs: &[(u32, u32)]) {
    let limit = ((BLOCK - block.len()) / PAIR_SIZE) as u16;
    for (index, (hash, number)) in pairs.iter().enumerate() {
        if index == 0 {
            block.extend_from_slice(&limit.to_le_bytes());
            block.extend_from_slice(&(pairs.len() as u16).to_le_bytes());
        } else {
            block.extend_from_slice(&hash.to_le_bytes());
        }
        block.extend_from_slice(&number.to_le_bytes());
    }
    block.resize(BLOCK, 0);
}
