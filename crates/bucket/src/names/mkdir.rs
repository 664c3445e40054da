//! Making directories, and keeping them when they become empty.

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::{FsError, FsResult, Payload, Utf8Name, clock};
use penstock_object::{Description, ObjectError};
use penstock_vfs::{Entry, FileKind, Inode};

use crate::{
    errors::{Purpose, for_writing, object_failure},
    inode::{Known, Place, Reference},
    key,
    metadata::Metadata,
    mount::run_to_end,
    names::{Names, behind::SmallFile},
    posix::{DIRECTORY_TYPE, KeptMetadata, options_of},
};

impl Names {
    /// Makes a directory by writing the object that marks it.
    pub(crate) async fn make_directory(
        self: &Arc<Self>,
        parent: Inode,
        name: &Utf8Name,
        kept: Option<KeptMetadata>,
    ) -> FsResult<Entry> {
        self.mount.check_writable()?;
        let (this, name) = (Arc::clone(self), name.clone());
        let made = run_to_end(async move { this.make_directory_now(parent, &name, kept).await });
        self.mount.given_away(made.await?)
    }

    async fn make_directory_now(
        self: &Arc<Self>,
        parent: Inode,
        name: &Utf8Name,
        kept: Option<KeptMetadata>,
    ) -> FsResult<Reference> {
        let _entered = self.mount.namespace.enter(&[parent]).await?;
        self.lookups.check_free(parent, name).await?;
        let prefix = self.mount.namespace.lock().prefix(parent)?;
        let prefix = key::directory_prefix(&prefix, name);
        let new = SmallFile {
            kind: FileKind::Directory,
            key: key::marker_key(&prefix)?,
            body: Bytes::new(),
            description: marker_description(kept.as_ref()),
            kept: kept.clone(),
        };
        if let Some(made) = self.make_behind((parent, name), new).await? {
            return Ok(made);
        }
        let place = Place {
            parent,
            name: name.clone(),
        };
        let (change, begun) = (self.mount.namespace.begin_change(place), clock::now());
        self.mount.settle(&key::marker_key(&prefix)?).await?;
        for_writing(self.metadata.write_marker(&prefix, kept.as_ref()).await)?;
        let until = self.mount.believed_until(begun);
        let mut tree = self.mount.namespace.lock();
        // Somebody else may have made it in the same moment.
        if tree.directory(parent)?.entries.contains_key(name) {
            return Err(FsError::AlreadyExists);
        }
        let known = Some(Known {
            kept: kept.map(Arc::new),
            ..Known::directory(until)
        });
        let inode = tree.link((parent, name), FileKind::Directory, known);
        let directory = tree.directory_mut(inode)?;
        directory.marker = Some(true);
        directory.complete_until = Some(self.mount.complete_until(begun));
        drop(tree);
        change.end();
        Ok(Reference::adopt(&self.mount.namespace, inode))
    }
}

/// How the object is described that marks a directory.
fn marker_description(kept: Option<&KeptMetadata>) -> Description {
    Description {
        content_type: Some(DIRECTORY_TYPE.to_owned()),
        metadata: kept.map(KeptMetadata::metadata).unwrap_or_default(),
    }
}

impl Metadata {
    /// Writes the object that marks the directory `prefix`.
    async fn write_marker(
        &self,
        prefix: &str,
        kept: Option<&KeptMetadata>,
    ) -> Result<(), ObjectError> {
        let Ok(key) = key::marker_key(prefix) else {
            return Ok(());
        };
        let options = options_of(marker_description(kept));
        self.mount
            .store()
            .put(&key, Payload::new(), options)
            .await
            .map(drop)
    }

    /// Keeps a directory visible after its last entry was taken away: one that no object marks
    /// would vanish with it. Asks the store only when memory cannot tell that others are left.
    pub(crate) async fn keep_directory(&self, directory: Inode) {
        let Some(prefix) = self.directory_at_risk(directory) else {
            return;
        };
        let kept = async {
            let known_empty = {
                let tree = self.mount.namespace.lock();
                tree.directory(directory)
                    .is_ok_and(crate::inode::Directory::is_known_empty)
            };
            let below = if known_empty {
                None
            } else {
                self.mount.first_below(&prefix).await?
            };
            if below.is_none() {
                self.write_lost_marker(directory, &prefix).await?;
            }
            Ok(below.is_none_or(|below| below.marker))
        };
        match kept.await {
            Ok(marker) => self.mount.note_marker(directory, marker),
            Err(error) => {
                let error = object_failure(&error, Purpose::Write);
                tracing::warn!("the directory `{prefix}` may vanish from the bucket: {error}");
            }
        }
    }

    /// Marks a directory that nothing else keeps, now or behind.
    async fn write_lost_marker(&self, directory: Inode, prefix: &str) -> Result<(), ObjectError> {
        let Ok(key) = key::marker_key(prefix) else {
            return Ok(());
        };
        let behind = self.describe_behind(directory, &key, marker_description(None));
        match behind.await {
            Ok(true) => Ok(()),
            _ => self.write_marker(prefix, None).await,
        }
    }

    /// The prefix of a directory that may be empty now and that no object is known to mark.
    fn directory_at_risk(&self, inode: Inode) -> Option<String> {
        let tree = self.mount.namespace.lock();
        let directory = tree.directory(inode).ok()?;
        let others = directory
            .entries
            .values()
            .any(|entry| tree.is_in_store(entry));
        let safe = inode == Inode::ROOT || directory.marker == Some(true) || others;
        if safe { None } else { tree.prefix(inode).ok() }
    }
}
