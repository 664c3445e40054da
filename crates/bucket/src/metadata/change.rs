//! Changing metadata.
//!
//! A file that holds unsaved content takes the change along. Any other object is copied onto
//! itself with other metadata, if it still is the version that was changed; if not, it is looked
//! at again.

use std::{sync::Arc, time::SystemTime};

use penstock_base::{FsError, FsResult, clock};
use penstock_object::{ETag, ErrorKind, ObjectKind, ObjectResult, Stored, WriteCondition};
use penstock_transfer::ObjectVersion;
use penstock_vfs::{AttributeChanges, FileKind, Inode, TimeChange};

use crate::{
    errors::for_writing,
    inode::Node,
    lookup::Lookups,
    metadata::Metadata,
    mount::run_to_end,
    open_file::{OpenFile, turn_of},
    posix::KeptMetadata,
    rename::Original,
};

/// How often a change is made anew because somebody else changed the object.
const ATTEMPTS_MAX: usize = 3;

/// One change of what is kept.
#[derive(Debug, Clone)]
pub(crate) enum MetadataChange {
    /// Mode, owner and times. The size is not among it.
    Attributes(AttributeChanges),
    SetXattr {
        name: String,
        value: Vec<u8>,
    },
    RemoveXattr {
        name: String,
    },
}

impl MetadataChange {
    fn apply(&self, kind: FileKind, kept: &mut KeptMetadata) {
        let posix = &mut kept.posix;
        match self {
            Self::Attributes(changes) => {
                if changes.uid.is_some() || changes.gid.is_some() {
                    posix.uid = changes.uid.or(posix.uid);
                    posix.gid = changes.gid.or(posix.gid);
                    posix.drop_privileges();
                }
                if let Some(permissions) = changes.permissions {
                    posix.set_permissions(kind, permissions);
                }
                posix.accessed = changes.accessed.map(moment).or(posix.accessed);
                posix.modified = changes.modified.map(moment).or(posix.modified);
            }
            Self::SetXattr { name, value } => {
                posix.xattrs.insert(name.clone(), value.clone());
            }
            Self::RemoveXattr { name } => drop(posix.xattrs.remove(name)),
        }
        posix.changed = Some(moment(TimeChange::Now));
    }
}

impl Metadata {
    /// Changes what is kept of a file, all of `change` or nothing.
    pub(crate) async fn change_metadata(
        self: &Arc<Self>,
        inode: Inode,
        change: MetadataChange,
    ) -> FsResult<()> {
        self.mount.check_writable()?;
        self.mount.check_not_replaced(inode)?;
        if self.take_along(inode, &change).await? {
            return Ok(());
        }
        let this = Arc::clone(self);
        run_to_end(async move { this.change_stored(inode, &change).await }).await
    }

    /// Applies a change to a file that is saved later, or that has no object. Returns whether that
    /// is so.
    async fn take_along(self: &Arc<Self>, inode: Inode, change: &MetadataChange) -> FsResult<bool> {
        let Some(open) = self.change_unsaved(inode, change)? else {
            return Ok(false);
        };
        if let Some(file) = open {
            self.note_description(&file).await;
        }
        Ok(true)
    }

    /// The same, but for the journal of what is open of it, which is returned. `None` if it is no
    /// such file.
    fn change_unsaved(
        &self,
        inode: Inode,
        change: &MetadataChange,
    ) -> FsResult<Option<Option<Arc<OpenFile>>>> {
        let mut tree = self.mount.namespace.lock();
        let node = tree.node(inode)?;
        let unnamed = node.place.is_none() && (inode == Inode::ROOT || node.file.is_some());
        if !unnamed && !node.is_dirty() {
            return Ok(None);
        }
        let changed = self.changed(node, change);
        let node = tree.node_mut(inode)?;
        node.unsaved = Some(Arc::new(changed));
        node.clear_times();
        Ok(Some(node.file.clone()))
    }

    fn changed(&self, node: &Node, change: &MetadataChange) -> KeptMetadata {
        let mut kept = node.kept().map(|kept| KeptMetadata::clone(kept));
        let kept = kept.get_or_insert_default();
        self.fill_in(kept, node.kind);
        if !node.is_dirty() {
            // It would be the time of the change otherwise.
            kept.posix.modified = Some(self.shown_modified(node, kept));
        }
        change.apply(node.kind, kept);
        std::mem::take(kept)
    }

    /// The time of a file whose object the store has, as it is shown.
    fn shown_modified(&self, node: &Node, kept: &KeptMetadata) -> SystemTime {
        let stored = node.known.as_ref().and_then(|known| known.modified);
        let shown = node.times().modified.or(kept.posix.modified).or(stored);
        shown.unwrap_or(self.mount.mounted)
    }

