//! From a request to the bytes in the reader's pages.

use std::{
    fs::File,
    io::{self, IoSlice},
    sync::Arc,
};

use penstock_base::Payload;
use penstock_vfs::Disk;
use tracing::debug;

use super::layout::data_offset;
use crate::reading::{Place, read};

/// Slices that one call takes: the kernel's limit.
const SLICES_MAX: usize = 1024;

/// Where the bytes of a queue's requests come from, and where they go.
pub(super) struct Source {
    /// The character node of the device.
    pub(super) node: Arc<File>,
    pub(super) queue: u16,
    pub(super) disk: Arc<dyn Disk>,
}

impl Source {
    /// Reads what the request in the place `tag` asks for and puts it there. Returns what the
    /// driver is to be told: the bytes, or a negative errno.
    pub(super) async fn answer(&self, tag: u16, place: Place) -> i32 {
        let Ok(bytes) = read(&*self.disk, place).await else {
            return -libc::EIO;
        };
        match write_all(&self.node, data_offset(self.queue, tag), &bytes) {
            Ok(()) => i32::try_from(bytes.len()).unwrap_or(-libc::EIO),
            Err(error) => {
                debug!(%error, tag, "the driver did not take a read's bytes");
                -libc::EIO
            }
        }
    }
}

/// Writes all slices from `offset` on, as they are.
fn write_all(node: &File, mut offset: u64, bytes: &Payload) -> io::Result<()> {
    for group in bytes.slices().chunks(SLICES_MAX) {
        let mut slices: Vec<_> = group.iter().map(|slice| IoSlice::new(slice)).collect();
        let mut slices = &mut slices[..];
        while !slices.is_empty() {
            match rustix::io::pwritev(node, slices, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    offset += count as u64;
                    IoSlice::advance_slices(&mut slices, count);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn every_slice_is_written_however_many_there_are() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut bytes = Payload::new();
        for number in 0..SLICES_MAX * 2 + 7 {
            bytes.push(Bytes::from(vec![number as u8; number % 5 + 1]));
        }
        write_all(file.as_file(), 11, &bytes).expect("written");
        let written = std::fs::read(file.path()).expect("read");
        assert!(written[..11] == [0; 11] && written[11..] == bytes.to_vec());
    }
}
