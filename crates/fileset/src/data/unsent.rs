//! Objects to which the metadata refers and which the bucket does not have yet, and how far each is.
//!
//! ```text
//!  a run ──► the open object ──► sealed: full, of enough runs, or old ──► uploaded ──► gone
//!                                   └─────── again while that fails ◄────────┘
//! ```
//!
//! The bytes themselves are elsewhere: in files ([`super::Spool`]) or with the metadata ([`super::Inlined`]). One object at a
//! time is open. Runs are appended to it, which many saves share; how long it becomes is not known when the metadata first
//! refers to it ([`UNKNOWN_LENGTH`]). Only a sealed one is put into the bucket ([`crate::uploads`]).

mod state;

use std::{collections::HashSet, time::Duration};

use penstock_base::{
    Mutex,
    clock::{self, Instant},
};
use penstock_object::{ETag, ErrorKind, Key, ObjectError, ObjectInfo, ObjectKind, Operation};
use tokio::sync::{Notify, watch};

use self::state::State;
use super::ObjectId;

/// The length of an object that was still open when something first referred to it.
pub(crate) const UNKNOWN_LENGTH: u32 = u32::MAX;
/// How long an object is open at most: as long as comparable tools let a file rest before they store it.
pub(super) const OPEN_FOR: Duration = Duration::from_secs(5);
/// Between two attempts to store an object, each of which has the store's own retries.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Objects that are put into the bucket at once.
pub(super) const UPLOADS_MAX: usize = 4;

/// How much there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Bytes of all objects.
    pub(super) bytes: u64,
    /// Runs in one object.
    pub(super) runs: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Unsent {
    limits: Limits,
    state: Mutex<State>,
    /// Bytes that wait for the bucket.
    bytes: watch::Sender<u64>,
    /// Rings when there may be something to upload.
    bell: Notify,
}

/// A sealed object whose upload was begun. Ends with [`Unsent::gone`] or [`Unsent::failed`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due {
    pub(crate) object: ObjectId,
    /// Bytes in it, without those at its end that could not be written.
    pub(crate) length: u32,
    /// It was sent before, as far as is known: the bucket may have it.
    pub(crate) may_be_there: bool,
}

/// Room in an object for one run. The object is not uploaded before this is gone.
pub(super) struct Slot<'a> {
    unsent: &'a Unsent,
    pub(super) object: ObjectId,
    pub(super) offset: u32,
    /// Where the run ends, once it is written.
    end: u32,
}

impl Slot<'_> {
    /// The run is there, and ends here.
    pub(super) fn written(&mut self, end: u32) {
        self.end = end;
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.unsent.state.lock().slot_ended(self.object, self.end);
        self.unsent.bell.notify_one();
    }
}

impl Unsent {
    /// With those that an earlier process left, which are sealed.
    pub(super) fn new(limits: Limits, found: impl IntoIterator<Item = (ObjectId, u32)>) -> Self {
        let mut state = State::default();
        for (object, length) in found {
            state.found(object, length);
        }
        Self {
            limits,
            bytes: watch::Sender::new(state.bytes()),
            state: Mutex::new(state),
            bell: Notify::new(),
        }
    }

    /// Bytes, and objects.
    pub(crate) fn waiting(&self) -> (u64, u64) {
        let objects = self.state.lock().count() as u64;
        (*self.bytes.borrow(), objects)
    }

    pub(crate) fn objects(&self) -> Vec<ObjectId> {
        self.state.lock().names()
    }

    /// The length of one, as far as it was given out, if it is one of these.
    pub(super) fn length(&self, object: ObjectId) -> Option<u32> {
        self.state.lock().length(object)
    }

    /// Whether this object is one of these.
    pub(crate) fn has(&self, object: ObjectId) -> bool {
        self.length(object).is_some()
    }

    /// Whether there is room for so many bytes.
    pub(super) fn has_room(&self, length: u64) -> bool {
        *self.bytes.borrow() + length <= self.limits.bytes
    }

    /// Returns once there is room for so many bytes, and whether there was before the patience ended.
    pub(super) async fn room(&self, length: u64, patience: Duration) -> bool {
        let mut bytes = self.bytes.subscribe();
        let room = bytes.wait_for(|bytes| bytes + length <= self.limits.bytes);
        clock::deadline(patience, room).await.is_ok()
    }

