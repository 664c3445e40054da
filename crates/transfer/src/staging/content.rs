//! What a staged file holds, as a value: a base version, what was changed since, and the size.
//!
//! A range that is in no extent is *clean*: the base version has it, at the same offset. That holds
//! because whatever grows a file fills the gap with zeros first, and because a save that succeeds
//! makes its result the base.
//!
//! A file may be changed while it is being saved. What is touched meanwhile is noted apart, and is
//! all that is unsaved when the save has ended. A save whose outcome is not known is remembered with
//! what was touched since ([`crate::staging::attempt`]).

use std::ops::Range;

use crate::{
    ObjectVersion,
    staging::{
        attempt::{ATTEMPTS_MAX, Attempt, Trace},
        extents::{Extents, Held, Piece},
    },
};
use penstock_object::{ETag, Key, WriteCondition};

/// Bytes of the staging directory that an extent costs beside its content, about: the disk
/// allocates whole pages at both ends.
const EXTENT_COST: u64 = 4096;

/// What a staged file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    base: Base,
    size: u64,
    extents: Extents,
    /// Saves whose outcome is not known, the oldest first; the last may be under way.
    attempts: Vec<Attempt>,
    /// An earlier mount left this, and it was not saved since.
    recovered: bool,
}

/// What a file's changes are relative to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Base {
    /// Nothing: the file is new.
    #[default]
    New,
    /// Nothing: the file was emptied. The version that the store had then, where that is known.
    Emptied(Option<ETag>),
    /// This version.
    Version(ObjectVersion),
}

impl Base {
    /// That of new content which is to take the place of the version `replaced`, or of nothing.
    pub(crate) fn in_place_of(replaced: Option<ETag>) -> Self {
        match replaced {
            Some(etag) => Self::Emptied(Some(etag)),
            None => Self::New,
        }
    }

    /// The tag of the version that the store has as long as nobody changes it, where that is known.
    pub fn etag(&self) -> Option<&ETag> {
        match self {
            Self::Version(version) => Some(&version.etag),
            Self::Emptied(etag) => etag.as_ref(),
            Self::New => None,
        }
    }

    /// Whether new content is to take the place of the version `etag`.
    pub fn replaces(&self, etag: &ETag) -> bool {
        matches!(self, Self::Emptied(Some(replaced)) if replaced == etag)
    }

    /// The version to copy from.
    pub fn version(&self) -> Option<&ObjectVersion> {
        match self {
            Self::Version(version) => Some(version),
            Self::New | Self::Emptied(_) => None,
        }
    }

    /// When a save may replace what the store has: one that goes on after a version must not bury what
    /// others wrote since, one of new content replaces whatever there is.
    pub(crate) fn condition(&self) -> WriteCondition {
        match self {
            // A store that names no versions cannot be asked for one.
            Self::Version(version) if !version.etag.as_str().is_empty() => {
                WriteCondition::IfMatch(version.etag.clone())
            }
            _ => WriteCondition::Always,
        }
    }
}

impl Base {
    /// When a save that comes long after the change may replace what the store has: the version that was there
    /// at the change. One that the store does not name is replaced as by a save at once.
    pub(crate) fn condition_behind(&self) -> WriteCondition {
        match self {
            Self::New => WriteCondition::IfAbsent,
            Self::Emptied(Some(etag)) if !etag.as_str().is_empty() => {
                WriteCondition::IfMatch(etag.clone())
            }
            Self::Emptied(_) | Self::Version(_) => self.condition(),
        }
    }

    /// When what an earlier mount left may replace what the store has: the version that it was
    /// relative to, and nothing that came later. A base that names no version may replace nothing.
    pub(crate) fn condition_after_crash(&self) -> WriteCondition {
        match self.etag() {
            Some(etag) if !etag.as_str().is_empty() => WriteCondition::IfMatch(etag.clone()),
            _ => WriteCondition::IfAbsent,
        }
    }
}

/// What a save may replace beside the version that the changes are relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacing {
    /// New content replaces whatever there is: the last to close wins.
    Anything,
    /// Nothing: between the change and its save another client may have stored something, which stays.
    Nothing,
}

/// What a save stores.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) base: Base,
    /// When it may replace what the store has.
    pub(crate) condition: WriteCondition,
    pub(crate) size: u64,
    pub(crate) unsaved: Vec<Range<u64>>,
}

