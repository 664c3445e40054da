//! What is in the trash.

use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
    time::SystemTime,
};

use bytes::Bytes;
use penstock_base::{FileName, FsError, FsResult};
use penstock_vfs::{Dentry, Inode};

use crate::{
    engine::{Engine, Reads, query},
    operations, quotas,
    schema::{self, Entry, Hour, TRASH, Trashed},
};

/// Items of one answer.
const ITEMS: usize = 200;

/// A file in the trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Where it lies, below the trash: the hour and its name there.
    pub entry: String,
    /// Where it was, if its directory is still there.
    pub path: Option<String>,
    /// When its last name went, or it was changed since by who had it open.
    pub removed: SystemTime,
    /// Its size.
    pub size: u64,
}

/// A file's name in the trash.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) hour: Hour,
    pub(super) name: Bytes,
    pub(super) inode: Inode,
}

/// The next files of the trash behind the one with that [`Item::entry`], the oldest hour first; none behind the last one.
pub async fn list(engine: &dyn Engine, after: Option<&str>) -> FsResult<Vec<Item>> {
    query(engine, |reads| {
        let mut from = match after {
            None => None,
            Some(after) => Some(behind(after)?),
        };
        let mut all = Vec::new();
        while let Some(hour) = hour_from(reads, from.as_ref().map(|(hour, _)| *hour))? {
            let start = from.take().filter(|(begun, _)| *begun == hour);
            let start = start.map_or_else(Vec::new, |(_, name)| name);
            all.extend(entries(reads, hour, (&start, ITEMS - all.len()))?);
            let next = hour.next();
            match next.filter(|_| all.len() < ITEMS) {
                Some(next) => from = Some((next, Vec::new())),
                None => break,
            }
        }
        items(reads, &all)
    })
    .await
}

/// Where a listing goes on behind an item: the hour, and what names there begin with or come behind.
fn behind(entry: &str) -> FsResult<(Hour, Vec<u8>)> {
    let (hour, name) = parts(entry)?;
    let hour = hour.ok_or(FsError::NotFound)?;
    let prefix = Trashed::of(name.as_bytes()).map(|trashed| trashed.prefix());
    let start = match prefix {
        Some(prefix) => schema::behind(prefix.as_bytes()).to_vec(),
        // Some other name, which is passed over.
        None => [name.as_bytes(), &[0]].concat(),
    };
    Ok((hour, start))
}

/// The hour in front of a name in the trash, if one is said, and the name.
fn parts(entry: &str) -> FsResult<(Option<Hour>, &str)> {
    let Some((hour, name)) = entry.split_once('/') else {
        return Ok((None, entry));
    };
    let hour = Hour::named(hour.as_bytes()).ok_or(FsError::NotFound)?;
    Ok((Some(hour), name))
}

/// The first hour of which there is a directory, from one on.
pub(super) fn hour_from(reads: &dyn Reads, from: Option<Hour>) -> FsResult<Option<Hour>> {
    let prefix = schema::of_directory(TRASH);
    let mut start = prefix.clone();
    if let Some(from) = from {
        start.extend_from_slice(from.name().as_bytes());
    }
    let mut found = None;
    reads.scan(&start..&schema::behind(&prefix), &mut |key, _| {
        // Another name is damage, which a check tells.
        found = Hour::named(schema::name_in(key));
        match found {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    })?;
    Ok(found)
}

/// Some entries of an hour whose names are not before `start`.
pub(super) fn entries(
    reads: &dyn Reads,
    hour: Hour,
    (start, count): (&[u8], usize),
) -> FsResult<Vec<Found>> {
    let prefix = schema::of_directory(hour.inode());
    let mut from = prefix.clone();
    from.extend_from_slice(start);
    let (mut found, mut outcome) = (Vec::new(), Ok(()));
    reads.scan(&from..&schema::behind(&prefix), &mut |key, value| {
        if found.len() == count {
            return ControlFlow::Break(());
        }
        match Entry::decode(value) {
            Ok(entry) => found.push(Found {
                hour,
                name: Bytes::copy_from_slice(schema::name_in(key)),
                inode: entry.inode,
            }),
            Err(error) => outcome = Err(error),
        }
        ControlFlow::Continue(())
    })?;
    outcome.map(|()| found)
}

/// The file that is meant by its hour and name in the trash, or by the name alone. What stands behind the numbers in it does
/// not count, so a name that is not UTF-8 is found by what was shown of it.
pub(super) fn find(reads: &dyn Reads, entry: &str) -> FsResult<Found> {
    let (hour, name) = parts(entry)?;
    let wanted = Trashed::of(name.as_bytes()).ok_or(FsError::NotFound)?;
    let prefix = wanted.prefix();
    let mut from = hour;
    let is_meant = |at: &Hour| hour.is_none_or(|hour| hour == *at);
    while let Some(at) = hour_from(reads, from)?.filter(is_meant) {
        let found = entries(reads, at, (prefix.as_bytes(), 1))?.pop();
        if let Some(found) = found.filter(|found| found.name.starts_with(prefix.as_bytes())) {
            return Ok(found);
        }
        match at.next() {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    Err(FsError::NotFound)
}

fn items(reads: &dyn Reads, all: &[Found]) -> FsResult<Vec<Item>> {
    let mut above = BTreeSet::new();
    for trashed in all.iter().filter_map(|found| Trashed::of(&found.name)) {
        if is_there(reads, trashed.parent)? {
            above.insert(trashed.parent);
        }
    }
    let above = quotas::paths_of(reads, above)?;
    all.iter().map(|found| item(reads, found, &above)).collect()
}

/// An item, with the paths of directories that are still there.
fn item(reads: &dyn Reads, found: &Found, above: &HashMap<Inode, String>) -> FsResult<Item> {
    let file = operations::node(reads, found.inode)?;
    let name = String::from_utf8_lossy(&found.name);
    let path = Trashed::of(&found.name).and_then(|trashed| {
        let above = above.get(&trashed.parent)?;
        Some(joined(above, &String::from_utf8_lossy(trashed.name)))
    });
    Ok(Item {
        entry: format!("{}/{name}", found.hour.name()),
        path,
        removed: file.changed,
        size: file.size,
    })
}

/// The path of a name in a directory.
pub(super) fn path_in(reads: &dyn Reads, directory: Inode, name: &str) -> FsResult<String> {
    Ok(joined(&quotas::path_of(reads, directory)?, name))
}

fn joined(above: &str, name: &str) -> String {
    format!("{}/{name}", above.trim_end_matches('/'))
}

/// Whether a directory is there and has a name.
pub(super) fn is_there(reads: &dyn Reads, directory: Inode) -> FsResult<bool> {
    match operations::directory(reads, directory) {
        Ok(node) => Ok(node.links > 0),
        Err(FsError::Stale | FsError::NotADirectory) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What a path from the root on leads to, if its last name is there, or the directory and the name that is free.
pub(super) fn walk(reads: &dyn Reads, path: &str) -> FsResult<Result<Inode, (Inode, FileName)>> {
    let names = path.split('/').filter(|name| !name.is_empty());
    let mut at = Ok(Inode::ROOT);
    for name in names {
        let Ok(above) = at else {
            return Err(FsError::NotFound);
        };
        operations::directory(reads, above)?;
        let invalid = |_| FsError::InvalidArgument("this is no name for a file");
        let name = FileName::new(name.as_bytes()).map_err(invalid)?;
        at = match operations::find(reads, Dentry::new(above, &name))? {
            Some(entry) => Ok(entry.inode),
            None => Err((above, name)),
        };
    }
    Ok(at)
}
