//! CREATE, MKDIR, SYMLINK and MKNOD.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use penstock_base::{FileName, FsError, FsResult, Mutex};
use penstock_vfs::{
    AccessMask, AttributeChanges, Change, Dentry, Exclusivity, FileKind, Identity, Inode, Made,
    New, NewKind, permission,
};

use super::{Asked, Service, status};
use crate::{
    nodes::Node,
    protocol::{
        nfs3::{
            CreateHow, NewAttributes, NodeKind, Place, Status, name_of, post_operation,
            weak_consistency,
        },
        xdr::Encoder,
    },
};

/// The mode of what is made where a client gives none: an exclusive CREATE, which it follows with a SETATTR.
const MODE: u16 = 0o600;
/// The same of a directory.
const DIRECTORY_MODE: u16 = 0o700;
/// A symbolic link's.
const SYMLINK_MODE: u16 = 0o777;
/// Exclusive CREATEs that are remembered.
const EXCLUSIVES_MAX: usize = 4096;

/// What is made, and how.
struct Making<'a> {
    kind: NewKind<'a>,
    permissions: u16,
    exclusivity: Exclusivity,
    /// What else is set of it, beside its mode.
    new: NewAttributes,
}

impl Making<'_> {
    /// Fails unless `by` may make such a file.
    fn check_kind(&self, by: &Identity) -> Result<(), Status> {
        match self.kind {
            NewKind::Special(special) => {
                Ok(permission::check_kind(FileKind::Special(special), by)?)
            }
            NewKind::Regular | NewKind::Directory | NewKind::Symlink(_) => Ok(()),
        }
    }
}

/// The verifiers of exclusive CREATEs, for volumes that keep none.
#[derive(Debug, Default)]
pub(super) struct Exclusives(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    verifiers: HashMap<Inode, u64>,
    order: VecDeque<Inode>,
}

impl Exclusives {
    fn remember(&self, file: Inode, verifier: u64) {
        let mut remembered = self.0.lock();
        if remembered.verifiers.insert(file, verifier).is_none() {
            remembered.order.push_back(file);
        }
        if remembered.order.len() > EXCLUSIVES_MAX
            && let Some(oldest) = remembered.order.pop_front()
        {
            remembered.verifiers.remove(&oldest);
        }
    }

    /// Who made a file has the answer.
    pub(super) fn forget(&self, file: Inode) {
        let mut remembered = self.0.lock();
        if remembered.verifiers.remove(&file).is_some() {
            remembered.order.retain(|known| *known != file);
        }
    }

    fn is_of(&self, file: Inode, verifier: u64) -> bool {
        self.0.lock().verifiers.get(&file) == Some(&verifier)
    }
}

impl Service {
    pub(super) async fn create(
        &self,
        asked: &Asked,
        place: &Place,
        how: CreateHow,
        out: &mut Encoder,
    ) {
        let (exclusivity, new) = match how {
            CreateHow::Unchecked(new) => (Exclusivity::TakeExisting, new),
            CreateHow::Guarded(new) => (Exclusivity::New, new),
            CreateHow::Exclusive(verifier) => {
                let verified = Exclusivity::Verified(u64::from_be_bytes(verifier));
                (verified, NewAttributes::default())
            }
        };
        let making = Making {
            kind: NewKind::Regular,
            permissions: new.permissions_or(MODE),
            exclusivity,
            new,
        };
        self.make(asked, place, Ok(making), out).await;
    }

    pub(super) async fn make_directory(
        &self,
        asked: &Asked,
        place: &Place,
        new: &NewAttributes,
        out: &mut Encoder,
    ) {
        let making = Making {
            kind: NewKind::Directory,
            permissions: new.permissions_or(DIRECTORY_MODE),
            exclusivity: Exclusivity::New,
            new: NewAttributes { size: None, ..*new },
        };
        self.make(asked, place, Ok(making), out).await;
    }

    pub(super) async fn make_symlink(
        &self,
        asked: &Asked,
        place: &Place,
        (new, target): (&NewAttributes, &Bytes),
        out: &mut Encoder,
    ) {
        let making = Making {
            kind: NewKind::Symlink(target),
            permissions: SYMLINK_MODE,
            exclusivity: Exclusivity::New,
            new: NewAttributes {
                size: None,
                mode: None,
                ..*new
            },
        };
        self.make(asked, place, Ok(making), out).await;
    }

    pub(super) async fn make_node(
        &self,
        asked: &Asked,
        place: &Place,
        kind: NodeKind,
        out: &mut Encoder,
    ) {
        let making = match kind {
            NodeKind::Other => Err(Status::BAD_TYPE),
            NodeKind::Special(special, new) => Ok(Making {
                kind: NewKind::Special(special),
                permissions: new.permissions_or(MODE),
                exclusivity: Exclusivity::New,
                new: NewAttributes { size: None, ..new },
            }),
        };
        self.make(asked, place, making, out).await;
    }

