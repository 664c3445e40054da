//! New files whose object is written at once: links, pipes, sockets and devices.

use std::sync::Arc;

use penstock_base::{FsResult, Payload, Utf8Name, clock};
use penstock_object::{ObjectKind, PutOptions, WriteCondition};
use penstock_vfs::{FileKind, Inode, Owner};

use crate::{
    errors::for_writing,
    inode::{Known, Place, Reference},
    key,
    names::{Names, behind::SmallFile},
    posix::{KeptMetadata, PosixAttributes},
};

impl Names {
    /// What such a file says of itself.
    pub(crate) fn new_object(
        &self,
        kind: FileKind,
        new: (Owner, u16),
        parent: Inode,
    ) -> FsResult<PosixAttributes> {
        let tree = self.mount.namespace.lock();
        let now = Some(clock::wall_time());
        Ok(PosixAttributes {
            modified: now,
            accessed: now,
            changed: now,
            ..self.mount.new_attributes(kind, new, tree.node(parent)?)
        })
    }

    /// Writes the object of a file that must not exist yet.
    pub(crate) async fn store_new(
        self: &Arc<Self>,
        (parent, name): (Inode, &Utf8Name),
        (kind, kept, body): (FileKind, KeptMetadata, Payload),
    ) -> FsResult<Reference> {
        let _entered = self.mount.namespace.enter(&[parent]).await?;
        self.lookups.check_free(parent, name).await?;
        let prefix = self.mount.namespace.lock().prefix(parent)?;
        let key = key::file_key(&prefix, name)?;
        let size = body.len() as u64;
        let new = SmallFile {
            kind,
            key: key.clone(),
            body: body.to_vec().into(),
            description: kept.description(),
            kept: Some(kept.clone()),
        };
        if let Some(made) = self.make_behind((parent, name), new).await? {
            return Ok(made);
        }
        let options = PutOptions {
            content_type: kept.content_type(),
            metadata: kept.metadata(),
            condition: WriteCondition::IfAbsent,
        };
        let place = Place {
            parent,
            name: name.clone(),
        };
        let (change, begun) = (self.mount.namespace.begin_change(place), clock::now());
        self.mount.settle(&key).await?;
        let stored = for_writing(self.mount.store().put(&key, body, options).await)?;
        let known = Known {
            kind,
            object: ObjectKind::Normal,
            size,
            modified: Some(clock::wall_time()),
            stored: None,
            etag: Some(stored.etag),
            until: self.mount.believed_until(begun),
            kept: Some(Arc::new(kept)),
            old_marker: None,
        };
        let mut tree = self.mount.namespace.lock();
        let inode = tree.link((parent, name), kind, Some(known));
        drop(tree);
        change.end();
        Ok(Reference::adopt(&self.mount.namespace, inode))
    }
}
