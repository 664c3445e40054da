//! Making and removing names that the store gets later.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use penstock_base::{FsError, FsResult, Utf8Name, clock};
use penstock_object::{Description, Key, ObjectKind};
use penstock_transfer::staging::{Removal, SmallObject};
use penstock_vfs::{FileKind, Inode};

use crate::{
    errors::for_writing,
    inode::{Known, Reference},
    metadata::Metadata,
    mount::Mount,
    names::Names,
    posix::KeptMetadata,
    write_back::{Late, Wait, Which},
};

/// Something new that is one small object.
pub(super) struct SmallFile {
    pub(super) kind: FileKind,
    pub(super) key: Key,
    pub(super) body: Bytes,
    pub(super) description: Description,
    pub(super) kept: Option<KeptMetadata>,
}

impl Names {
    /// Makes something under a name that is free, which the store gets later. `None` if it must get it at once.
    pub(super) async fn make_behind(
        self: &Arc<Self>,
        (parent, name): (Inode, &Utf8Name),
        new: SmallFile,
    ) -> FsResult<Option<Reference>> {
        let Some(write_back) = self.mount.write_back().filter(|names| names.takes()) else {
            return Ok(None);
        };
        // Or two that make one name would describe one object.
        let _alone = self.metadata.metadata_locks.lock(&[parent]).await;
        let made = self.show_new((parent, name), &new)?;
        let object = SmallObject {
            body: new.body,
            description: new.description,
            is_new: true,
        };
        let held = self.mount.namespace.hold_again(made.inode())?;
        match write_back.write(&new.key, object, held).await {
            Wait::Noted => Ok(Some(made)),
            Wait::Refused => {
                let mut tree = self.mount.namespace.lock();
                if let Ok(node) = tree.node_mut(made.inode()) {
                    node.late = None;
                }
                tree.unlink(parent, name);
                Ok(None)
            }
        }
    }

    fn show_new(&self, (parent, name): (Inode, &Utf8Name), new: &SmallFile) -> FsResult<Reference> {
        let now = clock::now();
        let until = self.mount.believed_until(now);
        let mut tree = self.mount.namespace.lock();
        // Somebody else may have made it in the same moment.
        if tree.directory(parent)?.entries.contains_key(name) {
            return Err(FsError::AlreadyExists);
        }
        let known = Known {
            kind: new.kind,
            size: new.body.len() as u64,
            modified: Some(clock::wall_time()).filter(|_| new.kind != FileKind::Directory),
            kept: new.kept.clone().map(Arc::new),
            ..Known::directory(until)
        };
        let inode = tree.link((parent, name), new.kind, Some(known));
        tree.node_mut(inode)?.late = Some(Late::New);
        if let Ok(directory) = tree.directory_mut(inode) {
            directory.marker = Some(true);
            directory.complete_until = Some(self.mount.complete_until(now));
        }
        drop(tree);
        Ok(Reference::adopt(&self.mount.namespace, inode))
    }
}

impl Metadata {
    /// Describes a node whose object is written as a whole, so that the store gets that later. Returns whether it
    /// does: if not, it must get it at once.
    pub(crate) async fn describe_behind(
        &self,
        inode: Inode,
        key: &Key,
        description: Description,
    ) -> FsResult<bool> {
        let Some(write_back) = self.mount.write_back().filter(|names| names.takes()) else {
            return Ok(false);
        };
        let held = self.mount.namespace.hold_again(inode)?;
        if write_back.describe(key, description, held).await == Wait::Refused {
            return Ok(false);
        }
        let mut tree = self.mount.namespace.lock();
        // It may be in the store by now.
        if write_back.has(key) {
            let node = tree.node_mut(inode)?;
            node.late = node.late.or(Some(Late::Changed));
        }
        Ok(true)
    }
}

impl Known {
    /// The removal of the version that is known.
    pub(crate) fn removal(&self) -> Removal {
        let etag = self.etag.clone();
        let since = |stored: SystemTime| stored.duration_since(SystemTime::UNIX_EPOCH).ok();
        Removal {
            etag: etag.filter(|etag| !etag.as_str().is_empty()),
            stored: self.stored.and_then(since).map(|since| since.as_secs()),
        }
    }
}

impl Mount {
    /// Removes the object of a file, now or behind.
    pub(crate) async fn remove_object(&self, inode: Inode, key: &Key) -> FsResult<()> {
        match self.remove_behind(inode, key).await? {
            true => Ok(()),
            false => self.delete_now(key).await,
        }
    }

    /// Removes an object, after what waits for its key.
    pub(crate) async fn delete_now(&self, key: &Key) -> FsResult<()> {
        self.settle(key).await?;
        for_writing(self.store().delete(key).await)
    }

    async fn remove_behind(&self, inode: Inode, key: &Key) -> FsResult<bool> {
        let Some(write_back) = self.write_back().filter(|names| names.takes()) else {
            return Ok(false);
        };
        if self.namespace.lock().node(inode)?.late.is_some() {
            if write_back.remove(key, Which::Unknown).await == Wait::Noted {
                return Ok(true);
            }
            write_back.settle(key).await?;
        }
        if self.remove_known_behind(inode, key).await? {
            return Ok(true);
        }
        if self.redescribed(key).is_none() {
            return Ok(false);
        }
        // Its copy is another version, unless another client's is there.
        write_back.settle(key).await?;
        self.remove_known_behind(inode, key).await
    }

    async fn remove_known_behind(&self, inode: Inode, key: &Key) -> FsResult<bool> {
        let version = {
            let tree = self.namespace.lock();
            let known = tree.node(inode)?.known.as_ref();
            let known = known.filter(|known| known.object == ObjectKind::Normal);
            known.map(Known::removal)
        };
        match version.filter(|version| version.etag.is_some()) {
            Some(version) => Ok(self.removes_behind(key, version).await),
            None => Ok(false),
        }
    }

    /// Removes an object that is this version, now or behind.
    pub(crate) async fn remove_version(&self, key: &Key, version: Removal) -> FsResult<()> {
        match self.removes_behind(key, version).await {
            true => Ok(()),
            false => self.delete_now(key).await,
        }
    }

    /// Has an object removed behind that is this version. Says whether it is.
    pub(crate) async fn removes_behind(&self, key: &Key, version: Removal) -> bool {
        match self.write_back() {
            Some(write_back) => {
                write_back.remove(key, Which::Version(version)).await == Wait::Noted
            }
            None => false,
        }
    }
}