    async fn make(
        &self,
        asked: &Asked,
        place: &Place,
        making: Result<Making<'_>, Status>,
        out: &mut Encoder,
    ) {
        let mut change = Change::UNTOLD;
        let made = self.make_name(asked, place, making, &mut change).await;
        if let Some(node) = status(out, made) {
            let attributes = node.attributes.clone();
            let handle = self.nodes.handle_for_ever(asked.export, node);
            out.option(Some(handle), |out, handle| out.opaque(&handle));
            post_operation(out, Some(&attributes), self.system);
        }
        weak_consistency(out, &change, self.system);
    }

    async fn make_name(
        &self,
        asked: &Asked,
        place: &Place,
        making: Result<Making<'_>, Status>,
        change: &mut Change,
    ) -> Result<Node, Status> {
        let directory = self.directory(asked, &place.directory).await?;
        change.after = Some(directory.attributes.clone());
        asked.may_change()?;
        let (making, name) = (making?, name_of(&place.name)?);
        self.check_making(asked, (&directory, &name), &making)
            .await?;
        let made = self.make_once(asked, (&directory, &name), &making).await?;
        let (existed, told) = (made.existed, made.directory.clone());
        let mut node = Node::of(&self.volume, made.entry);
        let changes = left_to_set(&node, (&making, existed), &asked.by);
        let settles = changes.is_some() || making.kind != NewKind::Regular;
        if let Some(changes) = changes {
            node.attributes = self.apply(asked, &node.attributes, changes).await?;
        }
        // A new file is durable already; what exists was durable before.
        if settles {
            self.settle(directory.inode()).await?;
        }
        *change = self.told(asked, directory.inode(), told).await;
        Ok(node)
    }

    /// Fails unless `asked` may make such a file in a directory. One that is there and taken as it is may lie in a directory
    /// that he may only search.
    async fn check_making(
        &self,
        asked: &Asked,
        (directory, name): (&Node, &FileName),
        making: &Making<'_>,
    ) -> Result<(), Status> {
        let entered = AccessMask::WRITE.union(AccessMask::EXECUTE);
        let entered = asked.check(&directory.attributes, entered);
        let may_make = entered.and_then(|()| making.check_kind(&asked.by));
        let Err(refused) = may_make else {
            return Ok(());
        };
        asked.check(&directory.attributes, AccessMask::EXECUTE)?;
        let is_there = self.look_up(asked, directory, name).await?.is_some();
        match (is_there, making.exclusivity) {
            (true, Exclusivity::TakeExisting) => Ok(()),
            (true, _) => Err(Status::EXISTS),
            (false, _) => Err(refused),
        }
    }

    /// Makes it; a volume that keeps no verifiers has them kept here, as long as this server lives.
    async fn make_once(
        &self,
        asked: &Asked,
        (directory, name): (&Node, &FileName),
        making: &Making<'_>,
    ) -> Result<Made, Status> {
        let made = self
            .volume_makes(asked, (directory, name), making, making.exclusivity)
            .await;
        let (Err(FsError::Unsupported(_)), Exclusivity::Verified(verifier)) =
            (&made, making.exclusivity)
        else {
            return Ok(made?);
        };
        let new = self
            .volume_makes(asked, (directory, name), making, Exclusivity::New)
            .await;
        match new {
            Ok(made) => {
                let file = made.entry.attributes.inode;
                self.exclusives.remember(file, verifier);
                Ok(made)
            }
            Err(FsError::AlreadyExists) => {
                let found = self.look_up(asked, directory, name).await?;
                let ours = found.filter(|node| self.exclusives.is_of(node.inode(), verifier));
                let ours = ours.ok_or(Status::EXISTS)?;
                let held = self.volume.hold(&asked.by, ours.inode()).await?;
                Ok(Made {
                    existed: true,
                    ..Made::new(held)
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn volume_makes(
        &self,
        asked: &Asked,
        (directory, name): (&Node, &FileName),
        making: &Making<'_>,
        exclusivity: Exclusivity,
    ) -> FsResult<Made> {
        let new = New {
            kind: making.kind,
            permissions: making.permissions,
            umask: 0,
            exclusivity,
        };
        let dentry = Dentry::new(directory.inode(), name);
        self.volume.make(&asked.by, dentry, new, None).await
    }
}

/// What is still to be set of a file that was made or found: of one that was there, only its size. Of a new one an owner
/// that `by` cannot give it is left out, which some clients say with each file that they make: it is made by then.
fn left_to_set(
    node: &Node,
    (making, existed): (&Making<'_>, bool),
    by: &Identity,
) -> Option<AttributeChanges> {
    let is_root = by.uid == 0;
    let changes = making.new.changes();
    let size = changes.size.filter(|size| *size != node.attributes.size);
    let changes = match existed {
        true => AttributeChanges {
            size,
            ..AttributeChanges::default()
        },
        false => AttributeChanges {
            permissions: None,
            uid: changes
                .uid
                .filter(|uid| is_root && *uid != node.attributes.uid),
            gid: changes
                .gid
                .filter(|gid| (is_root || by.is_member_of(*gid)) && *gid != node.attributes.gid),
            size,
            ..changes
        },
    };
    (changes != AttributeChanges::default()).then_some(changes)
}
