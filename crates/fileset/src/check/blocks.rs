//! Whether the bytes in the bucket are those that were written: each run that a file refers to is fetched and compared
//! with its checksums.
//!
//! It goes over the chunks in steps, so its memory does not grow with the file system. What several files of a step
//! have in one object comes with one request.

use std::{
    collections::BTreeMap,
    ops::{ControlFlow, Range},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use penstock_base::{FsError, FsResult, run_blocking};
use penstock_transfer::Transfer;
use penstock_vfs::Inode;

use super::{FINDINGS_MAX, Report, ranges::Places};
use crate::{
    data::{ObjectId, Objects, open},
    engine::{Engine, Reads, query},
    schema::{self, Chunk, Stored, kind},
};

/// Chunks in a step.
const STEP: usize = 1000;
/// Objects that are fetched at once.
const FETCHES_MAX: usize = 8;

/// Runs by their objects, and which file refers to each.
type Runs = BTreeMap<ObjectId, Vec<(Inode, Stored)>>;

/// What is wrong with a run, and which one it is.
#[derive(Debug)]
struct Wrong {
    text: String,
    run: (ObjectId, u32),
}

/// Adds to the report what is wrong with bytes in the bucket, but of those runs that were `told` already. Returns of which runs
/// they are, of [`FINDINGS_MAX`] at most.
pub(super) async fn check_blocks(
    engine: &dyn Engine,
    transfer: Arc<Transfer>,
    (report, told): (&mut Report, &Places),
) -> FsResult<Places> {
    let objects = Objects::new(transfer);
    let kept = &[kind::KEPT, kind::CHUNK];
    let mut runs = Places::new();
    for first in [&[kind::CHUNK][..], kept] {
        check_range((engine, &objects), (first, told), (report, &mut runs)).await?;
    }
    Ok(runs)
}

/// The same of the chunks whose keys begin so.
async fn check_range(
    (engine, objects): (&dyn Engine, &Objects),
    (first, told): (&'static [u8], &Places),
    (report, wrong): (&mut Report, &mut Places),
) -> FsResult<()> {
    let (mut next, end) = (Bytes::from_static(first), schema::behind(first));
    loop {
        let (mut runs, behind) = query(engine, |reads| step(reads, &next..&end)).await?;
        for runs in runs.values_mut() {
            runs.retain(|(_, run)| !told.contains(&(run.object, run.offset)));
        }
        let checks = runs
            .values()
            .map(|runs| check_object(engine, objects, runs));
        let checks = stream::iter(checks);
        let checks: Vec<_> = checks.buffer_unordered(FETCHES_MAX).try_collect().await?;
        for (bytes, findings) in checks {
            report.compared += bytes;
            for Wrong { text, run } in findings {
                report.add(text);
                if wrong.len() < FINDINGS_MAX {
                    wrong.insert(run);
                }
            }
        }
        match behind {
            Some(behind) => next = behind,
            None => return Ok(()),
        }
    }
}

/// The runs of some chunks from a key on, and the key to go on at. A chunk that cannot be read was told already.
fn step(reads: &dyn Reads, range: Range<&[u8]>) -> FsResult<(Runs, Option<Bytes>)> {
    let (mut runs, mut chunks, mut behind) = (Runs::new(), 0, None);
    let is_of_kept = range.start.first() == Some(&kind::KEPT);
    reads.scan(range, &mut |key, value| {
        if chunks == STEP {
            behind = Some(Bytes::copy_from_slice(key));
            return ControlFlow::Break(());
        }
        chunks += 1;
        if let Ok(Some((inode, chunk))) = chunk_of(key, value) {
            for extent in chunk.extents {
                let stored = extent.stored;
                runs.entry(stored.object).or_default().push((inode, stored));
            }
        }
        ControlFlow::Continue(())
    })?;
    if is_of_kept {
        drop_unneeded(reads, &mut runs)?;
    }
    Ok((runs, behind))
}

/// Passes over objects that nothing needs: a snapshot that kept something of them was removed, and what it kept is yet to be
/// cleared away. One that is missing and needed was told already.
fn drop_unneeded(reads: &dyn Reads, runs: &mut Runs) -> FsResult<()> {
    let mut outcome = Ok(());
    runs.retain(|object, _| match reads.get(&schema::object(*object)) {
        Ok(known) => known.is_some(),
        Err(error) => {
            outcome = Err(error.into());
            true
        }
    });
    outcome
}

/// A chunk that a file has, or had when a snapshot was taken.
fn chunk_of(key: &[u8], value: &Bytes) -> FsResult<Option<(Inode, Chunk)>> {
    let (key, value) = match key.first() {
        Some(&kind::KEPT) => (schema::kept_in(key)?.0, schema::decode_kept(value)?),
        _ => (key, Some(value.clone())),
    };
    let inode = schema::inode_in(key)?;
    let chunk = value.map(|value| Chunk::decode(&value)).transpose()?;
    Ok(chunk.map(|chunk| (inode, chunk)))
}

/// Compares runs of one object, and returns how many bytes that were and what is wrong.
async fn check_object(
    engine: &dyn Engine,
    objects: &Objects,
    runs: &[(Inode, Stored)],
) -> FsResult<(u64, Vec<Wrong>)> {
    let lies = |run: &Stored| run.lies(&(0..run.checksums.len()));
    let start = runs.iter().map(|(_, run)| run.offset).min().unwrap_or(0);
    let end = runs.iter().filter_map(|(_, run)| Some(lies(run)?.end));
    let end = end.max().unwrap_or(start);
    let Some((_, first)) = runs.first() else {
        return Ok((0, Vec::new()));
    };
    let payload = match objects.fetch(first, start..end).await {
        Ok(payload) => payload,
        // Nothing needs it any more, and it was deleted meanwhile.
        Err(FsError::Corrupt(_)) if !is_used(engine, first.object).await? => {
            return Ok((0, Vec::new()));
        }
        Err(FsError::Corrupt(cause)) => {
            let lost = runs.iter().map(|(inode, run)| Wrong {
                text: format!("inode {}: {cause}", inode.0),
                run: (run.object, run.offset),
            });
            return Ok((0, lost.collect()));
        }
        Err(error) => return Err(error),
    };
    let is_right = |run: &Stored| {
        let lies = lies(run).unwrap_or(start..start);
        let bytes = u64::from(lies.start - start)..u64::from(lies.end - start);
        open(
            run,
            0..run.checksums.len(),
            &payload.slice(&bytes),
            &mut |_| (),
        )
    };
    let damaged = run_blocking(|| damaged(runs, is_right));
    let findings = damaged.into_iter().map(|(inode, run)| {
        let (inode, object) = (inode.0, run.object);
        Wrong {
            text: format!(
                "inode {inode}: bytes of {object} in the bucket are not those that were written"
            ),
            run: (object, run.offset),
        }
    });
    Ok((u64::from(end - start), findings.collect()))
}

async fn is_used(engine: &dyn Engine, object: ObjectId) -> FsResult<bool> {
    let known = query(engine, |reads| {
        let known = reads.get(&schema::object(object))?;
        Ok::<_, FsError>(known.is_some())
    });
    known.await
}

/// Which files refer to runs that are not right. A run to which many parts of files refer is looked at once.
fn damaged(runs: &[(Inode, Stored)], is_right: impl Fn(&Stored) -> bool) -> Vec<(Inode, &Stored)> {
    let mut known: Option<(&Stored, bool)> = None;
    let mut runs: Vec<_> = runs.iter().collect();
    runs.sort_by_key(|(_, run)| run.offset);
    let damaged = runs.into_iter().filter(|(_, run)| {
        let same = known.filter(|(last, _)| *last == run);
        let (_, is_right) = *known.insert(same.unwrap_or_else(|| (run, is_right(run))));
        !is_right
    });
    damaged.map(|(inode, run)| (*inode, run)).collect()
}
