//! Which bytes of a file lie where, and its size.

use std::{
    collections::{BTreeMap, HashMap},
    ops::{ControlFlow, Range},
    time::SystemTime,
};

use penstock_base::{FsError, FsResult};
use penstock_vfs::{Inode, Seek, permission};

use super::{node, put_node};
use crate::{
    data::ObjectId,
    engine::{Reads, Transaction},
    schema::{self, BLOCK_SIZE, Chunk, Extent, Node, ObjectUse},
};

/// Chunks that one operation changes where there are many: long ones run in steps.
pub(crate) const STEP: usize = 1000;

/// What is done to a chunk.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    /// This range of it is not written any more.
    Clear(u64, Range<u32>),
    /// This is written.
    Insert(u64, Extent),
}

impl Edit {
    pub(crate) fn chunk(&self) -> u64 {
        match self {
            Self::Clear(chunk, _) | Self::Insert(chunk, _) => *chunk,
        }
    }
}

/// How the size changes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SizeChange {
    To(u64),
    /// To this if it is larger.
    AtMost(u64),
}

/// What changes of a file together with its bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileChange {
    pub(crate) size: Option<SizeChange>,
    /// When its content changed.
    pub(crate) modified: Option<SystemTime>,
    /// When anything of it changed.
    pub(crate) changed: Option<SystemTime>,
    /// Somebody who is not root wrote.
    pub(crate) drops_set_id: bool,
}

/// Makes edits with what else changes of the file: clears what is to be cleared, then inserts the rest, none of which
/// overlaps.
pub(crate) fn edit(
    transaction: &mut dyn Transaction,
    inode: Inode,
    edits: &[Edit],
    change: &FileChange,
) -> FsResult<Node> {
    let mut file = node(transaction, inode)?;
    let mut by_chunk: BTreeMap<u64, Vec<&Edit>> = BTreeMap::new();
    for edit in edits {
        by_chunk.entry(edit.chunk()).or_default().push(edit);
    }
    let (mut uses, allocated) = (Uses::default(), file.allocated);
    for (chunk, edits) in by_chunk {
        edit_chunk(transaction, (inode, chunk), (&edits, &mut uses), &mut file)?;
    }
    uses.apply(transaction)?;
    let more = file.allocated.wrapping_sub(allocated) as i64;
    if more != 0 {
        transaction.add(schema::BYTES, more)?;
    }
    file.size = match change.size {
        None => file.size,
        Some(SizeChange::To(size)) => size,
        Some(SizeChange::AtMost(size)) => file.size.min(size),
    };
    file.modified = change.modified.unwrap_or(file.modified);
    // What is said late of an earlier time changes nothing of a later one.
    file.changed = file.changed.max(change.changed.unwrap_or(file.changed));
    if change.drops_set_id {
        file.permissions = permission::without_set_id(file.permissions);
    }
    put_node(transaction, inode, &file);
    Ok(file)
}

fn edit_chunk(
    transaction: &mut dyn Transaction,
    (inode, index): (Inode, u64),
    (edits, uses): (&[&Edit], &mut Uses),
    file: &mut Node,
) -> FsResult<()> {
    let key = schema::chunk(inode, index);
    let mut chunk = match transaction.get(&key)? {
        Some(value) => Chunk::decode(&value)?,
        None => Chunk::default(),
    };
    let before = chunk.allocated();
    let mut new = Vec::new();
    for edit in edits {
        match edit {
            Edit::Clear(_, range) => chunk.clear(range, &mut uses.changes),
            Edit::Insert(_, extent) => {
                let length = u64::from(extent.stored.object_length);
                uses.lengths.insert(extent.stored.object, length);
                new.push(extent.clone());
            }
        }
    }
    chunk.insert(new, &mut uses.changes);
    file.allocated = file
        .allocated
        .saturating_sub(before)
        .saturating_add(chunk.allocated());
    match chunk.extents.is_empty() {
        true => transaction.delete(&key),
        false => transaction.put(&key, chunk.encode()),
    }
    Ok(())
}

/// How the use of objects changes.
#[derive(Debug, Default)]
struct Uses {
    changes: Vec<(ObjectId, i64)>,
    /// Of objects that may be new.
    lengths: HashMap<ObjectId, u64>,
}

