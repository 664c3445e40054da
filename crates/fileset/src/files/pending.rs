//! What was written to a file and is not in the metadata yet.

use std::{collections::BTreeMap, ops::Range, time::SystemTime};

use bytes::Bytes;
use penstock_base::Reservation;
use penstock_vfs::Attributes;

use crate::{
    data::Piece,
    quotas::{Room, Subject},
};

/// A piece that is shorter is copied when another one follows it, so that none is much smaller than its memory.
const SMALL: usize = 16 << 10;

/// Memory that is held beyond what the pieces need: each of them takes whole pages.
const SPARE_MAX: u64 = 1 << 20;

/// Pieces that are pending at most: a chunk has a list of them afterwards.
const PIECES_MAX: usize = 8192;

/// Bytes by where they begin; none overlap.
pub(super) type Pieces = BTreeMap<u64, Bytes>;

/// What pays for pieces: memory, and room where something limits the file.
#[derive(Debug, Default)]
pub(super) struct Paid {
    memory: Option<Reservation>,
    /// One for each of those whose file it was meanwhile.
    rooms: Vec<Room>,
}

impl Paid {
    pub(super) fn new(memory: Reservation, room: Option<Room>) -> Self {
        Self {
            memory: Some(memory),
            rooms: room.into_iter().collect(),
        }
    }

    fn merge(&mut self, more: Self) {
        match (&mut self.memory, more.memory) {
            (Some(held), Some(more)) => held.merge(more),
            (held, more) => *held = held.take().or(more),
        }
        for room in more.rooms {
            let other = match self.rooms.last_mut() {
                Some(last) => last.merge(room),
                None => Some(room),
            };
            self.rooms.extend(other);
        }
    }
}

/// What a save took.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) pieces: Vec<Piece>,
    /// The file is at least so long.
    pub(super) reach: u64,
    pub(super) modified: Option<SystemTime>,
    pub(super) drops_set_id: bool,
}

/// What somebody sets of a file that a save would set, too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Overruled {
    /// The time of its content.
    pub(crate) modified: bool,
    /// The bits that a write by somebody else takes away.
    pub(crate) set_id: bool,
}

/// See the module. The size is that of the file as everybody here sees it: what the metadata says, or what is pending
/// makes of it.
#[derive(Debug)]
pub(crate) struct Pending {
    size: u64,
    /// Others change the file, too: the metadata is told of each cut at once, and a save says nothing of a size but what
    /// its pieces need.
    is_shared: bool,
    /// What the next save makes of the size at least.
    reach: u64,
    /// Whether the metadata has another size.
    is_resized: bool,
    modified: Option<SystemTime>,
    drops_set_id: bool,
    pieces: Pieces,
    bytes: u64,
    paid: Paid,
    /// What a save is putting into the bucket, below `pieces`.
    saving: Option<Saving>,
    /// A close said that what is pending could not be saved.
    is_told: bool,
    /// Moves when what a reader found elsewhere may not be true any more.
    changes: u64,
    /// As many of them are durable.
    durable: u64,
}

/// What a save took and has not brought into the metadata.
#[derive(Debug)]
struct Saving {
    pieces: Pieces,
    bytes: u64,
    paid: Paid,
    modified: Option<SystemTime>,
    reach: u64,
}

/// What a change of size took away, until the metadata has made it, too.
#[derive(Debug)]
pub(super) struct Before {
    pieces: Pieces,
    paid: Paid,
    pub(super) size: u64,
    reach: u64,
    is_resized: bool,
    modified: Option<SystemTime>,
    /// Something is pending still.
    pub(super) is_dirty: bool,
}

/// What a reader sees of it.
#[derive(Debug)]
pub(super) struct Seen {
    /// Where the file ends.
    pub(super) size: u64,
    /// The pieces in the range, in order, none overlapping.
    pub(super) pieces: Vec<Piece>,
    pub(super) changes: u64,
}

