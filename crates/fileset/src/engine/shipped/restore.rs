//! Bringing the metadata back from the bucket alone.
//!
//! The newest checkpoint's parts go into the tree one by one, each with a note of how many there are; then what the log
//! says behind it. Whoever is interrupted goes on behind the last part that the tree has. A writer that was just shut out
//! may still be deleting what its last checkpoint made useless: what is gone when it is to be read is looked for anew.
//!
//! All that is read before the log is claimed, so that a bucket from which nothing can be brought back shuts nobody out; what
//! its writer added meanwhile comes after the claim.

use super::{
    bucket::Bucket,
    chain::{self, Chain, Claimed, Link},
    fold,
    format::{Manifest, decode_part},
    names::ManifestName,
};
use crate::engine::{
    EngineError, EngineResult,
    embedded::{Fact, Tree},
    layers::Changes,
    record::{self, Tip},
};
use penstock_base::run_blocking;

/// How often something that is gone is looked for anew.
const ATTEMPTS: usize = 5;
/// Bytes of changes that the tree takes at once.
const BATCH: usize = 8 << 20;

/// Facts of a tree that is being filled: whether it is, with which checkpoint, and with how many parts of it.
const UNFINISHED: &str = "unfinished";
const SEQUENCE: &str = "restored-sequence";
const EPOCH: &str = "restored-epoch";
const PARTS: &str = "restored-parts";

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restoring {
    /// Bytes of parts and of log that are there.
    pub bytes: u64,
    /// Of so many.
    pub total: u64,
}

/// Fills the tree with all that is in the bucket.
pub(super) async fn restore(
    bucket: &Bucket,
    tree: &Tree,
    tell: &(dyn Fn(Restoring) + Sync),
) -> EngineResult<()> {
    let mut attempt = 1;
    loop {
        match fill(bucket, tree, tell).await {
            Err(error @ (EngineError::Store(_) | EngineError::Corrupt(_)))
                if attempt < ATTEMPTS =>
            {
                tracing::info!(%error, "what is to be read is looked for anew");
                attempt += 1;
            }
            filled => return filled,
        }
    }
}

/// Brings a tree that was filled up to where the log ended that was claimed.
pub(super) async fn go_on(
    bucket: &Bucket,
    tree: &Tree,
    claimed: &Claimed,
    tell: &(dyn Fn(Restoring) + Sync),
) -> EngineResult<()> {
    let rest = async {
        let links = claimed.chain.behind(bucket, tree.tip()?.sequence).await?;
        redo(bucket, tree, links).await
    };
    if let Err(error) = rest.await {
        // Its writer made a checkpoint meanwhile, and deletes what that has.
        tracing::info!(%error, "the newest checkpoint is brought");
        restore(bucket, tree, tell).await?;
    }
    let (there, wanted) = (tree.tip()?, claimed.tip);
    match there == wanted {
        true => Ok(()),
        false => Err(EngineError::Corrupt(format!(
            "what is in the bucket leads to operation {}, and its log to another operation {}",
            there.sequence, wanted.sequence
        ))),
    }
}

/// The tree is whole: what goes on with another restoration does not begin with it.
pub(super) const WHOLE: Fact = (UNFINISHED, 0);

/// Makes the changes of the log that the tree lacks.
async fn redo(bucket: &Bucket, tree: &Tree, links: &[Link]) -> EngineResult<()> {
    let mut batch = Batch {
        tree,
        changes: Changes::new(),
        bytes: 0,
        tip: tree.tip()?,
    };
    chain::visit(bucket, links, |before, record| batch.take(before, record)).await?;
    batch.end()
}

async fn fill(bucket: &Bucket, tree: &Tree, tell: &(dyn Fn(Restoring) + Sync)) -> EngineResult<()> {
    // The log first: what is deleted meanwhile a newer checkpoint has.
    let log = Chain::read(bucket).await?;
    let found = fold::newest(bucket).await?;
    let (name, manifest) = found.unwrap_or((NOTHING, Manifest::default()));
    let links = log.from(manifest.place());
    let (full, since) = manifest.bytes();
    let log_bytes: u64 = links.iter().map(|link| link.bytes).sum();
    let mut restoring = Restoring {
        bytes: 0,
        total: full.saturating_add(since).saturating_add(log_bytes),
    };
    let there = run_blocking(|| begin(tree, name))?;
    for (at, part) in manifest.parts.iter().enumerate() {
        if at as u64 >= there {
            let bytes = bucket.read(&part.key).await?;
            let gone = || EngineError::Store(format!("{} is gone", part.key));
            let changes = decode_part(bytes.ok_or_else(gone)?, bucket.identity, &part.key)?;
            run_blocking(|| tree.merge_with(&changes, &[(PARTS, at as u64 + 1)]))?;
        }
        restoring.bytes = restoring.bytes.saturating_add(part.bytes);
        tell(restoring);
    }
    if tree.tip()?.sequence < manifest.sequence {
        run_blocking(|| tree.merge(&Changes::new(), manifest.tip()))?;
    }
    redo(bucket, tree, links).await?;
    restoring.bytes = restoring.total;
    tell(restoring);
    Ok(())
}

/// No checkpoint: all is in the log.
const NOTHING: ManifestName = ManifestName {
    sequence: 0,
    epoch: 0,
};

/// Begins with a checkpoint, or goes on with it: returns how many of its parts are there.
fn begin(tree: &Tree, name: ManifestName) -> EngineResult<u64> {
    let facts: [Fact; 2] = [(SEQUENCE, name.sequence), (EPOCH, name.epoch)];
    let is_same = tree.fact(UNFINISHED)? == Some(1)
        && tree.fact(SEQUENCE)? == Some(name.sequence)
        && tree.fact(EPOCH)? == Some(name.epoch);
    if is_same {
        return Ok(tree.fact(PARTS)?.unwrap_or_default());
    }
    tree.clear()?;
    let facts = [facts[0], facts[1], (UNFINISHED, 1), (PARTS, 0)];
    tree.merge_with(&Changes::new(), &facts)?;
    Ok(0)
}

/// Records on their way into the tree.
struct Batch<'a> {
    tree: &'a Tree,
    changes: Changes,
    bytes: usize,
    tip: Tip,
}

impl Batch<'_> {
    fn take(&mut self, before: Tip, record: record::Record) -> EngineResult<()> {
        if record.sequence <= self.tip.sequence {
            return Ok(());
        }
        let next = self.tip.sequence + 1;
        let lacking = || EngineError::Corrupt(format!("operation {next} is not in the bucket"));
        let behind = before.behind(&record).filter(|_| before == self.tip);
        self.tip = behind.ok_or_else(lacking)?;
        self.bytes += record.changes.len();
        record::redo(record.changes, &mut self.changes).ok_or_else(lacking)?;
        match self.bytes < BATCH {
            true => Ok(()),
            false => self.end(),
        }
    }

    fn end(&mut self) -> EngineResult<()> {
        let changes = std::mem::take(&mut self.changes);
        self.bytes = 0;
        run_blocking(|| self.tree.merge(&changes, self.tip))
    }
}
