//! A disk that begins with a local file.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path, sync::Arc};

use async_trait::async_trait;
use penstock_base::{FsError, FsResult, Payload, run_blocking};
use penstock_vfs::Disk;

/// Bytes in a block: what sizes are rounded up to.
const BLOCK: u64 = 4096;

/// A local file and, from its end on, another disk: for file systems that want one device for
/// their own blocks and the data, as ext4 does.
#[derive(Debug)]
pub struct JoinedDisk<D: ?Sized> {
    file: File,
    file_size: u64,
    rest: Arc<D>,
}

impl<D: Disk + ?Sized> JoinedDisk<D> {
    /// The file at `path`, filled up to a whole block, and then `rest`.
    pub fn new(path: &Path, rest: Arc<D>) -> io::Result<Self> {
        let file = File::open(path)?;
        let file_size = file.metadata()?.len().next_multiple_of(BLOCK);
        Ok(Self {
            file,
            file_size,
            rest,
        })
    }

    fn read_file(&self, offset: u64, length: u32) -> FsResult<Payload> {
        let mut bytes = vec![0; length as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            match self
                .file
                .read_at(&mut bytes[filled..], offset + filled as u64)
            {
                // What is beyond the end are zeros.
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FsError::Io(format!("reading the image: {error}"))),
            }
        }
        Ok(bytes.into())
    }
}

#[async_trait]
impl<D: Disk + ?Sized> Disk for JoinedDisk<D> {
    fn size(&self) -> u64 {
        self.file_size + self.rest.size()
    }

    async fn read(&self, offset: u64, length: u32) -> FsResult<Payload> {
        let in_file = self.file_size.saturating_sub(offset);
        let in_file = u32::try_from(in_file).unwrap_or(u32::MAX).min(length);
        let mut payload = Payload::new();
        if in_file > 0 {
            payload = run_blocking(|| self.read_file(offset, in_file))?;
        }
        if in_file < length {
            let start = (offset + u64::from(in_file)) - self.file_size;
            payload.append(self.rest.read(start, length - in_file).await?);
        }
        Ok(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ones.
    #[derive(Debug)]
    struct Ones;

    #[async_trait]
    impl Disk for Ones {
        fn size(&self) -> u64 {
            3 * BLOCK
        }

        async fn read(&self, offset: u64, length: u32) -> FsResult<Payload> {
            assert!(offset + u64::from(length) <= self.size());
            Ok(vec![1; length as usize].into())
        }
    }

    #[tokio::test]
    async fn a_read_may_cross_from_the_file_to_the_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        std::fs::write(&path, vec![7; 5000]).expect("written");
        let disk = JoinedDisk::new(&path, Arc::new(Ones)).expect("opened");
        assert_eq!(disk.size(), 5 * BLOCK);
        let read = disk.read(4096, 8192).await.expect("read").to_vec();
        let expected = [vec![7; 904], vec![0; 3192], vec![1; 4096]].concat();
        assert!(read == expected);
        assert_eq!(disk.read(0, 10).await.expect("read").to_vec(), [7; 10]);
        assert_eq!(
            disk.read(5 * BLOCK - 2, 2).await.expect("read").to_vec(),
            [1; 2]
        );
    }
}
