//! Entries that lead nowhere or twice into a directory, and files that no entry leads to.

use std::{
    collections::{BTreeMap, HashSet},
    ops::ControlFlow,
};

use bytes::Bytes;
use penstock_base::{FileName, FsError, FsResult, clock};
use penstock_vfs::{Dentry, FileKind, Inode};

use super::{Repair, number};
use crate::{
    check::{Survey, trash},
    engine::{Reads, counter, mark},
    operations,
    schema::{self, Entry, FILE_MAX, Hour, Node, TRASH, kind},
};

/// Where files come that no entry leads to.
const LOST_AND_FOUND: &str = "lost+found";
/// Names that are tried for one.
const NAMES_MAX: u32 = 1000;

/// An entry with its key.
type Found = (Bytes, Entry);

/// Entries that go: to inodes that are not there, in what is no directory, to the root, into and out of the trash where they do
/// not belong, there of files with other names, and all but one to a directory.
pub(super) fn entries(reads: &dyn Reads, survey: &Survey) -> FsResult<Vec<Repair>> {
    let node = |inode: u64| {
        survey
            .inodes
            .get(&inode)
            .and_then(|seen| seen.node.as_ref())
    };
    let is_directory = |inode: u64| node(inode).is_some_and(Node::is_directory);
    let rings = survey.rings();
    let (mut wrong, mut several) = (Vec::new(), BTreeMap::<u64, Vec<Found>>::new());
    visit(reads, &mut |parent, key, entry| {
        let to = entry.inode;
        let is_wrong = node(to.0).is_none()
            || to == Inode::ROOT
            || !is_directory(parent.0)
            || !trash::belongs(parent, schema::name_in(key), entry)
            || Hour::of_inode(parent).is_some() && survey.inodes[&to.0].entries > 1;
        if is_wrong || rings.contains(&to.0) {
            wrong.push((Bytes::copy_from_slice(key), entry));
        } else if is_directory(to.0) && survey.inodes[&to.0].entries > 1 {
            let found = several.entry(to.0).or_default();
            found.push((Bytes::copy_from_slice(key), entry));
        }
    })?;
    for (inode, mut found) in several {
        let parent = node(inode).map_or(0, |node| node.parent);
        let right = found
            .iter()
            .position(|(key, _)| schema::inode_in(key).is_ok_and(|inside| inside.0 == parent));
        // With none that it knows of, the first one.
        found.remove(right.unwrap_or(0));
        wrong.extend(found);
    }
    let repairs = wrong.iter().map(|(key, entry)| {
        let parent = schema::inode_in(key)?;
        let name = String::from_utf8_lossy(schema::name_in(key)).into_owned();
        let text = format!(
            "entry `{name}` of directory {}: is taken out, it leads to inode {}",
            parent.0, entry.inode.0
        );
        Repair::new(text).delete(key).touch(reads, parent)
    });
    repairs.collect()
}

/// Visits all entries with the directories they are in.
fn visit(reads: &dyn Reads, visit: &mut dyn FnMut(Inode, &[u8], Entry)) -> FsResult<()> {
    let mut outcome = Ok(());
    reads.scan(&[kind::ENTRY]..&[kind::ENTRY + 1], &mut |key, value| {
        match schema::inode_in(key).and_then(|parent| Ok((parent, Entry::decode(value)?))) {
            Ok((parent, entry)) => visit(parent, key, entry),
            Err(error) => outcome = Err(error),
        }
        ControlFlow::Continue(())
    })?;
    outcome
}

impl Survey {
    /// Directories that lie in themselves: of each ring the one with the least number.
    pub(in crate::check) fn rings(&self) -> HashSet<u64> {
        let (mut rings, mut known) = (HashSet::new(), HashSet::from([Inode::ROOT.0, TRASH.0]));
        for start in self.inodes.keys() {
            let (mut way, mut at) = (Vec::new(), *start);
            while known.insert(at) {
                way.push(at);
                match self.inodes.get(&at) {
                    Some(seen) if seen.entries > 0 => at = seen.parent,
                    _ => break,
                }
            }
            if let Some(begins) = way.iter().position(|passed| *passed == at)
                && self.inodes.get(&at).is_some_and(|seen| seen.entries > 0)
            {
                rings.extend(way[begins..].iter().min());
            }
        }
        rings
    }
}