impl Snapshot {
    /// Whether nothing of it is in the base.
    pub fn is_whole(&self) -> bool {
        let all = 0..self.size;
        all.is_empty() || self.unsaved.first() == Some(&all)
    }
}

impl Content {
    /// A version as the store has it.
    pub fn of(version: ObjectVersion) -> Self {
        Self {
            size: version.size,
            base: Base::Version(version),
            ..Self::default()
        }
    }

    /// Nothing, in place of `version`, where that is known.
    pub fn emptied(version: Option<ETag>) -> Self {
        Self::recovered(Base::Emptied(version), 0, Extents::default())
    }

    /// What a journal tells: the base, the size, and what was changed.
    pub(crate) fn recovered(base: Base, size: u64, mut extents: Extents) -> Self {
        extents.clear(size..u64::MAX);
        Self {
            base,
            size,
            extents,
            attempts: Vec::new(),
            recovered: false,
        }
    }

    /// Notes that an earlier mount left this: it replaces the version that it is relative to, and nothing
    /// that came later.
    pub(crate) fn note_recovered(&mut self) {
        self.recovered = true;
    }

    /// Whether an earlier mount left this, and it was not saved since.
    pub fn is_recovered(&self) -> bool {
        self.recovered
    }

    /// Bytes in the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What the changes are relative to.
    pub fn base(&self) -> &Base {
        &self.base
    }

    /// Which bytes lie in the staging file.
    pub fn extents(&self) -> &Extents {
        &self.extents
    }

    /// Bytes of the staging directory that this occupies, at most.
    pub(crate) fn cost(&self) -> u64 {
        self.extents.backed() + self.extents.count() as u64 * EXTENT_COST
    }

    /// Bytes that a write of `length` bytes may add to [`Content::cost`], at most.
    pub fn cost_of_write(length: u64) -> u64 {
        length + 2 * EXTENT_COST
    }

    /// Whether the store lacks anything of this, or may have what is no longer here.
    pub fn is_dirty(&self) -> bool {
        if self.attempts.iter().any(|attempt| attempt.trace.is_some()) {
            return true;
        }
        match &self.base {
            Base::New | Base::Emptied(_) => true,
            Base::Version(version) => version.size != self.size || self.extents.has_unsaved(),
        }
    }

    /// The parts of a range up to the end of the file.
    pub fn pieces(&self, range: Range<u64>) -> Vec<Piece> {
        let end = range.end.min(self.size);
        if range.start >= end {
            return Vec::new();
        }
        self.extents.pieces(range.start..end)
    }

    /// `range` was written to the staging file.
    pub(crate) fn write(&mut self, range: Range<u64>) {
        self.grow(range.start);
        self.size = self.size.max(range.end);
        self.touch(range, Held::Dirty);
    }

    /// A write of `range` failed, and what of it the staging file has is not known: what the store has as
    /// well is there only, and what is unsaved stays so, also where a save has it that is under way.
    pub(crate) fn spoil(&mut self, range: Range<u64>) {
        for piece in self.pieces(range) {
            match piece.held {
                Some(Held::Local) => self.extents.clear(piece.range),
                Some(Held::Dirty) => self.touch(piece.range, Held::Dirty),
                Some(Held::Zero) | None => {}
            }
        }
    }

    /// What is in `range`, up to the end of the file, is zero from now on.
    pub(crate) fn zero(&mut self, range: Range<u64>) {
        self.touch(range.start..range.end.min(self.size), Held::Zero);
    }

    /// Makes the file longer, by zeros, if it is shorter than `size`.
    pub(crate) fn grow(&mut self, size: u64) {
        if size > self.size {
            let gap = self.size..size;
            self.size = size;
            self.touch(gap, Held::Zero);
        }
    }

    /// Makes the file shorter or longer. A file without bytes needs nothing of its base, and is
    /// written anew.
    pub(crate) fn resize(&mut self, size: u64) {
        self.recovered &= size > 0;
        self.grow(size);
        self.size = size;
        self.extents.clear(size..u64::MAX);
        for attempt in &mut self.attempts {
            attempt.touched.clear(size..u64::MAX);
        }
        if size == 0
            && let Base::Version(version) = &self.base
        {
            self.base = Base::Emptied(Some(version.etag.clone()));
        }
    }

    fn touch(&mut self, range: Range<u64>, held: Held) {
        for attempt in &mut self.attempts {
            attempt.touched.set(range.clone(), held);
        }
        self.extents.set(range, held);
    }

