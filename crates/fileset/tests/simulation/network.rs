//! The way to the store: each request takes its time, and some fail in one of the ways in which requests do.
//!
//! It stands where the HTTP client is otherwise, below the layers that repeat what failed and that end what takes too long,
//! which are the real ones.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use penstock_base::{Mutex, clock, metrics::Registry};
use penstock_object::{
    ErrorKind, ObjectError, ObjectResult, Operation, RetrySettings, Store,
    layers::{Around, Call, Layer, Work, standard},
};

use crate::{power::Power, record::Record};

/// Requests under way at once.
const CONCURRENCY_MAX: usize = 8;
/// How a request is repeated. Some hang for longer than this.
const RETRY: RetrySettings = RetrySettings {
    attempts_max: 4,
    total: Duration::from_secs(20),
    ride_out: true,
};
/// Milliseconds of one that hangs.
const HANGS: [u64; 3] = [2_000, 19_000, 45_000];

/// What becomes of a request.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Served,
    /// The store does not see it, or does nothing.
    Refused(ErrorKind),
    /// It is carried out, and nobody hears of it.
    Unanswered(ErrorKind),
    /// It is carried out so many milliseconds later.
    Hung(u64),
}

/// See the module.
#[derive(Debug)]
pub struct Network {
    power: Arc<Power>,
    record: Arc<Record>,
    chance: Mutex<Rng>,
    /// Requests of a thousand that fail.
    failing: Mutex<u64>,
    /// Those who want that none fails.
    healers: Mutex<usize>,
}

/// See [`Network::healed`].
pub struct Healed(Arc<Network>);

impl Drop for Healed {
    fn drop(&mut self) {
        *self.0.healers.lock() -= 1;
    }
}

impl Network {
    pub fn new(power: Arc<Power>, record: Arc<Record>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            power,
            record,
            chance: Mutex::new(Rng::with_seed(seed)),
            failing: Mutex::default(),
            healers: Mutex::default(),
        })
    }

    /// No request fails as long as somebody has what is returned.
    pub fn healed(self: &Arc<Self>) -> Healed {
        *self.healers.lock() += 1;
        Healed(Arc::clone(self))
    }

    /// So many requests of a thousand fail from now on.
    pub fn fail(&self, per_mille: u64) {
        *self.failing.lock() = per_mille;
    }

    /// `store` as a process sees it.
    pub fn to(self: &Arc<Self>, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let way = Layer::of(store, Way(Arc::clone(self)));
        standard(Arc::new(way), CONCURRENCY_MAX, &RETRY, &Registry::new())
    }

    fn fate(&self) -> Fate {
        let (mut chance, failing) = (self.chance.lock(), *self.failing.lock());
        if chance.u64(0..1000) >= failing || *self.healers.lock() > 0 {
            return Fate::Served;
        }
        let kinds = [
            ErrorKind::Unavailable,
            ErrorKind::Interrupted,
            ErrorKind::Throttled,
        ];
        match chance.u8(0..4) {
            0 => Fate::Hung(HANGS[chance.usize(0..HANGS.len())]),
            1 => Fate::Unanswered(kinds[chance.usize(0..2)]),
            _ => Fate::Refused(kinds[chance.usize(0..3)]),
        }
    }

    /// A part of the time that a request takes, as it is in most cases or much longer.
    async fn travel(&self) {
        let milliseconds = {
            let mut chance = self.chance.lock();
            match chance.u8(0..10) {
                0 => chance.u64(0..300),
                _ => chance.u64(0..15),
            }
        };
        clock::sleep(Duration::from_millis(milliseconds)).await;
        self.power.step().await;
    }

    async fn carry_out<T>(&self, operation: Operation, work: Work<'_, T>) -> ObjectResult<T> {
        let fate = self.fate();
        self.travel().await;
        let answer = match fate {
            Fate::Served => work.await,
            Fate::Refused(kind) => Err(failure(kind, operation)),
            Fate::Unanswered(kind) => work.await.and(Err(failure(kind, operation))),
            Fate::Hung(milliseconds) => {
                clock::sleep(Duration::from_millis(milliseconds)).await;
                work.await
            }
        };
        self.travel().await;
        answer
    }
}

fn failure(kind: ErrorKind, operation: Operation) -> ObjectError {
    ObjectError::new(kind, operation, "as the seed said")
}

/// A network around each request.
#[derive(Debug)]
struct Way(Arc<Network>);

impl Around for Way {
    async fn around<T: Send>(&self, call: &Call<'_>, work: Work<'_, T>) -> ObjectResult<T> {
        let name = call.operation.name();
        let about = call.key.map_or("", |key| key.as_str());
        let record = &self.0.record;
        record.note(format_args!("{name} {about} of {} bytes", call.sent));
        let answer = self.0.carry_out(call.operation, work).await;
        match &answer {
            Ok(_) => record.note(format_args!("{name} {about}: done")),
            Err(error) => record.note(format_args!("{name} {about}: {:?}", error.kind)),
        }
        answer
    }
}
