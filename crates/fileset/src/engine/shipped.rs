//! An embedded engine whose log is in a bucket: it survives the loss of its machine.
//!
//! ```text
//!   operation ──► embedded engine ──► log on the disk ┐
//!                      │                              ├─ both, then `sync` returns
//!                      └──► groups of the log ──► BUCKET/PREFIX/log/EPOCH-NUMBER
//!                                                 BUCKET/PREFIX/checkpoint, part: what the log need not go back behind
//! ```
//!
//! | part | what it does |
//! |---|---|
//! | `shipping` | gathers records to groups, sends them, some at once, acknowledges them in order |
//! | `chain` | the log in the bucket: epochs, and how the next one ends the one before |
//! | `fold` | checkpoints in the bucket, and deleting what they make useless |
//! | `restore` | all of it back into the tree of another machine |
//! | `format`, `names`, `bucket` | objects, keys, requests |
//!
//! Each opening begins an epoch, by a claim at the place where the writer before would put its next group. So that
//! writer can acknowledge nothing any more, wherever it runs and however long it slept: its group finds its place
//! taken. The bucket needs to do one thing for it: refuse to write where something is.
//!
//! At an opening disk and bucket are brought together: what the log on the disk has and the bucket lacks is shipped, and
//! what the bucket has and a disk lost with the power is taken over. Only [`ShippedEngine::attach`] takes a log away
//! from another machine; [`ShippedEngine::open`] refuses to.

mod bucket;
mod chain;
mod fold;
mod format;
mod names;
mod restore;
mod shipping;

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use penstock_base::{random, run_blocking};
use penstock_object::Store;
use tokio::task::JoinHandle;

use self::{
    bucket::Bucket,
    chain::{Chain, Claimed, From},
    fold::Folder,
    shipping::{GROUP_MAX, Shipping},
};
use super::{
    EmbeddedSettings, Engine, EngineError, EngineResult, Operation, Query,
    embedded::{Chunk, EmbeddedEngine, HOLDER, Prepared, Replacement},
    layers::Changes,
    record::Record,
};

pub use restore::Restoring;

/// The fact that says since which epoch this directory has the log.
const OWN_SINCE: &str = "own-since";

/// Where a shipped engine keeps what.
#[derive(Debug, Clone)]
pub struct ShippedSettings {
    /// This machine's part.
    pub local: EmbeddedSettings,
    /// The bucket, below the prefix of the file system.
    pub store: Arc<dyn Store>,
    /// Which file system: objects of another one are refused.
    pub identity: u64,
}

/// How far the log in a bucket goes, and who has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Each opening begins one.
    pub epoch: u64,
    /// The last operation in it.
    pub last: u64,
    /// Operations that this machine has and the bucket has not.
    pub behind: u64,
    /// Whether this machine has it.
    pub is_own: bool,
}