    /// What only the base version has of `range`.
    pub(crate) fn clean(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let pieces = self.pieces(range).into_iter();
        let clean = pieces.filter(|piece| piece.held.is_none());
        clean.map(|piece| piece.range).collect()
    }

    /// What is clean of `range` was fetched into the staging file.
    pub(crate) fn fetched(&mut self, range: Range<u64>) {
        for clean in self.clean(range) {
            self.extents.set(clean, Held::Local);
        }
    }

    /// The content, of which the store has nothing, is to take the place of `replaced` there, or of nothing.
    pub(crate) fn take_place_of(&mut self, replaced: Option<ETag>) {
        self.base = Base::in_place_of(replaced);
    }

    /// Begins a save. `None` when the store has everything.
    pub(crate) fn begin_snapshot(&mut self, replacing: Replacing) -> Option<Snapshot> {
        if !self.is_dirty() {
            return None;
        }
        self.begin_attempt(self.size);
        Some(Snapshot {
            base: self.base.clone(),
            condition: match (self.recovered, replacing) {
                (true, _) => self.base.condition_after_crash(),
                (false, Replacing::Nothing) => self.base.condition_behind(),
                (false, Replacing::Anything) => self.base.condition(),
            },
            size: self.size,
            unsaved: self.extents.unsaved(),
        })
    }

    /// Remembers a save of `size` bytes that begins now.
    pub(crate) fn begin_attempt(&mut self, size: u64) {
        self.give_up_snapshot();
        if self.attempts.len() > ATTEMPTS_MAX {
            self.attempts.remove(0);
        }
        self.attempts.push(Attempt::new(size));
    }

    /// The store has nothing of the saves before the one that was begun, and the last of those is all that
    /// may still arrive there.
    pub(crate) fn forget_attempts(&mut self) {
        let forgotten = self.attempts.len().saturating_sub(2);
        self.attempts.drain(..forgotten);
    }

    /// The store may have the save that was begun from now on.
    pub(crate) fn announce(&mut self, trace: Trace) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.trace = Some(trace);
        }
    }

    /// The saves whose outcome is not known.
    pub(crate) fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// The store has what this save made: none that was begun later came to anything.
    pub(crate) fn believe(&mut self, attempt: usize) {
        self.attempts.truncate(attempt + 1);
    }

    /// Whether a journal tells already that `range` was written, since each save that may be stored.
    pub(crate) fn tells_dirty(&self, range: &Range<u64>) -> bool {
        match self.attempts.last() {
            Some(attempt) => attempt.touched.covers(range, Held::Dirty),
            None => self.extents.covers(range, Held::Dirty),
        }
    }

    /// The save that was begun last has stored `version`.
    pub(crate) fn end_snapshot(&mut self, version: ObjectVersion) {
        let touched = self.attempts.pop().map(|ended| ended.touched);
        self.attempts.clear();
        if let Some(touched) = touched.unwrap_or_default().ranges() {
            let mut extents = Extents::default();
            for (range, _) in self.extents.iter().filter(|(_, held)| held.is_backed()) {
                extents.set(range, Held::Local);
            }
            for (range, held) in touched.iter() {
                extents.set(range, held);
            }
            self.extents = extents;
        }
        self.base = Base::Version(version);
        self.recovered = false;
    }

    /// The save that was begun has failed. It is forgotten if the store cannot have it.
    pub(crate) fn give_up_snapshot(&mut self) {
        self.attempts.pop_if(|last| last.trace.is_none());
    }

    /// The store has the version `original` as `copy` of the object `key` now: so has the base, if it is that version or
    /// takes its place.
    pub(crate) fn rebase(&mut self, original: &ETag, key: &Key, copy: &ETag) {
        match &mut self.base {
            Base::Version(base) if base.etag == *original => {
                base.key = key.clone();
                base.etag = copy.clone();
            }
            Base::Emptied(Some(etag)) if etag == original => *etag = copy.clone(),
            Base::New | Base::Emptied(_) | Base::Version(_) => {}
        }
    }

    /// The version that the store has, and what of it is here, if that is all there is to this and
    /// has at most `pieces_max` pieces.
    pub(crate) fn local(&self, pieces_max: usize) -> Option<(&ObjectVersion, Vec<Range<u64>>)> {
        let version = self.base.version()?;
        let is_named = !version.etag.as_str().is_empty();
        let pieces = self.extents.count();
        if !is_named || self.is_dirty() || pieces == 0 || pieces > pieces_max {
            return None;
        }
        Some((
            version,
            self.extents.iter().map(|(range, _)| range).collect(),
        ))
    }

    /// Forgets what the store has as well, and returns what the staging file need not keep.
    pub(crate) fn evict(&mut self) -> Vec<Range<u64>> {
        let local = self.extents.iter().filter(|(_, held)| *held == Held::Local);
        let local: Vec<_> = local.map(|(range, _)| range).collect();
        for range in &local {
            self.extents.clear(range.clone());
        }
        local
    }
}

