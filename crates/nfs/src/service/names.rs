//! LOOKUP, REMOVE, RMDIR, RENAME and LINK.

use bytes::Bytes;
use penstock_base::{FileName, FsError, NameError};
use penstock_vfs::{
    AccessMask, Attributes, Change, Dentry, FileKind, Lookup, RemoveKind, RenameMode, permission,
};

use super::{Asked, Service, status};
use crate::{
    nodes::Node,
    protocol::{
        nfs3::{Place, Status, name_of, post_operation, weak_consistency},
        xdr::Encoder,
    },
};

/// The name of something that is there, and is neither `.` nor `..`.
fn name_to_take(bytes: &Bytes) -> Result<FileName, Status> {
    name_of(bytes).map_err(|error| match error {
        NameError::Dots => Status::INVALID,
        error => error.into(),
    })
}

/// A directory with more files than may be moved at once has them the next time, too: to ask again is in vain.
fn rename_status(error: FsError) -> Status {
    match error {
        FsError::LimitReached(_) => Status::NOT_SUPPORTED,
        error => error.into(),
    }
}

impl Service {
    pub(super) async fn lookup(&self, asked: &Asked, place: &Place, out: &mut Encoder) {
        let mut above = None;
        let found = self.find_name(asked, place, &mut above).await;
        if let Some(node) = status(out, found) {
            let attributes = node.attributes.clone();
            out.opaque(&self.nodes.handle_for_ever(asked.export, node));
            post_operation(out, Some(&attributes), self.system);
        }
        post_operation(out, above.as_ref(), self.system);
    }

    async fn find_name(
        &self,
        asked: &Asked,
        place: &Place,
        above: &mut Option<Attributes>,
    ) -> Result<Node, Status> {
        let directory = self.directory(asked, &place.directory).await?;
        *above = Some(directory.attributes.clone());
        asked.check(&directory.attributes, AccessMask::EXECUTE)?;
        match &place.name[..] {
            b"." => Ok(directory),
            b".." => {
                let parent = self.volume.parent(&asked.by, directory.inode()).await?;
                Ok(Node::of(&self.volume, parent))
            }
            _ => {
                let name = name_of(&place.name)?;
                let found = self.look_up(asked, &directory, &name).await?;
                found.ok_or(Status::NO_ENTRY)
            }
        }
    }

    /// The file with a name in a directory, if there is one.
    pub(super) async fn look_up(
        &self,
        asked: &Asked,
        directory: &Node,
        name: &FileName,
    ) -> Result<Option<Node>, Status> {
        let dentry = Dentry::new(directory.inode(), name);
        Ok(match self.volume.lookup(&asked.by, dentry).await? {
            Lookup::Found(entry) => Some(Node::of(&self.volume, entry)),
            Lookup::Absent(_) => None,
        })
    }

    pub(super) async fn remove(&self, asked: &Asked, place: &Place, out: &mut Encoder) {
        self.remove_name(asked, (place, RemoveKind::File), out)
            .await;
    }

    pub(super) async fn remove_directory(&self, asked: &Asked, place: &Place, out: &mut Encoder) {
        self.remove_name(asked, (place, RemoveKind::Directory), out)
            .await;
    }

    async fn remove_name(
        &self,
        asked: &Asked,
        (place, kind): (&Place, RemoveKind),
        out: &mut Encoder,
    ) {
        let mut change = Change::UNTOLD;
        let removed = async {
            let directory = self.directory(asked, &place.directory).await?;
            change.after = Some(directory.attributes.clone());
            asked.may_change()?;
            let name = name_to_take(&place.name)?;
            let checked = self.check_removal(asked, &directory, &name).await;
            self.unless_carried_out(asked, checked).await?;
            let dentry = Dentry::new(directory.inode(), &name);
            let removed = self.volume.remove(&asked.by, dentry, kind).await?;
            self.places.remember(directory.inode(), [&name]);
            self.settle(directory.inode()).await?;
            change = self.told(asked, directory.inode(), removed).await;
            Ok(())
        };
        let removed = removed.await;
        status(out, removed);
        weak_consistency(out, &change, self.system);
    }