impl Pending {
    pub(super) fn new(size: u64, is_shared: bool) -> Self {
        Self {
            size,
            is_shared,
            reach: 0,
            is_resized: false,
            modified: None,
            drops_set_id: false,
            pieces: Pieces::new(),
            bytes: 0,
            paid: Paid::default(),
            saving: None,
            is_told: false,
            changes: 0,
            durable: 0,
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a save of it is due, since it has so many bytes or pieces.
    pub(super) fn is_much(&self, bytes: u64) -> bool {
        self.bytes >= bytes || self.pieces.len() >= PIECES_MAX
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether what is not saved counts for one of these.
    pub(super) fn counts_for(&self, subjects: &[Subject]) -> bool {
        let saving = self.saving.iter().flat_map(|saving| &saving.paid.rooms);
        let mut rooms = self.paid.rooms.iter().chain(saving);
        rooms.any(|room| room.is_of(subjects))
    }

    /// Whether a save has anything to do, or is doing it.
    pub(super) fn is_unsaved(&self) -> bool {
        self.is_resized
            || self.modified.is_some()
            || !self.pieces.is_empty()
            || self.saving.is_some()
    }

    pub(super) fn show(&self, attributes: &mut Attributes) {
        let saving = self.saving.as_ref();
        attributes.size = match self.is_shared {
            true => attributes.size.max(self.all_reach()),
            false => self.size,
        };
        attributes.allocated += self.bytes + saving.map_or(0, |saving| saving.bytes);
        if let Some(modified) = self.shown_modified() {
            attributes.modified = modified;
            attributes.changed = attributes.changed.max(modified);
        }
    }

    /// When what is not saved was written last.
    pub(super) fn shown_modified(&self) -> Option<SystemTime> {
        let saving = self.saving.as_ref();
        self.modified.or(saving.and_then(|saving| saving.modified))
    }

    /// What saves make of the size at least.
    fn all_reach(&self) -> u64 {
        let saving = self.saving.as_ref().map_or(0, |saving| saving.reach);
        self.reach.max(saving)
    }

    /// Where the last piece ends.
    fn pieces_end(&self) -> u64 {
        let last = self.pieces.last_key_value();
        last.map_or(0, |(offset, piece)| offset + piece.len() as u64)
    }

    /// Adds what was written and `paid` for.
    pub(super) fn write(&mut self, offset: u64, data: Bytes, paid: Paid, now: SystemTime) {
        self.paid.merge(paid);
        let end = offset + data.len() as u64;
        self.bytes -= cut(&mut self.pieces, offset..end);
        self.bytes += data.len() as u64;
        let before = self.pieces.range(..offset).next_back();
        let joined = before.and_then(|(start, piece)| {
            let follows = start + piece.len() as u64 == offset && piece.len() < SMALL;
            follows.then(|| (*start, [&piece[..], &data[..]].concat().into()))
        });
        let (start, piece) = joined.unwrap_or((offset, data));
        self.pieces.insert(start, piece);
        self.give_back_memory();
        self.size = self.size.max(end);
        self.reach = self.reach.max(end);
        self.is_resized = true;
        self.modified = Some(now);
        self.is_told = false;
    }

    /// Somebody who is not root wrote.
    pub(super) fn drop_set_id(&mut self) {
        self.drops_set_id = true;
    }

    /// Nothing behind `size` is pending any more, and the file has that size. Returns what was. Only in one's turn.
    pub(super) fn resize(&mut self, size: u64, now: SystemTime) -> Before {
        let mut before = Before {
            pieces: self.punch(size..u64::MAX),
            paid: Paid::default(),
            size: self.size,
            reach: self.reach,
            is_resized: self.is_resized,
            modified: self.modified,
            is_dirty: !self.pieces.is_empty(),
        };
        self.size = size;
        self.reach = match self.is_shared || !before.is_dirty {
            true => self.pieces_end(),
            false => size,
        };
        self.is_resized = before.is_dirty;
        self.modified = before.is_dirty.then_some(now);
        if !before.is_dirty {
            before.paid = std::mem::take(&mut self.paid);
        }
        before
    }

    /// The size was not changed, or not all the way: the metadata says that it is `saved`. Only in one's turn.
    pub(super) fn undo_resize(&mut self, before: Before, saved: u64) {
        self.put_below(before.pieces, before.paid);
        self.reach = before.reach.max(self.pieces_end());
        self.size = saved.max(self.reach);
        self.is_resized |= before.is_resized;
        self.modified = self.modified.or(before.modified);
    }

    /// Nothing in `range` is pending any more. Returns what was. Only in one's turn.
    pub(super) fn punch(&mut self, range: Range<u64>) -> Pieces {
        let punched = part(&self.pieces, &range);
        self.bytes -= cut(&mut self.pieces, range);
        self.changes += 1;
        punched
    }

    /// What was punched out of what is pending is there again. Only in one's turn.
    pub(super) fn undo_punch(&mut self, punched: Pieces) {
        self.put_below(punched, Paid::default());
    }

    /// The file is at least so long.
    pub(super) fn grow(&mut self, size: u64, now: SystemTime) {
        self.size = self.size.max(size);
        self.modified = self.modified.map(|_| now);
        self.changes += 1;
    }

    /// The metadata said that the file has this size, when there had been so many `changes`. Returns whether that is
    /// another one than was known, or `None` if it may have another one since.
    pub(super) fn learn_size(&mut self, saved: u64, changes: u64) -> Option<bool> {
        if self.changes != changes {
            return None;
        }
        let size = saved.max(self.all_reach());
        let differs = std::mem::replace(&mut self.size, size) != size;
        self.changes += u64::from(differs);
        Some(differs)
    }

    /// When what the next save takes was written last.
    pub(super) fn written_at(&self) -> Option<SystemTime> {
        self.modified
    }

    /// Somebody set the time of the content, or its permissions, after what was written at `written_at`: a save of
    /// that says nothing of them. Only in one's turn.
    pub(super) fn overrule(&mut self, written_at: Option<SystemTime>, overruled: Overruled) {
        if self.modified != written_at {
            return;
        }
        if overruled.modified {
            self.modified = None;
        }
        if overruled.set_id {
            self.drops_set_id = false;
        }
    }

    /// Gives back what is paid for bytes that were written over.
    fn give_back_memory(&mut self) {
        let needed = self.bytes + SPARE_MAX;
        if let Some(held) = &mut self.paid.memory
            && held.bytes() > 2 * needed
        {
            drop(held.split(held.bytes() - needed));
        }
    }

    /// What is to be saved now, if anything. Only in one's turn.
    pub(super) fn take(&mut self) -> Option<Taken> {
        if !self.is_unsaved() {
            return None;
        }
        self.is_resized = false;
        let saving = Saving {
            pieces: std::mem::take(&mut self.pieces),
            bytes: std::mem::take(&mut self.bytes),
            paid: std::mem::take(&mut self.paid),
            modified: self.modified.take(),
            reach: std::mem::take(&mut self.reach),
        };
        let pieces = saving.pieces.iter();
        let pieces = pieces.map(|(offset, bytes)| Piece {
            offset: *offset,
            bytes: bytes.clone(),
        });
        let taken = Taken {
            pieces: pieces.collect(),
            reach: saving.reach,
            modified: saving.modified,
            drops_set_id: std::mem::take(&mut self.drops_set_id),
        };
        self.saving = Some(saving);
        Some(taken)
    }

    /// What was taken of the file before `end` is in the metadata.
    pub(super) fn saved_before(&mut self, end: u64) {
        if let Some(saving) = &mut self.saving {
            saving.bytes -= cut(&mut saving.pieces, 0..end);
        }
        self.changes += 1;
    }

    /// Whether all that was changed is known to be durable.
    pub(super) fn is_durable(&self) -> bool {
        self.durable == self.changes
    }

    /// So many changes are durable.
    pub(super) fn made_durable(&mut self, changes: u64) {
        self.durable = self.durable.max(changes);
    }

    /// What a reader found elsewhere may not be true any more.
    pub(super) fn moved(&mut self) {
        self.changes += 1;
    }

    /// What was taken is in the metadata.
    pub(super) fn saved(&mut self) {
        self.saving = None;
        self.is_told &= self.is_unsaved();
        self.changes += 1;
    }

    /// What is left of what was taken is not, and waits for another save, below what was written since.
    pub(super) fn give_back(&mut self, taken: &Taken) {
        let saving = self.saving.take();
        let (pieces, paid) = saving.map_or_else(Default::default, |it| (it.pieces, it.paid));
        self.put_below(pieces, paid);
        self.reach = self.reach.max(taken.reach);
        self.is_resized = true;
        self.modified = self.modified.or(taken.modified);
        self.drops_set_id |= taken.drops_set_id;
    }

    /// A close says that what is pending could not be saved.
    pub(super) fn told(&mut self) {
        self.is_told = self.is_unsaved();
    }

    /// Whether a close said that what is pending could not be saved.
    pub(super) fn is_told(&self) -> bool {
        self.is_told
    }

    /// What is pending is lost. Only in one's turn.
    pub(super) fn give_up(&mut self) {
        drop(self.take());
        self.saved();
    }

    /// Pieces are pending again, below those that are.
    fn put_below(&mut self, pieces: Pieces, paid: Paid) {
        let newer = std::mem::replace(&mut self.pieces, pieces);
        for (offset, piece) in newer {
            cut(&mut self.pieces, offset..offset + piece.len() as u64);
            self.pieces.insert(offset, piece);
        }
        self.bytes = self.pieces.values().map(|piece| piece.len() as u64).sum();
        self.paid.merge(paid);
    }

    /// What a reader of `range` sees.
    pub(super) fn see(&self, range: &Range<u64>) -> Seen {
        let saving = self.saving.as_ref();
        let mut seen = saving.map_or(Pieces::new(), |saving| part(&saving.pieces, range));
        for (offset, piece) in part(&self.pieces, range) {
            cut(&mut seen, offset..offset + piece.len() as u64);
            seen.insert(offset, piece);
        }
        let pieces = seen.into_iter();
        Seen {
            size: self.size,
            pieces: pieces
                .map(|(offset, bytes)| Piece { offset, bytes })
                .collect(),
            changes: self.changes,
        }
    }
}

/// The parts of pieces that lie in a range.
fn part(pieces: &Pieces, range: &Range<u64>) -> Pieces {
    let before = pieces.range(..range.start).next_back();
    let touched = before.into_iter().chain(pieces.range(range.clone()));
    let parts = touched.filter_map(|(offset, piece)| {
        let end = offset + piece.len() as u64;
        let (start, end) = ((*offset).max(range.start), end.min(range.end));
        let within = |place: u64| (place - offset) as usize;
        (start < end).then(|| (start, piece.slice(within(start)..within(end))))
    });
    parts.collect()
}

/// Takes a range out of pieces, and returns how many bytes that were.
fn cut(pieces: &mut Pieces, range: Range<u64>) -> u64 {
    if range.is_empty() {
        return 0;
    }
    let mut removed = 0;
    let before = pieces.range(..range.start).next_back();
    let first = before.map_or(range.start, |(offset, _)| *offset);
    let touched: Vec<_> = pieces
        .range(first..range.end)
        .map(|(offset, _)| *offset)
        .collect();
    for offset in touched {
        let Some(piece) = pieces.remove(&offset) else {
            continue;
        };
        let end = offset + piece.len() as u64;
        let (start, stop) = (range.start.clamp(offset, end), range.end.min(end));
        removed += stop.saturating_sub(start);
        let kept = piece.slice(..(range.start.clamp(offset, end) - offset) as usize);
        if !kept.is_empty() {
            pieces.insert(offset, kept);
        }
        if range.end < end {
            pieces.insert(range.end, piece.slice((range.end - offset) as usize..));
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use penstock_base::MemoryBudget;
    use proptest::prelude::*;

    use super::*;

    fn shown(pending: &Pending, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        for Piece {
            offset,
            bytes: piece,
        } in pending.see(&(0..length)).pieces
        {
            bytes[offset as usize..offset as usize + piece.len()].copy_from_slice(&piece);
        }
        bytes
    }

    proptest! {
        #[test]
        fn what_was_written_last_is_seen(steps in prop::collection::vec((0u8..5, 0u64..80, 1u64..30), 1..40)) {
            let budget = MemoryBudget::new(16 << 20);
            let (mut pending, mut model) = (Pending::new(0, false), vec![0; 200]);
            let mut taken = None;
            for (number, (kind, start, length)) in steps.into_iter().enumerate() {
                let (start_at, end) = (start as usize, (start + length) as usize);
                match kind {
                    0..=2 => {
                        let data = vec![number as u8 + 1; length as usize];
                        model[start_at..end].copy_from_slice(&data);
                        let memory = budget.try_reserve(length).unwrap();
                        pending.write(start, data.into(), Paid::new(memory, None), SystemTime::UNIX_EPOCH);
                    }
                    3 if taken.is_none() => taken = pending.take(),
                    3 => if let Some(taken) = taken.take() {
                        pending.give_back(&taken);
                    },
                    // Only who has its turn cuts, and then nothing is being saved.
                    _ if taken.is_none() => {
                        model[start_at..end].fill(0);
                        pending.punch(start..start + length);
                    }
                    _ => {}
                }
                prop_assert_eq!(shown(&pending, 200), model.clone());
            }
        }
    }
}
