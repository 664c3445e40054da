//! Extended attributes.
//!
//! All of them stand in one header, which a store limits, together with everything else that
//! users attach to an object.

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::{FsError, FsResult};
use penstock_vfs::{Inode, XattrMode};

use crate::{metadata::Metadata, metadata::MetadataChange, mount::Mount, posix::KeptMetadata};

/// Namespaces that can be kept. Access control lists are not enforced, so they are not taken.
const NAMESPACES: [&str; 3] = [OF_USERS, "trusted.", "security."];

/// The namespace that programs ask for knowingly; `ls` asks for one of the others of each file.
const OF_USERS: &str = "user.";

/// The label of SELinux, which a mount gets from the kernel. `ls -l` asks for it of each file, unless
/// the first answer is that there is no such thing here.
const LABEL: &str = "security.selinux";

const NOT_KEPT: FsError = FsError::Unsupported(
    "this mount keeps no extended attributes of this kind; user.* can be kept with use_xattr",
);

impl Mount {
    /// Whether extended attributes exist here at all.
    pub(crate) fn keeps_xattrs(&self) -> bool {
        self.keeps_metadata() && self.settings.metadata.xattrs
    }
}

impl Metadata {
    /// The value of one attribute.
    pub(crate) async fn xattr(self: &Arc<Self>, inode: Inode, name: &[u8]) -> FsResult<Bytes> {
        let name = self.checked_name(name)?;
        if !name.starts_with(OF_USERS) && self.shows_defaults(inode)? {
            return Err(FsError::NoAttribute);
        }
        let kept = self.present_metadata(inode).await?;
        let value = kept.posix.xattrs.get(name).cloned();
        value.map(Bytes::from).ok_or(FsError::NoAttribute)
    }

    /// Whether a file was listed only, and shows what its object may say otherwise.
    fn shows_defaults(&self, inode: Inode) -> FsResult<bool> {
        let is_known = self.mount.namespace.lock().node(inode)?.kept().is_some();
        Ok(self.mount.settings.metadata.readdir_optimize && !is_known)
    }

    /// The names of all attributes.
    pub(crate) async fn xattrs(self: &Arc<Self>, inode: Inode) -> FsResult<Vec<Bytes>> {
        if !self.mount.keeps_xattrs() {
            return Err(NOT_KEPT);
        }
        let kept = self.present_metadata(inode).await?;
        let names = kept.posix.xattrs.keys();
        Ok(names.map(|name| Bytes::from(name.clone())).collect())
    }

    /// Sets one attribute.
    pub(crate) async fn set_xattr(
        self: &Arc<Self>,
        inode: Inode,
        (name, value): (&[u8], &[u8]),
        mode: XattrMode,
    ) -> FsResult<()> {
        let name = self.checked_name(name)?.to_owned();
        let kept = self.present_metadata(inode).await?;
        match (mode, kept.posix.xattrs.contains_key(&name)) {
            (XattrMode::Create, true) => return Err(FsError::AlreadyExists),
            (XattrMode::Replace, false) => return Err(FsError::NoAttribute),
            _ => {}
        }
        let mut wanted = KeptMetadata::clone(&kept);
        let value = value.to_vec();
        wanted.posix.xattrs.insert(name.clone(), value.clone());
        if wanted.size() > self.mount.store().capabilities().metadata_size_max {
            return Err(FsError::NoSpace);
        }
        let change = MetadataChange::SetXattr { name, value };
        self.change_metadata(inode, change).await
    }

    /// Removes one attribute.
    pub(crate) async fn remove_xattr(self: &Arc<Self>, inode: Inode, name: &[u8]) -> FsResult<()> {
        let name = self.checked_name(name)?.to_owned();
        let kept = self.present_metadata(inode).await?;
        if !kept.posix.xattrs.contains_key(&name) {
            return Err(FsError::NoAttribute);
        }
        let change = MetadataChange::RemoveXattr { name };
        self.change_metadata(inode, change).await
    }

    fn checked_name<'name>(&self, name: &'name [u8]) -> FsResult<&'name str> {
        let name = std::str::from_utf8(name)
            .map_err(|_| FsError::InvalidArgument("names of attributes must be UTF-8"))?;
        let is_kept = NAMESPACES
            .iter()
            .any(|namespace| name.len() > namespace.len() && name.starts_with(namespace));
        if self.mount.keeps_xattrs() && is_kept && name != LABEL {
            Ok(name)
        } else {
            Err(NOT_KEPT)
        }
    }

    async fn present_metadata(self: &Arc<Self>, inode: Inode) -> FsResult<Arc<KeptMetadata>> {
        self.lookups.know_metadata(inode).await?;
        let tree = self.mount.namespace.lock();
        Ok(tree.node(inode)?.kept().cloned().unwrap_or_default())
    }
}
