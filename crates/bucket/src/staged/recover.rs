//! What an earlier mount left in the staging directory.
//!
//! The next mount of the same bucket with the same directory makes files of the journals that it finds before it
//! serves anything, and shows them as they were: staged, unsaved, each held by a handle that no door knows. Saving
//! them goes on behind the mount, several at once, until the store has them ([`retry`]). Reads, writes, renames
//! and removals meanwhile find a file like any other that is unsaved, and what is left when this process ends
//! is there for the next.
//!
//! Nothing is saved over a version that another client wrote since: such a file is put aside, and the log
//! says where it is. Not even what looks like another client's need be: the kill may have come
//! between the save and the removal of the journal. The traces of saves in the journal tell that; where there
//! is none, only an object that was compared as a whole is ours.
//!
//! [`retry`]: crate::staged::retry

use std::{
    collections::HashMap,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use penstock_base::{FsError, FsResult, clock, run_blocking};
use penstock_transfer::staging::{FileId, RecoveredFile};
use penstock_vfs::{FileKind, OpenOptions, Opened};

use crate::{
    files::Files,
    open_file::{FileHandle, OpenFile},
    staged::{StagedBody, StagedMode, retry::Retried, save::CONFLICT},
};

/// How often the log says what is left to save.
const PROGRESS: Duration = Duration::from_secs(30);

/// How the files are held that an earlier mount left.
const HELD: OpenOptions = OpenOptions::READ_WRITE;

/// A file that an earlier mount left, and the handle that holds it.
struct LeftFile {
    handle: Arc<FileHandle>,
    body: Arc<StagedBody>,
}

impl Files {
    /// Shows what an earlier mount left, and begins to save it. Before anything is served.
    pub(crate) fn recover(self: &Arc<Self>, mode: &Arc<StagedMode>) {
        mode.staging.uploads().remove_cut(self.mount.store());
        let found = match run_blocking(|| mode.staging.left_behind()) {
            Ok(found) => found,
            Err(error) => {
                tracing::error!("the staging directory cannot be searched: {error}");
                return;
            }
        };
        let mut found: HashMap<_, _> = found
            .into_iter()
            .filter_map(|id| Some((id.clone(), read_left(mode, &id)?)))
            .collect();
        abandon_replaced(&mut found);
        let shown = found
            .into_iter()
            .filter_map(|(id, file)| self.show_left(mode, &id, file));
        let shown: Vec<_> = shown.collect();
        if shown.is_empty() {
            return;
        }
        let left = mode.left();
        let (files, bytes) = (left.files, left.bytes);
        tracing::warn!(
            "the last mount broke off with {files} files unsaved ({bytes} bytes): they are as they \
             were, and are saved behind this mount"
        );
        for file in shown {
            tokio::spawn(Arc::clone(self).save_left(file));
        }
        tokio::spawn(tell_progress(Arc::downgrade(mode)));
    }

    fn show_left(
        self: &Arc<Self>,
        mode: &Arc<StagedMode>,
        id: &FileId,
        file: RecoveredFile,
    ) -> Option<LeftFile> {
        let shown = run_blocking(|| self.show_recovered(mode, file));
        shown.map_err(|error| tell_left(mode, id, &error)).ok()
    }

    /// Makes a staged file what the volume has under its key.
    fn show_recovered(
        self: &Arc<Self>,
        mode: &Arc<StagedMode>,
        file: RecoveredFile,
    ) -> FsResult<LeftFile> {
        let opened = Opened {
            passes_once: true,
            closes_silently: false,
            ..Opened::new(self.ids.next()?)
        };
        let body = Arc::new(StagedBody::recovered(mode, file.staged));
        let handle = {
            let mut tree = self.mount.namespace.lock();
            let place = tree.place_of(&file.key)?;
            let inode = tree.link((place.parent, &place.name), FileKind::Regular, None);
            let open = OpenFile::recovered(inode, &body, file.written);
            tree.node_mut(inode)?.file = Some(Arc::clone(&open));
            let tree_of = (&self.mount.namespace, &mut *tree);
            let handle = FileHandle::attach(tree_of, &open, HELD, &opened);
            tree.forget(inode, 1);
            handle
        };
        if let Some(description) = file.description {
            self.metadata.note_kept(handle.file.inode, &description);
        }
        let id = body.content.id();
        mode.engaged.add(id, &handle.file);
        mode.left.add(id, &handle.file);
        Ok(LeftFile { handle, body })
    }

    async fn save_left(self: Arc<Self>, LeftFile { handle, body }: LeftFile) {
        let (file, mode) = (&handle.file, &body.mode);
        let left_as = self.mount.namespace.lock().path(file.inode);
        let ended = self.retry(Arc::clone(&handle), &body, None).await;
        // Where files are saved behind, the program may have been told that all is well.
        let saves_behind = self.mount.write_back().is_some_and(|names| names.takes());
        if ended == Retried::Aside && saves_behind {
            self.unheard.add(left_as, CONFLICT);
        }
        if ended == Retried::Saved && !file.view().removed {
            let (path, size) = {
                let tree = self.mount.namespace.lock();
                (
                    tree.path(file.inode),
                    tree.version(file.inode).map(|version| version.size),
                )
            };
            tracing::warn!(
                "recovered `{path}`: what was written before the last mount broke off is in the \
                 store now ({} bytes)",
                size.unwrap_or_default()
            );
            mode.recovered.fetch_add(1, Ordering::Relaxed);
        }
        if ended != Retried::Shut {
            mode.left.remove(body.content.id());
        }
    }
}

/// What a journal tells, unless it tells of nothing that can be saved.
fn read_left(mode: &StagedMode, id: &FileId) -> Option<RecoveredFile> {
    let read = run_blocking(|| mode.staging.recover(id));
    read.unwrap_or_else(|error| {
        tell_left(mode, id, &error);
        None
    })
}

fn tell_left(mode: &StagedMode, id: &FileId, error: &FsError) {
    let journal = mode.staging.journal_path(id);
    tracing::error!(
        "what {} tells of cannot be saved: {error}; it stays there for the next mount",
        journal.display()
    );
}

/// Leaves out the files whose names others took when the last mount broke off.
fn abandon_replaced(found: &mut HashMap<FileId, RecoveredFile>) {
    let replaced: Vec<FileId> = found
        .values()
        .filter_map(|file| file.replaces.clone())
        .collect();
    for id in replaced {
        if let Some(file) = found.remove(&id) {
            run_blocking(|| file.staged.abandon());
        }
    }
}

/// Says what is left to save, as long as something is.
async fn tell_progress(mode: Weak<StagedMode>) {
    loop {
        clock::sleep(PROGRESS).await;
        let Some(mode) = mode.upgrade() else { return };
        let left = mode.left();
        if left.files == 0 {
            return;
        }
        tracing::warn!(
            "{} files that the last mount left are still to be saved ({} bytes)",
            left.files,
            left.bytes
        );
    }
}
