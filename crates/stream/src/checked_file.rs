//! Files that are written once, mapped into memory, and proven page by page.
//!
//! ```text
//! body | CRC-32C of each 64 KiB of the body | body length | magic | CRC-32C of the last three
//! ```
//!
//! Opening proves the tail and nothing else, so a file of a gibibyte opens at once. A page of the
//! body is proven when it is touched first. Whoever reads the body therefore never sees a byte
//! that was not written, and a file that was cut or begun only is refused by its tail.
//!
//! The body may still say anything: a reader of it checks every bound.

#[allow(unsafe_code)]
mod mapping;
mod writer;

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use penstock_base::{ChecksumKind, Summing};

use self::mapping::Mapping;
pub(crate) use self::writer::CheckedWriter;
use crate::SnapshotError;

/// Bytes of the body that one checksum covers.
const PAGE: u64 = 64 << 10;

/// Bytes of a checksum.
const SUM: u64 = 4;

/// Bytes behind the checksums: length, magic, and the checksum of the tail.
const END: u64 = 20;

/// What a file is for.
pub(crate) type Magic = [u8; 8];

/// A finished file, mapped for reading.
#[derive(Debug)]
pub(crate) struct CheckedFile {
    path: PathBuf,
    mapping: Mapping,
    /// Bytes in the body.
    length: u64,
    /// A bit for each page that was proven.
    proven: Vec<AtomicU64>,
}

impl CheckedFile {
    /// Maps the file at `path`, which was finished with `magic`.
    pub(crate) fn open(path: &Path, magic: Magic) -> Result<Self, SnapshotError> {
        let mapping = Mapping::open(path).map_err(|source| SnapshotError::File {
            path: path.display().to_string(),
            source,
        })?;
        let length = body_length(&mapping, magic).ok_or_else(|| damaged(path, "its end"))?;
        let pages = length.div_ceil(PAGE);
        Ok(Self {
            path: path.to_path_buf(),
            mapping,
            length,
            proven: (0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Bytes in the body.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// A checksum over those of all pages: another one for another body, but for one in four thousand millions.
    pub(crate) fn checksum(&self) -> u32 {
        let stored = self.mapping.last_chunk().expect("the tail was proven");
        u32::from_le_bytes(*stored)
    }

    /// Bytes of the body, which are what was written.
    pub(crate) fn bytes(&self, range: Range<u64>) -> Result<&[u8], SnapshotError> {
        if range.start > range.end || range.end > self.length {
            return Err(self.damaged("an offset"));
        }
        for page in range.start / PAGE..range.end.div_ceil(PAGE) {
            self.prove(page)?;
        }
        Ok(&self.mapping[range.start as usize..range.end as usize])
    }

    /// The eight bytes at `offset` as a number.
    pub(crate) fn number(&self, offset: u64) -> Result<u64, SnapshotError> {
        let bytes = self.bytes(offset..offset.saturating_add(8))?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    /// The error that says that `part` of the file is not what was written.
    pub(crate) fn damaged(&self, part: &str) -> SnapshotError {
        damaged(&self.path, part)
    }

    fn prove(&self, page: u64) -> Result<(), SnapshotError> {
        let (word, bit) = (&self.proven[(page / 64) as usize], 1 << (page % 64));
        if word.load(Ordering::Relaxed) & bit != 0 {
            return Ok(());
        }
        let start = page * PAGE;
        let end = self.length.min(start + PAGE);
        let stored = (self.length + page * SUM) as usize;
        let stored = &self.mapping[stored..stored + SUM as usize];
        if sum(&self.mapping[start as usize..end as usize]).to_le_bytes() != stored {
            return Err(self.damaged(&format!("the page at {start}")));
        }
        word.fetch_or(bit, Ordering::Relaxed);
        Ok(())
    }
}

/// The length of the body, if the tail is whole.
fn body_length(file: &[u8], magic: Magic) -> Option<u64> {
    let end = file.len().checked_sub(END as usize)?;
    let (length, rest) = file[end..].split_first_chunk::<8>()?;
    let (found, stored) = rest.split_first_chunk::<8>()?;
    let length = u64::from_le_bytes(*length);
    let tail = length.div_ceil(PAGE).checked_mul(SUM)?.checked_add(END)?;
    let is_whole = *found == magic && length.checked_add(tail)? == file.len() as u64;
    let covered = &file[usize::try_from(length).ok().filter(|_| is_whole)?..end + 16];
    (sum(covered).to_le_bytes() == stored).then_some(length)
}

fn sum(bytes: &[u8]) -> u32 {
    let mut summing = Summing::new(ChecksumKind::Crc32c);
    summing.add(bytes);
    taken(&mut summing)
}

fn taken(summing: &mut Summing) -> u32 {
    u32::try_from(summing.take().value()).expect("a CRC-32C has 32 bits")
}

fn damaged(path: &Path, part: &str) -> SnapshotError {
    SnapshotError::Invalid(format!(
        "{}: {part} is damaged; delete the file and build the index again",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use proptest::prelude::*;

    use super::*;

    const MAGIC: Magic = *b"TESTFILE";

    fn file_of(body: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let mut writer = CheckedWriter::create(&path).expect("created");
        for piece in body.chunks(1000) {
            writer.write_all(piece).expect("written");
        }
        writer.finish(MAGIC).expect("finished");
        (folder, path)
    }

    fn body(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index * 7 / 3) as u8).collect()
    }

    #[test]
    fn what_was_written_is_read() {
        for length in [0, 1, PAGE as usize, PAGE as usize * 3 + 17] {
            let body = body(length);
            let (_folder, path) = file_of(&body);
            let file = CheckedFile::open(&path, MAGIC).expect("whole");
            assert_eq!(file.length(), length as u64);
            assert_eq!(file.bytes(0..length as u64).expect("sound"), body);
            assert!(file.bytes(0..length as u64 + 1).is_err());
            assert!(CheckedFile::open(&path, *b"ANOTHER!").is_err());
        }
    }

    #[test]
    fn a_file_that_was_never_finished_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let mut writer = CheckedWriter::create(&path).expect("created");
        writer.write_all(&body(200_000)).expect("written");
        drop(writer);
        assert!(CheckedFile::open(&path, MAGIC).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_changed_byte_is_found(length in 1..200_000usize, at: prop::sample::Index, flip in 1..=255u8) {
            let body = body(length);
            let (_folder, path) = file_of(&body);
            let mut bytes = fs::read(&path).expect("read");
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            fs::write(&path, &bytes).expect("written");
            let read = CheckedFile::open(&path, MAGIC)
                .and_then(|file| file.bytes(0..file.length()).map(<[u8]>::to_vec));
            prop_assert!(read.is_err());
        }

        #[test]
        fn a_cut_file_is_refused(length in 1..200_000usize, cut: prop::sample::Index) {
            let (_folder, path) = file_of(&body(length));
            let bytes = fs::read(&path).expect("read");
            fs::write(&path, &bytes[..cut.index(bytes.len())]).expect("written");
            prop_assert!(CheckedFile::open(&path, MAGIC).is_err());
        }
    }
}