    /// A place for `length` bytes in the open object. If there is none that has room `new` begins one.
    pub(super) fn take<E>(
        &self,
        length: u32,
        new: impl FnOnce() -> Result<ObjectId, E>,
    ) -> Result<Slot<'_>, E> {
        let (object, offset) = {
            let mut state = self.state.lock();
            if !state.has_room(length, self.limits.runs) {
                state.begin(new()?);
            }
            state.take(length)
        };
        self.bytes.send_modify(|bytes| *bytes += u64::from(length));
        Ok(Slot {
            unsent: self,
            object,
            offset,
            end: 0,
        })
    }

    /// Begins an upload, if one is due at `now` and there is room for it. Objects that are `held` are not due: see
    /// [`super::Objects::held`], which is asked when no run can be added any more to what is sealed.
    pub(crate) fn due(
        &self,
        now: Instant,
        held: impl FnOnce() -> HashSet<ObjectId>,
    ) -> Option<Due> {
        self.state.lock().due(now, held)
    }

    /// When to ask for [`Unsent::due`] again, unless the bell rings before.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.state.lock().next_due()
    }

    /// Returns when [`Unsent::due`] may have something new.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// The bucket did not take it: it is tried again.
    pub(crate) fn failed(&self, due: &Due) {
        let again = clock::now() + RETRY_INTERVAL;
        self.state.lock().upload_failed(due.object, again);
        self.bell.notify_one();
    }

    /// All that is here is to be uploaded by who says so, and by nobody else from then on.
    pub(crate) fn drain(&self) {
        self.state.lock().drain();
    }

    /// Whether somebody said so.
    pub(crate) fn is_draining(&self) -> bool {
        self.state.lock().is_draining()
    }

    /// The bucket has it, or no file needs it.
    pub(super) fn gone(&self, object: ObjectId) {
        let length = self.state.lock().remove(object);
        self.bytes
            .send_modify(|bytes| *bytes -= u64::from(length.unwrap_or(0)));
        self.bell.notify_one();
    }

    /// Somebody found that no file needs an object. If it is here it is left to whoever uploads: what is saved just
    /// now may go into it until it is sealed, so only who looks afterwards knows. Returns whether it is here.
    pub(crate) fn takes_care_of(&self, object: ObjectId) -> bool {
        let is_here = self.state.lock().hasten(object);
        if is_here {
            self.bell.notify_one();
        }
        is_here
    }
}

/// What the bucket does not have yet has no tag: nobody replaces it.
pub(super) fn info(length: u64) -> ObjectInfo {
    ObjectInfo {
        size: length,
        etag: ETag::new(""),
        modified: std::time::SystemTime::UNIX_EPOCH,
        kind: ObjectKind::Normal,
        storage_class: String::new(),
        content_type: String::new(),
        metadata: std::iter::empty().collect(),
        checksum: None,
    }
}

/// A range behind the end of such an object.
pub(super) fn beyond(key: &Key, length: u64) -> ObjectError {
    let message = format!("it has {length} bytes here");
    ObjectError::new(ErrorKind::InvalidRange, Operation::Get, message).about(key)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const LIMITS: Limits = Limits {
        bytes: 1 << 30,
        runs: 3,
    };

    fn taken(unsent: &Unsent, length: u32, number: u64) -> ObjectId {
        let new = || Ok::<_, Infallible>(ObjectId { writer: 1, number });
        let Ok(slot) = unsent.take(length, new);
        slot.object
    }

    #[tokio::test]
    async fn nothing_is_due_while_as_many_are_uploaded_as_may_be() {
        let unsent = Unsent::new(LIMITS, []);
        for number in 0..=UPLOADS_MAX as u64 {
            taken(&unsent, crate::schema::BLOCK_SIZE as u32, number);
        }
        let later = clock::now() + OPEN_FOR;
        let begun = std::iter::from_fn(|| unsent.due(later, HashSet::new));
        assert_eq!(begun.count(), UPLOADS_MAX);
        assert_eq!(unsent.next_due(), None, "the bell rings when one has ended");
    }

    #[tokio::test]
    async fn an_object_of_enough_runs_is_sealed() {
        let unsent = Unsent::new(LIMITS, []);
        let numbers: Vec<_> = (0..7).map(|at| taken(&unsent, 1, at).number).collect();
        assert_eq!(numbers, [0, 0, 0, 3, 3, 3, 6]);
        let due = |_: usize| unsent.due(clock::now(), HashSet::new);
        let due: Vec<_> = (0..3).filter_map(due).collect();
        assert_eq!(due.len(), 2, "the last one is open");
    }
}