    /// Fails unless `asked` may take a name out of a directory, and with `NO_ENTRY` if it is not there.
    async fn check_removal(
        &self,
        asked: &Asked,
        directory: &Node,
        name: &FileName,
    ) -> Result<Node, Status> {
        asked.check(&directory.attributes, AccessMask::EXECUTE)?;
        let file = self.look_up(asked, directory, name).await?;
        let file = file.ok_or(Status::NO_ENTRY)?;
        permission::check_removal(&directory.attributes, &file.attributes, &asked.by)?;
        Ok(file)
    }

    pub(super) async fn rename(
        &self,
        asked: &Asked,
        (source, target): (&Place, &Place),
        out: &mut Encoder,
    ) {
        let (mut from, mut to) = (Change::UNTOLD, Change::UNTOLD);
        let renamed = self
            .move_name(asked, (source, target), (&mut from, &mut to))
            .await;
        status(out, renamed);
        weak_consistency(out, &from, self.system);
        weak_consistency(out, &to, self.system);
    }

    async fn move_name(
        &self,
        asked: &Asked,
        (source, target): (&Place, &Place),
        (from, to): (&mut Change, &mut Change),
    ) -> Result<(), Status> {
        let above = self.directory(asked, &source.directory).await?;
        from.after = Some(above.attributes.clone());
        asked.check_same_export(&target.directory)?;
        let below = self.directory(asked, &target.directory).await?;
        to.after = Some(below.attributes.clone());
        asked.may_change()?;
        let (old, new) = (name_to_take(&source.name)?, name_to_take(&target.name)?);
        let checked = self.check_move(asked, (&above, &old), (&below, &new));
        let checked = checked.await;
        self.unless_carried_out(asked, checked).await?;
        let (old, new) = (
            Dentry::new(above.inode(), &old),
            Dentry::new(below.inode(), &new),
        );
        let renamed = self
            .volume
            .rename(&asked.by, old, new, RenameMode::Replace)
            .await
            .map_err(rename_status)?;
        self.places.remember(above.inode(), [old.name]);
        self.settle(above.inode()).await?;
        if above.inode() != below.inode() {
            self.settle(below.inode()).await?;
        }
        *from = self.told(asked, above.inode(), renamed.source).await;
        *to = self.told(asked, below.inode(), renamed.target).await;
        Ok(())
    }

    /// Fails unless `asked` may move a name from one directory to another.
    async fn check_move(
        &self,
        asked: &Asked,
        (above, old): (&Node, &FileName),
        (below, new): (&Node, &FileName),
    ) -> Result<(), Status> {
        self.check_removal(asked, above, old).await?;
        let entered = AccessMask::WRITE.union(AccessMask::EXECUTE);
        asked.check(&below.attributes, entered)?;
        if let Some(replaced) = self.look_up(asked, below, new).await? {
            permission::check_removal(&below.attributes, &replaced.attributes, &asked.by)?;
        }
        Ok(())
    }

    pub(super) async fn link(
        &self,
        asked: &Asked,
        (file, place): (&Bytes, &Place),
        out: &mut Encoder,
    ) {
        let (mut attributes, mut change) = (None, Change::UNTOLD);
        let linked = async {
            let node = self.find(asked, file).await?;
            attributes = Some(node.attributes.clone());
            asked.check_same_export(&place.directory)?;
            let directory = self.directory(asked, &place.directory).await?;
            change.after = Some(directory.attributes.clone());
            asked.may_change()?;
            if self.features.links_max <= 1 {
                return Err(Status::NOT_SUPPORTED);
            }
            if node.attributes.kind == FileKind::Directory {
                return Err(Status::IS_DIRECTORY);
            }
            let entered = AccessMask::WRITE.union(AccessMask::EXECUTE);
            asked.check(&directory.attributes, entered)?;
            let name = name_of(&place.name)?;
            let dentry = Dentry::new(directory.inode(), &name);
            let made = self.volume.link(&asked.by, node.inode(), dentry).await?;
            let linked = Node::of(&self.volume, made.entry);
            attributes = Some(linked.attributes.clone());
            self.settle(directory.inode()).await?;
            change = self.told(asked, directory.inode(), made.directory).await;
            Ok(())
        };
        let linked = linked.await;
        status(out, linked);
        post_operation(out, attributes.as_ref(), self.system);
        weak_consistency(out, &change, self.system);
    }
}
