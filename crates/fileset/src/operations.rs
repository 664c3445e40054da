//! What a file system does, as operations on keys: one file for each kind.
//!
//! Each is a function over [`Reads`] or [`Transaction`] that an engine runs as a whole. It decides everything, who may
//! do it too, on what it sees there, and it can run again: time, numbers and identities come in with [`Asked`].

mod access_lists;
mod attributes;
mod directory;
mod extents;
mod link;
mod make;
mod orphans;
mod remove;
mod rename;
mod resize;
mod share;
mod xattrs;

use std::time::{Duration, SystemTime};

use penstock_base::{FileName, FsError, FsResult, clock};
use penstock_vfs::{AccessMask, Attributes, Change, Dentry, Identity, Inode, permission};

pub(crate) use attributes::{drop_set_id, set_accessed, set_attributes};
pub(crate) use directory::{above, find_position, list, position_of, visit};
pub(crate) use extents::{
    Edit, FileChange, SizeChange, Step, abandon, chunk, edit, extents_in, fold, next_place,
    written_in,
};
pub(crate) use link::link;
pub(crate) use make::{MadeNode, Making, NewFile, format, make};
pub(crate) use orphans::{collect, drop_content, drop_garbage, garbage, orphans, set_lengths};
pub(crate) use remove::{Removing, Unnamed, remove, unlink};
pub(crate) use rename::{Renaming, rename};
pub(crate) use resize::{Condition, Cut, cut, grow, next_cut, punch, some_written};
pub(crate) use share::{Shared, Sharing, next_share, share};
pub(crate) use xattrs::{Attribute, remove_xattr, set_xattr, xattr, xattrs};

use crate::{
    engine::{Engine, Reads, Transaction, counter, mark},
    schema::{self, Entry, Format, Node},
    trash,
};

/// Names that a file may have: links are counted in 32 bits.
pub(crate) const LINKS_MAX: u32 = i32::MAX as u32;

/// On whose behalf, and when.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) by: Identity,
    pub(crate) now: SystemTime,
    /// The session that does it, if there can be several.
    pub(crate) session: Option<u64>,
}

impl Asked {
    /// By the file system itself, now.
    pub(crate) fn by_itself(engine: &dyn Engine) -> Self {
        Self {
            by: Identity::root(),
            now: clock::wall_time(),
            session: engine.peers().map(|peers| peers.session().0),
        }
    }
}

/// A name in a directory, owned.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) parent: Inode,
    pub(crate) name: FileName,
}

impl Place {
    pub(crate) fn new(dentry: Dentry<'_>) -> Self {
        Self {
            parent: dentry.parent,
            name: dentry.name.clone(),
        }
    }

    pub(crate) fn dentry(&self) -> Dentry<'_> {
        Dentry::new(self.parent, &self.name)
    }
}

/// A file that must be there: else it was removed, and `Stale` is said.
pub(crate) fn node(reads: &dyn Reads, inode: Inode) -> FsResult<Node> {
    let value = reads.get(&schema::node(inode))?;
    Node::decode(&value.ok_or(FsError::Stale)?)
}

/// A directory that must be there.
pub(crate) fn directory(reads: &dyn Reads, inode: Inode) -> FsResult<Node> {
    let node = node(reads, inode)?;
    match node.is_directory() {
        true => Ok(node),
        false => Err(FsError::NotADirectory),
    }
}

/// What rules over who may do what to a file: all of its attributes that entries which come and go do not change.
pub(crate) fn ruling(reads: &dyn Reads, inode: Inode) -> FsResult<Attributes> {
    Ok(node(reads, inode)?.attributes(inode))
}

/// A directory with what `stat` shows of it.
pub(crate) fn directory_attributes(reads: &dyn Reads, inode: Inode) -> FsResult<Attributes> {
    shown(reads, inode, &directory(reads, inode)?)
}

/// What `stat` shows.
pub(crate) fn attributes(reads: &dyn Reads, inode: Inode) -> FsResult<Attributes> {
    shown(reads, inode, &node(reads, inode)?)
}

