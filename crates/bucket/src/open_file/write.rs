//! Writing a file from its front to its end.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use penstock_base::{FsError, FsResult};
use penstock_object::{Key, ObjectKind, PutOptions};
use penstock_transfer::{Appender, WriteStart};
use penstock_vfs::{Allocation, WritePlace, Written};
use tokio::sync::MutexGuard;

use crate::{
    errors::{Purpose, transfer_failure},
    files::Files,
    open_file::{
        Body, FileHandle, OpenFile,
        sink::Sink,
        stream::{OpenStream, Position, WriteStream},
        streamed::{StreamedBody, Waiting},
        taking::Taking,
    },
};

const NOT_AT_END: FsError = FsError::InvalidArgument(
    "an object can only be written from front to end; write a local copy and copy it here",
);

impl Files {
    /// Writes `data` at the end of a file, which is where `place` must be, or anywhere in staged mode.
    ///
    /// What was written through a mapping stays in the kernel's cache though it was refused: the next open
    /// drops it.
    pub(crate) async fn write(
        self: &Arc<Self>,
        handle: &FileHandle,
        place: WritePlace,
        data: Bytes,
    ) -> FsResult<Written> {
        match &handle.file.body {
            Body::Streamed(body) => {
                let written = self.write_streamed(handle, body, place, data).await;
                if written.is_err()
                    && let Ok(node) = self.mount.namespace.lock().node_mut(handle.file.inode)
                {
                    node.doubt_pages();
                }
                written.map(|()| Written::ACCEPTED)
            }
            Body::Staged(body) => {
                let written = self.write_staged(handle, body, place, data).await;
                if written.is_err() {
                    handle.file.view().is_shown = false;
                }
                written
            }
        }
    }

    async fn write_streamed(
        self: &Arc<Self>,
        handle: &FileHandle,
        body: &StreamedBody,
        place: WritePlace,
        data: Bytes,
    ) -> FsResult<()> {
        if !handle.access.writes() {
            return Err(FsError::BadHandle);
        }
        let mut waiting = None;
        loop {
            let mut stream = self.stream_for(handle, body).await?;
            self.mount.check_not_shut()?;
            let open = stream.of(handle.id)?.ok_or(FsError::BadHandle)?;
            match open.position_of(place) {
                Position::End => return self.accept(handle, &mut stream, data).await,
                Position::Below => return Err(self.refuse(handle, &mut stream)),
                Position::Ahead => {}
            }
            // Subscribing before the lock is given back, so that no progress is missed.
            let mut progress = body.progress.subscribe();
            drop(stream);
            if waiting.is_none() {
                let budget = self.mount.transfer.pool().budget().total();
                waiting = Waiting::join(body, data.len() as u64, budget);
            }
            let is_next = match &waiting {
                Some(waiting) => waiting.turn(&mut progress).await,
                None => false,
            };
            if !is_next {
                return Err(self.refuse(handle, &mut *body.stream().await));
            }
        }
    }

