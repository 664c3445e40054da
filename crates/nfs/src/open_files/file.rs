//! One open file.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use penstock_base::{FsError, FsResult, Mutex, clock, clock::Instant};
use penstock_vfs::{Access, Attributes, BriefAttributes, HandleId, Inode};
use tokio::sync::MutexGuard;

use super::order::Order;
use crate::limits::{BUSY_AGAIN, BUSY_DEADLINE, LOST_KEPT, READER_IDLE, WRITER_IDLE};

/// An open handle.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) id: HandleId,
    used: Instant,
    /// What the file looked like when it was opened.
    pub(super) seen: BriefAttributes,
    /// One for this and one for each who uses the handle.
    users: Arc<()>,
}

impl Open {
    pub(super) fn new(id: HandleId, seen: BriefAttributes) -> Self {
        Self {
            id,
            used: clock::now(),
            seen,
            users: Arc::default(),
        }
    }
}

/// A handle that stays open until this is dropped.
#[derive(Debug)]
pub(crate) struct InUse {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) id: HandleId,
    _user: Arc<()>,
}

/// A file that is open to read, to write, or both.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(super) inode: Inode,
    reader: Mutex<Option<Open>>,
    writer: Mutex<Option<Open>>,
    /// Who opens or closes it.
    turn: tokio::sync::Mutex<()>,
    /// Writes that were not durable when they were answered.
    written: AtomicU64,
    /// How many of them are durable by now.
    synced: AtomicU64,
    /// Keeps writes in the order of their places, where the volume needs that.
    order: Option<Order>,
    /// Since when somebody is in the way of each write and save, and when the last one was told so.
    busy: Mutex<Option<(Instant, Instant)>>,
    /// Since when what was written cannot be saved.
    failing: Mutex<Option<Instant>>,
    /// When it was given up.
    lost: Mutex<Option<Instant>>,
}

impl OpenFile {
    pub(super) fn new(file: &Attributes, keeps_order: bool) -> Self {
        Self {
            inode: file.inode,
            reader: Mutex::default(),
            writer: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            order: keeps_order.then(|| Order::new(file.size)),
            busy: Mutex::default(),
            failing: Mutex::default(),
            lost: Mutex::default(),
        }
    }

    fn slot(&self, access: Access) -> &Mutex<Option<Open>> {
        match access {
            Access::Read => &self.reader,
            Access::Write | Access::ReadWrite => &self.writer,
        }
    }

    /// Waits until nobody else opens or closes it.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// The handle, if there is one that is `good`.
    pub(super) fn use_now(
        self: &Arc<Self>,
        access: Access,
        good: impl FnOnce(&Open) -> bool,
    ) -> Option<InUse> {
        let mut slot = self.slot(access).lock();
        let open = slot.as_mut().filter(|open| good(open))?;
        open.used = clock::now();
        Some(self.in_use(open))
    }

    fn in_use(self: &Arc<Self>, open: &Open) -> InUse {
        InUse {
            file: Arc::clone(self),
            id: open.id,
            _user: Arc::clone(&open.users),
        }
    }

    /// Lets others use a handle, as it is used now.
    pub(super) fn put(self: &Arc<Self>, access: Access, mut open: Open) -> InUse {
        open.used = clock::now();
        let in_use = self.in_use(&open);
        *self.slot(access).lock() = Some(open);
        in_use
    }

    /// Takes the handle away, whoever uses it.
    pub(super) fn take(&self, access: Access) -> Option<Open> {
        self.slot(access).lock().take()
    }

    /// The same if it is this one.
    pub(super) fn take_if(&self, access: Access, id: HandleId) -> Option<Open> {
        self.slot(access).lock().take_if(|open| open.id == id)
    }

