//! Copy before change: an engine that keeps what a key said before an operation changes it first after a snapshot.
//!
//! It stands around the engine of whoever changes files, so that no operation can forget it. As long as there is no
//! snapshot an operation looks at a flag and at no key; that is right where nobody else makes snapshots, for engines run one
//! operation after the other and the flag changes within operations. Where others have the same keys the flag stays set, and each
//! operation reads the epoch. The same is done for quotas and for the trash: whether there are any, and whether files come there,
//! are keys that many operations ask for.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{FsError, Mutex};

use super::view::kept_since;
use crate::{
    engine::{
        Engine, EngineError, EngineResult, Frozen, Lag, Operation, Peers, Query, Reads,
        Transaction, Verdict, Visitor,
    },
    schema::{self, EPOCH, Epoch, QUOTAS, TRASH_DAYS},
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Preserving {
    below: Arc<dyn Engine>,
    flags: Flags,
}

/// Whether operations look for these.
#[derive(Debug, Clone)]
struct Flags {
    snapshots: Flag,
    quotas: Flag,
    trash: Flag,
}

impl Flags {
    /// That of a key that operations ask for.
    fn of(&self, key: &[u8]) -> Option<&Flag> {
        match key {
            EPOCH => Some(&self.snapshots),
            QUOTAS => Some(&self.quotas),
            TRASH_DAYS => Some(&self.trash),
            _ => None,
        }
    }
}

/// Whether an operation looks for a snapshot, for what all quotas have in common, or for the days of the trash.
#[derive(Debug, Clone)]
struct Flag {
    /// It may be there. Whether it is is found out by the first operation.
    may_be: Arc<AtomicBool>,
    /// Others may make it at any time.
    is_shared: bool,
}

impl Flag {
    fn is_set(&self) -> bool {
        self.may_be.load(Ordering::Relaxed)
    }

    fn set(&self, may_be: bool) {
        self.may_be
            .store(may_be || self.is_shared, Ordering::Relaxed);
    }
}

impl Preserving {
    pub(crate) fn new(below: Arc<dyn Engine>) -> Self {
        let flag = || Flag {
            may_be: Arc::new(AtomicBool::new(true)),
            is_shared: below.peers().is_some(),
        };
        Self {
            flags: Flags {
                snapshots: flag(),
                quotas: flag(),
                trash: flag(),
            },
            below,
        }
    }

    /// Whether something may be limited.
    pub(crate) fn may_have_quotas(&self) -> bool {
        self.flags.quotas.is_set()
    }
}

/// An operation that keeps what it changes.
struct Keeping<'a> {
    below: &'a mut dyn Transaction,
    flags: &'a Flags,
    /// The outer `None` if nobody has looked.
    epoch: Option<Option<Epoch>>,
    /// Why something could not be kept: nothing is changed then.
    failed: Option<EngineError>,
}

impl Keeping<'_> {
    fn epoch(&mut self) -> EngineResult<Option<Epoch>> {
        if let Some(epoch) = self.epoch {
            return Ok(epoch);
        }
        let epoch = super::epoch(self.below).map_err(|error| damaged(&error))?;
        if epoch.is_none() {
            self.flags.snapshots.set(false);
        }
        self.epoch = Some(epoch);
        Ok(epoch)
    }

    /// Keeps what a key says, if a snapshot needs it that nobody kept it for yet.
    fn keep(&mut self, key: &[u8]) -> EngineResult<()> {
        if !self.flags.snapshots.is_set() || !schema::is_of_tree(key) {
            return Ok(());
        }
        let Some(epoch) = self.epoch()? else {
            return Ok(());
        };
        if schema::inode_in(key).map_err(|error| damaged(&error))?.0 > epoch.last_file {
            return Ok(());
        }
        let kept = schema::kept(key, epoch.latest);
        if self.below.get(&kept)?.is_some() {
            return Ok(());
        }
        // Kept for a later one that is gone since.
        let later = epoch.given > epoch.latest;
        if later && kept_since(self.below, key, epoch.latest)?.is_some() {
            return Ok(());
        }
        let value = self.below.get(key)?;
        self.below.put(&kept, schema::encode_kept(value.as_ref()));
        Ok(())
    }

    fn try_to_keep(&mut self, key: &[u8]) {
        if let Err(error) = self.keep(key) {
            self.failed.get_or_insert(error);
        }
    }
}

/// What cannot be read of a snapshot.
pub(super) fn damaged(error: &FsError) -> EngineError {
    EngineError::Corrupt(error.to_string())
}

impl Reads for Keeping<'_> {
    fn get(&self, key: &[u8]) -> EngineResult<Option<Bytes>> {
        let Some(flag) = self.flags.of(key) else {
            return self.below.get(key);
        };
        if !flag.is_set() {
            return Ok(None);
        }
        let value = self.below.get(key)?;
        if value.is_none() {
            flag.set(false);
        }
        Ok(value)
    }

    fn scan(&self, range: Range<&[u8]>, visit: Visitor<'_>) -> EngineResult<()> {
        self.below.scan(range, visit)
    }
}

impl Transaction for Keeping<'_> {
    fn has_others(&self) -> bool {
        self.below.has_others()
    }

    fn put(&mut self, key: &[u8], value: Bytes) {
        if key == EPOCH {
            self.epoch = None;
        }
        if let Some(flag) = self.flags.of(key) {
            flag.set(true);
        }
        self.try_to_keep(key);
        self.below.put(key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        self.try_to_keep(key);
        self.below.delete(key);
    }

    fn add(&mut self, key: &[u8], amount: i64) -> EngineResult<()> {
        self.keep(key)?;
        self.below.add(key, amount)
    }

    fn advance(&mut self, key: &[u8], to: u64) -> EngineResult<()> {
        self.keep(key)?;
        self.below.advance(key, to)
    }
}

#[async_trait]
impl Engine for Preserving {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        self.below.run_query(query).await
    }

    async fn ready(&self) -> EngineResult<()> {
        self.below.ready().await
    }

    async fn run(&self, mut operation: Operation) -> EngineResult<()> {
        let failure = Arc::new(Mutex::new(None));
        let flags = self.flags.clone();
        let failed = Arc::clone(&failure);
        let keeping = move |transaction: &mut dyn Transaction| {
            let mut keeping = Keeping {
                below: transaction,
                flags: &flags,
                epoch: None,
                failed: None,
            };
            let verdict = operation(&mut keeping);
            let outcome = keeping.failed;
            let verdict = match outcome {
                None => verdict,
                Some(_) => Verdict::Discard,
            };
            *failed.lock() = outcome;
            verdict
        };
        self.below.run(Box::new(keeping)).await?;
        let failed = failure.lock().take();
        failed.map_or(Ok(()), Err)
    }

    async fn freeze(&self) -> EngineResult<Frozen> {
        self.below.freeze().await
    }

    async fn sync(&self) -> EngineResult<()> {
        self.below.sync().await
    }

    async fn hand_over(&self) -> EngineResult<()> {
        self.below.hand_over().await
    }

    async fn verify(&self) -> EngineResult<()> {
        self.below.verify().await
    }

    async fn close(&self) -> EngineResult<()> {
        self.below.close().await
    }

    fn lag(&self) -> Lag {
        self.below.lag()
    }

    fn peers(&self) -> Option<&dyn Peers> {
        self.below.peers()
    }
}
