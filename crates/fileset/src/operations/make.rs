//! Making files of any kind.

use bytes::Bytes;
use penstock_base::{FsError, FsResult};
use penstock_vfs::{AccessLists, Change, Exclusivity, FileKind, Inode, permission};

use super::{Asked, Place, count_directories, enterable, find, node, put_entry, put_node, touch};
use crate::{
    engine::Transaction,
    quotas::{self, Amount, Owner, Use},
    schema::{self, Entry, Format, Node},
};

/// What is made.
#[derive(Debug, Clone)]
pub(crate) struct NewFile {
    pub(crate) kind: FileKind,
    /// Of a symbolic link.
    pub(crate) target: Option<Bytes>,
    pub(crate) permissions: u16,
    pub(crate) umask: u16,
    pub(crate) exclusivity: Exclusivity,
}

/// What is made where, by whom, with which number.
#[derive(Debug, Clone)]
pub(crate) struct Making {
    pub(crate) asked: Asked,
    pub(crate) place: Place,
    pub(crate) new: NewFile,
    /// Free, and never used before.
    pub(crate) inode: Inode,
}

/// A file that was made or found.
#[derive(Debug, Clone)]
pub(crate) struct MadeNode {
    pub(crate) inode: Inode,
    pub(crate) existed: bool,
    pub(crate) directory: Change,
}

/// Makes the root directory of a new file system.
pub(crate) fn format(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    format: &Format,
) -> FsResult<()> {
    if transaction.get(schema::FORMAT)?.is_some() {
        return Err(FsError::AlreadyExists);
    }
    let root = Inode::ROOT;
    let node = Node {
        permissions: 0o755,
        uid: asked.by.uid,
        gid: asked.by.gid,
        parent: root.0,
        ..Node::new(FileKind::Directory, asked.now)
    };
    transaction.put(schema::FORMAT, format.encode());
    put_node(transaction, root, &node);
    transaction.advance(schema::LAST_INODE, root.0)?;
    Ok(transaction.add(schema::FILES, 1)?)
}

/// Makes a file, or finds the one that is there and may be.
pub(crate) fn make(transaction: &mut dyn Transaction, making: &Making) -> FsResult<MadeNode> {
    let dentry = making.place.dentry();
    let parent = super::directory(transaction, dentry.parent)?;
    let before = super::before(transaction, (dentry.parent, &parent))?;
    if let Some(entry) = find(transaction, dentry)? {
        check_found(transaction, entry, &making.new)?;
        return Ok(MadeNode {
            inode: entry.inode,
            existed: true,
            directory: super::change(before.as_ref(), transaction)?,
        });
    }
    enterable(&making.asked.by, dentry.parent, &parent)?;
    permission::check_kind(making.new.kind, &making.asked.by)?;
    let node = Node {
        project: parent.project,
        ..new_node(making, &parent)
    };
    let owner = Owner::of(making.inode, &node);
    let one = Use { bytes: 0, files: 1 };
    quotas::admit(transaction, &making.asked, owner, one)?;
    put_node(transaction, making.inode, &node);
    if let Some(target) = &making.new.target {
        transaction.put(&schema::target(making.inode), target.clone());
    }
    let entry = Entry {
        inode: making.inode,
        kind: node.kind,
    };
    put_entry(transaction, dentry, entry);
    if node.is_directory() {
        count_directories(transaction, dentry.parent, 1)?;
    }
    let one = Amount { bytes: 0, files: 1 };
    quotas::charge(transaction, owner, one)?;
    touch(transaction, dentry.parent, making.asked.now)?;
    Ok(MadeNode {
        inode: making.inode,
        existed: false,
        directory: super::change(before.as_ref(), transaction)?,
    })
}

fn new_node(making: &Making, parent: &Node) -> Node {
    let Making {
        asked, new, place, ..
    } = making;
    let above = parent.attributes(place.parent);
    let (gid, permissions) =
        permission::of_new_file(&above, &asked.by, (new.kind, new.permissions));
    let handed_down = parent.lists.default.as_ref();
    let (lists, permissions) =
        AccessLists::of_new_file(handed_down, new.kind, (permissions, new.umask));
    let node = Node::new(new.kind, asked.now);
    Node {
        permissions,
        lists,
        uid: asked.by.uid,
        gid,
        size: new.target.as_ref().map_or(0, |target| target.len() as u64),
        parent: match node.is_directory() {
            true => place.parent.0,
            false => 0,
        },
        verifier: match new.exclusivity {
            Exclusivity::Verified(number) => number,
            _ => 0,
        },
        ..node
    }
}

/// Fails unless the file that is there may be taken for a new one.
fn check_found(transaction: &dyn Transaction, found: Entry, new: &NewFile) -> FsResult<()> {
    let is_taken = match new.exclusivity {
        Exclusivity::New => false,
        Exclusivity::TakeExisting => {
            new.kind == FileKind::Regular && found.kind == FileKind::Regular
        }
        Exclusivity::Verified(number) => {
            number != 0 && node(transaction, found.inode)?.verifier == number
        }
    };
    match is_taken {
        true => Ok(()),
        false => Err(FsError::AlreadyExists),
    }
}
