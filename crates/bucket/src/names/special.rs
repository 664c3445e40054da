//! Pipes, sockets and devices: empty objects whose mode says what they are, as ossfs and s3fs
//! write them. What goes through a pipe or a socket never comes here, the kernel passes it on; so
//! programs of one mount meet there, and those of different mounts do not.

use std::sync::Arc;

use penstock_base::{FsError, FsResult, Payload, Utf8Name};
use penstock_vfs::{Entry, FileKind, Inode, Owner, SpecialFile};

use crate::{
    mount::run_to_end,
    names::Names,
    posix::{KeptMetadata, LINK_TYPE},
};

impl Names {
    /// Makes a pipe, a socket or a device, if metadata is kept.
    pub(crate) async fn make_special(
        self: &Arc<Self>,
        (parent, name): (Inode, &Utf8Name),
        owner: Owner,
        (special, permissions): (SpecialFile, u16),
    ) -> FsResult<Entry> {
        self.mount.check_writable()?;
        if !self.mount.keeps_metadata() {
            return Err(FsError::NotPermitted(
                "pipes, sockets and devices need posix_metadata",
            ));
        }
        let kind = FileKind::Special(special);
        let mut posix = self.new_object(kind, (owner, permissions), parent)?;
        posix.device = match special {
            SpecialFile::CharacterDevice(device) | SpecialFile::BlockDevice(device) => Some(device),
            SpecialFile::Pipe | SpecialFile::Socket => None,
        };
        let kept = KeptMetadata {
            posix,
            content_type: LINK_TYPE.to_owned(),
            ..KeptMetadata::default()
        };
        let (this, name) = (Arc::clone(self), name.clone());
        let made = run_to_end(async move {
            let new = (kind, kept, Payload::new());
            this.store_new((parent, &name), new).await
        });
        self.mount.given_away(made.await?)
    }
}
