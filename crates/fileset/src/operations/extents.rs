//! Which bytes of a file lie where, and its size.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::{ControlFlow, Range},
    time::SystemTime,
};

use bytes::Bytes;
use penstock_base::{FsError, FsResult};
use penstock_vfs::{Inode, Seek, permission};

use super::{node, put_node};
use crate::{
    data::{Content, ObjectId},
    engine::{Reads, Transaction},
    quotas::{self, Amount, Owner},
    schema::{self, BLOCK_SIZE, Chunk, Extent, Node, ObjectUse, Share, UseChange},
    snapshots,
};

/// Chunks that one operation changes where there are many: long ones run in steps.
pub(crate) const STEP: usize = 1000;
/// Bytes of keys and values that an operation changes before it takes no further chunk.
pub(crate) const STEP_BYTES: usize = 1 << 20;
/// What a chunk, or an object whose use changes, costs of that beside a value: keys, and the rest of a record.
const KEYS_COST: usize = 96;

/// What is done to a chunk.
#[derive(Debug, Clone)]
pub(crate) enum Edit {
    /// This range of it is not written any more.
    Clear(u64, Range<u32>),
    /// This is written, and its bytes are with the metadata if they are said.
    Insert(u64, Extent, Option<Content>),
    /// This is shown, of an object to which something refers already.
    Show(u64, Extent),
}

impl Edit {
    pub(crate) fn chunk(&self) -> u64 {
        match self {
            Self::Clear(chunk, _) | Self::Insert(chunk, ..) | Self::Show(chunk, _) => *chunk,
        }
    }
}

/// How the size changes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SizeChange {
    To(u64),
    /// To this if it is larger.
    AtMost(u64),
    /// To this if it is smaller.
    AtLeast(u64),
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

/// What an operation did of edits that many operations may make.
#[derive(Debug, Clone, Default)]
pub(crate) struct Step {
    /// How many of the edits.
    pub(crate) edits: usize,
    /// The chunk of the last of them.
    pub(crate) chunk: u64,
    /// None were made before.
    pub(crate) is_first: bool,
    /// There were no more.
    pub(crate) is_last: bool,
    /// Chunks of too many extents by now.
    pub(crate) crowded: Vec<u64>,
}

/// Makes edits with what else changes of the file, which `change` says of this step: of each chunk clears what is to
/// be cleared, then inserts the rest, none of which overlaps. Edits of a chunk follow each other. Takes them in their
/// order, as many as one operation may: those of the first chunk at least, from the one on before which `made` were.
pub(crate) fn edit(
    transaction: &mut dyn Transaction,
    inode: Inode,
    (edits, made): (&[Edit], usize),
    change: &dyn Fn(&Step) -> FileChange,
) -> FsResult<Step> {
    let mut file = node(transaction, inode)?;
    let (mut step, mut uses, allocated) = (Step::default(), Uses::default(), file.allocated);
    let (mut chunks, mut bytes) = (0, 0);
    // What chunks were goes into the same operation then.
    let is_kept = snapshots::epoch(transaction)?.is_some();
    let edits = &edits[made..];
    for edits in edits.chunk_by(|one, other| one.chunk() == other.chunk()) {
        let index = edits[0].chunk();
        let mut edited = EditedChunk::new(transaction, (inode, index), edits)?;
        if !is_kept {
            edited.kept = 0;
        }
        let cost = uses.cost_with(&edited);
        if chunks == STEP || chunks > 0 && bytes + edited.cost() + cost > STEP_BYTES {
            break;
        }
        chunks += 1;
        bytes += edited.cost();
        step.edits += edits.len();
        step.chunk = index;
        step.crowded
            .extend(edited.chunk.is_crowded().then_some(index));
        edited.put(transaction, (inode, index), (&mut file, &mut uses));
    }
    step.is_first = made == 0;
    step.is_last = step.edits == edits.len();
    uses.apply(transaction)?;
    count_bytes(transaction, allocated, (inode, &file))?;
    change(&step).apply(&mut file);
    put_node(transaction, inode, &file);
    Ok(step)
}

/// Counts what a file occupies more than `before`, or less.
fn count_bytes(
    transaction: &mut dyn Transaction,
    before: u64,
    (inode, file): (Inode, &Node),
) -> FsResult<()> {
    let more = Amount {
        bytes: file.allocated.wrapping_sub(before).cast_signed(),
        files: 0,
    };
    quotas::charge(transaction, Owner::of(inode, file), more)
}

