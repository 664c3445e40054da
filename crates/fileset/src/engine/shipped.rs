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
//! taken. An opening that dies before its claim shuts nobody out. The bucket needs to do one thing for it: refuse to write where something is.
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
use bytes::BytesMut;
use penstock_base::{random, run_blocking};
use penstock_object::Store;
use tokio::task::JoinHandle;

use self::{
    bucket::Bucket,
    chain::{Chain, Claimed, From},
    fold::Folder,
    shipping::{FOLD_BYTES, GROUP_MAX, Shipping},
};
use super::{
    EmbeddedSettings, Engine, EngineError, EngineResult, Frozen, Lag, Operation, Query,
    embedded::{Chunk, EmbeddedEngine, HOLDER, Prepared, Replacement},
    layers::Changes,
    record::{Record, Tip},
};

pub use restore::Restoring;

/// What the bucket took is kept in memory for a checkpoint, in one of so many parts of the memory.
const KEPT_SHARE: u64 = 8;

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
    /// Whether what this machine has and what the bucket has are of one history, where this machine has it.
    pub agrees: bool,
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
        let facts = [(HOLDER, holder), restore::WHOLE];
        let prepared = run_blocking(|| {
            replacement.tree.merge_with(&Changes::new(), &facts)?;
            replacement.finish()
        })?;
        Self::start(bucket, prepared, (settings, holder, claimed))
    }

    async fn begin(settings: &ShippedSettings, from: From) -> EngineResult<Self> {
        let bucket = Bucket::new(Arc::clone(&settings.store), settings.identity);
        let prepared = run_blocking(|| Prepared::open(&settings.local))?;
        let holder = holder(&prepared, from)?;
        if from == From::Oneself {
            spare_others(&bucket, &prepared, holder).await?;
        }
        let claimed = chain::claim(&bucket, holder, from).await?;
        let prepared = match from {
            From::Oneself => catch_up(&bucket, prepared, &claimed).await?,
            From::Nobody | From::Anybody => prepared,
        };
        let facts = [(HOLDER, holder)];
        run_blocking(|| prepared.tree.merge_with(&Changes::new(), &facts))?;
        Self::start(bucket, prepared, (settings, holder, claimed))
    }

    fn start(
        bucket: Bucket,
        prepared: Prepared,
        (settings, holder, claimed): (&ShippedSettings, u64, Claimed),
    ) -> EngineResult<Self> {
        let tip = claimed.tip;
        let kept_max = (settings.local.memory / KEPT_SHARE).min(FOLD_BYTES) as usize;
        let shipping = Arc::new(Shipping::new(bucket, (holder, kept_max), claimed));
        unshipped(&prepared, tip, |chunk| shipping.add(chunk))?;
        let tap = Arc::<Shipping>::clone(&shipping);
        let local = Arc::new(run_blocking(|| prepared.start(Some(tap), None))?);
        let folder = Folder::new(Arc::downgrade(&local), Arc::clone(&shipping));
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
    let prepared = run_blocking(|| Prepared::open(&settings.local))?;
    let bucket = Bucket::new(Arc::clone(&settings.store), settings.identity);
    let chain = Chain::read(&bucket).await?;
    let holder = chain.holder(&bucket).await?;
    let tip = chain.tip(&bucket).await?;
    let own = prepared.tree.fact(HOLDER)?;
    let is_own = own.is_some() && own == holder;
    Ok(Position {
        epoch: chain.epoch(),
        last: tip.sequence,
        behind: prepared.tip().sequence.saturating_sub(tip.sequence),
        is_own,
        agrees: !is_own || agree(&bucket, &prepared, (&chain, tip)).await?,
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
    if !agree(bucket, &prepared, (&claimed.chain, claimed.tip)).await? {
        return Err(disagreeing());
    }
    let last = prepared.tip().sequence;
    let links = claimed.chain.behind(bucket, last).await?;
    chain::visit(bucket, links, |_, record| match record.sequence > last {
        true => prepared.add(record),
        false => Ok(()),
    })
    .await?;
    Ok(prepared)
}

/// Fails if this directory will be refused, before its claim shuts out who has a copy of it in use. What cannot be read now,
/// since its writer makes a checkpoint, is compared after the claim alone.
async fn spare_others(bucket: &Bucket, prepared: &Prepared, holder: u64) -> EngineResult<()> {
    let chain = Chain::read(bucket).await?;
    if chain.holder(bucket).await? != Some(holder) {
        return Ok(());
    }
    let tip = chain.tip(bucket).await?;
    match agree(bucket, prepared, (&chain, tip)).await {
        Ok(false) => Err(disagreeing()),
        Ok(true) | Err(_) => Ok(()),
    }
}

fn disagreeing() -> EngineError {
    EngineError::Fenced(
        "what is on this machine and what is in the bucket do not agree: this directory was put \
         back to what it was once, or a copy of it was in use; `penstock fileset attach` brings \
         back what is in the bucket"
            .to_owned(),
    )
}

/// Whether disk and bucket have the same operations, as far as both go.
async fn agree(
    bucket: &Bucket,
    prepared: &Prepared,
    (chain, there): (&Chain, Tip),
) -> EngineResult<bool> {
    let here = prepared.tip();
    if there.sequence <= here.sequence {
        let known = prepared.replayed.tip_at(there.sequence);
        let known = known.ok_or_else(|| lacking("on this machine", there))?;
        return Ok(known == there);
    }
    let known = chain.tip_at(bucket, here.sequence).await?;
    let known = known.ok_or_else(|| lacking("in the bucket", here))?;
    Ok(known == here)
}

fn lacking(place: &str, tip: Tip) -> EngineError {
    let next = tip.sequence + 1;
    EngineError::Corrupt(format!(
        "the log {place} lacks operation {next}: `penstock fileset attach` brings back what is in \
         the bucket"
    ))
}

/// What the disk has and the bucket, which is at `tip`, lacks.
fn unshipped(prepared: &Prepared, tip: Tip, mut add: impl FnMut(Chunk)) -> EngineResult<()> {
    let records = &prepared.replayed.records;
    let begin = records.partition_point(|record| record.sequence <= tip.sequence);
    let mut rest = &records[begin..];
    let mut before = tip;
    while !rest.is_empty() {
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
        let behind = taken.iter().try_fold(before, Tip::behind);
        let behind = behind.ok_or_else(|| lacking("on this machine", before))?;
        add(Chunk {
            before,
            last: behind.sequence,
            records: bytes.freeze(),
        });
        (before, rest) = (behind, others);
    }
    Ok(())
}

impl Debug for ShippedEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShippedEngine")
            .field("epoch", &self.shipping.epoch())
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

    async fn freeze(&self) -> EngineResult<Frozen> {
        self.sync().await?;
        self.local.freeze().await
    }

    async fn verify(&self) -> EngineResult<()> {
        self.local.verify().await
    }

    fn lag(&self) -> Lag {
        self.shipping.lag()
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
