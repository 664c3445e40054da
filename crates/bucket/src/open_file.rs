//! Open files.
//!
//! All handles of one file share an [`OpenFile`]. It holds a [`Body`], which is what the mode of the volume makes
//! of it, and a [`View`]: what this mount knows of the file beyond the store, and which
//! version every handle reads. When this mount writes a new version, all handles read that, as on a
//! local disk. A version of another client is another file: a door keeps the size and pages by inode,
//! also of a file that nobody has open, so those who have *seen* the old version and those who open the
//! new one must not share one. The name leads to another inode then, this one is off the tree, and reads
//! of what the store no longer has fail as stale. Only an open file of which nothing was seen takes the
//! new version.
//!
//! A file whose new content is not in the store yet is *dirty*. It cannot be read until it was
//! closed or synced: the new content is on its way out and no longer here, and the old one would
//! be a lie. Of a staged file that is what its content says, and the view repeats it: whoever
//! changes the content shows it before the content is unlocked, so that the two never differ.

mod body;
mod handle;
mod opening;
mod read;
pub(crate) mod save;
mod sink;
mod stream;
mod streamed;
mod taking;
mod write;

use std::{
    sync::{Arc, Mutex},
    time::SystemTime,
};

use penstock_base::{FsError, FsResult, InMemory, clock, run_blocking};
use penstock_object::{ETag, Key};
use penstock_transfer::{
    ObjectVersion,
    staging::{Base, Content, State},
};
use penstock_vfs::Inode;
use tokio::sync::Notify;

use crate::staged::StagedBody;

pub(crate) use body::{Body, Mode, Turn, turn_of, turns_of_both};
pub(crate) use handle::FileHandle;
pub(crate) use stream::WriteStream;

/// What the handles of one file share.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) inode: Inode,
    view: Mutex<View>,
    pub(crate) body: Body,
    /// Rings when one handle is left.
    alone: Notify,
}

/// What this mount knows of an open file.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// The newest content is not in the store yet.
    pub(crate) dirty: bool,
    /// The file was created here and never reached the store.
    pub(crate) new: bool,
    /// The file was removed here.
    pub(crate) removed: bool,
    /// Bytes, while dirty.
    pub(crate) size: u64,
    /// Last write, while dirty.
    pub(crate) modified: SystemTime,
    /// The newest version in the store as far as this mount knows.
    pub(crate) version: Option<ObjectVersion>,
    /// Whether `version` was written here, through this open file.
    pub(crate) ours: bool,
    /// Bytes of what the file holds were given out or taken, or a door may keep pages of it.
    pub(crate) seen: bool,
    /// Whether the pages that the door may keep are of this content. If not, the next open drops them.
    pub(crate) is_shown: bool,
    /// Open handles. When the last is closed, this open file goes.
    handles: usize,
    /// Those of them that may read.
    readers: usize,
    /// Those of them that may write, and that programs have open.
    writers: usize,
}

impl OpenFile {
    /// A file that exists in the store.
    pub(crate) fn existing(inode: Inode, version: ObjectVersion, body: Body) -> Arc<Self> {
        Self::with_view(inode, Some(version), body)
    }

    /// A file that was created here.
    pub(crate) fn created(inode: Inode, body: Body) -> Arc<Self> {
        Self::with_view(inode, None, body)
    }

    /// A file that an earlier mount left, with what `body` holds.
    /// It was `written` last then.
    pub(crate) fn recovered(
        inode: Inode,
        body: &Arc<StagedBody>,
        written: Option<SystemTime>,
    ) -> Arc<Self> {
        let (base, size) = body
            .content
            .look(|content| (content.base().clone(), content.size()))
            .unwrap_or_default();
        let body = Body::Staged(Arc::clone(body));
        let file = Self::with_view(inode, base.version().cloned(), body);
        {
            let mut view = file.view();
            view.dirty = true;
            view.new = matches!(base, Base::New);
            view.size = size;
            view.modified = written.unwrap_or(view.modified);
        }
        file
    }

    fn with_view(inode: Inode, version: Option<ObjectVersion>, body: Body) -> Arc<Self> {
        let new = version.is_none();
        Arc::new(Self {
            inode,
            view: Mutex::new(View {
                dirty: new,
                new,
                removed: false,
                size: 0,
                modified: clock::wall_time(),
                version,
                ours: false,
                seen: false,
                is_shown: true,
                handles: 0,
                readers: 0,
                writers: 0,
            }),
            body,
            alone: Notify::new(),
        })
    }