    async fn change_stored(
        self: &Arc<Self>,
        inode: Inode,
        change: &MetadataChange,
    ) -> FsResult<()> {
        let _entered = self.mount.namespace.enter(&[inode]).await?;
        let _alone = self.metadata_locks.lock(&[inode]).await;
        let file = self.mount.open_file(inode);
        let mut turn = turn_of(file.as_deref()).await;
        if self.take_along(inode, change).await? {
            return Ok(());
        }
        if let Some(turn) = &mut turn {
            turn.discard_untouched().await;
        }
        let mut attempt = 1;
        loop {
            self.lookups.know_metadata(inode).await?;
            let kept = {
                let tree = self.mount.namespace.lock();
                self.changed(tree.node(inode)?, change)
            };
            match self.store_metadata(inode, Arc::new(kept)).await {
                Err(FsError::Busy(_) | FsError::NotFound) if attempt < ATTEMPTS_MAX => {
                    self.lookups.refresh(inode).await?;
                    attempt += 1;
                }
                Ok(()) => {
                    // Who wrote meanwhile would save it again as it was before.
                    self.take_along(inode, change).await?;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Stores metadata of an object without its content.
    pub(super) async fn store_metadata(
        &self,
        inode: Inode,
        kept: Arc<KeptMetadata>,
    ) -> FsResult<()> {
        let kind = self.mount.namespace.lock().node(inode)?.kind;
        if kind == FileKind::Directory {
            return self.mark_directory(inode, kept).await;
        }
        if self.describe_late(inode, &kept).await? {
            return Ok(());
        }
        if self.describe_saved_behind(inode, &kept).await? {
            return Ok(());
        }
        let (original, mut known) = {
            let tree = self.mount.namespace.lock();
            let known = tree.node(inode)?.known.clone().ok_or(FsError::Stale)?;
            (Original::of(&tree, inode)?, known)
        };
        let (change, begun) = (self.mount.namespace.begin_change_of(inode)?, clock::now());
        let stored = for_writing(self.describe_anew(&original, &kept).await)?;
        known.etag = Some(stored.etag.clone());
        known.modified = Some(clock::wall_time());
        known.stored = None;
        known.until = self.mount.believed_until(begun);
        known.kept = Some(Arc::clone(&kept));
        if let Some(etag) = &original.etag {
            let version = |etag: &ETag| ObjectVersion {
                key: original.key.clone(),
                etag: etag.clone(),
                size: known.size,
            };
            self.mount
                .mode
                .follow_left(&version(etag), &version(&stored.etag));
        }
        let mut tree = self.mount.namespace.lock();
        let node = tree.node_mut(inode)?;
        node.note_described(&kept);
        let file = node.file.clone();
        if let Some(etag) = &original.etag {
            node.follow_pages(etag, &stored.etag);
        }
        if let (Some(file), Some(etag)) = (&file, &original.etag) {
            file.show_moved(etag, original.key.clone(), stored.etag);
        }
        tree.publish(inode, known);
        drop(tree);
        change.end();
        if let Some(file) = file {
            file.renew_journal();
        }
        Ok(())
    }

    /// Describes a link anew that waits to be written. Says whether one does.
    async fn describe_late(&self, inode: Inode, kept: &Arc<KeptMetadata>) -> FsResult<bool> {
        let key = {
            let tree = self.mount.namespace.lock();
            if tree.node(inode)?.late.is_none() {
                return Ok(false);
            }
            tree.file_key(inode)?
        };
        if !self
            .describe_behind(inode, &key, kept.description())
            .await?
        {
            self.mount.settle(&key).await?;
            return Ok(false);
        }
        let mut tree = self.mount.namespace.lock();
        let node = tree.node_mut(inode)?;
        node.clear_times();
        node.unsaved = None;
        if let Some(known) = &mut node.known {
            known.kept = Some(Arc::clone(kept));
        }
        Ok(true)
    }

    async fn describe_anew(
        &self,
        original: &Original,
        kept: &KeptMetadata,
    ) -> ObjectResult<Stored> {
        let description = kept.description();
        let target = &original.key;
        // The copy itself is of this version only; one in parts takes long enough to look again.
        let condition = match &original.etag {
            Some(etag) if original.kind != ObjectKind::Symlink => {
                WriteCondition::IfMatch(etag.clone())
            }
            _ => WriteCondition::Always,
        };
        let how = (condition, Some(&description));
        let copied = self.mount.copy_object_as(original, target, how).await;
        copied.map_err(|mut error| {
            // Somebody replaced or removed it, which is no failure of this change yet.
            if error.kind == ErrorKind::NotFound {
                error.kind = ErrorKind::PreconditionFailed;
            }
            error
        })
    }
}

impl Lookups {
    /// Makes sure that the metadata of a file is known and not too old.
    pub(crate) async fn know_metadata(self: &Arc<Self>, inode: Inode) -> FsResult<()> {
        let ask = {
            let tree = self.mount.namespace.lock();
            let node = tree.node(inode)?;
            let has_object = node.place.is_some() && !node.is_dirty();
            has_object && (node.kept().is_none() || !node.is_current(clock::now()))
        };
        if ask {
            self.refresh(inode).await
        } else {
            Ok(())
        }
    }
}

/// When a time stamp is set to.
pub(crate) fn moment(change: TimeChange) -> std::time::SystemTime {
    match change {
        TimeChange::Now => clock::wall_time(),
        TimeChange::To(time) => time,
    }
}
