//! Requests that wait for something, each a task of the runtime.
//!
//! Whoever takes an entry out of the table answers the request: the task when it is done, or an
//! interrupt before. So each is answered exactly once.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use penstock_base::{
    clock,
    metrics::{Counter, Gauge, Registry},
};
use tokio::{
    runtime::Handle,
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
};
use tracing::warn;

use super::call::Call;

/// Tasks at which threads stop receiving until some are done, all but one.
const TASKS_MAX: usize = 4096;
/// Tasks beyond [`TASKS_MAX`] that the last thread may begin, so that interrupts are still heard.
const TASKS_SPARE: usize = 1024;

/// How often [`Pending::until_gone`] looks.
const GONE_CHECK: Duration = Duration::from_millis(100);

/// Requests that wait for something.
pub(super) struct Pending {
    entries: Mutex<HashMap<u64, Entry>>,
    /// Told whenever the table becomes empty.
    emptied: Notify,
    places: Arc<Semaphore>,
    spare: Arc<Semaphore>,
    waiting_threads: AtomicUsize,
    gauge: Arc<Gauge>,
    deferred: Arc<Counter>,
}

/// One of them.
pub(super) struct Entry {
    pub(super) task: AbortHandle,
    pub(super) call: Arc<Call>,
}

/// The right to be in the table.
pub(super) type Place = OwnedSemaphorePermit;

impl Pending {
    pub(super) fn new(metrics: &Registry) -> Self {
        Self {
            entries: Mutex::default(),
            emptied: Notify::new(),
            places: Arc::new(Semaphore::new(TASKS_MAX)),
            spare: Arc::new(Semaphore::new(TASKS_SPARE)),
            waiting_threads: AtomicUsize::new(0),
            gauge: metrics.gauge(
                "fuse_requests_waiting",
                "Requests that wait for the volume.",
                &[],
            ),
            deferred: metrics.counter(
                "fuse_requests_deferred_total",
                "Requests that were not answered at once and became a task.",
                &[],
            ),
        }
    }

    /// Waits for a place in the table, unless the caller is the last of `threads` that still
    /// receives: then the spare places are used first.
    pub(super) fn admit(&self, threads: usize, runtime: &Handle) -> Place {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return place;
        }
        let waiting = self.waiting_threads.fetch_add(1, Ordering::SeqCst) + 1;
        let spare = (waiting >= threads)
            .then(|| Arc::clone(&self.spare).try_acquire_owned().ok())
            .flatten();
        let place = spare.unwrap_or_else(|| {
            let place = runtime.block_on(Arc::clone(&self.places).acquire_owned());
            place.expect("the semaphore is never closed")
        });
        self.waiting_threads.fetch_sub(1, Ordering::SeqCst);
        place
    }

    /// Spawns `task`, which answers `call`, and puts it into the table before it can be done.
    pub(super) fn spawn(
        &self,
        runtime: &Handle,
        call: Arc<Call>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.deferred.increment();
        let mut entries = self.lock();
        let task = runtime.spawn(task).abort_handle();
        entries.insert(call.unique(), Entry { task, call });
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
