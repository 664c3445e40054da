//! Symbolic links as objects of their own: the target is the object's body, or stands in its
//! metadata. Any target will do, as on a disk.

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::{FsError, FsResult, Payload, Utf8Name};
use penstock_object::{GetOptions, ObjectKind};
use penstock_vfs::{FileKind, Inode, Owner};

use crate::{
    errors::for_reading,
    inode::Reference,
    names::Names,
    posix::{KeptMetadata, LINK_TYPE, LinkTarget},
};

/// Permission bits of a link, which nobody checks (symlink(7)).
const LINK_PERMISSIONS: u16 = 0o777;
/// Bytes in the longest target, as the kernel has it.
const TARGET_MAX: usize = 4095;

impl Names {
    /// Makes a link whose target is kept as it is.
    pub(crate) async fn make_kept_link(
        self: &Arc<Self>,
        (parent, name): (Inode, &Utf8Name),
        (target, owner): (&str, Owner),
    ) -> FsResult<Reference> {
        if target.len() > TARGET_MAX {
            return Err(FsError::NameTooLong);
        }
        let kept = self.new_link(parent, target, owner)?;
        let body = match kept.posix.link {
            Some(LinkTarget::Header(_)) => Payload::new(),
            Some(LinkTarget::Body) | None => Payload::from(target.as_bytes().to_vec()),
        };
        let link = (FileKind::Symlink, kept, body);
        self.store_new((parent, name), link).await
    }

    fn new_link(&self, parent: Inode, target: &str, owner: Owner) -> FsResult<KeptMetadata> {
        let new = (owner, LINK_PERMISSIONS);
        let mut posix = self.new_object(FileKind::Symlink, new, parent)?;
        if self.mount.settings.metadata.symlink_in_meta {
            posix.link = Some(LinkTarget::new(target));
        }
        Ok(KeptMetadata {
            posix,
            content_type: LINK_TYPE.to_owned(),
            ..KeptMetadata::default()
        })
    }

    /// The target of a link that is an object of its own; `None` if it is one of the store's.
    pub(crate) async fn read_kept_link(self: &Arc<Self>, inode: Inode) -> FsResult<Option<Bytes>> {
        if !self.mount.keeps_metadata() {
            return Ok(None);
        }
        self.lookups.know_metadata(inode).await?;
        let (key, link) = {
            let tree = self.mount.namespace.lock();
            let node = tree.node(inode)?;
            let known = node.known.as_ref().ok_or(FsError::Stale)?;
            if known.object == ObjectKind::Symlink || known.kind != FileKind::Symlink {
                return Ok(None);
            }
            let link = known.kept.as_ref().and_then(|kept| kept.posix.link.clone());
            (tree.file_key(inode)?, link)
        };
        if let Some(LinkTarget::Header(target)) = link {
            return Ok(Some(target.into()));
        }
        let waiting = self
            .mount
            .write_back()
            .and_then(|names| names.waiting_write(&key));
        if let Some(object) = waiting {
            return Ok(Some(object.body));
        }
        let mut body = Vec::new();
        let options = GetOptions {
            range: Some(0..TARGET_MAX as u64),
            ..GetOptions::default()
        };
        for_reading(self.mount.store().get(&key, options, &mut body).await)?;
        Ok(Some(body.into()))
    }
}
