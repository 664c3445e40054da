//! Where metadata is kept: ordered keys, changed by operations that are applied one after the other.
//!
//! An [`Engine`] knows nothing of files. It has keys and values of bytes, and three ways to use them:
//! - [`query`] looks at one state of all keys, such as lay between two operations;
//! - [`transact`] runs an operation, a closure over get, scan, put and delete, whose changes are made all at once or,
//!   if it fails, not at all. Operations behave as if one ran after the other (serializable), and each has its own
//!   result, though many are made durable together;
//! - [`Engine::commit`] makes changes on the condition that certain keys hold certain values, all of which one message
//!   can carry.
//!
//! An operation may be run again, by an engine that found out that somebody else was faster: it must do nothing but
//! look, compute and change. What many operations change and none looks at goes through [`Transaction::add`] and
//! [`Transaction::advance`], which commute, so that engines need not make one wait for another.
//!
//! What is applied is seen by everybody at once, and durable after [`Engine::sync`]: a crash takes away the last
//! operations, never one from the midst of others.
//!
//! | driver | what it is for |
//! |---|---|
//! | [`MemoryEngine`], [`MemorySession`] | tests: of one process, and of several that have the same keys |
//! | [`EmbeddedEngine`] | one machine, no server: a log of our own before a B-tree |
//! | [`ShippedEngine`] | the same, whose log is in a bucket too, so that it survives the loss of its machine |
//! | [`PostgresEngine`] | any number of machines, and keys in a database that somebody else looks after |

mod draft;
mod embedded;
mod error;
mod layers;
mod memory;
mod peers;
mod postgres;
mod record;
mod shipped;

use std::{
    fmt::Debug,
    ops::{ControlFlow, Range},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};

use self::layers::{Changes, Whole};
pub use embedded::{EmbeddedEngine, EmbeddedLock, EmbeddedSettings};
pub use error::{EngineError, EngineResult};
pub use memory::{MemoryEngine, MemorySession};
pub use peers::{Changed, Moment, Peers, SessionId, SessionRecord};
pub use postgres::{
    PostgresAddress, PostgresEngine, PostgresSessions, PostgresSettings, has_tables, password_in,
    remove_tables,
};
#[cfg(feature = "testing")]
pub use shipped::try_to_read;
pub use shipped::{Position, Restoring, ShippedEngine, ShippedSettings, position, remove_shipped};

/// Bytes in the longest key.
pub const KEY_LENGTH_MAX: usize = 512;

/// The range of all keys.
pub const ALL: Range<&[u8]> = &[0]..&[u8::MAX];

/// Called with each key and its value, in order, until it breaks.
pub type Visitor<'a> = &'a mut dyn FnMut(&[u8], &Bytes) -> ControlFlow<()>;

/// One state of all keys.
pub trait Reads {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> EngineResult<Option<Bytes>>;

    /// Visits the keys of a range in the order of their bytes.
    fn scan(&self, range: Range<&[u8]>, visit: Visitor<'_>) -> EngineResult<()>;
}

/// An operation at work: it sees what it changed.
pub trait Transaction: Reads {
    /// Whether others may change keys before the operation is made. It is run again if they changed one that it read, so
    /// that it reads none there which it can do without.
    fn has_others(&self) -> bool {
        false
    }

    /// Sets the value of a key.
    fn put(&mut self, key: &[u8], value: Bytes);

    /// Removes a key, if it is there.
    fn delete(&mut self, key: &[u8]);

    /// Adds to a counter, which is 0 until then. Counters are read with [`counter`].
    fn add(&mut self, key: &[u8], amount: i64) -> EngineResult<()> {
        let value = counter(self.get(key)?.as_ref()).wrapping_add(amount);
        self.put(key, Bytes::copy_from_slice(&value.to_le_bytes()));
        Ok(())
    }

    /// Moves a mark, which is 0 until then, to `to`, or by one if it stands there or farther: a mark never stands
    /// where it stood before. Marks are read with [`mark`].
    fn advance(&mut self, key: &[u8], to: u64) -> EngineResult<()> {
        let value = to.max(mark(self.get(key)?.as_ref()).saturating_add(1));
        self.put(key, Bytes::copy_from_slice(&value.to_le_bytes()));
        Ok(())
    }
}

/// What a counter stands at.
pub fn counter(value: Option<&Bytes>) -> i64 {
    value.map_or(0, |value| i64::from_le_bytes(eight(value)))
}

/// Where a mark stands.
pub fn mark(value: Option<&Bytes>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(eight(value)))
}

/// The next key of all that could be.
pub(crate) fn behind(key: &[u8]) -> Bytes {
    let mut next = BytesMut::with_capacity(key.len() + 1);
    next.put_slice(key);
    next.put_u8(0);
    next.freeze()
}

fn eight(value: &[u8]) -> [u8; 8] {
    value.try_into().unwrap_or_default()
}

/// What becomes of an operation's changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// They are made.
    Keep,
    /// They are not.
    Discard,
}

/// One state of all keys that stays as it is while operations go on.
pub type Frozen = Box<dyn Reads + Send>;

/// An operation as an engine runs it. See [`transact`].
pub type Operation = Box<dyn FnMut(&mut dyn Transaction) -> Verdict + Send>;

/// A look at one state as an engine runs it. See [`query`].
pub type Query<'a> = &'a mut (dyn FnMut(&dyn Reads) + Send);

/// Changes that are made if nothing changed that they build on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditional {
    /// Keys with the values that they must have; `None` for those that must not be there.
    pub checks: Vec<(Bytes, Option<Bytes>)>,
    /// Keys with their new values.
    pub puts: Vec<(Bytes, Bytes)>,
    /// Keys that go.
    pub deletes: Vec<Bytes>,
    /// Counters with what is added to them.
    pub adds: Vec<(Bytes, i64)>,
}