    /// The write stream, opened for `handle`.
    async fn stream_for<'body>(
        self: &Arc<Self>,
        handle: &FileHandle,
        body: &'body StreamedBody,
    ) -> FsResult<MutexGuard<'body, WriteStream>> {
        let mut stream = self.stream_of(handle, body).await?;
        if stream.of(handle.id)?.is_some() {
            return Ok(stream);
        }
        drop(stream);
        let _entered = self.mount.namespace.enter(&[handle.file.inode]).await?;
        let mut stream = self.stream_of(handle, body).await?;
        if stream.of(handle.id)?.is_none() {
            stream.open(self.continued(handle).await?);
        }
        Ok(stream)
    }

    /// A stream that goes on after what the store has.
    async fn continued(self: &Arc<Self>, handle: &FileHandle) -> FsResult<OpenStream> {
        let file = &handle.file;
        if file.view().removed {
            return Err(FsError::Stale);
        }
        let believed = self.known_size(file);
        if !file.view().ours {
            self.lookups.refresh_open(file).await?;
        }
        {
            let tree = self.mount.namespace.lock();
            file.take_version(tree.version(file.inode))?;
        }
        let size = self.known_size(file);
        let sink = self.continuing_sink(file)?;
        let shift = if handle.append {
            size.cast_signed() - believed.cast_signed()
        } else {
            0
        };
        Ok(OpenStream {
            shift,
            ..OpenStream::untouched(handle.id, sink, size)
        })
    }

    fn known_size(&self, file: &OpenFile) -> u64 {
        let tree = self.mount.namespace.lock();
        let known = tree
            .node(file.inode)
            .ok()
            .and_then(|node| node.known.as_ref());
        known.map_or(0, |known| known.size)
    }

    fn continuing_sink(&self, file: &OpenFile) -> FsResult<Sink> {
        let tree = self.mount.namespace.lock();
        let known = tree
            .node(file.inode)?
            .known
            .as_ref()
            .ok_or(FsError::Stale)?;
        let key = tree.file_key(file.inode)?;
        if known.object == ObjectKind::Appendable {
            let appender = Appender::continuing(&self.mount.transfer, key, known.size);
            return Ok(Sink::Append(Box::new(appender)));
        }
        if known.size == 0 && self.appends() {
            return Ok(self.new_sink(key, true));
        }
        let etag = known.etag.clone().ok_or(FsError::Stale)?;
        let version = penstock_transfer::ObjectVersion {
            key: key.clone(),
            etag,
            size: known.size,
        };
        Ok(self.upload(key, WriteStart::After(version)))
    }

    /// A sink for new content. `replaces` tells whether there may be an object already.
    pub(super) fn new_sink(&self, key: Key, replaces: bool) -> Sink {
        if self.appends() {
            Sink::Append(Box::new(Appender::beginning(
                &self.mount.transfer,
                key,
                replaces,
            )))
        } else {
            self.upload(key, WriteStart::Empty)
        }
    }

    /// Whether new files are appendable objects.
    fn appends(&self) -> bool {
        self.mount.settings.appendable && self.mount.store().capabilities().append
    }

    fn upload(&self, key: Key, start: WriteStart) -> Sink {
        let writer = self
            .mount
            .transfer
            .writer(key.clone(), start, PutOptions::default());
        Sink::Upload(Box::new(writer), key)
    }

    /// Takes the next bytes.
    async fn accept(
        &self,
        handle: &FileHandle,
        stream: &mut WriteStream,
        data: Bytes,
    ) -> FsResult<()> {
        let Some(open) = stream.of(handle.id)? else {
            return Err(FsError::BadHandle);
        };
        if data.is_empty() {
            return Ok(());
        }
        if self.mount.describes_files() && (open.end == 0 || !open.touched) {
            open.sink
                .describe(self.metadata.early_metadata(handle.file.inode));
        }
        match Taking::begin(&handle.file, open).take(data).await {
            Ok(end) => {
                self.grew(&handle.file, end);
                Ok(())
            }
            Err(error) => {
                let error = transfer_failure(&error, Purpose::Write);
                self.lose(&handle.file, stream, error.clone());
                Err(error)
            }
        }
    }

    fn grew(&self, file: &OpenFile, end: u64) {
        file.show_written(end);
        if let Ok(node) = self.mount.namespace.lock().node_mut(file.inode) {
            node.note_written();
        }
        file.announce(end);
    }

    /// Truncates a file to nothing through a handle. Nothing reaches the store yet.
    pub(crate) async fn truncate(self: &Arc<Self>, handle: &FileHandle) -> FsResult<()> {
        if !handle.access.writes() {
            return Err(FsError::BadHandle);
        }
        match &handle.file.body {
            Body::Streamed(body) => self.truncate_streamed(handle, body).await,
            Body::Staged(body) => self.resize_staged(handle, body, 0).await,
        }
    }

    async fn truncate_streamed(
        self: &Arc<Self>,
        handle: &FileHandle,
        body: &StreamedBody,
    ) -> FsResult<()> {
        let file = &handle.file;
        let _entered = self.mount.namespace.enter(&[file.inode]).await?;
        let mut stream = self.stream_of(handle, body).await?;
        self.mount.check_not_shut()?;
        let empty = match stream.of(handle.id)? {
            Some(open) => open.end == 0,
            None => self.is_empty_in_store(file).await?,
        };
        if empty {
            return Ok(());
        }
        let key = self.mount.namespace.lock().file_key(file.inode)?;
        let may_be_stored = stream.may_be_stored().await;
        let in_store = may_be_stored || !file.view().new;
        let given_up = stream.take();
        stream.begin(handle.id, self.new_sink(key, in_store));
        self.grew(file, 0);
        // Last, because the caller may leave here.
        if let Some(open) = given_up {
            open.sink.abort().await;
        }
        Ok(())
    }

    /// Changes what is allocated of a file. A stream has nothing that could be allocated.
    pub(crate) async fn allocate(
        self: &Arc<Self>,
        handle: &FileHandle,
        range: Range<u64>,
        allocation: Allocation,
    ) -> FsResult<()> {
        match &handle.file.body {
            Body::Staged(body) => self.allocate_staged(handle, body, range, allocation).await,
            Body::Streamed(_) => Err(FsError::Unsupported(
                "a bucket that is streamed allocates nothing; mount it with mode=staged",
            )),
        }
    }

    /// Whether a file that nobody writes is empty. Memory's word is enough for "no": truncating
    /// what is empty already does no harm. A removed file is in no store. Fails with `Stale` if the file
    /// lost its name otherwise, as one whose creation failed: nothing can be written to it, and who opens
    /// it hears so in time to create it anew.
    pub(crate) async fn is_empty_in_store(self: &Arc<Self>, file: &OpenFile) -> FsResult<bool> {
        let has_name = {
            let tree = self.mount.namespace.lock();
            let node = tree.node(file.inode)?;
            if node.lost_its_name() {
                return Err(FsError::Stale);
            }
            node.place.is_some()
        };
        if self.known_size(file) == 0 && !file.view().ours && has_name {
            self.lookups.refresh_open(file).await?;
        }
        Ok(self.known_size(file) == 0)
    }

    fn refuse(&self, handle: &FileHandle, stream: &mut WriteStream) -> FsError {
        match stream.of(handle.id) {
            Err(error) => return error,
            // Opened only for this write: the file is as it was.
            Ok(Some(open)) if !open.touched => stream.clear(),
            Ok(_) => {}
        }
        self.mount.metrics.refused_writes.increment();
        if self.mount.notices.refused_write.first() {
            let path = self.mount.namespace.lock().path(handle.file.inode);
            tracing::warn!(
                "`{path}`: refused a write that is not at the end of the file: {NOT_AT_END} \
                 (later cases are only counted)"
            );
        }
        NOT_AT_END
    }
}
