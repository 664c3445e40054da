//! Repairing what the keys say, without inventing bytes.
//!
//! A plan is made first, in memory: the keys are surveyed as they will be after the repairs that are planned so far, until
//! nothing is left to repair. So a dry run tells just what would be done. Then each repair is one operation, and a repair
//! that a kill cuts off goes on with the next one: what was repaired is not found again. What each kind of finding becomes
//! is in `docs/operations.md`.

mod nodes;
mod objects;
mod tree;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use penstock_base::{FsError, FsResult, clock};

use super::{
    Survey,
    overlay::{Changes, Overlay},
};
use crate::{
    engine::{Engine, Reads, Transaction, mark, query, transact},
    schema,
    snapshots::Preserving,
};

/// Repairs in one plan. What is left after that another one repairs.
pub const REPAIRS_MAX: usize = 100_000;
/// Surveys of one plan: each repairs what the repairs before it made visible.
const PASSES_MAX: usize = 16;

/// What is done to a file system: one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// What it does, for people.
    pub text: String,
    changes: Changes,
}

impl Repair {
    fn new(text: String) -> Self {
        Self {
            text,
            changes: Changes::new(),
        }
    }

    fn put(mut self, key: &BytesMut, value: Bytes) -> Self {
        let key = Bytes::copy_from_slice(key);
        self.changes.insert(key, Some(value));
        self
    }

    fn delete(mut self, key: &[u8]) -> Self {
        self.changes.insert(Bytes::copy_from_slice(key), None);
        self
    }

    /// The entries of a directory change.
    fn touch(self, reads: &dyn Reads, directory: penstock_vfs::Inode) -> FsResult<Self> {
        let key = schema::times(directory);
        let since = clock::wall_time().duration_since(std::time::SystemTime::UNIX_EPOCH);
        let now = since.unwrap_or_default().as_nanos() as u64;
        let before = mark(reads.get(&key)?.as_ref());
        let value = now.max(before.saturating_add(1));
        Ok(self.put(&key, number(value)))
    }
}

/// The value of a mark or of a counter.
fn number(value: u64) -> Bytes {
    Bytes::copy_from_slice(&value.to_le_bytes())
}

/// What repairs the file system whose metadata is in `engine`, in its order. Nothing is changed. Fails with `Corrupt`
/// where keys cannot be read, but for those of bytes of files: what is not found in damaged metadata is not lost yet.
pub async fn plan(engine: &dyn Engine) -> FsResult<Vec<Repair>> {
    engine.verify().await?;
    query(engine, |reads| planned(reads)).await
}

fn planned(reads: &dyn Reads) -> FsResult<Vec<Repair>> {
    let (mut overlay, mut plan) = (Overlay::new(reads), Vec::new());
    for _ in 0..PASSES_MAX {
        let survey = Survey::of(&overlay)?;
        if let Some(unreadable) = survey.unreadable.first() {
            let text = format!("{unreadable}: restore the metadata from a backup");
            return Err(FsError::Corrupt(text));
        }
        let repairs = next(&overlay, &survey)?;
        if repairs.is_empty() || plan.len() + repairs.len() > REPAIRS_MAX {
            plan.extend(repairs.into_iter().take(REPAIRS_MAX - plan.len()));
            return Ok(plan);
        }
        repairs
            .iter()
            .for_each(|repair| overlay.make(&repair.changes));
        plan.extend(repairs);
    }
    Ok(plan)
}

/// Repairs that do not depend on each other: those of the first kind of which there are any.
fn next(reads: &dyn Reads, survey: &Survey) -> FsResult<Vec<Repair>> {
    type Kind = fn(&dyn Reads, &Survey) -> FsResult<Vec<Repair>>;
    let kinds: [Kind; 11] = [
        objects::contents,
        // What is repaired after them is kept for snapshots, and may need new numbers.
        objects::marks,
        nodes::missing,
        tree::entries,
        nodes::leftovers,
        nodes::orphans,
        tree::unnamed,
        nodes::counts,
        objects::uses,
        objects::counters,
        objects::quotas,
    ];
    for kind in kinds {
        let repairs = kind(reads, survey)?;
        if !repairs.is_empty() {
            return Ok(repairs);
        }
    }
    Ok(Vec::new())
}

/// Makes planned repairs, each in one operation, and calls `tell` before each. All are durable when this returns. Nobody
/// else may have the file system open between plan and end.
pub async fn apply(
    engine: Arc<dyn Engine>,
    plan: Vec<Repair>,
    tell: &(dyn Fn(&Repair) + Sync),
) -> FsResult<()> {
    let engine = Preserving::new(engine);
    for repair in plan {
        tell(&repair);
        transact(&engine, move |transaction: &mut dyn Transaction| {
            for (key, value) in &repair.changes {
                match value {
                    Some(value) => transaction.put(key, value.clone()),
                    None => transaction.delete(key),
                }
            }
            Ok::<_, FsError>(())
        })
        .await?;
    }
    Ok(engine.sync().await?)
}
