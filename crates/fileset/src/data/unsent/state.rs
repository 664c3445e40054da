//! See [`super::Unsent`], which has the lock.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use penstock_base::clock::{self, Instant};

use super::{Due, OPEN_FOR, UPLOADS_MAX};
use crate::{data::ObjectId, schema::BLOCK_SIZE};

/// When an object is asked for again that somebody has not referred to yet.
const HELD_INTERVAL: Duration = Duration::from_millis(50);

/// How far an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Runs are appended to it.
    Open,
    /// It waits for its upload.
    Sealed,
    Uploading,
}

#[derive(Debug)]
struct Waiting {
    /// Bytes that were given out.
    length: u32,
    /// Where what was written ends: a full disk takes no more, and nothing refers to what it did not take.
    end: u32,
    stage: Stage,
    /// Runs that were given out.
    runs: usize,
    /// Those of them that are being written.
    slots: usize,
    /// Its upload was begun before, here or by an earlier process.
    was_tried: bool,
    /// When it is sealed, or tried again.
    due: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct State {
    objects: BTreeMap<ObjectId, Waiting>,
    open: Option<ObjectId>,
    is_draining: bool,
}

impl State {
    /// Adds an object that an earlier process left.
    pub(super) fn found(&mut self, object: ObjectId, length: u32) {
        self.add(object, (length, Stage::Sealed, clock::now()));
    }

    fn add(&mut self, object: ObjectId, (length, stage, due): (u32, Stage, Instant)) {
        let waiting = Waiting {
            length,
            end: length,
            stage,
            runs: 0,
            slots: 0,
            was_tried: stage != Stage::Open,
            due,
        };
        self.objects.insert(object, waiting);
    }

    pub(super) fn bytes(&self) -> u64 {
        let lengths = self.objects.values();
        lengths.map(|waiting| u64::from(waiting.length)).sum()
    }

    pub(super) fn count(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn names(&self) -> Vec<ObjectId> {
        self.objects.keys().copied().collect()
    }

    pub(super) fn length(&self, object: ObjectId) -> Option<u32> {
        Some(self.objects.get(&object)?.length)
    }

    /// Whether the open object has room for so many bytes in one run more, of `runs` at most. One that has not is sealed.
    pub(super) fn has_room(&mut self, length: u32, runs: usize) -> bool {
        let open = self.open.and_then(|open| self.objects.get(&open));
        let has_room = open.is_some_and(|open| {
            open.runs < runs && u64::from(open.length) + u64::from(length) <= BLOCK_SIZE
        });
        if !has_room {
            self.seal();
        }
        has_room
    }

    /// Opens an object.
    pub(super) fn begin(&mut self, object: ObjectId) {
        self.add(object, (0, Stage::Open, clock::now() + OPEN_FOR));
        self.open = Some(object);
    }

    /// Gives out room in the open object.
    pub(super) fn take(&mut self, length: u32) -> (ObjectId, u32) {
        let object = self.open.expect("who takes has asked for room");
        let open = self.objects.get_mut(&object).expect("it is here");
        let offset = open.length;
        open.length += length;
        open.runs += 1;
        open.slots += 1;
        (object, offset)
    }

    /// A run was written up to `end`, or, with 0, could not be.
    pub(super) fn slot_ended(&mut self, object: ObjectId, end: u32) {
        if let Some(waiting) = self.objects.get_mut(&object) {
            waiting.slots -= 1;
            waiting.end = waiting.end.max(end);
        }
    }

    fn seal(&mut self) {
        let open = self.open.take();
        if let Some(open) = open.and_then(|open| self.objects.get_mut(&open)) {
            open.stage = Stage::Sealed;
            open.due = clock::now();
        }
    }

    /// Seals the open object.
    pub(super) fn drain(&mut self) {
        self.seal();
        self.is_draining = true;
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Begins the upload of an object that is due.
    pub(super) fn due(
        &mut self,
        now: Instant,
        held: impl FnOnce() -> HashSet<ObjectId>,
    ) -> Option<Due> {
        let open = self.open.and_then(|open| self.objects.get(&open));
        if open.is_some_and(|open| open.due <= now) {
            self.seal();
        }
        if !self.may_upload() {
            return None;
        }
        let held = held();
        for (object, waiting) in &mut self.objects {
            let is_ready = waiting.stage == Stage::Sealed && waiting.slots == 0;
            if !is_ready || waiting.due > now {
                continue;
            }
            if held.contains(object) {
                waiting.due = now + HELD_INTERVAL;
                continue;
            }
            waiting.stage = Stage::Uploading;
            return Some(Due {
                object: *object,
                length: waiting.end,
                may_be_there: waiting.was_tried,
            });
        }
        None
    }

    /// Whether one more object may be on its way.
    fn may_upload(&self) -> bool {
        let is_uploading = |waiting: &&Waiting| waiting.stage == Stage::Uploading;
        self.objects.values().filter(is_uploading).count() < UPLOADS_MAX
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        if !self.may_upload() {
            return None;
        }
        let waiting = self.objects.values();
        let waiting = waiting.filter(|it| it.stage != Stage::Uploading && it.slots == 0);
        waiting.map(|waiting| waiting.due).min()
    }

    pub(super) fn upload_failed(&mut self, object: ObjectId, again: Instant) {
        if let Some(waiting) = self.objects.get_mut(&object) {
            waiting.stage = Stage::Sealed;
            waiting.was_tried = true;
            waiting.due = again;
        }
    }

    /// Takes an object out, and returns its length.
    pub(super) fn remove(&mut self, object: ObjectId) -> Option<u32> {
        Some(self.objects.remove(&object)?.length)
    }

    /// Whether an object is here. If so it is sealed, and asked for at once.
    pub(super) fn hasten(&mut self, object: ObjectId) -> bool {
        if self.open == Some(object) {
            self.seal();
        }
        let waiting = self.objects.get_mut(&object);
        waiting.map(|waiting| waiting.due = clock::now()).is_some()
    }
}
