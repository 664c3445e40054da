//! A file that lives in memory, mapped.

use std::{fs::File, io, slice};

use super::{Block, REGION};
use crate::system::{self, Mapping};

/// See the module's head.
pub(super) struct Region {
    file: File,
    mapping: Mapping,
}

impl Region {
    pub(super) fn new(length: u64) -> io::Result<Self> {
        let file = system::memory_file(c"penstock-devserver")?;
        file.set_len(length)?;
        let mapping = Mapping::new(&file, length as usize)?;
        Ok(Self { file, mapping })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Makes memory present, as a huge page if one is to be had.
    pub(super) fn populate(&self, offset: u64, length: u64) -> io::Result<()> {
        let (offset, length) = (offset as usize, length as usize);
        // Memory that is there can be collapsed into a huge page, even where the system does not
        // make huge pages of shared memory by itself; one page is enough.
        self.mapping.populate(offset, 1)?;
        if self.mapping.collapse(offset, length).is_ok() {
            return Ok(());
        }
        self.mapping.populate(offset, length)
    }

    /// Gives memory back. Pages that are still being sent live on by themselves.
    pub(super) fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        system::punch_hole(&self.file, offset..offset + length)
    }

    pub(super) fn bytes<'a>(&'a self, block: &'a Block) -> &'a [u8] {
        let (offset, length) = block.span();
        let start = self.mapping.at(offset, length);
        // SAFETY: the mapping lives as long as `self`. The account gives each piece to one block
        // only, and a block that is borrowed is not written to.
        unsafe { slice::from_raw_parts(start, length) }
    }

    pub(super) fn bytes_mut(block: &mut Block) -> &mut [u8] {
        let (offset, length) = block.span();
        let start = block.region.mapping.at(offset, length);
        // SAFETY: the block keeps the mapping alive. The account gives each piece to one block
        // only, and that block is borrowed exclusively here.
        unsafe { slice::from_raw_parts_mut(start, length) }
    }
}

impl Block {
    /// Where in its region's mapping it lies.
    fn span(&self) -> (usize, usize) {
        ((self.address % REGION) as usize, self.size as usize)
    }
}
