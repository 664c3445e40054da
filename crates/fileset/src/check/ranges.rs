//! Which bytes of which files are lost with what they lie in.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ops::{ControlFlow, Range},
};

use penstock_base::FsResult;
use penstock_vfs::Inode;

use super::{FINDINGS_MAX, Survey};
use crate::{
    data::ObjectId,
    engine::Reads,
    schema::{self, BLOCK_SIZE, Chunk, Entry, Extent, Stored, kind},
};

/// Directories above a file that are named at most.
const DEPTH_MAX: usize = 4096;

/// Where runs lie.
pub(super) type Places = BTreeSet<(ObjectId, u32)>;

/// Ranges of files in runs that are lost, with their paths, a line each, at most [`FINDINGS_MAX`].
pub(super) fn of(
    reads: &dyn Reads,
    survey: &Survey,
    is_lost: &dyn Fn(&Stored) -> bool,
) -> FsResult<Vec<String>> {
    let ranges = ranges(reads, is_lost)?;
    let names = names(reads, survey, ranges.iter().map(|(inode, _)| *inode))?;
    let told = ranges.iter().map(|(inode, range)| {
        let path = path(&names, *inode);
        let Range { start, end } = range;
        format!(
            "{path} (inode {inode}): bytes {start} to {end} are lost, reads of them fail with EIO"
        )
    });
    Ok(told.collect())
}

/// Runs that files refer to and that are lost.
pub(super) fn runs(reads: &dyn Reads, is_lost: &dyn Fn(&Stored) -> bool) -> FsResult<Places> {
    let mut found = Places::new();
    each(reads, &mut |_, _, extent| {
        if is_lost(&extent.stored) {
            found.insert((extent.stored.object, extent.stored.offset));
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn ranges(
    reads: &dyn Reads,
    is_lost: &dyn Fn(&Stored) -> bool,
) -> FsResult<Vec<(u64, Range<u64>)>> {
    let mut found: Vec<(u64, Range<u64>)> = Vec::new();
    each(reads, &mut |inode, index, extent| {
        if !is_lost(&extent.stored) {
            return ControlFlow::Continue(());
        }
        let start = index * BLOCK_SIZE + u64::from(extent.at);
        let end = start + u64::from(extent.length);
        match found.last_mut() {
            Some((last, range)) if *last == inode.0 && range.end == start => range.end = end,
            _ => found.push((inode.0, start..end)),
        }
        match found.len() < FINDINGS_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(found)
}

/// Looks at the extents of all files, each with the file and the number of its chunk.
fn each(
    reads: &dyn Reads,
    look: &mut dyn FnMut(Inode, u64, &Extent) -> ControlFlow<()>,
) -> FsResult<()> {
    let range = &[kind::CHUNK][..]..&[kind::CHUNK + 1][..];
    reads.scan(range, &mut |key, value| {
        let chunk = || {
            Ok((
                schema::inode_in(key)?,
                schema::chunk_in(key)?,
                Chunk::decode(value)?,
            ))
        };
        // What cannot be read was told already.
        let Ok((inode, index, chunk)) = chunk() as FsResult<(Inode, u64, Chunk)> else {
            return ControlFlow::Continue(());
        };
        let mut extents = chunk.extents.iter();
        extents.try_for_each(|extent| look(inode, index, extent))
    })?;
    Ok(())
}

/// Names by inode, with the directories they are in.
type Names = HashMap<u64, (u64, String)>;

/// A name of each inode and of all directories above it.
fn names(reads: &dyn Reads, survey: &Survey, inodes: impl Iterator<Item = u64>) -> FsResult<Names> {
    let mut wanted = HashSet::new();
    for mut inode in inodes {
        while wanted.insert(inode)
            && let Some(seen) = survey.inodes.get(&inode)
        {
            inode = seen.parent;
        }
    }
    let mut names = Names::new();
    reads.scan(&[kind::ENTRY]..&[kind::ENTRY + 1], &mut |key, value| {
        if let (Ok(Inode(parent)), Ok(entry)) = (schema::inode_in(key), Entry::decode(value))
            && wanted.contains(&entry.inode.0)
            // The directory whose ancestors were looked up.
            && survey.inodes.get(&entry.inode.0).is_some_and(|seen| seen.parent == parent)
        {
            let name = String::from_utf8_lossy(schema::name_in(key)).into_owned();
            names.entry(entry.inode.0).or_insert((parent, name));
        }
        ControlFlow::Continue(())
    })?;
    Ok(names)
}

fn path(names: &Names, mut inode: u64) -> String {
    let mut path = String::new();
    for _ in 0..DEPTH_MAX {
        let Some((parent, name)) = names.get(&inode) else {
            break;
        };
        path = format!("/{name}{path}");
        inode = *parent;
    }
    path
}