/// Files that no entry leads to and that nobody collects come to `lost+found`, which is made where it is not there.
pub(super) fn unnamed(reads: &dyn Reads, survey: &Survey) -> FsResult<Vec<Repair>> {
    let lost = survey.inodes.iter().filter(|(inode, seen)| {
        let needs_name = !trash::is_top(**inode) && seen.entries == 0;
        seen.node.is_some() && needs_name && !seen.is_orphan
    });
    let mut lost: Vec<_> = lost.collect();
    lost.sort_by_key(|(inode, _)| **inode);
    let hours: Vec<_> = lost.iter().filter_map(|(inode, _)| hour(**inode)).collect();
    if lost.is_empty() || !hours.is_empty() {
        return Ok(hours);
    }
    let place = match lost_and_found(reads)? {
        Ok(place) => place,
        Err(free) => return Ok(vec![made(reads, survey, &free)?]),
    };
    let mut directories = counter(reads.get(&schema::directories(place))?.as_ref());
    let mut repairs = Vec::new();
    for (inode, seen) in lost {
        let Some(node) = seen.node.clone() else {
            continue;
        };
        let name = free_name(reads, place, &format!("#{inode}"))?;
        let text =
            format!("inode {inode}: no name leads to it, it comes to {LOST_AND_FOUND}/{name}");
        let entry = Entry {
            inode: Inode(*inode),
            kind: node.kind,
        };
        let is_directory = node.is_directory();
        let node = Node {
            links: 1,
            parent: if is_directory { place.0 } else { 0 },
            ..node
        };
        let mut repair = Repair::new(text)
            .put(&schema::entry(Dentry::new(place, &name)), entry.encode())
            .put(&schema::node(Inode(*inode)), node.encode())
            .touch(reads, place)?;
        if is_directory {
            directories += 1;
            let key = schema::directories(place);
            repair = repair.put(&key, number(directories.cast_unsigned()));
        }
        repairs.push(repair);
    }
    Ok(repairs)
}

/// Has an hour of the trash its name.
fn hour(inode: u64) -> Option<Repair> {
    let hour = Hour::of_inode(Inode(inode))?;
    let name = hour.name();
    let entry = Entry {
        inode: hour.inode(),
        kind: FileKind::Directory,
    };
    let text = format!("inode {inode}: comes back to the trash as {name}");
    let place = schema::entry(Dentry::new(TRASH, &name));
    Some(Repair::new(text).put(&place, entry.encode()))
}

/// The directory for lost files, or the name with which it can be made.
fn lost_and_found(reads: &dyn Reads) -> FsResult<Result<Inode, FileName>> {
    for number in 0..NAMES_MAX {
        let name = numbered(LOST_AND_FOUND, number)?;
        match operations::find(reads, Dentry::new(Inode::ROOT, &name))? {
            None => return Ok(Err(name)),
            Some(entry) if entry.kind == FileKind::Directory => return Ok(Ok(entry.inode)),
            Some(_) => {}
        }
    }
    Err(FsError::AlreadyExists)
}

fn free_name(reads: &dyn Reads, place: Inode, text: &str) -> FsResult<FileName> {
    for number in 0..NAMES_MAX {
        let name = numbered(text, number)?;
        if operations::find(reads, Dentry::new(place, &name))?.is_none() {
            return Ok(name);
        }
    }
    Err(FsError::AlreadyExists)
}

fn numbered(text: &str, number: u32) -> FsResult<FileName> {
    let text = match number {
        0 => text.to_owned(),
        _ => format!("{text}.{number}"),
    };
    FileName::new(text.as_bytes()).map_err(|_| FsError::InvalidArgument("a name for a lost file"))
}

/// Makes the directory for lost files.
fn made(reads: &dyn Reads, survey: &Survey, name: &FileName) -> FsResult<Repair> {
    let last = mark(reads.get(schema::LAST_INODE)?.as_ref());
    let files = survey.inodes.keys().copied();
    let greatest = files.filter(|inode| *inode <= FILE_MAX).max();
    let inode = Inode(last.max(greatest.unwrap_or(1)) + 1);
    let node = Node {
        permissions: 0o700,
        parent: Inode::ROOT.0,
        ..Node::new(FileKind::Directory, clock::wall_time())
    };
    let entry = Entry {
        inode,
        kind: node.kind,
    };
    let above = schema::directories(Inode::ROOT);
    let directories = counter(reads.get(&above)?.as_ref()) + 1;
    let files = counter(reads.get(schema::FILES)?.as_ref()) + 1;
    Repair::new(format!("directory `{name}` is made"))
        .put(&schema::node(inode), node.encode())
        .put(
            &schema::entry(Dentry::new(Inode::ROOT, name)),
            entry.encode(),
        )
        .put(&above, number(directories.cast_unsigned()))
        .put(&schema::LAST_INODE.into(), number(inode.0))
        .put(&schema::FILES.into(), number(files.cast_unsigned()))
        .touch(reads, Inode::ROOT)
}
