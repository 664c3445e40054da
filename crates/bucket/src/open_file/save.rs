//! Saving: making written files durable at close, at fsync, and when the volume shuts down.
//!
//! | what | who calls it | under which locks |
//! |---|---|---|
//! | [`Files::flush`], [`Files::sync`], [`Files::release`] | a door | none; the work goes on in a task of its own |
//! | [`Files::save`] | these | takes what follows |
//! | [`Files::finish_stream`] | [`Files::save`], [`Files::finish`] | the file's stream, which is its turn |
//! | [`Files::save_staged`] | [`Files::save`], a save in the background, a retry | takes the gate and the file's turn |
//! | [`Files::store_changes`] | [`Files::save_staged`], [`Files::finish`] | the file's turn; but for shutting down the gate as well |
//! | [`Files::finish`] | a rename, shutting down | the gate, if a rename holds it, and the file's turn |
//! | [`Files::publish`], `publish_staged` | [`Files::finish_stream`]; [`Files::store_changes`] | also the tree, then the content, then the view |
//! | [`Metadata::store_unsaved_metadata`] | these, after the content | the file's turn |
//!
//! A save runs in a task of its own, so that an interrupted caller does not cut it. The turn of a streamed file
//! is enough also while a directory above is renamed: the rename takes it too and ends the stream, and what is
//! begun after that waits.
//!
//! **When a stream fails** the file counts as failed until the handle that wrote it is closed for good: every
//! later write, fsync and close of that handle reports it, and the store keeps what it had. **When a staged save
//! fails** everything stays as it is, and is retried ([`crate::staged::retry`]).

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use penstock_base::{FsError, FsResult, clock, clock::Instant};
use penstock_object::{Key, ObjectKind};
use penstock_transfer::{ObjectVersion, staging::on_worker};
use penstock_vfs::{FileKind, HandleId, Inode};
use tokio::sync::MutexGuard;

use crate::{
    Fsync,
    errors::{Purpose, transfer_failure},
    files::Files,
    inode::Tree,
    mount::run_to_end,
    open_file::{
        Body, FileHandle, Mode, OpenFile, Turn,
        stream::{OpenStream, WriteStream},
        streamed::StreamedBody,
    },
    staged::{StagedBody, behind::SAVES_AT_ONCE},
};

/// What happens after a file was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Nothing more is expected.
    End,
    /// More is likely to be written.
    GoOn,
}

/// Files that are saved at the same time, where they are not saved behind the close.
const CLOSED_AT_ONCE: usize = 16;

/// A file that never was in the store has its name no more: who opens it next makes another one, which the late end of a
/// handle that failed does not touch. Returns whether it is such a file.
fn give_up_name(tree: &mut Tree, file: &OpenFile) -> bool {
    let is_new = file.view().new;
    if is_new {
        tree.give_up(file.inode);
    }
    is_new
}

/// How long shutting down may take to save what is unsaved.
const SHUT_DOWN_MAX: Duration = Duration::from_secs(300);

impl Files {
    /// A descriptor of the handle was closed: saves what it wrote.
    pub(crate) async fn flush(self: &Arc<Self>, handle: &FileHandle) -> FsResult<()> {
        if !handle.saves {
            return Ok(());
        }
        let (this, file) = (Arc::clone(self), Arc::clone(&handle.file));
        if let Body::Staged(body) = &file.body
            && self.may_save_later(&file, body).await
        {
            return body.failed_behind();
        }
        handle.check_not_lost()?;
        let saved = run_to_end(this.save(file, handle.id, Then::End)).await;
        // A program that was killed meanwhile never comes here.
        handle.told.store(saved.is_err(), Ordering::Relaxed);
        if saved.is_err()
            && let Body::Streamed(body) = &handle.file.body
            && let Some(error) = body.stream().await.tell(handle.id)
        {
            let _ = handle.lost.set(error);
            give_up_name(&mut self.mount.namespace.lock(), &handle.file);
        }
        saved
    }

