//! GETATTR, SETATTR, ACCESS and READLINK.

use std::time::SystemTime;

use bytes::Bytes;
use penstock_vfs::{
    Access, AccessMask, AttributeChanges, Attributes, Change, FileKind, permission,
};

use super::{Asked, Service, status};
use crate::{
    open_files::InUse,
    protocol::{
        nfs3::{self, NewAttributes, Status, post_operation, weak_consistency},
        xdr::Encoder,
    },
};

/// The bits of a mode that are permission.
const PERMISSIONS: u32 = 0o7777;

/// What ACCESS asks for and answers.
mod asked {
    pub(super) const READ: u32 = 0x01;
    pub(super) const LOOKUP: u32 = 0x02;
    pub(super) const MODIFY: u32 = 0x04;
    pub(super) const EXTEND: u32 = 0x08;
    pub(super) const DELETE: u32 = 0x10;
    pub(super) const EXECUTE: u32 = 0x20;
}

impl NewAttributes {
    /// The permission bits, or these.
    pub(super) fn permissions_or(&self, otherwise: u16) -> u16 {
        self.mode
            .map_or(otherwise, |mode| (mode & PERMISSIONS) as u16)
    }

    /// All of it as changes.
    pub(super) fn changes(&self) -> AttributeChanges {
        AttributeChanges {
            permissions: self.mode.map(|mode| (mode & PERMISSIONS) as u16),
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            accessed: self.accessed,
            modified: self.modified,
            handle: None,
            only_if_changed_at: None,
        }
    }
}

impl Service {
    pub(super) async fn get_attributes(&self, asked: &Asked, file: &Bytes, out: &mut Encoder) {
        let found = self.find(asked, file).await;
        if let Some(node) = status(out, found) {
            nfs3::attributes(out, &node.attributes, self.system);
        }
    }

    pub(super) async fn set_attributes(
        &self,
        asked: &Asked,
        file: &Bytes,
        (new, guard): (NewAttributes, Option<SystemTime>),
        out: &mut Encoder,
    ) {
        let mut change = Change::UNTOLD;
        let changes = AttributeChanges {
            only_if_changed_at: guard,
            ..new.changes()
        };
        let outcome = self.change_file(asked, file, changes, &mut change).await;
        status(out, outcome);
        weak_consistency(out, &change, self.system);
    }

    async fn change_file(
        &self,
        asked: &Asked,
        file: &Bytes,
        changes: AttributeChanges,
        change: &mut Change,
    ) -> Result<(), Status> {
        let node = self.find(asked, file).await?;
        change.after = Some(node.attributes.clone());
        asked.may_change()?;
        let after = self.apply(asked, &node.attributes, changes).await?;
        self.exclusives.forget(after.inode);
        self.settle_file(&after).await?;
        change.after = Some(after);
        Ok(())
    }

    /// Makes changes that `asked` may make.
    pub(super) async fn apply(
        &self,
        asked: &Asked,
        file: &Attributes,
        mut changes: AttributeChanges,
    ) -> Result<Attributes, Status> {
        if changes.size.is_some() && file.kind != FileKind::Regular {
            return Err(Status::INVALID);
        }
        let writer = match changes.size {
            Some(size) => self.writer_for_size(asked, file, size).await?,
            None => None,
        };
        changes.handle = writer.as_ref().map(|writer| writer.id);
        permission::check_changes(file, &asked.by, &changes)?;
        let changed = self.volume.set_attributes(&asked.by, file.inode, changes);
        let changed = changed.await?;
        if let (Some(writer), Some(size)) = (&writer, changes.size) {
            writer.file.cut_to(size);
        }
        Ok(changed.attributes)
    }

    /// The handle through which a file is given a size: the one that it is written through, or one for its owner, who
    /// may have opened it whatever its mode is. None where neither is so and its mode decides.
    async fn writer_for_size(
        &self,
        asked: &Asked,
        file: &Attributes,
        size: u64,
    ) -> Result<Option<InUse>, Status> {
        let by_mode = permission::check(file, &asked.by, AccessMask::WRITE);
        if by_mode.is_err() && file.uid != asked.by.uid {
            return Err(Status::ACCESS);
        }
        if size == 0 {
            self.files.give_up_failed(file.inode).await;
        }
        match self.files.writer(file.inode) {
            Some(writer) => Ok(Some(writer)),
            None if by_mode.is_ok() => Ok(None),
            None => Ok(Some(self.files.open(file, Access::Write).await?)),
        }
    }

    pub(super) async fn access(
        &self,
        asked: &Asked,
        (file, wanted): (&Bytes, u32),
        out: &mut Encoder,
    ) {
        if let Some(file) = self.found(asked, file, out).await {
            out.u32(wanted & granted(asked, &file));
        }
    }

    /// Finds a file and answers with the status and its attributes. Nothing where it is not found.
    pub(super) async fn found(
        &self,
        asked: &Asked,
        file: &Bytes,
        out: &mut Encoder,
    ) -> Option<Attributes> {
        let found = self.find(asked, file).await;
        let node = status(out, found);
        let attributes = node.as_ref().map(|node| &node.attributes);
        post_operation(out, attributes, self.system);
        attributes.cloned()
    }

    pub(super) async fn read_link(&self, asked: &Asked, file: &Bytes, out: &mut Encoder) {
        let found = self.find(asked, file).await;
        let (attributes, target) = match &found {
            Ok(node) => {
                let target = self.volume.read_symlink(&asked.by, node.inode()).await;
                (Some(&node.attributes), target.map_err(Status::from))
            }
            Err(error) => (None, Err(*error)),
        };
        let target = status(out, target);
        post_operation(out, attributes, self.system);
        if let Some(target) = target {
            out.opaque(&target);
        }
    }
}

/// What somebody may do with a file, as ACCESS tells it.
fn granted(by: &Asked, file: &Attributes) -> u32 {
    let allowed = permission::allowed(file, &by.by);
    let is_directory = file.kind == FileKind::Directory;
    let mut granted = 0;
    let mut grant = |is_granted: bool, bits: u32| granted |= if is_granted { bits } else { 0 };
    grant(allowed.contains(AccessMask::READ), asked::READ);
    let may_write = allowed.contains(AccessMask::WRITE) && !by.read_only;
    grant(may_write, asked::MODIFY | asked::EXTEND);
    grant(may_write && is_directory, asked::DELETE);
    let may_execute = allowed.contains(AccessMask::EXECUTE);
    grant(may_execute && is_directory, asked::LOOKUP);
    grant(may_execute && !is_directory, asked::EXECUTE);
    granted
}
