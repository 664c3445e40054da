//! Metadata of saved files that the store gets later; see [`crate::write_back`].

use std::sync::Arc;

use penstock_base::{FsResult, clock};
use penstock_object::{ETag, Key, ObjectKind};
use penstock_transfer::ObjectVersion;
use penstock_vfs::{FileKind, Inode};

use crate::{
    inode::{Dentry, Known, Node},
    metadata::Metadata,
    mount::Mount,
    open_file::OpenFile,
    posix::KeptMetadata,
    write_back::Wait,
};

/// How often a change waits for one of the same file that is under way.
const ATTEMPTS_MAX: usize = 2;

impl Metadata {
    /// Describes the object of a saved file anew, so that the store gets that later. Returns whether it does: if not, it
    /// must get it at once, and nothing waits for the key.
    pub(super) async fn describe_saved_behind(
        &self,
        inode: Inode,
        kept: &Arc<KeptMetadata>,
    ) -> FsResult<bool> {
        let Some(write_back) = self.mount.write_back() else {
            return Ok(false);
        };
        for _ in 0..ATTEMPTS_MAX {
            let (key, version) = {
                let tree = self.mount.namespace.lock();
                (
                    tree.file_key(inode)?,
                    self.copied_version(tree.node(inode)?),
                )
            };
            if let Some(etag) = version {
                let described = (etag, kept.description());
                if write_back.describe_version(&key, described).await == Wait::Noted {
                    self.show_described(inode, kept)?;
                    return Ok(true);
                }
            }
            if !write_back.has(&key) {
                return Ok(false);
            }
            // It was begun, and its copy may be another version.
            write_back.settle(&key).await?;
        }
        Ok(false)
    }

    /// The version of a file whose object is copied onto itself in one request.
    fn copied_version(&self, node: &Node) -> Option<ETag> {
        let known = node.known.as_ref()?;
        let is_copied = node.kind != FileKind::Directory
            && !node.is_unsaved()
            && known.object == ObjectKind::Normal
            && known.size <= self.mount.store().capabilities().copy_size_max;
        let etag = known.etag.clone().filter(|etag| !etag.as_str().is_empty());
        etag.filter(|_| is_copied)
    }

    fn show_described(&self, inode: Inode, kept: &Arc<KeptMetadata>) -> FsResult<()> {
        let mut tree = self.mount.namespace.lock();
        let node = tree.node_mut(inode)?;
        node.note_described(kept);
        if let Some(mut known) = node.known.clone() {
            known.kept = Some(Arc::clone(kept));
            tree.publish(inode, known);
        }
        Ok(())
    }
}

impl Mount {
    /// Shows that the store has the version `original` of a file as `copy` now, described anew.
    pub(crate) fn follow_description(&self, key: &Key, original: &ETag, copy: &ETag) {
        let mut tree = self.namespace.lock();
        let Some(place) = tree.place_in_memory(key) else {
            return;
        };
        let entry = tree.directory_mut(place.parent).ok();
        let entry = entry.and_then(|directory| directory.entries.get_mut(&place.name));
        let held = match entry {
            Some(Dentry::Remembered(known)) => {
                known.follow_copy(original, copy);
                None
            }
            entry => entry.as_deref().and_then(Dentry::held),
        };
        let Some(node) = held.and_then(|inode| tree.node_mut(inode).ok()) else {
            return;
        };
        let size = match &mut node.known {
            Some(known) => known.follow_copy(original, copy),
            None => None,
        };
        let file = node.file.clone();
        if copy == original {
            return;
        }
        node.follow_pages(original, copy);
        if let Some(file) = &file {
            file.show_moved(original, key.clone(), copy.clone());
        }
        drop(tree);
        self.follow_staged(key, (original, copy), size);
        file.iter().for_each(|file| OpenFile::renew_journal(file));
    }

    fn follow_staged(&self, key: &Key, (original, copy): (&ETag, &ETag), size: Option<u64>) {
        let Some(size) = size else { return };
        let version = |etag: &ETag| ObjectVersion {
            key: key.clone(),
            etag: etag.clone(),
            size,
        };
        self.mode.follow_left(&version(original), &version(copy));
    }
}

impl Known {
    /// The store has this version as `copy` now, since a time that it did not tell. Returns the size, if it is this
    /// version.
    fn follow_copy(&mut self, original: &ETag, copy: &ETag) -> Option<u64> {
        if self.etag.as_ref() != Some(original) {
            return None;
        }
        self.etag = Some(copy.clone());
        self.stored = None;
        self.modified = Some(clock::wall_time());
        Some(self.size)
    }
}