#[cfg(test)]
mod tests {
    use penstock_object::Key;
    use proptest::prelude::*;

    use super::*;
    use crate::staging::touched::Touched;

    #[test]
    fn after_a_crash_only_what_was_the_base_is_replaced() {
        let version = |etag: &str| {
            Base::Version(ObjectVersion {
                key: Key::new("a").expect("valid"),
                etag: ETag::new(etag),
                size: 1,
            })
        };
        let after = |base: Base| base.condition_after_crash();
        let same = WriteCondition::IfMatch(ETag::new("e"));
        assert_eq!(after(version("e")), same);
        assert_eq!(after(Base::Emptied(Some(ETag::new("e")))), same);
        for unknown in [
            version(""),
            Base::New,
            Base::Emptied(None),
            Base::Emptied(Some(ETag::new(""))),
        ] {
            assert_eq!(after(unknown), WriteCondition::IfAbsent);
        }
    }

    #[test]
    fn what_is_remembered_of_a_save_is_bounded() {
        let mut content = Content::default();
        content.write(0..1);
        content
            .begin_snapshot(Replacing::Anything)
            .expect("it is unsaved");
        for at in 0..20_000 {
            content.write(2 * at..2 * at + 1);
        }
        assert_eq!(content.attempts()[0].touched, Touched::EVERYTHING);
        let before = content.extents().clone();
        content.end_snapshot(ObjectVersion {
            key: Key::new("a").expect("valid"),
            etag: ETag::new("e"),
            size: 1,
        });
        assert_eq!(content.extents(), &before, "all of it is sent again");
    }

    #[derive(Debug, Clone)]
    enum Change {
        Write(Range<u64>),
        Zero(Range<u64>),
        Resize(u64),
        Fetch(Range<u64>),
        Evict,
        BeginSave,
        EndSave,
        GiveUpSave,
        LoseAnswer,
        FindSave,
        LoseCount,
    }

    const SIZE: u64 = 40;

    fn change() -> impl Strategy<Value = Change> {
        let range = || (0..SIZE, 0..SIZE).prop_map(|(one, two)| one.min(two)..one.max(two) + 1);
        prop_oneof![
            4 => range().prop_map(Change::Write),
            1 => range().prop_map(Change::Zero),
            2 => (0..SIZE).prop_map(Change::Resize),
            1 => range().prop_map(Change::Fetch),
            1 => Just(Change::Evict),
            2 => Just(Change::BeginSave),
            2 => Just(Change::EndSave),
            1 => Just(Change::GiveUpSave),
            1 => Just(Change::LoseAnswer),
            1 => Just(Change::FindSave),
            1 => Just(Change::LoseCount),
        ]
    }

    /// A store, a staging file and what a program should read, as plain bytes.
    #[derive(Default)]
    struct Bench {
        content: Content,
        staging: Vec<u8>,
        stored: Vec<u8>,
        expected: Vec<u8>,
        saving: Option<(Snapshot, Vec<u8>)>,
        /// What the store has though nobody was told, and the save that made it.
        lost: Option<(usize, Vec<u8>)>,
        clock: u8,
    }

    impl Bench {
        fn read(&self) -> Vec<u8> {
            let pieces = self.content.pieces(0..u64::MAX);
            let bytes = pieces.into_iter().flat_map(|piece| {
                let range = piece.range.start as usize..piece.range.end as usize;
                match piece.held {
                    Some(Held::Zero) => vec![0; range.len()],
                    Some(_) => self.staging[range].to_vec(),
                    None => self.stored[range].to_vec(),
                }
            });
            bytes.collect()
        }

