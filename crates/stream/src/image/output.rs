//! The file that an image is written into, front to end.
//!
//! What is written collects in a window of memory and goes out whole windows at a time. A few
//! bytes behind the end become known later, such as the place of a directory's parent: they are
//! patched in the window, or in the file when the window has passed.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use penstock_base::{ChecksumKind, Summing};

use crate::{BLOCK_SIZE, private};

/// Bytes that are collected before they are written.
const WINDOW: usize = 4 << 20;

/// An image on its way into a file.
#[derive(Debug)]
pub(crate) struct Output {
    file: File,
    path: PathBuf,
    /// Where the window begins.
    start: u64,
    window: Vec<u8>,
    digests: [Summing; 2],
}

impl Output {
    /// Into a new file at `path`, which must not be there yet.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: private::create_new(path)?,
            path: path.to_owned(),
            start: 0,
            window: Vec::with_capacity(WINDOW),
            digests: [ChecksumKind::Crc64Nvme, ChecksumKind::Crc64Ecma].map(Summing::new),
        })
    }

    /// The folder that the file lies in.
    pub(crate) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Bytes written so far, which is where the next ones go.
    pub(crate) fn position(&self) -> u64 {
        self.start + self.window.len() as u64
    }

    /// Adds bytes at the end.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.window.len() + bytes.len() > WINDOW {
            self.flush()?;
        }
        self.window.extend_from_slice(bytes);
        Ok(())
    }

    /// Adds zeros until the position is a multiple of `unit`, a power of two up to 4 KiB.
    pub(crate) fn align(&mut self, unit: u64) -> io::Result<()> {
        const ZEROS: [u8; BLOCK_SIZE as usize] = [0; BLOCK_SIZE as usize];
        let missing = self.position().wrapping_neg() & (unit - 1);
        self.write(&ZEROS[..missing as usize])
    }

    /// Goes on at a position that was not reached yet; what is between reads as zeros.
    pub(crate) fn skip_to(&mut self, position: u64) -> io::Result<()> {
        if position > self.position() {
            self.flush()?;
            self.start = position;
        }
        Ok(())
    }

    /// Bytes that are left in the block at the end; a whole block at its beginning.
    pub(crate) fn left_in_block(&self) -> u64 {
        BLOCK_SIZE - (self.position() & (BLOCK_SIZE - 1))
    }

    /// Replaces bytes that were written before.
    pub(crate) fn patch(&mut self, position: u64, bytes: &[u8]) -> io::Result<()> {
        match position.checked_sub(self.start) {
            Some(offset) => {
                let offset = offset as usize;
                self.window[offset..offset + bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
            // Patches are never larger than what was written at once, and that never straddles
            // two windows.
            None => self.file.write_all_at(bytes, position),
        }
    }

    /// Sixteen bytes made of all that was written and of `more`, for images to be told apart by.
    ///
    /// What is patched is not part of it: mostly it follows from what was written, and else it
    /// belongs to `more`.
    pub(crate) fn fingerprint(&mut self, more: &[&[u8]]) -> io::Result<[u8; 16]> {
        self.flush()?;
        let mut bytes = [0; 16];
        for (half, digest) in bytes.chunks_exact_mut(8).zip(&mut self.digests) {
            more.iter().for_each(|part| digest.add(part));
            half.copy_from_slice(&digest.checksum().value().to_be_bytes());
        }
        Ok(bytes)
    }

    /// Writes what is left and makes it durable; says how many bytes there are.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        self.flush()?;
        self.file.set_len(self.start)?;
        self.file.sync_all()?;
        Ok(self.start)
    }

    /// Writes what is left and gives the file, to be read from its beginning.
    pub(crate) fn into_file(mut self) -> io::Result<File> {
        self.flush()?;
        Ok(self.file)
    }

    fn flush(&mut self) -> io::Result<()> {
        for digest in &mut self.digests {
            digest.add(&self.window);
        }
        self.file.write_all_at(&self.window, self.start)?;
        self.start += self.window.len() as u64;
        self.window.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_reach_the_window_and_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        let mut output = Output::create(&path).expect("a new file");
        output.write(b"first").expect("written");
        output.align(8).expect("written");
        output.write(&vec![7; WINDOW]).expect("written");
        assert_eq!(output.start, 8, "the window moved on");
        output.patch(0, b"F").expect("patched in the file");
        output.patch(8, b"S").expect("patched in the window");
        assert_eq!(output.finish().expect("finished"), WINDOW as u64 + 8);
        let bytes = std::fs::read(&path).expect("an image");
        assert_eq!(&bytes[..10], b"First\0\0\0S\x07");
        assert!(Output::create(&path).is_err(), "nothing is overwritten");
    }
}
