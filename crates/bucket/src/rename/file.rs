//! Renaming files.

use std::sync::Arc;

use penstock_base::{FsError, FsResult, MIB, clock};
use penstock_object::{ETag, ErrorKind, ObjectKind, WriteCondition};
use penstock_transfer::ObjectVersion;
use penstock_vfs::{FileKind, RenameMode};
use tokio::sync::MutexGuard;

use crate::{
    core::Core,
    errors::for_writing,
    inode::Known,
    key,
    open_file::{OpenFile, WriteStream},
    rename::{Rename, copy::Original},
};

/// Bytes from which on a copy takes so long that the original is looked at again before it is
/// deleted: somebody else may have replaced it meanwhile.
const RECHECK_MIN: u64 = 64 * MIB;

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

type StreamGuard<'file> = Option<MutexGuard<'file, WriteStream>>;

impl Core {
    /// Copies a file's object to its new key and deletes the original.
    pub(super) async fn rename_file(self: &Arc<Self>, rename: &Rename) -> FsResult<()> {
        let moved = self.open_file(rename.moved.inode());
        let replaced = rename
            .replaced
            .as_ref()
            .and_then(|file| self.open_file(file.inode()));
        let (moved_stream, replaced_stream) =
            lock_both(moved.as_deref(), replaced.as_deref()).await;
        if let (Some(file), Some(mut stream)) = (&moved, moved_stream) {
            self.finish(file, &mut stream).await?;
            return self
                .rename_saved(rename, Some(file), (&replaced, replaced_stream))
                .await;
        }
        self.rename_saved(rename, None, (&replaced, replaced_stream))
            .await
    }

    async fn rename_saved(
        self: &Arc<Self>,
        rename: &Rename,
        moved: Option<&Arc<OpenFile>>,
        (replaced, replaced_stream): (&Option<Arc<OpenFile>>, StreamGuard<'_>),
    ) -> FsResult<()> {
        if let Some(file) = replaced {
            self.keep_for_handles(file).await;
        }
        let copied = self.copy_and_delete(rename).await;
        if copied.is_err() {
            // The copy may have been made all the same.
            let target = &rename.target;
            self.namespace.lock().doubt(target.parent, &target.name);
        }
        let Copied {
            original,
            known,
            version,
        } = copied?;
        {
            let mut tree = self.namespace.lock();
            tree.relocate(rename.moved.inode(), &rename.target);
            tree.publish(rename.moved.inode(), known);
            if let Some(file) = moved {
                file.show_moved(&original, version.key, version.etag);
            }
        }
        if let (Some(file), Some(mut stream)) = (replaced, replaced_stream) {
            file.discard(&mut stream).await;
        }
        Ok(())
    }

    async fn copy_and_delete(self: &Arc<Self>, rename: &Rename) -> FsResult<Copied> {
        let copied = self.copy_to_target(rename).await?;
        let source = self.namespace.lock().file_key(rename.moved.inode())?;
        if copied.version.size >= RECHECK_MIN {
            let now = for_writing(self.head(&source).await)?;
            if now.is_some_and(|now| now.etag != copied.original) {
                return Err(CHANGED);
            }
        }
        for_writing(self.store().delete(&source).await)?;
        Ok(copied)
    }

    /// Copies the object as it is known, or as it is now if it was changed meanwhile.
    async fn copy_to_target(self: &Arc<Self>, rename: &Rename) -> FsResult<Copied> {
        let target = {
            let prefix = self.namespace.lock().prefix(rename.target.parent)?;
            key::file_key(&prefix, &rename.target.name)?
        };
        let condition = match rename.mode {
            RenameMode::NoReplace => self.if_absent(),
            RenameMode::Replace | RenameMode::Exchange => WriteCondition::Always,
        };
        let begun = clock::now();
        let mut original = self.original(rename)?;
        let mut stored = self
            .copy_object(&original, &target, condition.clone())
            .await;
        if let Err(error) = &stored
            && matches!(
                error.kind,
                ErrorKind::PreconditionFailed | ErrorKind::NotFound
            )
        {
            self.refresh(rename.moved.inode())
                .await
                .map_err(|error| match error {
                    FsError::Stale => FsError::NotFound,
                    error => error,
                })?;
            original = self.original(rename)?;
            stored = self.copy_object(&original, &target, condition).await;
        }
        let etag = for_writing(stored)?.etag;
        let is_link = original.kind == ObjectKind::Symlink;
        let known = Known {
            kind: if is_link {
                self.kind_of(original.kind)
            } else {
                FileKind::Regular
            },
            object: if is_link {
                ObjectKind::Symlink
            } else {
                ObjectKind::Normal
            },
            size: original.size,
            modified: Some(clock::wall_time()),
            etag: Some(etag.clone()),
            until: self.believed_until(begun),
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

    fn original(&self, rename: &Rename) -> FsResult<Original> {
        let tree = self.namespace.lock();
        let inode = rename.moved.inode();
        let known = tree.node(inode)?.known.as_ref().ok_or(FsError::Stale)?;
        Ok(Original {
            key: tree.file_key(inode)?,
            size: known.size,
            etag: known.etag.clone(),
            kind: known.object,
        })
    }
}

/// Locks the write streams of two files in the order of their inodes.
async fn lock_both<'file>(
    moved: Option<&'file OpenFile>,
    replaced: Option<&'file OpenFile>,
) -> (StreamGuard<'file>, StreamGuard<'file>) {
    let (Some(one), Some(other)) = (moved, replaced) else {
        return (lock(moved).await, lock(replaced).await);
    };
    if one.inode < other.inode {
        let first = lock(moved).await;
        (first, lock(replaced).await)
    } else {
        let first = lock(replaced).await;
        (lock(moved).await, first)
    }
}

async fn lock(file: Option<&OpenFile>) -> StreamGuard<'_> {
    match file {
        Some(file) => Some(file.stream().await),
        None => None,
    }
}