/// How far the log in a bucket is behind the one on this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lag {
    /// Bytes of log that the bucket lacks.
    pub bytes: u64,
    /// How long the oldest of them has waited.
    pub age: Duration,
    /// How often the bucket did not take a part.
    pub failures: u64,
}

/// A store of ordered keys.
///
/// - **Errors.** After `Io` from a change nothing more is changed: whether the disk has it nobody knows, and a new
///   process finds out. After `Store`, `Full` and `Database` it can be tried again, after `Fenced` nothing can. After
///   `Database` from an operation it may be made still: the database was not heard of in time.
/// - **Cancellation.** Dropping a future leaves the operation done or not done, never half.
#[async_trait]
pub trait Engine: Debug + Send + Sync + 'static {
    /// Runs a look at one state.
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()>;

    /// Waits as an operation does, and fails with what an operation that is begun now would fail with.
    async fn ready(&self) -> EngineResult<()> {
        Ok(())
    }

    /// Runs an operation. What it changed is seen by all that begins afterwards.
    async fn run(&self, operation: Operation) -> EngineResult<()>;

    /// Makes changes if all checks hold, and says whether they did.
    async fn commit(&self, conditional: Conditional) -> EngineResult<bool> {
        let outcome = transact(self, move |transaction| attempt(transaction, &conditional)).await;
        match outcome {
            Ok(()) => Ok(true),
            Err(Unmet::Check) => Ok(false),
            Err(Unmet::Engine(error)) => Err(error),
        }
    }

    /// Returns when all that was applied before is durable.
    async fn sync(&self) -> EngineResult<()>;

    /// Returns when all that was applied before survives the end of this process, if not a power cut.
    async fn hand_over(&self) -> EngineResult<()> {
        self.sync().await
    }

    /// One state of all keys, which is durable. Nobody waits for who looks at it, however long that takes; each look may
    /// block its thread. Keeps what is changed meanwhile as it was until it is dropped. Queries may have seen a later state.
    /// By default all keys are copied into memory.
    async fn freeze(&self) -> EngineResult<Frozen> {
        self.sync().await?;
        let copied = query(self, |reads| -> EngineResult<_> {
            let mut keys = Changes::new();
            reads.scan(ALL, &mut |key, value| {
                keys.insert(Bytes::copy_from_slice(key), Some(value.clone()));
                ControlFlow::Continue(())
            })?;
            Ok(keys)
        });
        Ok(Box::new(Whole(copied.await?)))
    }

    /// Reads all that is kept, to find damage that reads of single keys do not show. Nothing is changed.
    async fn verify(&self) -> EngineResult<()> {
        Ok(())
    }

    /// How far what keeps the keys safe elsewhere is behind, where something does.
    fn lag(&self) -> Lag {
        Lag::default()
    }

    /// Makes all durable and lets go of what one process at a time may have.
    async fn close(&self) -> EngineResult<()>;

    /// The others who may change the same keys at the same time, where an engine allows that.
    fn peers(&self) -> Option<&dyn Peers> {
        None
    }
}

/// Something to which keys and values refer, and which must be durable before they are.
pub trait Barrier: Debug + Send + Sync {
    /// Makes all of it durable to which an operation refers that was applied by now. Called by the engine's worker
    /// before it makes operations durable; blocks on the disk. When it fails the engine fails.
    fn pass(&self) -> std::io::Result<()>;

    /// Whether all is there to which an operation refers that was not made durable before the power went. It is told
    /// the keys that the operation put.
    fn has(&self, puts: &[(Bytes, Bytes)]) -> bool;
}

/// Why conditional changes were not made.
enum Unmet {
    Check,
    Engine(EngineError),
}

impl From<EngineError> for Unmet {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

fn attempt(transaction: &mut dyn Transaction, wanted: &Conditional) -> Result<(), Unmet> {
    for (key, expected) in &wanted.checks {
        if transaction.get(key)? != *expected {
            return Err(Unmet::Check);
        }
    }
    for (key, value) in &wanted.puts {
        transaction.put(key, value.clone());
    }
    for key in &wanted.deletes {
        transaction.delete(key);
    }
    for (key, amount) in &wanted.adds {
        transaction.add(key, *amount)?;
    }
    Ok(())
}

/// Runs an operation and returns its result. If that is an error nothing is changed.
pub async fn transact<T, E>(
    engine: &(impl Engine + ?Sized),
    mut operation: impl FnMut(&mut dyn Transaction) -> Result<T, E> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<EngineError> + Send + 'static,
{
    let slot = Arc::new(Mutex::new(None));
    let result = Arc::clone(&slot);
    let run = engine.run(Box::new(move |transaction| {
        let outcome = operation(transaction);
        let verdict = match outcome {
            Ok(_) => Verdict::Keep,
            Err(_) => Verdict::Discard,
        };
        *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        verdict
    }));
    run.await?;
    let outcome = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    outcome.unwrap_or_else(|| Err(EngineError::NOT_RUN.into()))
}

/// Looks at one state of all keys.
pub async fn query<T, E>(
    engine: &(impl Engine + ?Sized),
    mut look: impl FnMut(&dyn Reads) -> Result<T, E> + Send,
) -> Result<T, E>
where
    T: Send,
    E: From<EngineError> + Send,
{
    let mut result = None;
    engine
        .run_query(&mut |reads| result = Some(look(reads)))
        .await?;
    result.unwrap_or_else(|| Err(EngineError::NOT_RUN.into()))
}
