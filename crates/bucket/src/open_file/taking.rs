//! A write while it is under way.
//!
//! The file counts as dirty from the moment that a stream begins to take bytes, since nobody may
//! read what is about to be outdated. When the caller leaves and nothing was taken, the mark must
//! go with him, or the file would be unreadable until somebody saved it.

use bytes::Bytes;
use penstock_transfer::TransferResult;

use crate::open_file::{OpenFile, stream::OpenStream};

/// A write while it is under way. Dropped before its end it leaves the file as it was, if the
/// stream took nothing.
pub(super) struct Taking<'write> {
    file: &'write OpenFile,
    open: &'write mut OpenStream,
    /// Whether the mark is this write's.
    marked: bool,
}

impl<'write> Taking<'write> {
    /// Marks `file` as dirty.
    pub(super) fn begin(file: &'write OpenFile, open: &'write mut OpenStream) -> Self {
        let marked = !file.view().dirty;
        file.show_written(open.end);
        Self { file, open, marked }
    }

    /// Adds `data` to the stream and returns its new end.
    pub(super) async fn take(self, data: Bytes) -> TransferResult<u64> {
        let end = self.open.end + data.len() as u64;
        self.open.taking = Some(end);
        let written = self.open.sink.write(data).await;
        self.open.taking = None;
        written?;
        self.open.end = end;
        self.open.touched = true;
        Ok(end)
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        let given_up = self.open.taking.is_some();
        if given_up && self.marked && self.open.sink.size() == self.open.end {
            self.file.view().dirty = false;
        }
    }
}