    /// The view. Held for a few loads, never across an await.
    pub(crate) fn view(&self) -> InMemory<'_, View> {
        InMemory::lock(&self.view)
    }

    /// Shows that the file holds `size` bytes that the store does not have yet.
    fn show_written(&self, size: u64) {
        let mut view = self.view();
        view.dirty = true;
        view.seen = true;
        view.size = size;
        view.modified = clock::wall_time();
    }

    /// Shows that the file holds `content`, which was changed just now and which the caller has
    /// locked.
    pub(crate) fn show_staged(&self, content: &Content) {
        let mut view = self.view();
        let stays_dirty = view.dirty && view.removed;
        view.show_content(Some(content));
        view.seen = true;
        view.dirty |= stays_dirty;
        view.modified = clock::wall_time();
    }

    /// Shows that the store has `version`, and of a staged file which `content` it holds, that the
    /// caller has locked.
    pub(crate) fn show_stored(&self, version: ObjectVersion, content: Option<&Content>) {
        self.view().show_stored(version, content);
    }

    /// Shows that the store has the version `original` as `copy` under another `key` now. Handles
    /// that read another version stay with that, which is gone. To be followed by
    /// [`OpenFile::renew_journal`].
    pub(crate) fn show_moved(&self, original: &ETag, key: Key, copy: ETag) {
        match &self.body {
            Body::Streamed(_) => self.show_moved_with(None, original, key, copy),
            // From the look to the end, or a write in between would be shown as saved.
            Body::Staged(body) => body
                .content
                .with_state(|state| self.show_moved_with(state, original, key, copy)),
        }
    }

    fn show_moved_with(&self, state: Option<&mut State>, original: &ETag, key: Key, copy: ETag) {
        let mut view = self.view();
        let version = view.version.as_ref();
        let version = version.filter(|version| version.etag == *original);
        let size = version.map(|version| version.size);
        let content = state.map(|state| {
            if size.is_some() || state.content().base().replaces(original) {
                state.follow(original, &key, &copy);
            }
            state.content()
        });
        let Some(size) = size else {
            view.ours = false;
            view.is_shown = false;
            return;
        };
        let moved = ObjectVersion {
            key,
            etag: copy,
            size,
        };
        view.show_stored(moved, content);
    }

    /// Notes on the disk where the file is now. Not under the lock of the tree.
    pub(crate) fn renew_journal(&self) {
        if let Body::Staged(body) = &self.body {
            run_blocking(|| body.content.renew_journal());
        }
    }

    /// Shows that the file was removed or replaced here. Whoever opened it while that was under way
    /// must not save it any more: its name is another file's.
    pub(crate) fn show_removed(&self) {
        self.view().removed = true;
    }

    /// Drops what was written to a file that is removed, and lets go of its stream.
    async fn discard_stream(&self, stream: &mut WriteStream) {
        stream.discard().await;
        let mut view = self.view();
        view.removed = true;
        view.dirty = false;
        view.ours = false;
        let size = view.size;
        drop(view);
        self.announce(size);
    }

    /// Returns when one handle is left, or was at some time since this returned last.
    pub(crate) async fn left_alone(&self) {
        self.alone.notified().await;
    }

    /// Wakes the writes that wait for their turn.
    fn announce(&self, end: u64) {
        if let Body::Streamed(body) = &self.body {
            body.announce(end);
        }
    }
}

impl View {
    /// Says whether the store lacks anything of `content`, which is locked.
    fn show_content(&mut self, content: Option<&Content>) {
        self.dirty = content.is_some_and(Content::is_dirty);
        if let Some(content) = content {
            self.size = content.size();
        }
    }

    fn show_stored(&mut self, version: ObjectVersion, content: Option<&Content>) {
        self.show_content(content);
        self.new = false;
        self.version = Some(version);
        self.ours = true;
    }

    /// Whether a handle that is open may have seen something of what the file holds.
    pub(crate) fn is_seen(&self) -> bool {
        self.seen && self.readers > 0
    }

    /// Takes a `version` of another client, unless this mount has a newer content, and returns whether
    /// it was taken. Fails with `Stale` if somebody may have seen another one.
    pub(crate) fn take(&mut self, version: ObjectVersion) -> FsResult<bool> {
        if self.dirty {
            return Ok(false);
        }
        if let Some(known) = &mut self.version
            && (&known.etag, known.size) == (&version.etag, version.size)
        {
            known.key = version.key;
            return Ok(false);
        }
        if self.is_seen() {
            return Err(FsError::Stale);
        }
        self.version = Some(version);
        self.ours = false;
        self.seen = false;
        self.is_shown = false;
        Ok(true)
    }

    /// Open handles.
    pub(crate) fn handles(&self) -> usize {
        self.handles
    }

    /// Handles that may write, and that programs have open.
    pub(crate) fn writers(&self) -> usize {
        self.writers
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use penstock_base::{MIB, MemoryBudget};

    use penstock_transfer::staging::{Staging, StagingSettings};

    use super::*;
    use crate::staged::StagedMode;

    fn version(key: &str, etag: &str) -> ObjectVersion {
        ObjectVersion {
            key: Key::new(key).expect("valid"),
            etag: ETag::new(etag),
            size: 4,
        }
    }

    /// A file of which something can be staged, and where.
    fn engaged() -> (Arc<OpenFile>, tempfile::TempDir) {
        let scratch = tempfile::tempdir().expect("a directory");
        let settings = StagingSettings::new(scratch.path(), "volume");
        let staging = Staging::open(settings, &MemoryBudget::new(MIB)).expect("a staging area");
        let old = version("old", "first");
        let mode = Mode::Staged(StagedMode::new(staging));
        let file = OpenFile::existing(Inode(2), old.clone(), mode.body());
        if let Body::Staged(body) = &file.body {
            body.engage(&file, Content::of(old.clone()), old.key, |_| ());
        }
        (file, scratch)
    }

    /// A flag that is taken from the content, and shown when the content may be another, loses what
    /// was written in between: closing the file would save nothing.
    #[test]
    #[allow(clippy::disallowed_methods)]
    fn what_a_file_shows_changes_while_its_content_stands_still() {
        let (file, _scratch) = engaged();
        let content = &file.body.staged().expect("staged").content;
        thread::scope(|scope| {
            // Lets the other go as far as to the content, and then to the view.
            let (moving, view) = content.with_state(|_| {
                let moving = scope.spawn(|| {
                    let moved = version("new", "second");
                    file.show_moved(&ETag::new("first"), moved.key, moved.etag);
                });
                thread::sleep(Duration::from_millis(50));
                (moving, file.view())
            });
            let is_locked = (0..600).any(|_| {
                thread::sleep(Duration::from_millis(50));
                content.is_locked()
            });
            assert!(is_locked, "a write may come in between");
            drop(view);
            moving.join().expect("no panic");
        });
        assert!(!file.view().dirty);
    }
}
