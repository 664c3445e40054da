//! A sparse file that holds what was written and is not in the store yet.
//!
//! Every call blocks on the disk, for as long as the disk likes; callers run it where nothing else
//! waits. The threads of a door that receive requests may not all wait for the disk: the one that is
//! left hears the requests of programs that are not concerned, and signals to those that wait. So on these
//! threads
//!
//! - reads and writes are made, which mostly only copy to or from the page cache, but fewer at once
//!   than there are threads ([`Staging::on_disk`]);
//! - nothing that waits for bytes to be on the disk, nor for a thread that does ([`on_worker`], and
//!   [`StagedFile::notes_quickly`]).
//!
//! On no thread is a disk call made while the tree or a content is locked, which the others need.
//!
//! [`Staging::on_disk`]: crate::staging::area::Staging::on_disk
//! [`StagedFile::notes_quickly`]: crate::staging::file::StagedFile::notes_quickly

use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    sync::atomic::{AtomicBool, Ordering},
    time::SystemTime,
};

use penstock_base::{BufferWriter, FsError, disk_call, run_blocking};
use rustix::fs::{FallocateFlags, fallocate};

/// A staging file. The file itself stays when this is dropped.
#[derive(Debug)]
pub(crate) struct DiskFile {
    file: File,
    /// Its name survives a crash of the machine.
    is_named: AtomicBool,
}

impl DiskFile {
    pub(crate) fn new(file: File) -> Self {
        Self {
            file,
            is_named: AtomicBool::new(false),
        }
    }

    /// Whether its name survives a crash of the machine.
    pub(crate) fn is_named(&self) -> bool {
        self.is_named.load(Ordering::Relaxed)
    }

    /// The directory was synced since the file is there.
    pub(crate) fn note_named(&self) {
        self.is_named.store(true, Ordering::Relaxed);
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        disk_call();
        self.file.write_all_at(bytes, offset)
    }

    /// Makes everything written so far survive a crash of the machine.
    pub(crate) fn sync(&self) -> io::Result<()> {
        disk_call();
        self.file.sync_data()
    }

    /// When it was written last.
    pub(crate) fn written(&self) -> io::Result<SystemTime> {
        disk_call();
        self.file.metadata()?.modified()
    }

    /// Gives the disk back what `range` occupies. A file system that cannot keeps it until the
    /// file is removed.
    pub(crate) fn punch(&self, range: Range<u64>) {
        disk_call();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = fallocate(&self.file, flags, range.start, range.end - range.start);
        if let Err(error) = punched {
            tracing::debug!(%error, "the staging file system cannot punch holes");
        }
    }

    /// Gives the disk back what lies beyond `size`.
    pub(crate) fn cut(&self, size: u64) {
        disk_call();
        if let Err(error) = self.file.set_len(size) {
            tracing::debug!(%error, "a staging file could not be cut");
        }
    }

    /// Reads `length` bytes into `writer`, which has room for them. What lies beyond the end of the
    /// file is zero.
    pub(crate) fn read(
        &self,
        writer: &mut BufferWriter,
        offset: u64,
        length: usize,
    ) -> io::Result<()> {
        disk_call();
        let read = writer.read_from(&self.file, offset, length)?;
        writer.fill(0, length - read);
        Ok(())
    }
}

/// Makes a disk call that may take long, on no thread that receives requests.
pub async fn on_worker<T>(call: impl FnOnce() -> T) -> T {
    // A door polls a request once on the thread that received it, and elsewhere from then on.
    tokio::task::yield_now().await;
    run_blocking(call)
}

/// What a failure of the staging disk means to a file.
pub fn disk_failure(error: &io::Error) -> FsError {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded => FsError::NoSpace,
        _ => FsError::Io(format!("the staging directory: {error}; check its disk")),
    }
}
