//! The objects that mark directories, and what they say.

use std::sync::Arc;

use penstock_base::{FsError, FsResult, Payload, clock};
use penstock_object::{Description, Key};
use penstock_transfer::staging::Removal;
use penstock_vfs::{FileKind, Inode, Owner};

use crate::{
    errors::for_writing,
    inode::{Known, OldMarker},
    key,
    metadata::Metadata,
    metadata::asking::old_folder,
    posix::{DIRECTORY_TYPE, KeptMetadata, options_of},
};

impl Metadata {
    /// What a new directory says of itself; nothing if metadata is not kept.
    pub(crate) fn new_directory(
        &self,
        parent: Inode,
        owner: Owner,
        permissions: u16,
    ) -> Option<KeptMetadata> {
        if !self.mount.keeps_metadata() {
            return None;
        }
        let tree = self.mount.namespace.lock();
        let parent = tree.node(parent).ok()?;
        let mut posix =
            self.mount
                .new_attributes(FileKind::Directory, (owner, permissions), parent);
        let now = Some(clock::wall_time());
        (posix.modified, posix.accessed, posix.changed) = (now, now, now);
        Some(KeptMetadata {
            posix,
            ..KeptMetadata::default()
        })
    }

    /// Writes the object that marks a directory anew, in the common form, and removes the one that
    /// marked it in another.
    pub(super) async fn mark_directory(
        &self,
        inode: Inode,
        kept: Arc<KeptMetadata>,
    ) -> FsResult<()> {
        let (prefix, known) = {
            let tree = self.mount.namespace.lock();
            (tree.prefix(inode)?, tree.node(inode)?.known.clone())
        };
        let begun = clock::now();
        let description = Description {
            content_type: Some(DIRECTORY_TYPE.to_owned()),
            metadata: kept.metadata(),
        };
        let key = key::marker_key(&prefix)?;
        if !self
            .describe_behind(inode, &key, description.clone())
            .await?
        {
            self.mount.settle(&key).await?;
            let options = options_of(description);
            for_writing(self.mount.store().put(&key, Payload::new(), options).await)?;
        }
        let old = known.as_ref().and_then(|known| known.old_marker);
        if let Some(old) = old_key(&prefix, old)? {
            // Not before its successor is there.
            self.mount.settle(&key).await?;
            let key = old;
            for_writing(self.mount.store().delete(&key).await)?;
        }
        let until = self.mount.believed_until(begun);
        let mut tree = self.mount.namespace.lock();
        let known = Known {
            kept: Some(kept),
            until,
            ..Known::directory(until)
        };
        tree.node_mut(inode)?.clear_times();
        tree.directory_mut(inode)?.marker = Some(true);
        tree.publish(inode, known);
        Ok(())
    }

    /// Gives a directory that an object of another form marks the common one, so that it can be
    /// renamed like any other.
    pub(crate) async fn modernize(&self, inode: Inode) -> FsResult<()> {
        let kept = {
            let tree = self.mount.namespace.lock();
            let node = tree.node(inode)?;
            let old = node.known.as_ref().and_then(|known| known.old_marker);
            old.and_then(|_| node.kept().cloned())
        };
        match kept {
            Some(kept) => self.mark_directory(inode, kept).await,
            None => Ok(()),
        }
    }

    /// Objects beside `dir/` that mark the directory `dir`, or may.
    pub(crate) fn old_markers(&self, inode: Inode) -> FsResult<Vec<Key>> {
        if !self.mount.keeps_metadata() || !self.mount.settings.metadata.old_directories {
            return Ok(Vec::new());
        }
        let tree = self.mount.namespace.lock();
        let prefix = tree.prefix(inode)?;
        let known = tree.node(inode)?.known.as_ref();
        let old = known.and_then(|known| known.old_marker);
        let plain = old.filter(|old| *old == OldMarker::Plain);
        let keys = [Some(OldMarker::Folder), plain].map(|old| old_key(&prefix, old));
        // A name that is too long for the marker has none.
        Ok(keys.into_iter().filter_map(|key| key.ok()?).collect())
    }

    /// Removes objects that mark a directory besides the usual one.
    pub(crate) async fn delete_old_markers(&self, markers: &[Key]) -> FsResult<()> {
        let mut left = Vec::new();
        for marker in markers {
            if !self.mount.removes_behind(marker, Removal::default()).await {
                left.push(marker.clone());
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        let failures = for_writing(self.mount.store().delete_many(&left).await)?;
        match failures.first() {
            None => Ok(()),
            Some(failure) => Err(FsError::Io(format!(
                "`{}` still marks the directory: {} {}",
                failure.key, failure.code, failure.message
            ))),
        }
    }
}

/// The key of an old marker of the directory `prefix`.
fn old_key(prefix: &str, old: Option<OldMarker>) -> FsResult<Option<Key>> {
    let plain = prefix.trim_end_matches('/');
    match old {
        None => Ok(None),
        Some(OldMarker::Plain) => key::checked_key(plain).map(Some),
        Some(OldMarker::Folder) => {
            let name = plain.rsplit('/').next().unwrap_or(plain);
            let name = penstock_base::Utf8Name::new(name).map_err(|_| FsError::NameTooLong)?;
            let parent = &plain[..plain.len() - name.as_str().len()];
            key::file_key(parent, &old_folder(&name)?).map(Some)
        }
    }
}
