//! What an earlier mount left in the staging directory.
//!
//! A mount that was killed leaves a journal beside each file that had something unsaved. The next
//! mount of the same bucket with the same directory reads the journals before it serves anything, and
//! shows these files as they were: staged, unsaved, each held by a handle that no door knows. Saving
//! them goes on behind the mount, several at once, until the store has them ([`keeper`]). Whoever
//! reads, writes, renames or removes one of them meanwhile does so as with any other unsaved file,
//! and what is left when this process ends is there for the next.
//!
//! Nothing is saved over a version that somebody wrote since: such a file is put aside, and the log
//! says where it is. Not even what looks like somebody else's need be: the kill may have come
//! between the save and the removal of the journal. The traces of saves in the journal tell that
//! ([`crate::staged::attempt`]); where there is none, only an object that was compared as a whole is ours. What a journal tells that cannot be believed is put aside as well, and never removed.
//!
//! [`keeper`]: crate::staged::keeper

use std::{
    io::ErrorKind::NotFound,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use penstock_base::{FsError, FsResult, MIB, clock, run_blocking};
use penstock_object::{Description, ErrorKind, Key};
use penstock_transfer::{ObjectVersion, TransferError};
use penstock_vfs::{FileKind, OpenOptions, Opened};

use crate::{
    core::Core,
    errors::for_reading,
    open_file::{FileHandle, OpenFile},
    staged::{
        StagedFile,
        content::{Content, Snapshot},
        disk::DiskFile,
        folder::{FileId, Folder},
        journal::{self, Doubt, Journal, Told},
        keeper::Kept,
        lock,
        save::SaveError,
        staging::Staging,
    },
};

/// Bytes that are compared at once.
const COMPARED: u64 = MIB;

/// How often the log says what is left to save.
const PROGRESS: Duration = Duration::from_secs(30);

/// How the files are held that an earlier mount left.
const HELD: OpenOptions = OpenOptions::READ_WRITE;

impl StagedFile {
    /// A file as its journal tells.
    fn left(staging: &Arc<Staging>, id: FileId, told: Told, key: Key) -> std::io::Result<Self> {
        let disk = open_content(staging.folder(), &id, &told)?;
        let journal = Journal::reopen(&staging.folder().journal(&id), &told)?;
        let staged = Self::with_id(staging, id);
        *lock(&staged.disk) = disk;
        *lock(&staged.journal) = Some(journal);
        staged.engage((told.content, key), |_| ());
        if let Some(state) = staged.state().as_mut() {
            state.description = told.description;
        }
        // The last mount may have saved it and not heard so; and it is being kept from now on.
        staged.note_outcome(true);
        staged.kept_trying.store(true, Ordering::Relaxed);
        Ok(staged)
    }
}

/// The staging file. None where nothing was written.
fn open_content(
    folder: &Folder,
    id: &FileId,
    told: &Told,
) -> std::io::Result<Option<Arc<DiskFile>>> {
    let path = folder.data(id);
    match Folder::open(&path) {
        Ok(file) => Ok(Some(Arc::new(DiskFile::new(file)))),
        Err(error) if error.kind() == NotFound && told.content.extents().backed() == 0 => Ok(None),
        Err(error) => Err(error),
    }
}

impl Core {
    /// Shows what an earlier mount left, and begins to save it. Before anything is served.
    pub(crate) fn recover(self: &Arc<Self>) {
        let Some(staging) = &self.staging else { return };
        self.remove_cut_uploads(staging);
        let orphans = match run_blocking(|| staging.folder().orphans()) {
            Ok(orphans) => orphans,
            Err(error) => {
                tracing::error!("the staging directory cannot be searched: {error}");
                return;
            }
        };
        let shown = orphans
            .into_iter()
            .filter_map(|id| self.show_left(staging, &id));
        let shown: Vec<_> = shown.collect();
        if shown.is_empty() {
            return;
        }
        let (files, bytes) = staging.left();
        tracing::warn!(
            "the last mount broke off with {files} files unsaved ({bytes} bytes): they are as they \
             were, and are saved behind this mount"
        );
        for handle in shown {
            tokio::spawn(Arc::clone(self).save_left(handle));
        }
        tokio::spawn(tell_progress(Arc::downgrade(self)));
    }

    fn show_left(self: &Arc<Self>, staging: &Arc<Staging>, id: &FileId) -> Option<Arc<FileHandle>> {
        let shown = run_blocking(|| self.try_show_left(staging, id));
        shown.unwrap_or_else(|error| {
            let journal = staging.folder().journal(id);
            tracing::error!(
                "what {} tells of cannot be saved: {error}; it stays there for the next mount",
                journal.display()
            );
            None
        })
    }

    fn try_show_left(
        self: &Arc<Self>,
        staging: &Arc<Staging>,
        id: &FileId,
    ) -> FsResult<Option<Arc<FileHandle>>> {
        let path = staging.folder().journal(id);
        let told = journal::read(&path, staging.boot()).map_err(|error| disk_error(&error))?;
        let told = told.and_then(|told| check_content(staging, id, told));
        let told = match told {
            Ok(told) => told,
            Err(doubt) => return put_aside(staging, id, &doubt).map(|()| None),
        };
        if staging.folder().kept_data(id).exists() {
            let doubt = Doubt {
                key: Some(told.header.key),
                reason: "the last mount broke off while it put this aside".to_owned(),
            };
            return put_aside(staging, id, &doubt).map(|()| None);
        }
        if told.header.volume != staging.volume() {
            let text = format!("it is of {}", told.header.volume);
            return Err(FsError::Io(text));
        }
        let key = Key::new(&told.header.key).map_err(|error| FsError::Io(error.to_string()))?;
        let description = told.description.clone();
        let staged = StagedFile::left(staging, id.clone(), told, key.clone());
        let staged = staged.map_err(|error| disk_error(&error))?;
        if !staged.look(Content::is_dirty)? {
            staged.abandon();
            return Ok(None);
        }
        self.show_staged(staged, (&key, description)).map(Some)
    }

    /// Makes a staged file what the volume has under its key.
    fn show_staged(
        self: &Arc<Self>,
        staged: StagedFile,
        (key, description): (&Key, Option<Description>),
    ) -> FsResult<Arc<FileHandle>> {
        let (staging, id) = (Arc::clone(staged.staging()), staged.id.clone());
        let opened = Opened {
            handle: self.handles.next_id()?,
            direct: true,
            keep_cache: false,
            skip_flush: false,
            local: None,
        };
        // Before the tree is locked: the disk tells that.
        let written = staged.written();
        let handle = {
            let mut tree = self.namespace.lock();
            let place = tree.place_of(key)?;
            let inode = tree.link((place.parent, &place.name), FileKind::Regular, None);
            let file = OpenFile::left(inode, staged, written);
            tree.node_mut(inode)?.file = Some(Arc::clone(&file));
            let tree_of = (&self.namespace, &mut *tree);
            let handle = FileHandle::attach(tree_of, &file, HELD, &opened);
            tree.forget(inode, 1);
            handle
        };
        if let Some(description) = description {
            self.note_kept(handle.file.inode, &description);
        }
        staging.note_engaged(&id, &handle.file);
        staging.note_left(&id, &handle.file);
        Ok(handle)
    }

    async fn save_left(self: Arc<Self>, handle: Arc<FileHandle>) {
        let file = &handle.file;
        let Some(staged) = &file.staged else { return };
        let kept = self.keep(&handle, None).await;
        if kept == Kept::Saved && !file.view().removed {
            let (path, size) = {
                let tree = self.namespace.lock();
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
            staged.staging().recovered.fetch_add(1, Ordering::Relaxed);
        }
        if kept != Kept::Shut {
            staged.staging().settle_left(&staged.id);
        }
    }

    /// The version that the store has, if it is what a snapshot says: the save of it succeeded, and
    /// only its answer was lost. What is clean cannot be compared, as its base is gone, so a snapshot that
    /// leaves something to the base is never found.
    pub(super) async fn find_saved(
        &self,
        staged: &StagedFile,
        key: &Key,
        snapshot: &Snapshot,
    ) -> FsResult<Option<ObjectVersion>> {
        let Some(info) = for_reading(self.head(key).await)? else {
            return Ok(None);
        };
        if info.size != snapshot.size || !snapshot.is_whole() {
            return Ok(None);
        }
        let theirs = ObjectVersion {
            key: key.clone(),
            etag: info.etag,
            size: info.size,
        };
        for range in &snapshot.unsaved {
            let mut at = range.start;
            while at < range.end {
                let end = range.end.min(at + COMPARED);
                let ours = self.gather(staged, None, at..end).await;
                let ours = ours.map_err(|error| FsError::from(SaveError::from(error)))?;
                let reader = self.transfer.reader(theirs.clone());
                match reader.read(at, (end - at) as u32).await {
                    Ok(stored) if stored.to_vec() == ours.to_vec() => {}
                    Ok(_) => return Ok(None),
                    Err(TransferError::Object(error))
                        if error.kind == ErrorKind::PreconditionFailed =>
                    {
                        return Ok(None);
                    }
                    Err(error) => return Err(SaveError::from(error).into()),
                }
                at = end;
            }
        }
        Ok(Some(theirs))
    }
}

fn disk_error(error: &std::io::Error) -> FsError {
    FsError::Io(error.to_string())
}

/// Says what is left to save, as long as something is.
async fn tell_progress(core: Weak<Core>) {
    loop {
        clock::sleep(PROGRESS).await;
        let Some(core) = core.upgrade() else { return };
        let Some(staging) = &core.staging else { return };
        match staging.left() {
            (0, _) => return,
            (files, bytes) => tracing::warn!(
                "{files} files that the last mount left are still to be saved ({bytes} bytes)"
            ),
        }
    }
}

/// Compares what a journal tells with the staging file: what is missing there would read as zeros.
fn check_content(staging: &Staging, id: &FileId, told: Told) -> Result<Told, Doubt> {
    let found = std::fs::metadata(staging.folder().data(id)).map_or(0, |data| data.len());
    let backed = told.content.extents().iter();
    let backed = backed.filter(|(_, held)| held.is_backed());
    let needed = backed.map(|(range, _)| range.end).max().unwrap_or(0);
    let is_aside = staging.folder().kept_data(id).exists();
    if found >= needed || is_aside {
        return Ok(told);
    }
    Err(Doubt {
        key: Some(told.header.key),
        reason: format!(
            "its journal tells of {needed} bytes, of which the staging file has {found}"
        ),
    })
}

/// Puts a file aside of which it is not certain what it is.
fn put_aside(staging: &Staging, id: &FileId, doubt: &Doubt) -> FsResult<()> {
    let kept = staging
        .folder()
        .keep(id)
        .map_err(|error| disk_error(&error))?;
    let file = match &doubt.key {
        Some(key) => format!("`{key}`"),
        None => "a file whose name is lost".to_owned(),
    };
    tracing::error!(
        "{file}: what was written before the last mount broke off is not saved: {}; it is kept in {}: \
         compare it with the object, and remove it",
        doubt.reason,
        kept.display()
    );
    Ok(())
}