/// See the module.
pub struct ShippedEngine {
    local: Arc<EmbeddedEngine>,
    shipping: Arc<Shipping>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl ShippedEngine {
    /// Begins a log in a bucket that has none. Fails with `Fenced` where there is one.
    pub async fn create(settings: &ShippedSettings) -> EngineResult<Self> {
        Self::begin(settings, From::Nobody).await
    }

    /// Goes on with the log of this directory. Fails with `Fenced` if another machine has it.
    pub async fn open(settings: &ShippedSettings) -> EngineResult<Self> {
        Self::begin(settings, From::Oneself).await
    }

    /// Takes the log over from whoever has it, and fills the directory from the bucket alone. Nobody is shut out, and what
    /// was in the directory stays, before all could be read. What an attempt before this one brought is not read again.
    /// `tell` is told how far it is.
    pub async fn attach(
        settings: &ShippedSettings,
        tell: &(dyn Fn(Restoring) + Sync),
    ) -> EngineResult<Self> {
        let bucket = Bucket::new(Arc::clone(&settings.store), settings.identity);
        let replacement = run_blocking(|| Replacement::open(&settings.local))?;
        restore::restore(&bucket, &replacement.tree, tell).await?;
        let holder = random::number();
        let claimed = chain::claim(&bucket, holder, From::Anybody).await?;
        restore::go_on(&bucket, &replacement.tree, &claimed, tell).await?;
        let epoch = claimed.epoch;
        let facts = [(HOLDER, holder), (OWN_SINCE, epoch), restore::WHOLE];
        let prepared = run_blocking(|| {
            replacement.tree.merge_with(&Changes::new(), &facts)?;
            replacement.finish()
        })?;
        Self::start(bucket, prepared, (claimed, epoch))
    }

    async fn begin(settings: &ShippedSettings, from: From) -> EngineResult<Self> {
        let bucket = Bucket::new(Arc::clone(&settings.store), settings.identity);
        let prepared = run_blocking(|| Prepared::open(&settings.local, None))?;
        let holder = holder(&prepared, from)?;
        let claimed = chain::claim(&bucket, holder, from).await?;
        let own_since = prepared.tree.fact(OWN_SINCE)?.unwrap_or(claimed.epoch);
        let prepared = match from {
            From::Oneself => catch_up(&bucket, prepared, &claimed).await?,
            From::Nobody | From::Anybody => prepared,
        };
        let facts = [(HOLDER, holder), (OWN_SINCE, own_since)];
        run_blocking(|| prepared.tree.merge_with(&Changes::new(), &facts))?;
        Self::start(bucket, prepared, (claimed, own_since))
    }

    fn start(
        bucket: Bucket,
        prepared: Prepared,
        (claimed, own_since): (Claimed, u64),
    ) -> EngineResult<Self> {
        let Claimed { epoch, chain, last } = claimed;
        let shipping = Arc::new(Shipping::new(bucket, epoch, last, chain.groups));
        unshipped(&prepared, last, |chunk| shipping.add(chunk))?;
        let tap = Arc::<Shipping>::clone(&shipping);
        let local = Arc::new(run_blocking(|| prepared.start(Some(tap), None))?);
        let folder = Folder::new(Arc::downgrade(&local), Arc::clone(&shipping), own_since);
        let ships = Arc::clone(&shipping);
        let tasks = vec![
            tokio::spawn(async move { ships.run().await }),
            tokio::spawn(folder.run()),
        ];
        Ok(Self {
            local,
            shipping,
            tasks: Mutex::new(tasks),
        })
    }

    fn end_tasks(&self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.drain(..).for_each(|task| task.abort());
    }
}

/// How far the log of the file system `identity` in a bucket is, seen from the metadata in a directory that nobody
/// has open.
pub async fn position(settings: &ShippedSettings) -> EngineResult<Position> {
    let prepared = run_blocking(|| Prepared::open(&settings.local, None))?;
    let bucket = Bucket::new(Arc::clone(&settings.store), settings.identity);
    let chain = Chain::read(&bucket).await?;
    let holder = chain.holder(&bucket).await?;
    let last = chain.last(&bucket).await?;
    let own = prepared.tree.fact(HOLDER)?;
    Ok(Position {
        epoch: chain.epoch(),
        last,
        behind: prepared.last().saturating_sub(last),
        is_own: own.is_some() && own == holder,
    })
}

/// Reads bytes as each kind of object: for fuzzing, which seals them before, so that it comes past the checksum.
#[cfg(feature = "testing")]
pub fn try_to_read(bytes: &[u8]) {
    format::try_to_read(bytes);
}

/// Deletes all that was shipped. Returns how many objects that were.
pub async fn remove_shipped(store: Arc<dyn Store>) -> EngineResult<u64> {
    let bucket = Bucket::new(store, 0);
    let mut deleted = 0;
    for prefix in [names::PARTS, names::MANIFESTS, names::LOG] {
        let listed = bucket.list(prefix).await?;
        let keys: Vec<_> = listed.into_iter().map(|(key, _)| key).collect();
        deleted += keys.len() as u64;
        bucket.delete(&keys).await?;
    }
    Ok(deleted)
}

/// The number of the directory, which a new one gets.
fn holder(prepared: &Prepared, from: From) -> EngineResult<u64> {
    let known = prepared.tree.fact(HOLDER)?;
    match (from, known) {
        (From::Oneself, Some(holder)) => Ok(holder),
        (From::Oneself, None) => Err(EngineError::Corrupt(
            "its log was never shipped from here".to_owned(),
        )),
        _ => Ok(random::number()),
    }
}

/// What the bucket has and the disk lost. Fails if they do not agree in what both have.
async fn catch_up(
    bucket: &Bucket,
    mut prepared: Prepared,
    claimed: &Claimed,
) -> EngineResult<Prepared> {
    let links = claimed.chain.behind(bucket, prepared.last()).await?;
    chain::visit(bucket, links, |record| {
        if record.sequence > prepared.last() {
            return prepared.add(record);
        }
        match is_known(&prepared, &record) {
            true => Ok(()),
            false => Err(EngineError::Fenced(
                "what is on this machine and what is in the bucket do not agree: a copy of this \
                 directory was in use; `penstock fileset attach` brings back what is in the bucket"
                    .to_owned(),
            )),
        }
    })
    .await?;
    Ok(prepared)
}

/// Whether the log on the disk has this very record, or none with its number any more.
fn is_known(prepared: &Prepared, record: &Record) -> bool {
    let records = &prepared.replayed.records;
    let at = records.binary_search_by_key(&record.sequence, |known| known.sequence);
    at.is_err() || at.is_ok_and(|at| records[at] == *record)
}

/// What the disk has and the bucket lacks.
fn unshipped(prepared: &Prepared, last: u64, mut add: impl FnMut(Chunk)) -> EngineResult<()> {
    let records = &prepared.replayed.records;
    let begin = records.partition_point(|record| record.sequence <= last);
    let records = &records[begin..];
    let next = records.first().map(|record| record.sequence);
    if prepared.last() > last && next != Some(last + 1) {
        let text = format!("the log on this machine lacks operation {}", last + 1);
        return Err(EngineError::Corrupt(text));
    }
    let mut rest = records;
    while let Some(first) = rest.first() {
        let mut bytes = BytesMut::new();
        let fits = |record: &&Record| {
            let fits = bytes.len() < GROUP_MAX;
            if fits {
                bytes.extend_from_slice(&record.whole);
            }
            fits
        };
        let count = rest.iter().take_while(fits).count();
        let (taken, others) = rest.split_at(count);
        add(Chunk {
            first: first.sequence,
            last: first.sequence + taken.len() as u64 - 1,
            records: Bytes::from(bytes),
        });
        rest = others;
    }
    Ok(())
}

impl Debug for ShippedEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShippedEngine")
            .field("epoch", &self.shipping.epoch)
            .finish_non_exhaustive()
    }
}

impl Drop for ShippedEngine {
    fn drop(&mut self) {
        self.end_tasks();
    }
}

#[async_trait]
impl Engine for ShippedEngine {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        self.local.run_query(query).await
    }

    async fn ready(&self) -> EngineResult<()> {
        self.shipping.room().await?;
        self.local.ready().await
    }

    async fn run(&self, operation: Operation) -> EngineResult<()> {
        self.shipping.room().await?;
        self.local.run(operation).await
    }

    async fn sync(&self) -> EngineResult<()> {
        let sequence = self.local.sequence()?;
        let (local, shipped) =
            tokio::join!(self.local.synced(sequence), self.shipping.shipped(sequence));
        local.and(shipped)
    }

    async fn verify(&self) -> EngineResult<()> {
        self.local.verify().await
    }

    async fn close(&self) -> EngineResult<()> {
        let synced = match self.local.sequence() {
            Ok(_) => self.sync().await,
            Err(error) => Err(error),
        };
        self.end_tasks();
        // What the bucket did not take stays in the log on the disk.
        let closed = self.local.close().await;
        synced.and(closed)
    }
}
