//! Writes a file that proves itself.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use penstock_base::{ChecksumKind, Summing};

use super::{Magic, PAGE, sum, taken};
use crate::private;

/// Bytes that are written to the file at once.
const BUFFER: usize = 256 << 10;

/// Writes the body from front to end. Until it is finished the file is refused by readers.
#[derive(Debug)]
pub(crate) struct CheckedWriter {
    file: BufWriter<File>,
    /// Of the pages that are full.
    sums: Vec<u8>,
    page: Summing,
    length: u64,
}

impl CheckedWriter {
    /// Begins a file at `path`, in the place of what is there.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: BufWriter::with_capacity(BUFFER, private::create(path)?),
            sums: Vec::new(),
            page: Summing::new(ChecksumKind::Crc32c),
            length: 0,
        })
    }

    /// Bytes of the body so far.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Ends the body and makes the file durable.
    pub(crate) fn finish(mut self, magic: Magic) -> io::Result<()> {
        if !self.length.is_multiple_of(PAGE) {
            self.end_page();
        }
        let mut tail = self.sums;
        tail.extend(self.length.to_le_bytes());
        tail.extend(magic);
        tail.extend(sum(&tail).to_le_bytes());
        self.file.write_all(&tail)?;
        self.file.into_inner()?.sync_all()
    }

    fn end_page(&mut self) {
        let sum = taken(&mut self.page);
        self.sums.extend(sum.to_le_bytes());
    }
}

impl Write for CheckedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PAGE - self.length % PAGE;
        let count = bytes.len().min(room as usize);
        self.file.write_all(&bytes[..count])?;
        self.page.add(&bytes[..count]);
        self.length += count as u64;
        if self.length.is_multiple_of(PAGE) && count > 0 {
            self.end_page();
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