/// What `stat` shows of a file that was read.
pub(crate) fn shown(reads: &dyn Reads, inode: Inode, node: &Node) -> FsResult<Attributes> {
    if !node.is_directory() {
        return Ok(node.attributes(inode));
    }
    let mark = mark(reads.get(&schema::times(inode))?.as_ref());
    let directories = counter(reads.get(&schema::directories(inode))?.as_ref());
    Ok(node.directory_attributes(inode, mark, directories))
}

/// What a name leads to, in a directory that is there. The trash has one that no listing shows.
pub(crate) fn find(reads: &dyn Reads, dentry: Dentry<'_>) -> FsResult<Option<Entry>> {
    match reads.get(&schema::entry(dentry))? {
        Some(value) => Entry::decode(&value).map(Some),
        None => trash::entry(reads, dentry),
    }
}

/// What `by` finds under a name.
pub(crate) fn lookup(
    reads: &dyn Reads,
    by: &Identity,
    dentry: Dentry<'_>,
) -> FsResult<Option<Entry>> {
    let above = directory(reads, dentry.parent)?.attributes(dentry.parent);
    permission::check(&above, by, AccessMask::EXECUTE)?;
    find(reads, dentry)
}

/// Says in the head of the file system that there is something which older versions do not know.
pub(crate) fn raise_format(
    transaction: &mut dyn Transaction,
    raised: fn(Format) -> Format,
) -> FsResult<()> {
    let head = transaction.get(schema::FORMAT)?.ok_or(FsError::NotFound)?;
    let raised = raised(Format::decode(&head)?).encode();
    if raised != head {
        transaction.put(schema::FORMAT, raised);
    }
    Ok(())
}

/// Writes a file's node.
pub(crate) fn put_node(transaction: &mut dyn Transaction, inode: Inode, node: &Node) {
    transaction.put(&schema::node(inode), node.encode());
}

/// Writes an entry.
pub(crate) fn put_entry(transaction: &mut dyn Transaction, dentry: Dentry<'_>, entry: Entry) {
    transaction.put(&schema::entry(dentry), entry.encode());
}

/// An entry came, went or leads elsewhere.
pub(crate) fn touch(
    transaction: &mut dyn Transaction,
    directory: Inode,
    now: SystemTime,
) -> FsResult<()> {
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    let now = since.unwrap_or(Duration::ZERO).as_nanos() as u64;
    Ok(transaction.advance(&schema::times(directory), now)?)
}

/// A directory got or lost a directory.
pub(crate) fn count_directories(
    transaction: &mut dyn Transaction,
    directory: Inode,
    by: i64,
) -> FsResult<()> {
    Ok(transaction.add(&schema::directories(directory), by)?)
}

/// A directory before an operation changes its entries. Where others do so at the same time, this costs them and the
/// operation more than it tells.
fn before(
    transaction: &dyn Transaction,
    (inode, directory): (Inode, &Node),
) -> FsResult<Option<Attributes>> {
    match transaction.has_others() {
        true => Ok(None),
        false => shown(transaction, inode, directory).map(Some),
    }
}

/// What was done to a directory.
fn change(before: Option<&Attributes>, reads: &dyn Reads) -> FsResult<Change> {
    let Some(before) = before else {
        return Ok(Change::UNTOLD);
    };
    Ok(Change {
        before: Some(before.brief()),
        after: Some(attributes(reads, before.inode)?),
    })
}

/// A directory in which `by` may make names, and which has not been removed.
fn enterable(by: &Identity, inode: Inode, directory: &Node) -> FsResult<()> {
    if directory.links == 0 {
        return Err(FsError::NotFound);
    }
    let above = directory.attributes(inode);
    permission::check(&above, by, AccessMask::WRITE.union(AccessMask::EXECUTE))?;
    trash::check_changeable(inode)
}

/// Fails unless a directory is empty.
fn check_empty(reads: &dyn Reads, directory: Inode) -> FsResult<()> {
    let mut is_empty = true;
    directory::visit(reads, directory, None, &mut |_, _| {
        is_empty = false;
        std::ops::ControlFlow::Break(())
    })?;
    match is_empty {
        true => Ok(()),
        false => Err(FsError::DirectoryNotEmpty),
    }
}
