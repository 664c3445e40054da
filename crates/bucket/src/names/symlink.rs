//! The store's native symbolic links.
//!
//! Such a link names another object of the same bucket. A relative path becomes the key that it
//! leads to; reading the link gives the shortest relative path back, so both ends may be moved
//! together but a link that is moved alone still leads to the same object.

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::{FsError, FsResult, Utf8Name, clock};
use penstock_object::{ObjectKind, PutOptions, WriteCondition};
use penstock_vfs::{Entry, FileKind, Inode, Owner};

use crate::{
    errors::{for_reading, for_writing},
    inode::{Known, Place, Reference},
    key,
    mount::run_to_end,
    names::Names,
};

impl Names {
    /// The relative path that a link holds.
    pub(crate) async fn read_symlink(self: &Arc<Self>, inode: Inode) -> FsResult<Bytes> {
        if let Some(target) = self.read_kept_link(inode).await? {
            return Ok(target);
        }
        let (key, prefix) = {
            let tree = self.mount.namespace.lock();
            let node = tree.node(inode)?;
            if node.kind != FileKind::Symlink {
                return Err(FsError::InvalidArgument("not a symbolic link"));
            }
            let place = node.place.as_ref().ok_or(FsError::Stale)?;
            (tree.file_key(inode)?, tree.prefix(place.parent)?)
        };
        let target = for_reading(self.mount.store().get_symlink(&key).await)?;
        Ok(key::relative_path(&prefix, target.as_str()).into())
    }

    /// Makes a link to another object of the volume.
    pub(crate) async fn make_symlink(
        self: &Arc<Self>,
        (parent, name): (Inode, &Utf8Name),
        (target, owner): (&[u8], Owner),
    ) -> FsResult<Entry> {
        self.mount.check_writable()?;
        let target = std::str::from_utf8(target)
            .map_err(|_| FsError::InvalidArgument("the target of a link must be UTF-8"))?;
        let (this, name, target) = (Arc::clone(self), name.clone(), target.to_owned());
        if self.mount.keeps_metadata() {
            let made = run_to_end(async move {
                let link = (target.as_str(), owner);
                this.make_kept_link((parent, &name), link).await
            });
            return self.mount.given_away(made.await?);
        }
        if !self.mount.store().capabilities().symlinks || !self.mount.settings.symlinks {
            return Err(FsError::Unsupported(
                "this store or mount has no symbolic links",
            ));
        }
        let made = run_to_end(async move { this.make_symlink_now((parent, &name), &target).await });
        self.mount.given_away(made.await?)
    }

    async fn make_symlink_now(
        self: &Arc<Self>,
        (parent, name): (Inode, &Utf8Name),
        target: &str,
    ) -> FsResult<Reference> {
        let _entered = self.mount.namespace.enter(&[parent]).await?;
        self.lookups.check_free(parent, name).await?;
        let prefix = self.mount.namespace.lock().prefix(parent)?;
        let key = key::file_key(&prefix, name)?;
        let followed = key::followed_path(&prefix, target).ok_or(FsError::InvalidArgument(
            "a link must lead to a file of this mount by a relative path",
        ))?;
        let target = key::checked_key(followed)?;
        let place = Place {
            parent,
            name: name.clone(),
        };
        let (change, begun) = (self.mount.namespace.begin_change(place), clock::now());
        self.mount.settle(&key).await?;
        let stored = self
            .mount
            .store()
            .put_symlink(
                &key,
                &target,
                PutOptions {
                    condition: WriteCondition::IfAbsent,
                    ..PutOptions::default()
                },
            )
            .await;
        let stored = for_writing(stored)?;
        let known = Known {
            kind: FileKind::Symlink,
            object: ObjectKind::Symlink,
            size: 0,
            modified: Some(clock::wall_time()),
            stored: None,
            etag: Some(stored.etag),
            until: self.mount.believed_until(begun),
            kept: None,
            old_marker: None,
        };
        let inode =
            self.mount
                .namespace
                .lock()
                .link((parent, name), FileKind::Symlink, Some(known));
        change.end();
        Ok(Reference::adopt(&self.mount.namespace, inode))
    }
}
