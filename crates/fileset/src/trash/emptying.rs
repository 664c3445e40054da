//! Removing files from the trash: those that are too old, or all. Each step is one operation, and what a crash cuts off goes on
//! where it was.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use penstock_base::{FileName, FsError, FsResult, clock};
use penstock_vfs::{Dentry, Inode};

use super::listing::{entries, hour_from};
use crate::{
    engine::{Engine, Transaction, query, transact},
    garbage,
    held::Held,
    operations::{self, Asked, Place, Unnamed},
    schema::{self, Hour, TRASH},
    snapshots::Preserving,
    volume::Parts,
};

/// Files of one operation.
const STEP: usize = 200;
/// Operations of one call.
const STEPS_MAX: usize = 50;
/// How long a call goes on to the next operation: whoever orders it waits for the answer.
const CALL_MAX: Duration = Duration::from_secs(20);

/// What some steps did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Emptied {
    /// Files that were removed.
    pub files: u64,
    /// Whether nothing is left of what was to be removed.
    pub is_done: bool,
}

/// What one step did.
struct Step {
    orphans: Vec<Inode>,
    is_last: bool,
}

/// Hours before this one are older than that.
pub(crate) fn until(older: Duration) -> Hour {
    let now = clock::wall_time();
    let time = now.checked_sub(older).unwrap_or(SystemTime::UNIX_EPOCH);
    Hour::of(time)
}

/// Removes some of what came into the trash in hours that ended before so long, or of all; durable when this returns. While a
/// volume has the file system open its [`purge_some`](crate::FilesetVolume::purge_some) does it.
pub async fn purge_some(engine: Arc<dyn Engine>, older: Option<Duration>) -> FsResult<Emptied> {
    empty(&Preserving::new(engine), older.map(until), None).await
}

/// The same of a file system that is open.
pub(crate) async fn empty_some(parts: &Parts, until: Option<Hour>) -> FsResult<Emptied> {
    empty(&parts.engine, until, Some(&parts.held)).await
}

/// Makes some steps, durably. `held` are the files that a volume has open, if one has the file system open here.
async fn empty(engine: &Preserving, until: Option<Hour>, held: Option<&Held>) -> FsResult<Emptied> {
    let (mut emptied, begun) = (Emptied::default(), clock::now());
    for _ in 0..STEPS_MAX {
        if begun.elapsed() > CALL_MAX {
            break;
        }
        let step = step(engine, until).await?;
        emptied.files += step.orphans.len() as u64;
        for orphan in step.orphans {
            match held {
                Some(held) => held.orphaned(orphan),
                // Nobody holds it. Where others have the file system open one of these collects it.
                None if engine.peers().is_none() => drop(garbage::collect(engine, orphan).await?),
                None => {}
            }
        }
        if step.is_last {
            emptied.is_done = true;
            break;
        }
    }
    engine.sync().await?;
    Ok(emptied)
}

/// Removes what is older by `now` than files stay, on the machine that does such things.
pub(crate) async fn expire(parts: &Parts, now: SystemTime) -> FsResult<()> {
    let look = query(&*parts.engine, |reads| {
        let Some(days) = super::days(reads)? else {
            return Ok(None);
        };
        let until = Hour::of(now).before(days);
        let first = hour_from(reads, None)?;
        Ok::<_, FsError>(first.filter(|first| *first < until).map(|_| until))
    });
    let Some(until) = look.await? else {
        return Ok(());
    };
    if !parts.is_elected().await {
        return Ok(());
    }
    let mut files = 0;
    loop {
        let emptied = empty_some(parts, Some(until)).await?;
        files += emptied.files;
        if emptied.is_done {
            tracing::info!(
                files,
                "files that were in the trash for long enough were removed"
            );
            return Ok(());
        }
    }
}

async fn step(engine: &Preserving, until: Option<Hour>) -> FsResult<Step> {
    let asked = Asked::by_itself(engine);
    transact(engine, move |transaction| {
        step_now(transaction, &asked, until)
    })
    .await
}

/// Removes some files of the first hour, and its directory behind the last one.
fn step_now(
    transaction: &mut dyn Transaction,
    asked: &Asked,
    until: Option<Hour>,
) -> FsResult<Step> {
    let mut step = Step {
        orphans: Vec::new(),
        is_last: true,
    };
    let first = hour_from(transaction, None)?;
    let Some(hour) = first.filter(|hour| until.is_none_or(|until| *hour < until)) else {
        return Ok(step);
    };
    step.is_last = false;
    let found = entries(transaction, hour, (&[], STEP))?;
    let is_empty = found.len() < STEP;
    for found in found {
        let name = FileName::new(&found.name).map_err(|_| schema::damaged("a name"))?;
        let place = Place {
            parent: hour.inode(),
            name,
        };
        transaction.delete(&schema::entry(place.dentry()));
        match operations::unlink(transaction, asked, &place, found.inode)? {
            Some(Unnamed::Orphan(orphan)) => step.orphans.push(orphan),
            Some(Unnamed::Kept(_)) | None => {}
        }
    }
    match is_empty {
        true => {
            let entry = schema::entry(Dentry::new(TRASH, &hour.name()));
            transaction.delete(&entry);
            operations::count_directories(transaction, TRASH, -1)?;
            operations::touch(transaction, TRASH, asked.now)?;
            super::close_hour(transaction, hour)?;
        }
        false => operations::touch(transaction, hour.inode(), asked.now)?,
    }
    Ok(step)
}