    /// fsync of what the handle wrote: saves it, unless the settings ask for less.
    pub(crate) async fn sync(self: &Arc<Self>, handle: &FileHandle) -> FsResult<()> {
        match (self.mount.fsync(), &handle.file.body) {
            (Fsync::Nothing, _) => {
                self.note_ignored_sync();
                return Ok(());
            }
            (Fsync::Journal, Body::Staged(body)) => return self.sync_here(handle, body).await,
            _ => {}
        }
        // Of a staged file any handle saves what all of them wrote.
        if !handle.saves && handle.file.body.staged().is_none() {
            return Ok(());
        }
        handle.check_not_lost()?;
        let (this, file) = (Arc::clone(self), Arc::clone(&handle.file));
        run_to_end(this.save(file, handle.id, Then::GoOn)).await?;
        match handle.file.body.staged() {
            Some(_) => self.settle_name(handle.file.inode).await,
            None => Ok(()),
        }
    }

    /// Returns when the store has how a file is described, too. Fails once with why something of its name is not in the
    /// store that was lost.
    async fn settle_name(&self, inode: Inode) -> FsResult<()> {
        let key = self.mount.namespace.lock().file_key(inode);
        let Ok(key) = key else { return Ok(()) };
        let settled = self.mount.settle(&key).await;
        settled.and(self.tell_lost_of(&key))
    }

    fn tell_lost_of(&self, key: &Key) -> FsResult<()> {
        self.tell_lost(|lost| lost == key.as_str())
    }

    /// Returns when the disk here has what was written to a file. Tells once, too, if it could not be saved behind.
    async fn sync_here(
        self: &Arc<Self>,
        handle: &FileHandle,
        body: &Arc<StagedBody>,
    ) -> FsResult<()> {
        let (this, body) = (Arc::clone(self), Arc::clone(body));
        let file = Arc::clone(&handle.file);
        run_to_end(async move {
            let (inode, files) = (file.inode, vec![file]);
            this.sync_to_journal(&body.mode, files).await?;
            body.failed_behind()?;
            let key = this.mount.namespace.lock().file_key(inode);
            key.map_or(Ok(()), |key| this.tell_lost_of(&key))
        })
        .await
    }

    /// Returns when the store has what was written to a file and how it is described, or what is in a directory or below
    /// it.
    pub(crate) async fn save_inode(self: &Arc<Self>, inode: Inode) -> FsResult<()> {
        let (kind, file) = {
            let tree = self.mount.namespace.lock();
            let node = tree.node(inode)?;
            (node.kind, node.file.clone())
        };
        match file {
            _ if kind == FileKind::Directory => self.save_below(inode).await,
            Some(file) => {
                run_to_end(Arc::clone(self).save_shared(file)).await?;
                self.settle_name(inode).await
            }
            None => self.settle_name(inode).await,
        }
    }

    fn note_ignored_sync(&self) {
        if self.mount.notices.ignored_sync.first() {
            tracing::warn!(
                "fsync was asked for and does nothing, as set: files are durable when closed"
            );
        }
    }

    /// The last descriptor of the handle was closed.
    pub(crate) async fn release(self: &Arc<Self>, id: HandleId) {
        let Some(handle) = self.handles.remove(id) else {
            return;
        };
        if !handle.saves {
            return;
        }
        match &handle.file.body {
            Body::Streamed(_) => self.release_streamed(handle).await,
            Body::Staged(body) => {
                let body = Arc::clone(body);
                self.release_staged(handle, body).await;
            }
        }
    }

    /// The same of a handle whose writes nobody wants: what a stream has not stored is given up.
    pub(crate) async fn abandon(self: &Arc<Self>, id: HandleId) {
        if let Ok(handle) = self.handles.get(id)
            && handle.saves
            && let Body::Streamed(body) = &handle.file.body
        {
            let mut stream = body.stream().await;
            if stream.owner() == Some(id) {
                stream.discard().await;
                // Still its own, so that closing it forgets the file.
                stream.fail(id, FsError::Interrupted);
                handle.told.store(true, Ordering::Relaxed);
            }
        }
        self.release(id).await;
    }