        fn apply(&mut self, change: Change) {
            self.clock = self.clock.wrapping_add(1).max(1);
            match change {
                Change::Write(range) => {
                    let (start, end) = (range.start as usize, range.end as usize);
                    let size = self.expected.len().max(end);
                    self.expected.resize(size, 0);
                    self.expected[start..end].fill(self.clock);
                    self.staging[start..end].fill(self.clock);
                    self.content.write(range);
                }
                Change::Zero(range) => {
                    let end = self.expected.len().min(range.end as usize);
                    if let Some(bytes) = self.expected.get_mut(range.start as usize..end) {
                        bytes.fill(0);
                    }
                    self.content.zero(range);
                }
                Change::Resize(size) => {
                    self.expected.resize(size as usize, 0);
                    self.content.resize(size);
                }
                Change::Fetch(range) => {
                    for piece in self.content.pieces(range.clone()) {
                        let at = piece.range.start as usize..piece.range.end as usize;
                        if piece.held.is_none() {
                            self.staging[at.clone()].copy_from_slice(&self.stored[at]);
                        }
                    }
                    self.content.fetched(range);
                }
                Change::Evict => {
                    for range in self.content.evict() {
                        self.staging[range.start as usize..range.end as usize].fill(255);
                    }
                }
                _ => self.save(&change),
            }
        }

        fn end_snapshot(&mut self, stored: Vec<u8>) {
            let key = Key::new("key").unwrap();
            let etag = ETag::new(&self.clock.to_string());
            let size = stored.len() as u64;
            self.stored = stored;
            self.content.end_snapshot(ObjectVersion { key, etag, size });
        }

        fn save(&mut self, change: &Change) {
            match change {
                Change::BeginSave if self.saving.is_none() => {
                    let snapshot = self.content.begin_snapshot(Replacing::Anything);
                    self.saving = snapshot.map(|snapshot| (snapshot, self.expected.clone()));
                }
                // A version that nobody knows is in the way.
                Change::EndSave if self.lost.is_some() => self.save(&Change::FindSave),
                Change::EndSave => {
                    let Some((snapshot, stored)) = self.saving.take() else {
                        return;
                    };
                    assert_eq!(snapshot.size, stored.len() as u64);
                    self.end_snapshot(stored);
                }
                Change::GiveUpSave => {
                    self.saving = None;
                    self.content.give_up_snapshot();
                }
                Change::LoseAnswer => {
                    let Some((_, stored)) = self.saving.take() else {
                        return;
                    };
                    self.content.announce(Trace::default());
                    let number = self.content.attempts().len() - 1;
                    self.lost.get_or_insert((number, stored));
                }
                Change::LoseCount => {
                    for attempt in &mut self.content.attempts {
                        attempt.touched = Touched::EVERYTHING;
                    }
                }
                Change::FindSave => {
                    let Some((number, stored)) = self.lost.take() else {
                        return;
                    };
                    self.saving = None;
                    self.content.believe(number);
                    self.end_snapshot(stored);
                }
                _ => {}
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(changes in prop::collection::vec(change(), 0..60)) {
            let mut bench = Bench {
                staging: vec![0; SIZE as usize + 1],
                ..Bench::default()
            };
            for change in changes {
                bench.apply(change);
                prop_assert_eq!(bench.read(), bench.expected.clone());
                let dirty = bench.content.is_dirty();
                prop_assert!(dirty || bench.stored == bench.expected);
            }
            // Whatever was unsaved is saved in the end.
            bench.apply(Change::FindSave);
            bench.apply(Change::GiveUpSave);
            bench.apply(Change::BeginSave);
            bench.apply(Change::EndSave);
            prop_assert!(!bench.content.is_dirty());
            prop_assert_eq!(&bench.stored, &bench.expected);
        }

        #[test]
        fn a_snapshot_names_everything_that_the_base_lacks(
            changes in prop::collection::vec(change(), 0..60),
        ) {
            let mut bench = Bench {
                staging: vec![0; SIZE as usize + 1],
                ..Bench::default()
            };
            for change in changes {
                bench.apply(change);
                let mut content = bench.content.clone();
                let Some(snapshot) = content.begin_snapshot(Replacing::Anything) else { continue };
                for (at, byte) in bench.expected.iter().enumerate() {
                    let named = snapshot.unsaved.iter().any(|range| range.contains(&(at as u64)));
                    let version = snapshot.base.version();
                    let in_base = version.is_some() && bench.stored.get(at) == Some(byte);
                    prop_assert!(named || in_base, "byte {at}");
                }
            }
        }
    }
}