impl Uses {
    fn apply(self, transaction: &mut dyn Transaction) -> FsResult<()> {
        let mut sums: BTreeMap<ObjectId, i64> = BTreeMap::new();
        for (object, change) in self.changes {
            *sums.entry(object).or_default() += change;
        }
        for (object, change) in sums {
            let key = schema::object(object);
            let value = transaction.get(&key)?;
            let known = value.map(|value| ObjectUse::decode(&value)).transpose()?;
            let new = self.lengths.get(&object);
            let fresh = new.map(|length| ObjectUse {
                length: *length,
                used: 0,
            });
            let mut used = known
                .or(fresh)
                .ok_or_else(|| schema::damaged("the use of an object"))?;
            used.used = used
                .used
                .checked_add_signed(change)
                .ok_or_else(|| schema::damaged("the use of an object"))?;
            let garbage = schema::garbage(object);
            if used.used > 0 {
                transaction.put(&key, used.encode());
                if known.is_none() {
                    // Other files came with this object and went already.
                    transaction.delete(&garbage);
                }
            } else {
                transaction.delete(&key);
                transaction.put(&garbage, schema::nothing());
            }
        }
        Ok(())
    }
}

/// Visits the chunks of a file that are written somewhere, from chunk `first` on.
fn visit(
    reads: &dyn Reads,
    (inode, first): (Inode, u64),
    visit: &mut dyn FnMut(u64, Chunk) -> ControlFlow<()>,
) -> FsResult<()> {
    let end = schema::behind(&schema::of_chunks(inode));
    let mut outcome = Ok(());
    reads.scan(&schema::chunk(inode, first)..&end, &mut |key, value| {
        let chunk = schema::chunk_in(key).and_then(|index| Ok((index, Chunk::decode(value)?)));
        match chunk {
            Ok((index, chunk)) => visit(index, chunk),
            Err(error) => {
                outcome = Err(error);
                ControlFlow::Break(())
            }
        }
    })?;
    outcome
}

/// What clears a range of a file: an edit for each chunk of it that is written somewhere, in order, `limit` at most.
pub(crate) fn clearing(
    reads: &dyn Reads,
    inode: Inode,
    range: &Range<u64>,
    limit: usize,
) -> FsResult<Vec<Edit>> {
    let mut edits = Vec::new();
    visit(reads, (inode, range.start / BLOCK_SIZE), &mut |index, _| {
        let start = index * BLOCK_SIZE;
        if start >= range.end {
            return ControlFlow::Break(());
        }
        let within = |place: u64| place.saturating_sub(start).min(BLOCK_SIZE) as u32;
        edits.push(Edit::Clear(index, within(range.start)..within(range.end)));
        match edits.len() < limit {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(edits)
}

/// A part of a file that is written.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    /// Where in the file.
    pub(crate) offset: u64,
    pub(crate) extent: Extent,
}

/// The parts of a range of a file that are written, in order.
pub(crate) fn extents_in(
    reads: &dyn Reads,
    inode: Inode,
    range: &Range<u64>,
) -> FsResult<Vec<Written>> {
    let mut found = Vec::new();
    visit(
        reads,
        (inode, range.start / BLOCK_SIZE),
        &mut |index, chunk| {
            let start = index * BLOCK_SIZE;
            if start >= range.end {
                return ControlFlow::Break(());
            }
            let within = |place: u64| place.saturating_sub(start).min(BLOCK_SIZE) as u32;
            let wanted = within(range.start)..within(range.end);
            let parts = chunk.extents.iter();
            let parts = parts.filter_map(|extent| extent.part(&wanted));
            found.extend(parts.map(|extent| Written {
                offset: start + u64::from(extent.at),
                extent,
            }));
            ControlFlow::Continue(())
        },
    )?;
    Ok(found)
}

/// The first place at or behind `from` that is written, or that is not.
pub(crate) fn next_place(
    reads: &dyn Reads,
    inode: Inode,
    from: u64,
    wanted: Seek,
) -> FsResult<u64> {
    let size = node(reads, inode)?.size;
    if from >= size {
        return Err(FsError::NoSuchPlace);
    }
    let (mut data, mut hole) = (None, from);
    visit(reads, (inode, from / BLOCK_SIZE), &mut |index, chunk| {
        for extent in &chunk.extents {
            let start = index * BLOCK_SIZE + u64::from(extent.at);
            let end = start + u64::from(extent.length);
            if end <= from {
                continue;
            }
            data.get_or_insert(start.max(from));
            if wanted == Seek::Data || start > hole {
                return ControlFlow::Break(());
            }
            hole = end;
        }
        ControlFlow::Continue(())
    })?;
    match wanted {
        Seek::Hole => Ok(hole.min(size)),
        Seek::Data => data.filter(|data| *data < size).ok_or(FsError::NoSuchPlace),
    }
}
