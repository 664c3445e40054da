//! Requests that wait for something, each a task of the runtime.
//!
//! Whoever takes an entry out of the table answers the request: the task when it is done, or an
//! interrupt before. So each is answered exactly once.
//!
//! A limited number may be *under way*. Those that come when all places are taken stand *in
//! line*: they are in the table too, but not begun, and cost little more than their bytes. The
//! threads that receive never wait for a place, or nobody would hear of the interrupts that make
//! one free. What ends something (a close, an fsync) has places of its own, because those who
//! fill the others may wait for just that; and so has a WRITE, for which a READ may wait.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use penstock_base::{
    clock,
    metrics::{Counter, Gauge, Registry, table},
};
use tokio::{
    runtime::Handle,
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
};
use tracing::warn;

use super::call::Call;
use crate::protocol::Request;

/// Requests that may be under way, but for those that write or end something.
const UNDER_WAY_MAX: usize = 4096;
/// WRITEs that may be under way.
const WRITING_MAX: usize = 1024;
/// Requests that may wait for locks.
const LOCKING_MAX: usize = 16_384;
/// Requests that end something and may be under way.
const ENDING_MAX: usize = 1024;
/// Requests that may be in the table, most of them in line. Further ones fail with `ENOMEM`.
const WAITING_MAX: usize = 65_536;

/// How often [`Pending::until_gone`] looks.
const GONE_CHECK: Duration = Duration::from_millis(100);

/// Requests that wait for something.
pub(super) struct Pending {
    entries: Mutex<HashMap<u64, Entry>>,
    /// Told whenever the table becomes empty.
    emptied: Notify,
    places: Arc<Semaphore>,
    places_to_write: Arc<Semaphore>,
    places_to_lock: Arc<Semaphore>,
    places_to_end: Arc<Semaphore>,
    gauge: Arc<Gauge>,
    deferred: Arc<Counter>,
    queued: Arc<Counter>,
}

/// One of them.
pub(super) struct Entry {
    pub(super) task: AbortHandle,
    pub(super) call: Arc<Call>,
    purpose: Purpose,
}

/// The right to be under way.
pub(super) type Place = OwnedSemaphorePermit;

/// Which places a request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It asks for something or changes something.
    Work,
    /// It writes to a file.
    Write,
    /// It waits for a lock, as long as its holder likes.
    Lock,
    /// It saves, closes or unlocks, and so gives back what others may wait for.
    End,
}

impl Purpose {
    pub(super) fn of(request: &Request<'_>) -> Self {
        match request {
            Request::Flush { .. }
            | Request::Sync { .. }
            | Request::SyncDirectory { .. }
            | Request::Control { .. }
            | Request::Release { .. }
            | Request::ReleaseDirectory { .. } => Self::End,
            Request::Write { .. } => Self::Write,
            Request::SetLock { lock, .. } if lock.kind == libc::F_UNLCK => Self::End,
            Request::SetLock { waits: true, .. } => Self::Lock,
            _ => Self::Work,
        }
    }
}

impl Pending {
    pub(super) fn new(metrics: &Registry) -> Self {
        Self {
            entries: Mutex::default(),
            emptied: Notify::new(),
            places: Arc::new(Semaphore::new(UNDER_WAY_MAX)),
            places_to_write: Arc::new(Semaphore::new(WRITING_MAX)),
            places_to_lock: Arc::new(Semaphore::new(LOCKING_MAX)),
            places_to_end: Arc::new(Semaphore::new(ENDING_MAX)),
            gauge: metrics.gauge(&table::FUSE_REQUESTS_WAITING, &[]),
            deferred: metrics.counter(&table::FUSE_REQUESTS_DEFERRED, &[]),
            queued: metrics.counter(&table::FUSE_REQUESTS_QUEUED, &[]),
        }
    }

    /// Whether a request could be under way at once.
    pub(super) fn has_place(&self, purpose: Purpose) -> bool {
        self.places(purpose).available_permits() > 0
    }

    /// A place for a request that has begun. There is none only when other threads took the last
    /// ones meanwhile; then there are a few too many for a while.
    pub(super) fn take_place(&self, purpose: Purpose) -> Option<Place> {
        Arc::clone(self.places(purpose)).try_acquire_owned().ok()
    }

    /// Waits in line for a place.
    pub(super) fn stand_in_line(&self, purpose: Purpose) -> impl Future<Output = Place> + use<> {
        self.queued.increment();
        let places = Arc::clone(self.places(purpose));
        async move {
            let place = places.acquire_owned().await;
            place.expect("the semaphore is never closed")
        }
    }

    /// Whether nothing more may wait.
    pub(super) fn is_full(&self) -> bool {
        self.lock().len() >= WAITING_MAX
    }

    fn places(&self, purpose: Purpose) -> &Arc<Semaphore> {
        match purpose {
            Purpose::Work => &self.places,
            Purpose::Write => &self.places_to_write,
            Purpose::Lock => &self.places_to_lock,
            Purpose::End => &self.places_to_end,
        }
    }

    /// Spawns `task`, which answers `call`, and puts it into the table before it can be done.
    pub(super) fn spawn(
        &self,
        runtime: &Handle,
        (call, purpose): (Arc<Call>, Purpose),
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.deferred.increment();
        let mut entries = self.lock();
        let task = runtime.spawn(task).abort_handle();
        let entry = Entry {
            task,
            call,
            purpose,
        };
        entries.insert(entry.call.unique(), entry);
        self.gauge.set(entries.len() as u64);
    }

    /// Takes a request out of the table: the caller answers it now.
    pub(super) fn take(&self, unique: u64) -> Option<Entry> {
        let mut entries = self.lock();
        let entry = entries.remove(&unique);
        self.gauge.set(entries.len() as u64);
        if entries.is_empty() {
            self.emptied.notify_waiters();
        }
        entry
    }

    /// The process that waits for a request in the table.
    pub(super) fn process_of(&self, unique: u64) -> Option<u32> {
        self.lock().get(&unique).map(|entry| entry.call.process())
    }

    /// Whether a request in the table waits for a lock: every signal ends that, as programs expect.
    pub(super) fn waits_for_lock(&self, unique: u64) -> bool {
        let entries = self.lock();
        let entry = entries.get(&unique);
        entry.is_some_and(|entry| entry.purpose == Purpose::Lock)
    }

    /// Returns some time after a request has left the table.
    pub(super) async fn until_gone(&self, unique: u64) {
        while self.process_of(unique).is_some() {
            clock::sleep(GONE_CHECK).await;
        }
    }

    /// Waits until the table is empty; after `limit` what is left is dropped.
    pub(super) async fn drain(&self, limit: Duration) {
        if clock::deadline(limit, self.empty()).await.is_ok() {
            return;
        }
        let left = std::mem::take(&mut *self.lock());
        warn!(requests = left.len(), "requests were given up at the end");
        left.values().for_each(|entry| entry.task.abort());
    }

    async fn empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.lock().is_empty() {
                return;
            }
            emptied.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