impl FileChange {
    pub(super) fn apply(&self, file: &mut Node) {
        file.size = match self.size {
            None => file.size,
            Some(SizeChange::To(size)) => size,
            Some(SizeChange::AtMost(size)) => file.size.min(size),
            Some(SizeChange::AtLeast(size)) => file.size.max(size),
        };
        file.modified = self.modified.unwrap_or(file.modified);
        // What is said late of an earlier time changes nothing of a later one.
        file.changed = file.changed.max(self.changed.unwrap_or(file.changed));
        if self.drops_set_id {
            file.permissions = permission::without_set_id(file.permissions);
        }
    }
}

/// A chunk of which edits were made, and not yet put.
struct EditedChunk {
    chunk: Chunk,
    value: Bytes,
    /// Bytes that were written of it before.
    before: u64,
    /// Bytes of its value before, which a snapshot may keep.
    kept: usize,
    uses: Vec<UseChange>,
    /// Lengths of objects that may be new.
    lengths: Vec<(ObjectId, u64)>,
    contents: Vec<Content>,
}

impl EditedChunk {
    fn new(reads: &dyn Reads, place: (Inode, u64), edits: &[Edit]) -> FsResult<Self> {
        let value = reads.get(&schema::chunk(place.0, place.1))?;
        let mut chunk = decoded(value.as_ref())?;
        let (before, mut uses, mut new) = (chunk.allocated(), Vec::new(), Vec::new());
        let (mut lengths, mut contents) = (Vec::new(), Vec::new());
        for edit in edits {
            match edit {
                Edit::Clear(_, range) => chunk.clear(range, &mut uses),
                Edit::Insert(_, extent, content) => {
                    lengths.push(length_of(extent));
                    new.push(extent.clone());
                    contents.extend(content.clone());
                }
                Edit::Show(_, extent) => new.push(extent.clone()),
            }
        }
        Ok(Self {
            kept: value.map_or(0, |value| value.len()),
            lengths,
            contents,
            ..Self::inserted((chunk, before), new, uses)
        })
    }

    fn inserted(
        (mut chunk, before): (Chunk, u64),
        new: Vec<Extent>,
        mut uses: Vec<UseChange>,
    ) -> Self {
        let lengths = new.iter().map(length_of).collect();
        chunk.insert(new, &mut uses);
        Self {
            value: chunk.encode(),
            chunk,
            before,
            kept: 0,
            uses,
            lengths,
            contents: Vec::new(),
        }
    }

    fn cost(&self) -> usize {
        let contents = self.contents.iter();
        let contents = contents.map(|content| content.bytes.len() + KEYS_COST);
        self.value.len() + self.kept + KEYS_COST + contents.sum::<usize>()
    }

    fn put(
        self,
        transaction: &mut dyn Transaction,
        (inode, index): (Inode, u64),
        (file, uses): (&mut Node, &mut Uses),
    ) {
        let allocated = file.allocated.saturating_sub(self.before);
        file.allocated = allocated.saturating_add(self.chunk.allocated());
        uses.lengths.extend(self.lengths);
        for content in self.contents {
            transaction.put(&content.key, content.bytes);
        }
        for (object, change) in self.uses {
            *uses.sums.entry(object).or_default() += change;
        }
        let key = schema::chunk(inode, index);
        match self.chunk.extents.is_empty() {
            true => transaction.delete(&key),
            false => transaction.put(&key, self.value),
        }
    }
}

/// An object that may be new, and its length.
fn length_of(extent: &Extent) -> (ObjectId, u64) {
    let stored = &extent.stored;
    (stored.object, u64::from(stored.object_length))
}

/// What is written of a chunk.
pub(crate) fn chunk(reads: &dyn Reads, (inode, index): (Inode, u64)) -> FsResult<Chunk> {
    decoded(reads.get(&schema::chunk(inode, index))?.as_ref())
}

fn decoded(value: Option<&Bytes>) -> FsResult<Chunk> {
    value.map_or_else(|| Ok(Chunk::default()), |value| Chunk::decode(value))
}

/// Shows `folded` runs in a chunk instead of the many extents that were copied to them, wherever it still is what it
/// was `before`. Returns whether the chunk has fewer extents now; else nothing is changed.
pub(crate) fn fold(
    transaction: &mut dyn Transaction,
    (inode, index): (Inode, u64),
    before: &Chunk,
    folded: &[Extent],
) -> FsResult<bool> {
    let mut file = node(transaction, inode)?;
    let now = chunk(transaction, (inode, index))?;
    let (extents, allocated) = (now.extents.len(), now.allocated());
    let unchanged = folded.iter().flat_map(|run| {
        let ranges = now.agreeing(before, &(run.at..run.end()));
        ranges.into_iter().filter_map(|range| run.part(&range))
    });
    let unchanged = unchanged.collect();
    let edited = EditedChunk::inserted((now, allocated), unchanged, Vec::new());
    if edited.chunk.extents.len() >= extents {
        return Ok(false);
    }
    let (mut uses, allocated) = (Uses::default(), file.allocated);
    edited.put(transaction, (inode, index), (&mut file, &mut uses));
    uses.apply(transaction)?;
    count_bytes(transaction, allocated, (inode, &file))?;
    put_node(transaction, inode, &file);
    Ok(true)
}

