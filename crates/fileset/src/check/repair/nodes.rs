//! Inodes: those that are missing, what is left of them, and what they say of themselves.

use std::ops::ControlFlow;

use penstock_base::{FsResult, clock};
use penstock_vfs::{AccessList, AccessLists, FileKind, Inode};

use super::{Repair, number};
use crate::{
    check::{Seen, Survey, trash},
    engine::Reads,
    schema::{self, Node, kind},
};

impl Seen {
    /// Which kind of file an inode was that is missing, as far as something of it is left.
    fn lost_kind(&self, inode: u64) -> Option<FileKind> {
        match self {
            _ if inode == Inode::ROOT.0 || self.entries_in > 0 => Some(FileKind::Directory),
            _ if self.target > 0 => Some(FileKind::Symlink),
            _ if self.written_to > 0 => Some(FileKind::Regular),
            _ => None,
        }
    }

    /// Names that lead to an inode, those of the root and the trash among them.
    fn names(&self, inode: u64) -> u32 {
        self.entries + u32::from(trash::is_top(inode))
    }
}

/// Inodes that are gone and whose content is there: they are root's, and nobody else may use them.
pub(super) fn missing(_: &dyn Reads, survey: &Survey) -> FsResult<Vec<Repair>> {
    let now = clock::wall_time();
    let lost = survey.inodes.iter().filter(|(_, seen)| seen.node.is_none());
    let repairs = lost.filter_map(|(inode, seen)| {
        let kind = seen.lost_kind(*inode)?;
        let is_directory = kind == FileKind::Directory;
        let node = Node {
            permissions: if is_directory { 0o700 } else { 0o600 },
            links: seen.names(*inode),
            size: seen.written_to.max(seen.target),
            allocated: seen.allocated,
            parent: match is_directory {
                true => seen.right_parent(*inode).unwrap_or_default(),
                false => 0,
            },
            ..Node::new(kind, now)
        };
        let text = format!(
            "inode {inode}: is made anew around its content, root's, of {} bytes",
            node.size
        );
        Some(Repair::new(text).put(&schema::node(Inode(*inode)), node.encode()))
    });
    Ok(repairs.collect())
}

/// What is left of inodes that are gone, and is no content.
pub(super) fn leftovers(reads: &dyn Reads, survey: &Survey) -> FsResult<Vec<Repair>> {
    let lost = survey.inodes.iter();
    let lost = lost.filter(|(_, seen)| seen.node.is_none());
    lost.map(|(inode, _)| {
        let text = format!("inode {inode}: what is left of it goes, which is no content");
        let inode = Inode(*inode);
        let keys = [
            schema::times(inode),
            schema::directories(inode),
            schema::target(inode),
            schema::orphan(inode),
        ];
        let repair = keys
            .iter()
            .fold(Repair::new(text), |repair, key| repair.delete(key));
        let repair = without_all(reads, repair, &schema::of_xattrs(inode))?;
        without_all(reads, repair, &schema::of_holders(inode))
    })
    .collect()
}

/// The same with the removal of all keys that begin so.
fn without_all(reads: &dyn Reads, mut repair: Repair, prefix: &[u8]) -> FsResult<Repair> {
    let mut keys = Vec::new();
    reads.scan(prefix..&schema::behind(prefix), &mut |key, _| {
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    })?;
    for key in keys {
        repair = repair.delete(&key);
    }
    Ok(repair)
}

/// Files with names, or of which links say that they have some, are not collected.
pub(super) fn orphans(reads: &dyn Reads, survey: &Survey) -> FsResult<Vec<Repair>> {
    let wrong = survey.inodes.iter().filter(|(_, seen)| {
        let links = seen.node.as_ref().map_or(0, |node| node.links);
        let is_wrong = seen.is_orphan && (seen.entries > 0 || links > 0);
        is_wrong || seen.is_held && !seen.is_orphan
    });
    wrong
        .map(|(inode, _)| {
            let text = format!("inode {inode}: is not collected");
            let repair = Repair::new(text).delete(&schema::orphan(Inode(*inode)));
            without_all(reads, repair, &schema::of_holders(Inode(*inode)))
        })
        .collect()
}

/// Links, parents, sizes and bytes are what the other keys say, and a mode and its access list fit.
pub(super) fn counts(_: &dyn Reads, survey: &Survey) -> FsResult<Vec<Repair>> {
    let mut repairs = Vec::new();
    for (inode, seen) in &survey.inodes {
        let Some(node) = &seen.node else { continue };
        let (permissions, lists) = fitting(node);
        let counted = Node {
            permissions,
            lists,
            links: seen.names(*inode),
            allocated: seen.allocated,
            size: node.size.max(seen.written_to),
            parent: match seen.right_parent(*inode).filter(|_| node.is_directory()) {
                Some(parent) => parent,
                None => node.parent,
            },
            project: seen.right_project(node.project),
            ..node.clone()
        };
        if counted != *node {
            repairs.push(recounted(*inode, (node, &counted)));
        }
        if node.is_directory() && seen.directories != seen.counted {
            let (before, after) = (seen.counted, seen.directories);
            let text = format!("inode {inode}: directories in it: {before}, now {after}");
            let key = schema::directories(Inode(*inode));
            debug_assert_eq!(key[0], kind::DIRECTORIES);
            repairs.push(Repair::new(text).put(&key, number(after.cast_unsigned())));
        }
    }
    Ok(repairs)
}

/// The mode and the lists of a file, where the mode and the access list allow what both did.
fn fitting(node: &Node) -> (u16, AccessLists) {
    let mut lists = node.lists.clone();
    let allowed = lists.access.as_ref().map_or(0o777, AccessList::classes);
    let permissions = node.permissions & (allowed | !0o777);
    lists.follow(permissions);
    (permissions, lists)
}

fn recounted(inode: u64, (before, after): (&Node, &Node)) -> Repair {
    let fields = [
        ("links", u64::from(before.links), u64::from(after.links)),
        ("bytes written", before.allocated, after.allocated),
        ("size", before.size, after.size),
        ("parent", before.parent, after.parent),
        ("quota of directory", before.project, after.project),
    ];
    let changed = fields.iter().filter(|(_, before, after)| before != after);
    let mut told: Vec<_> = changed
        .map(|(what, before, after)| format!("{what}: {before}, now {after}"))
        .collect();
    if (before.permissions, &before.lists) != (after.permissions, &after.lists) {
        let (before, after) = (before.permissions, after.permissions);
        told.push(format!(
            "mode, and the access list with it: {before:03o}, now {after:03o}"
        ));
    }
    let text = format!("inode {inode}: {}", told.join("; "));
    Repair::new(text).put(&schema::node(Inode(inode)), after.encode())
}
