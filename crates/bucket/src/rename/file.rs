//! Renaming files.

use std::{sync::Arc, time::Duration};

use penstock_base::{FsError, FsResult, MIB, clock};
use penstock_object::{Description, ETag, Key, ObjectKind, WriteCondition};
use penstock_transfer::{ObjectVersion, staging::Removal};
use penstock_vfs::{FileKind, Inode, RenameMode};
use smallvec::SmallVec;

use crate::{
    errors::for_writing,
    inode::{Change, Known, Reference},
    key,
    open_file::{OpenFile, Turn, turns_of_both},
    posix::KeptMetadata,
    rename::Renames,
    rename::{
        Rename,
        copy::{Original, is_changed},
    },
};

/// Bytes from which on a copy takes so long that the original is looked at again before it is
/// deleted: somebody else may have replaced it meanwhile.
const RECHECK_MIN: u64 = 64 * MIB;

/// How long the copy of a smaller file may have taken, with all its attempts, until the same is done.
/// To look each time would make a rename three requests one after the other instead of two.
const RECHECK_AFTER: Duration = Duration::from_secs(1);

const CHANGED: FsError = FsError::Busy(
    "another client changed the file while it was copied; both names exist, repeat the rename",
);

/// A file that was copied.
struct Copied {
    /// The version that was copied.
    original: ETag,
    known: Known,
    version: ObjectVersion,
}

impl Renames {
    /// Copies a file's object to its new key and deletes the original. Returns the change of the old name; none
    /// if the store never had it.
    pub(super) async fn rename_file(self: &Arc<Self>, rename: &Rename) -> FsResult<Option<Change>> {
        let inodes: SmallVec<[Inode; 2]> = [Some(&rename.moved), rename.replaced.as_ref()]
            .into_iter()
            .flatten()
            .map(Reference::inode)
            .collect();
        let _alone = self.metadata.metadata_locks.lock(&inodes).await;
        let moved = self.mount.open_file(rename.moved.inode());
        let replaced = rename
            .replaced
            .as_ref()
            .and_then(|file| self.mount.open_file(file.inode()));
        let (mut moved_turn, replaced_turn) =
            turns_of_both(moved.as_deref(), replaced.as_deref()).await;
        let mut replaced = replaced.as_ref().zip(replaced_turn);
        if let (Some(file), Some(turn)) = (&moved, &mut moved_turn) {
            let description = match self.is_moved_unsaved(file.inode, rename.mode) {
                true => {
                    let target = self.target_key(rename)?;
                    self.mount.hold_description(&target).await?
                }
                false => None,
            };
            if let Some(free) = self.unsaved_place(rename, replaced.as_ref().map(|(file, _)| *file))
                && self
                    .rename_unsaved(rename, file, &mut replaced, free)
                    .await?
            {
                if let Some(description) = description {
                    // If the disk refuses it falls away with the save.
                    description.forgo().await;
                }
                return Ok(None);
            }
            drop(description);
            self.files.finish(file, turn).await?;
        }
        if self.mount.save_behind().is_some()
            && let Some((file, turn)) = &mut replaced
        {
            // Or a kill after the copy leaves a journal of what the copy replaced. What fails is replaced all the same.
            let _ = self.files.finish(file, turn).await;
        }
        let changed = self.rename_saved(rename, moved.as_ref(), replaced).await;
        changed.map(Some)
    }