/// Objects that were stored for nothing are to be deleted, unless something refers to them.
pub(crate) fn abandon(transaction: &mut dyn Transaction, objects: &[ObjectId]) -> FsResult<()> {
    for object in objects {
        if transaction.get(&schema::object(*object))?.is_none() {
            transaction.put(&schema::garbage(*object), schema::nothing());
        }
    }
    Ok(())
}

/// How the use of objects changes.
#[derive(Debug, Default)]
struct Uses {
    sums: BTreeMap<ObjectId, Share>,
    /// Of objects that may be new.
    lengths: HashMap<ObjectId, u64>,
}

impl Uses {
    /// What they would cost of an operation with those of one more chunk.
    fn cost_with(&self, edited: &EditedChunk) -> usize {
        let more = edited.uses.iter().map(|(object, _)| object);
        let more = more.filter(|object| !self.sums.contains_key(object));
        let more: HashSet<_> = more.collect();
        (self.sums.len() + more.len()) * KEYS_COST
    }

    fn apply(self, transaction: &mut dyn Transaction) -> FsResult<()> {
        let latest = snapshots::epoch(transaction)?.map_or(0, |epoch| epoch.latest);
        let spared: i64 = self.sums.values().map(|change| change.spared).sum();
        if spared != 0 {
            transaction.add(schema::SPARED, spared)?;
        }
        for (object, change) in self.sums {
            let key = schema::object(object);
            let value = transaction.get(&key)?;
            let known = value.map(|value| ObjectUse::decode(&value)).transpose()?;
            let new = self.lengths.get(&object);
            let fresh = new.map(|length| ObjectUse {
                length: *length,
                born: latest,
                ..ObjectUse::default()
            });
            let mut used = known
                .or(fresh)
                .ok_or_else(|| schema::damaged("the use of an object"))?;
            used.used = used
                .used
                .checked_add_signed(change.bytes)
                .ok_or_else(|| schema::damaged("the use of an object"))?;
            used.spared = used.spared.saturating_add_signed(change.spared);
            if used.died != 0 {
                transaction.delete(&schema::held(used.died, object));
                used.died = 0;
            }
            let garbage = schema::garbage(object);
            if used.used > 0 {
                transaction.put(&key, used.encode());
                if known.is_none() {
                    // Other files came with this object and went already.
                    transaction.delete(&garbage);
                }
            } else if latest > used.born {
                used.died = latest;
                transaction.put(&key, used.encode());
                transaction.put(&schema::held(latest, object), schema::nothing());
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
    Ok(some_extents_in(reads, inode, range, usize::MAX)?.0)
}

/// The same of as many chunks as have `bytes` in their values, and of the first one in any case. Returns up to where that
/// is all.
pub(super) fn some_extents_in(
    reads: &dyn Reads,
    inode: Inode,
    range: &Range<u64>,
    bytes: usize,
) -> FsResult<(Vec<Written>, u64)> {
    let (mut found, mut taken, mut until) = (Vec::new(), 0, range.end);
    visit(
        reads,
        (inode, range.start / BLOCK_SIZE),
        &mut |index, chunk| {
            let start = index * BLOCK_SIZE;
            if start >= range.end {
                return ControlFlow::Break(());
            }
            if taken >= bytes {
                until = start;
                return ControlFlow::Break(());
            }
            let within = |place: u64| place.saturating_sub(start).min(BLOCK_SIZE) as u32;
            let wanted = within(range.start)..within(range.end);
            let parts = chunk.extents.iter();
            let parts = parts.filter_map(|extent| extent.part(&wanted));
            found.extend(parts.map(|extent| {
                taken += extent.encoded_length();
                Written {
                    offset: start + u64::from(extent.at),
                    extent,
                }
            }));
            ControlFlow::Continue(())
        },
    )?;
    Ok((found, until))
}

/// Bytes of a range of a file that are written.
pub(crate) fn written_in(reads: &dyn Reads, inode: Inode, range: &Range<u64>) -> FsResult<u64> {
    let written = extents_in(reads, inode, range)?;
    let lengths = written.iter().map(|part| u64::from(part.extent.length));
    Ok(lengths.sum())
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
