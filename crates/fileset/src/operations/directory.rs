//! Listing a directory, in the order of names.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    iter,
    ops::ControlFlow,
};

use penstock_base::{FileName, FsResult};
use penstock_vfs::{Attributes, Inode};

use super::{node, shown};
use crate::{
    engine::Reads,
    schema::{self, Entry, Node, kind},
};

/// An entry as a listing shows it.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) name: FileName,
    pub(crate) attributes: Attributes,
}

/// The directories above one, the root last. Fails where one is above itself.
pub(crate) fn above(
    reads: &dyn Reads,
    directory: Inode,
) -> impl Iterator<Item = FsResult<Inode>> + use<'_> {
    let (mut at, mut passed) = (Some(directory), HashSet::new());
    iter::from_fn(move || {
        let below = at.filter(|below| *below != Inode::ROOT)?;
        let found = match passed.insert(below) {
            true => node(reads, below).map(|node| Inode(node.parent)),
            false => Err(schema::damaged("the way to a directory")),
        };
        at = found.as_ref().ok().copied();
        Some(found)
    })
}

/// Visits the entries behind the name `after`.
pub(crate) fn visit(
    reads: &dyn Reads,
    directory: Inode,
    after: Option<&FileName>,
    visit: &mut dyn FnMut(&[u8], Entry) -> ControlFlow<()>,
) -> FsResult<()> {
    let prefix = schema::of_directory(directory);
    let mut start = prefix.clone();
    if let Some(after) = after {
        start.extend_from_slice(after.as_bytes());
        // The first key behind that one.
        start.extend_from_slice(&[0]);
    }
    debug_assert_eq!(prefix[0], kind::ENTRY);
    let mut outcome = Ok(());
    reads.scan(
        &start..&schema::behind(&prefix),
        &mut |key, value| match Entry::decode(value) {
            Ok(entry) => visit(schema::name_in(key), entry),
            Err(error) => {
                outcome = Err(error);
                ControlFlow::Break(())
            }
        },
    )?;
    outcome
}

/// The next entries of a directory behind the name `after`, `count` at most, with their attributes if wanted.
pub(crate) fn list(
    reads: &dyn Reads,
    (directory, after): (Inode, Option<&FileName>),
    count: usize,
    with_attributes: bool,
) -> FsResult<Vec<Listed>> {
    let mut entries = Vec::new();
    visit(reads, directory, after, &mut |name, entry| {
        if let Ok(name) = FileName::new(name) {
            entries.push((name, entry));
        }
        match entries.len() < count {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    let listed = entries.into_iter().map(|(name, entry)| {
        let attributes = match with_attributes {
            true => shown(reads, entry.inode, &super::node(reads, entry.inode)?)?,
            false => {
                Node::new(entry.kind, std::time::SystemTime::UNIX_EPOCH).attributes(entry.inode)
            }
        };
        Ok(Listed { name, attributes })
    });
    listed.collect()
}

/// The position of a name: where a listing goes on behind it. It depends on the name alone, so that it holds while
/// the directory changes. Never 0, which is the beginning, and small enough that a door can add to it.
pub(crate) fn position_of(name: &FileName) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.as_bytes().hash(&mut hasher);
    (hasher.finish() >> 2).max(1)
}

/// The name with this position, if it is there: a walk over the directory, for listings that go on somewhere that
/// their handle does not remember.
pub(crate) fn find_position(
    reads: &dyn Reads,
    directory: Inode,
    position: u64,
) -> FsResult<Option<FileName>> {
    let mut found = None;
    visit(reads, directory, None, &mut |name, _| {
        found = FileName::new(name).ok();
        match found
            .as_ref()
            .is_some_and(|name| position_of(name) == position)
        {
            true => ControlFlow::Break(()),
            false => {
                found = None;
                ControlFlow::Continue(())
            }
        }
    })?;
    Ok(found)
}