    async fn rename_saved(
        self: &Arc<Self>,
        rename: &Rename,
        moved: Option<&Arc<OpenFile>>,
        mut replaced: Option<(&Arc<OpenFile>, Turn<'_>)>,
    ) -> FsResult<Change> {
        if let Some((file, _)) = &replaced {
            self.files.keep_for_handles(file).await;
        }
        let source = self.mount.namespace.lock().file_key(rename.moved.inode())?;
        self.mount.settle(&source).await?;
        self.mount.settle(&self.target_key(rename)?).await?;
        let target = self.mount.namespace.begin_change(rename.target.clone());
        let (copied, change) = self.copy_and_delete(rename, &source).await?;
        let Copied {
            original,
            known,
            version,
        } = copied;
        let moved_version = ObjectVersion {
            key: source,
            etag: original.clone(),
            size: version.size,
        };
        self.mount.mode.follow_left(&moved_version, &version);
        {
            let mut tree = self.mount.namespace.lock();
            tree.relocate(rename.moved.inode(), &rename.target);
            tree.publish(rename.moved.inode(), known);
            if let Ok(node) = tree.node_mut(rename.moved.inode()) {
                node.follow_pages(&original, &version.etag);
            }
            if let Some(file) = moved {
                file.show_moved(&original, version.key, version.etag);
            }
        }
        target.end();
        if let Some(file) = moved {
            file.renew_journal();
        }
        if let Some((file, turn)) = &mut replaced {
            file.discard(turn).await;
        }
        Ok(change)
    }

    fn target_key(&self, rename: &Rename) -> FsResult<Key> {
        let prefix = self.mount.namespace.lock().prefix(rename.target.parent)?;
        key::file_key(&prefix, &rename.target.name)
    }

    async fn copy_and_delete(
        self: &Arc<Self>,
        rename: &Rename,
        source: &Key,
    ) -> FsResult<(Copied, Change)> {
        let begun = clock::now();
        let copied = self.copy_to_target(rename).await?;
        if copied.version.size >= RECHECK_MIN || begun.elapsed() >= RECHECK_AFTER {
            let now = for_writing(self.mount.head(source).await)?;
            if now.is_some_and(|now| now.etag != copied.original) {
                // Or it could not be repeated: what is known of the file is what was copied.
                return match self.lookups.refresh(rename.moved.inode()).await {
                    Ok(()) | Err(FsError::Stale) => Err(CHANGED),
                    Err(error) => Err(error),
                };
            }
        }
        let change = self.mount.namespace.begin_change_of(rename.moved.inode());
        let change = change.map_err(|error| match rename.mode {
            // To repeat it would find the copy.
            RenameMode::NoReplace if error == FsError::Stale => CHANGED,
            _ => error,
        })?;
        let removed = self.removal_of(rename.moved.inode(), &copied.original);
        match removed.etag {
            Some(_) => self.mount.remove_version(source, removed).await?,
            None => self.mount.delete_now(source).await?,
        }
        Ok((copied, change))
    }

    /// The removal of the version that was copied, since the time that is known of it.
    fn removal_of(&self, moved: Inode, original: &ETag) -> Removal {
        let tree = self.mount.namespace.lock();
        let known = tree.node(moved).ok().and_then(|node| node.known.as_ref());
        let known = known.filter(|known| known.etag.as_ref() == Some(original));
        known.map_or_else(
            || Removal {
                etag: Some(original.clone()).filter(|etag| !etag.as_str().is_empty()),
                stored: None,
            },
            Known::removal,
        )
    }

    /// Copies the object as it is known, or as it is now if it was changed meanwhile.
    async fn copy_to_target(self: &Arc<Self>, rename: &Rename) -> FsResult<Copied> {
        let target = self.target_key(rename)?;
        let condition = match rename.mode {
            RenameMode::NoReplace => WriteCondition::IfAbsent,
            RenameMode::Replace | RenameMode::Exchange => WriteCondition::Always,
        };
        let (moved, begun) = (rename.moved.inode(), clock::now());
        let mut original = Original::of(&self.mount.namespace.lock(), moved)?;
        let (mut kind, mut kept) = self.kept_at_target(rename)?;
        let description = kept.as_deref().map(described);
        let how = (condition.clone(), description.as_ref());
        let mut stored = self.mount.copy_object_as(&original, &target, how).await;
        if stored.as_ref().is_err_and(is_changed) {
            self.lookups.refresh(moved).await?;
            original = Original::of(&self.mount.namespace.lock(), moved)?;
            (kind, kept) = self.kept_at_target(rename)?;
            let description = kept.as_deref().map(described);
            let how = (condition, description.as_ref());
            stored = self.mount.copy_object_as(&original, &target, how).await;
        }
        let etag = for_writing(stored)?.etag;
        let is_link = original.kind == ObjectKind::Symlink;
        let known = Known {
            kind,
            object: if is_link {
                ObjectKind::Symlink
            } else {
                ObjectKind::Normal
            },
            size: original.size,
            modified: Some(clock::wall_time()),
            stored: None,
            etag: Some(etag.clone()),
            until: self.mount.believed_until(begun),
            kept,
            old_marker: None,
        };
        Ok(Copied {
            original: original.etag.ok_or(FsError::Stale)?,
            known,
            version: ObjectVersion {
                key: target,
                etag,
                size: original.size,
            },
        })
    }

    /// The kind of the file, and what is kept of it under its new name; `None` if the store copies
    /// that.
    fn kept_at_target(&self, rename: &Rename) -> FsResult<(FileKind, Option<Arc<KeptMetadata>>)> {
        let tree = self.mount.namespace.lock();
        let node = tree.node(rename.moved.inode())?;
        let Some(kept) = node.kept().filter(|_| self.mount.keeps_metadata()) else {
            return Ok((node.kind, None));
        };
        let mut kept = KeptMetadata::clone(kept);
        // It would be the time of the copy otherwise.
        let stored = node.known.as_ref().and_then(|known| known.modified);
        kept.posix.modified = kept.posix.modified.or(stored);
        kept.posix.changed = Some(clock::wall_time());
        Ok((node.kind, Some(Arc::new(kept))))
    }
}

fn described(kept: &KeptMetadata) -> Description {
    Description {
        content_type: kept.content_type(),
        metadata: kept.metadata(),
    }
}