    /// The same if nobody uses it and `wanted`, which is told whether nobody has for a while, says so.
    pub(super) fn take_unused(
        &self,
        access: Access,
        wanted: impl FnOnce(bool) -> bool,
    ) -> Option<Open> {
        let mut slot = self.slot(access).lock();
        slot.take_if(|open| {
            let is_idle = open.used.elapsed() >= patience(access);
            Arc::strong_count(&open.users) == 1 && wanted(is_idle)
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.reader.lock().is_none() && self.writer.lock().is_none()
    }

    pub(super) fn last_use(&self) -> Option<Instant> {
        let used = |slot: &Mutex<Option<Open>>| slot.lock().as_ref().map(|open| open.used);
        used(&self.reader).max(used(&self.writer))
    }

    /// Whether a sweep has something to close.
    pub(super) fn is_idle(&self) -> bool {
        let is_idle = |access| {
            let slot = self.slot(access).lock();
            let open = slot.as_ref();
            open.is_some_and(|open| open.used.elapsed() >= patience(access))
        };
        self.is_closed() || is_idle(Access::Read) || is_idle(Access::Write)
    }

    /// Takes note of a write that is not durable.
    pub(crate) fn note_write(&self) {
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    /// How many writes there were, if not all of them are durable.
    pub(super) fn unsynced(&self) -> Option<u64> {
        let written = self.written.load(Ordering::Acquire);
        (self.synced.load(Ordering::Acquire) < written).then_some(written)
    }

    /// So many writes are durable.
    pub(super) fn synced(&self, written: u64) {
        self.synced.fetch_max(written, Ordering::AcqRel);
    }

    /// A save failed, or did not. Returns since when they do.
    pub(super) fn note_save(&self, is_good: bool) -> Option<Instant> {
        let mut failing = self.failing.lock();
        *failing = match is_good {
            true => None,
            false => Some(failing.unwrap_or_else(clock::now)),
        };
        *failing
    }

    /// Whether the last save failed.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.lock().is_some()
    }

    /// What was written is given up: COMMITs of it fail.
    pub(super) fn lose(&self) {
        *self.failing.lock() = None;
        *self.lost.lock() = Some(clock::now());
    }

    /// It is written anew. Who lost something was told so, or has it still.
    pub(super) fn begin_anew(&self) {
        if self.lost.lock().take().is_some() {
            self.synced(self.written.load(Ordering::Acquire));
        }
    }

    /// Whether nothing is to be told of it any more.
    pub(super) fn is_over(&self) -> bool {
        let lost = *self.lost.lock();
        self.is_closed() && lost.is_none_or(|lost| lost.elapsed() >= LOST_KEPT)
    }

    /// What a client is told of a write or a save. Where somebody is in its way it asks again, for ever; who stays there
    /// for long, as another client's version of the file does, does not go away at all.
    pub(crate) fn told<T>(&self, outcome: FsResult<T>) -> FsResult<T> {
        let mut busy = self.busy.lock();
        let Err(FsError::Busy(reason)) = outcome else {
            *busy = None;
            return outcome;
        };
        let now = clock::now();
        let known = busy.filter(|(_, last)| now.duration_since(*last) < BUSY_AGAIN);
        let since = known.map_or(now, |(since, _)| since);
        *busy = Some((since, now));
        match now.duration_since(since) < BUSY_DEADLINE {
            true => outcome,
            false => Err(FsError::Io(reason.to_owned())),
        }
    }

    /// Waits until it is the turn of a write at `offset`, where that matters.
    pub(crate) async fn in_order(&self, offset: u64) {
        if let Some(order) = &self.order {
            order.wait(offset).await;
        }
    }

    /// The file is written so far by now.
    pub(crate) fn grows_to(&self, end: u64) {
        if let Some(order) = &self.order {
            order.grows_to(end);
        }
    }

    /// The file was given this size.
    pub(crate) fn cut_to(&self, size: u64) {
        if let Some(order) = &self.order {
            order.cut_to(size);
        }
    }
}

/// How long a handle stays open that nobody uses.
fn patience(access: Access) -> std::time::Duration {
    match access {
        Access::Read => READER_IDLE,
        Access::Write | Access::ReadWrite => WRITER_IDLE,
    }
}
