//! Renaming.
//!
//! A bucket cannot rename: an object is copied inside the store and the original deleted. For a
//! file that is two requests, and a crash between them leaves both names. A directory is as many
//! copies as there are objects below it; see [`directory`].
//!
//! What is unsaved is saved first, under the old name. A rename runs in a task of its own, so an
//! interrupted caller leaves no half of it.

mod copy;
mod descendants;
mod directory;
mod file;
mod journal;
mod unsaved;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_base::{FsError, FsResult, Utf8Name};
use penstock_vfs::{FileKind, Inode, RenameMode};

use crate::{
    files::Files,
    inode::{Place, Reference},
    lookup::Lookups,
    metadata::Metadata,
    mount::Mount,
    mount::run_to_end,
};

pub(crate) use copy::Original;
pub(crate) use journal::Journal;

/// What is renamed to what.
#[derive(Debug)]
struct Rename {
    moved: Reference,
    source_parent: Inode,
    /// What the target's name leads to now.
    replaced: Option<Reference>,
    target: Place,
    mode: RenameMode,
}

/// Moves names.
#[derive(Debug)]
pub(crate) struct Renames {
    mount: Arc<Mount>,
    lookups: Arc<Lookups>,
    metadata: Arc<Metadata>,
    files: Arc<Files>,
    /// Renames of directories that could not be finished.
    journal: Mutex<Journal>,
}

impl Renames {
    /// Of the volume whose open files these are.
    pub(crate) fn new(files: &Arc<Files>) -> Arc<Self> {
        Arc::new(Self {
            mount: Arc::clone(&files.mount),
            lookups: Arc::clone(&files.lookups),
            metadata: Arc::clone(&files.metadata),
            files: Arc::clone(files),
            journal: Mutex::default(),
        })
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves a name.
    pub(crate) async fn rename(
        self: &Arc<Self>,
        (source_parent, source_name): (Inode, &Utf8Name),
        (target_parent, target_name): (Inode, &Utf8Name),
        mode: RenameMode,
    ) -> FsResult<()> {
        self.mount.check_writable()?;
        if mode == RenameMode::Exchange {
            return Err(FsError::Unsupported(
                "a bucket cannot swap two names; rename one of them out of the way first",
            ));
        }
        let source = Place {
            parent: source_parent,
            name: source_name.clone(),
        };
        let target = Place {
            parent: target_parent,
            name: target_name.clone(),
        };
        let this = Arc::clone(self);
        run_to_end(async move { this.rename_now(source, target, mode).await }).await
    }

    async fn rename_now(
        self: &Arc<Self>,
        source: Place,
        target: Place,
        mode: RenameMode,
    ) -> FsResult<()> {
        let _entered = self
            .mount
            .namespace
            .enter(&[source.parent, target.parent])
            .await?;
        match self.rename_entered(&source, &target, mode).await {
            // The name leads to another client's file by now, or to none.
            Err(FsError::Stale) => self.rename_entered(&source, &target, mode).await,
            renamed => renamed,
        }
    }

    async fn rename_entered(
        self: &Arc<Self>,
        source: &Place,
        target: &Place,
        mode: RenameMode,
    ) -> FsResult<()> {
        let patience = self.mount.change_patience();
        let moved = self
            .lookups
            .find(source.parent, &source.name, patience)
            .await?;
        let moved = moved.ok_or(FsError::NotFound)?;
        let replaced = match mode {
            // What the store never had is kept from replacing anything by its save.
            RenameMode::NoReplace if !self.is_moved_unsaved(moved.inode(), mode) => {
                self.lookups
                    .find_in_store(target.parent, &target.name)
                    .await?
            }
            _ => {
                self.lookups
                    .find(target.parent, &target.name, patience)
                    .await?
            }
        };
        if replaced.is_some() && mode == RenameMode::NoReplace {
            return Err(FsError::AlreadyExists);
        }
        if source == target {
            return Ok(());
        }
        let source_parent = source.parent;
        let rename = Rename {
            moved,
            source_parent,
            replaced,
            target: target.clone(),
            mode,
        };
        let change = match self.kinds_of(&rename)? {
            (FileKind::Directory, None | Some(FileKind::Directory)) => {
                Some(self.rename_directory(&rename).await?)
            }
            (FileKind::Directory, Some(_)) => return Err(FsError::NotADirectory),
            (_, Some(FileKind::Directory)) => return Err(FsError::IsADirectory),
            (_, _) => self.rename_file(&rename).await?,
        };
        // What the store never had kept no directory there.
        if let Some(change) = change {
            self.metadata.keep_directory(source_parent).await;
            change.end();
        }
        Ok(())
    }

    fn kinds_of(&self, rename: &Rename) -> FsResult<(FileKind, Option<FileKind>)> {
        let tree = self.mount.namespace.lock();
        let replaced = rename
            .replaced
            .as_ref()
            .map(|replaced| tree.node(replaced.inode()));
        let replaced = replaced.transpose()?.map(|node| node.kind);
        Ok((tree.node(rename.moved.inode())?.kind, replaced))
    }
}