    async fn release_streamed(self: &Arc<Self>, handle: Arc<FileHandle>) {
        let this = Arc::clone(self);
        let ended = run_to_end(async move {
            let file = Arc::clone(&handle.file);
            let saved = Arc::clone(&this).save(file, handle.id, Then::End).await;
            if let Err(error) = saved
                && !handle.told.load(Ordering::Relaxed)
            {
                let path = this.mount.namespace.lock().path(handle.file.inode);
                this.unheard.add(path, error);
            }
            this.forgive(&handle).await;
            Ok(())
        });
        if let Err(error) = ended.await {
            tracing::error!("closing a file: {error}");
        }
    }

    /// Lets go of what a handle failed to save, now that it is closed.
    async fn forgive(&self, handle: &FileHandle) {
        let file = &handle.file;
        let Body::Streamed(body) = &file.body else {
            return;
        };
        let mut stream = body.stream().await;
        if stream.owner() == Some(handle.id) {
            self.give_up(file, &mut stream);
        }
    }

    /// The write stream, in which who failed and was told is in nobody's way. The kernel tells of the end of a handle
    /// after close(2) has returned.
    pub(super) async fn stream_of<'body>(
        &self,
        handle: &FileHandle,
        body: &'body StreamedBody,
    ) -> FsResult<MutexGuard<'body, WriteStream>> {
        handle.check_not_lost()?;
        let mut stream = body.stream().await;
        if stream.is_left_by_other(handle.id) {
            self.give_up(&handle.file, &mut stream);
        }
        Ok(stream)
    }

    /// The file is again what the store has.
    fn give_up(&self, file: &OpenFile, stream: &mut WriteStream) {
        stream.clear();
        let mut tree = self.mount.namespace.lock();
        {
            let mut view = file.view();
            view.dirty = false;
            view.ours = false;
        }
        if !give_up_name(&mut tree, file)
            && let Ok(node) = tree.node_mut(file.inode)
        {
            node.distrust(clock::now());
        }
    }

    /// Saves a file. Of a streamed one only what `owner` wrote.
    async fn save(
        self: Arc<Self>,
        file: Arc<OpenFile>,
        owner: HandleId,
        then: Then,
    ) -> FsResult<()> {
        match &file.body {
            Body::Streamed(body) => {
                let mut stream = body.stream().await;
                if stream.owner() != Some(owner) {
                    return Ok(());
                }
                self.finish_stream(&file, &mut stream, then).await
            }
            Body::Staged(body) => Ok(self.save_staged(&file, body).await?),
        }
    }

    /// Saves a file whose turn the caller has, before its object is moved.
    pub(crate) async fn finish(&self, file: &OpenFile, turn: &mut Turn<'_>) -> FsResult<()> {
        match turn {
            Turn::Streamed(stream) => self.finish_stream(file, stream, Then::End).await,
            Turn::Staged { body, .. } => Ok(self.store_changes(file, body).await?),
        }
    }

    /// Stores what the stream holds, and ends it or goes on after it.
    async fn finish_stream(
        &self,
        file: &OpenFile,
        stream: &mut WriteStream,
        then: Then,
    ) -> FsResult<()> {
        let Some(owner) = stream.owner() else {
            return Ok(());
        };
        if file.view().removed {
            file.discard_stream(stream).await;
            return Ok(());
        }
        let touched = stream.of(owner)?.is_some_and(|open| open.touched);
        if !touched {
            // A write that was given up while it waited left nothing but the mark.
            file.view().dirty = false;
            if then == Then::End {
                stream.discard().await;
                self.metadata.store_unsaved_metadata(file).await?;
            }
            return Ok(());
        }
        let Some(mut open) = stream.take() else {
            return Ok(());
        };
        if !open.sink.is_begun() {
            open.sink
                .describe(self.metadata.stored_metadata(file.inode));
        }
        let object = open.sink.object_kind();
        let saved = match then {
            Then::End => open.sink.finish().await.map(|version| (version, None)),
            Then::GoOn => open.sink.sync().await,
        };
        match saved {
            Ok((version, sink)) => {
                let (owner, end) = (open.owner, version.size);
                match sink {
                    Some(sink) => stream.open(OpenStream::untouched(owner, sink, end)),
                    None => stream.clear(),
                }
                self.publish(file, version, object);
                match then {
                    Then::End => self.metadata.store_unsaved_metadata(file).await,
                    Then::GoOn => Ok(()),
                }
            }
            Err(error) => {
                let error = transfer_failure(&error, Purpose::Write);
                self.lose(file, stream, error.clone());
                Err(error)
            }
        }
    }

    /// Declares what was written as lost.
    pub(super) fn lose(&self, file: &OpenFile, stream: &mut WriteStream, error: FsError) {
        self.mount.metrics.failed_uploads.increment();
        let path = {
            let mut tree = self.mount.namespace.lock();
            if let Ok(node) = tree.node_mut(file.inode) {
                // The door may hold what was lost: the next open drops it.
                node.doubt_pages();
            }
            tree.path(file.inode)
        };
        tracing::error!("`{path}` could not be saved: {error}; the store keeps what it had");
        if let Some(owner) = stream.owner() {
            stream.fail(owner, error);
        }
        let size = file.view().size;
        file.announce(size);
    }

    /// Shows what was written to everybody on this mount.
    fn publish(&self, file: &OpenFile, version: ObjectVersion, object: ObjectKind) {
        let mut tree = self.mount.namespace.lock();
        let known = self.mount.known_written(file, &version, object);
        file.show_stored(version, None);
        tree.publish(file.inode, known);
    }

    /// Files that are saved at the same time for who waits for all of them.
    pub(crate) fn saves_at_once(&self) -> usize {
        match self.mount.save_behind() {
            Some(_) => SAVES_AT_ONCE,
            None => CLOSED_AT_ONCE,
        }
    }

    /// Saves everything that is unsaved and returns the paths of what could not be, then or when the program
    /// that wrote it was killed. What is
    /// written later, through handles that are still open, is refused.
    pub(crate) async fn shut_down(self: &Arc<Self>) -> Vec<(String, FsError)> {
        self.mount.shut();
        let files: Vec<Arc<OpenFile>> = {
            let tree = self.mount.namespace.lock();
            tree.nodes()
                .filter_map(|(_, node)| node.file.clone())
                .collect()
        };
        let deadline = clock::now() + SHUT_DOWN_MAX;
        let (mut saving, mut lost) = (FuturesUnordered::new(), Vec::new());
        let at_once = self.saves_at_once();
        for file in files {
            if saving.len() == at_once {
                lost.extend(saving.next().await.flatten());
            }
            saving.push(Arc::clone(self).save_before(deadline, file));
        }
        while let Some(outcome) = saving.next().await {
            lost.extend(outcome);
        }
        let left = deadline.duration_since(clock::now());
        let _ = clock::deadline(left, self.behind.end()).await;
        lost.append(&mut self.unheard.take());
        if let Some(names) = self.mount.write_back() {
            let left = deadline.duration_since(clock::now());
            lost.append(&mut names.finish(left).await);
        }
        let left = deadline.duration_since(clock::now());
        if clock::deadline(left, self.mount.transfer.settle())
            .await
            .is_err()
        {
            tracing::warn!("some unfinished uploads may still be in the bucket");
        }
        if let Mode::Staged(mode) = &self.mount.mode {
            let staging = mode.staging();
            staging
                .uploads()
                .finish_removing(&**self.mount.store())
                .await;
            on_worker(|| staging.end()).await;
            if !lost.is_empty() {
                tracing::warn!(
                    "what could not be saved stays in the staging directory {}, and the next mount that \
                     uses it saves it",
                    staging.settings().directory.display()
                );
            }
        }
        lost.sort_by(|one: &(String, _), other| one.0.cmp(&other.0));
        lost
    }

    /// Saves a file and returns its path if that failed or took too long.
    async fn save_before(
        self: Arc<Self>,
        deadline: Instant,
        file: Arc<OpenFile>,
    ) -> Option<(String, FsError)> {
        let path = self.mount.namespace.lock().path(file.inode);
        let left = deadline.duration_since(clock::now());
        let saved = run_to_end(async move {
            let mut turn = file.turn().await;
            self.finish(&file, &mut turn).await
        });
        match clock::deadline(left, saved).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some((path, error)),
            Err(late) => Some((path, FsError::TimedOut(late.to_string()))),
        }
    }
}
