//! The objects of a spool, and how far each is.

use std::{
    collections::{BTreeMap, HashSet},
    fs::File,
    io,
    sync::Arc,
    time::Duration,
};

use penstock_base::clock::{self, Instant};

use super::{OPEN_FOR, UPLOADS_MAX};
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
struct Spooled {
    file: Arc<File>,
    /// Bytes that were given out.
    length: u32,
    /// Where what was written ends: a full disk takes no more, and nothing refers to what it did not take.
    end: u32,
    stage: Stage,
    /// Runs that are being written.
    slots: usize,
    is_unsynced: bool,
    /// When it is sealed, or tried again.
    due: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct State {
    objects: BTreeMap<ObjectId, Spooled>,
    open: Option<ObjectId>,
    is_draining: bool,
    pub(super) untold: Untold,
}

/// Objects that the bucket has, with their lengths, which the metadata does not know.
pub(crate) type Untold = Vec<(ObjectId, u32)>;

/// Files with something that is not synced.
pub(super) type Unsynced = Vec<(ObjectId, Arc<File>)>;

impl State {
    /// Adds an object that an earlier spool left.
    pub(super) fn found(&mut self, object: ObjectId, file: File) -> io::Result<()> {
        let length = file.metadata()?.len();
        let length = length.try_into().map_err(|_| {
            io::Error::other(format!(
                "{object}: {length} bytes are more than an object has"
            ))
        })?;
        let stage = Stage::Sealed;
        self.add(object, file, (length, stage, clock::now()));
        Ok(())
    }

    fn add(&mut self, object: ObjectId, file: File, (length, stage, due): (u32, Stage, Instant)) {
        let spooled = Spooled {
            file: Arc::new(file),
            length,
            end: length,
            stage,
            slots: 0,
            // One that a killed process left may be in the page cache alone.
            is_unsynced: true,
            due,
        };
        self.objects.insert(object, spooled);
    }

    pub(super) fn bytes(&self) -> u64 {
        let lengths = self.objects.values();
        lengths.map(|spooled| u64::from(spooled.length)).sum()
    }

    pub(super) fn count(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn names(&self) -> Vec<ObjectId> {
        self.objects.keys().copied().collect()
    }

    pub(super) fn file(&self, object: ObjectId) -> Option<(Arc<File>, u32)> {
        let spooled = self.objects.get(&object)?;
        Some((Arc::clone(&spooled.file), spooled.length))
    }

    /// Whether the open object has room for so many bytes. One that has not is sealed.
    pub(super) fn has_room(&mut self, length: u32) -> bool {
        let open = self.open.and_then(|open| self.objects.get(&open));
        let has_room =
            open.is_some_and(|open| u64::from(open.length) + u64::from(length) <= BLOCK_SIZE);
        if !has_room {
            self.seal();
        }
        has_room
    }

    /// Opens an object.
    pub(super) fn begin(&mut self, object: ObjectId, file: File) {
        self.add(object, file, (0, Stage::Open, clock::now() + OPEN_FOR));
        self.open = Some(object);
    }

    /// Gives out room in the open object.
    pub(super) fn take(&mut self, length: u32) -> (ObjectId, u32, Arc<File>) {
        let object = self.open.expect("who takes has asked for room");
        let open = self.objects.get_mut(&object).expect("it is here");
        let offset = open.length;
        open.length += length;
        open.slots += 1;
        (object, offset, Arc::clone(&open.file))
    }

    /// A run was written up to `end`, or, with 0, could not be.
    pub(super) fn slot_ended(&mut self, object: ObjectId, end: u32) {
        if let Some(spooled) = self.objects.get_mut(&object) {
            spooled.slots -= 1;
            spooled.end = spooled.end.max(end);
            spooled.is_unsynced = true;
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
    ) -> Option<(ObjectId, u32, Arc<File>)> {
        let open = self.open.and_then(|open| self.objects.get(&open));
        if open.is_some_and(|open| open.due <= now) {
            self.seal();
        }
        if !self.may_upload() {
            return None;
        }
        let held = held();
        for (object, spooled) in &mut self.objects {
            let is_ready = spooled.stage == Stage::Sealed && spooled.slots == 0;
            if !is_ready || spooled.due > now {
                continue;
            }
            if held.contains(object) {
                spooled.due = now + HELD_INTERVAL;
                continue;
            }
            spooled.stage = Stage::Uploading;
            return Some((*object, spooled.end, Arc::clone(&spooled.file)));
        }
        None
    }

    /// Whether one more object may be on its way.
    fn may_upload(&self) -> bool {
        let is_uploading = |spooled: &&Spooled| spooled.stage == Stage::Uploading;
        self.objects.values().filter(is_uploading).count() < UPLOADS_MAX
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        if !self.may_upload() {
            return None;
        }
        let waiting = self.objects.values();
        let waiting = waiting.filter(|it| it.stage != Stage::Uploading && it.slots == 0);
        waiting.map(|spooled| spooled.due).min()
    }

    pub(super) fn upload_failed(&mut self, object: ObjectId, again: Instant) {
        if let Some(spooled) = self.objects.get_mut(&object) {
            spooled.stage = Stage::Sealed;
            spooled.due = again;
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
        let spooled = self.objects.get_mut(&object);
        spooled.map(|spooled| spooled.due = clock::now()).is_some()
    }

    /// What a sync has to sync, which counts as synced from now on.
    pub(super) fn unsynced(&mut self) -> Unsynced {
        let mut files = Unsynced::new();
        for (object, spooled) in &mut self.objects {
            if std::mem::take(&mut spooled.is_unsynced) {
                files.push((*object, Arc::clone(&spooled.file)));
            }
        }
        files
    }

    /// An object that nobody adds to was synced.
    pub(super) fn synced(&mut self, object: ObjectId) {
        if let Some(spooled) = self.objects.get_mut(&object) {
            spooled.is_unsynced = false;
        }
    }

    /// It failed.
    pub(super) fn still_unsynced(&mut self, files: &Unsynced) {
        for (object, _) in files {
            if let Some(spooled) = self.objects.get_mut(object) {
                spooled.is_unsynced = true;
            }
        }
    }
}
