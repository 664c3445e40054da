//! Sorted runs become the spool's.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    ManifestSummary, SIZE_UNKNOWN,
    sizes::{Asking, Known},
    sorter::{SortedRun, same},
};
use crate::{
    SnapshotError, SnapshotObject, Spool,
    spool::{RunReader, RunWriter, Span},
};

/// Rows whose sizes are asked for before any of them is written.
const ROWS_ASKED: usize = 4096;

/// Runs that follow one another are taken as they are; others are merged.
pub(super) fn merge(
    spool: &Spool,
    runs: Vec<SortedRun>,
    summary: &mut ManifestSummary,
) -> Result<(), SnapshotError> {
    let follow = runs.windows(2).all(|pair| pair[0].last < pair[1].first);
    if follow {
        return adopt(spool, runs);
    }
    let mut merged = Merged::new(spool, &runs)?;
    let mut out = spool.begin_run();
    while merged.advance(summary)? {
        out.write(&merged.object())?;
    }
    finish(spool, &runs, out)
}

/// The same, with the sizes that rows lack.
pub(super) async fn merge_asking(
    spool: &Spool,
    runs: &[SortedRun],
    asking: Asking<'_>,
    summary: &mut ManifestSummary,
) -> Result<(), SnapshotError> {
    let mut merged = Merged::new(spool, runs)?;
    let mut out = spool.begin_run();
    loop {
        let mut batch = Vec::new();
        while batch.len() < ROWS_ASKED && merged.advance(summary)? {
            batch.push(Known::of(&merged.object()));
        }
        if batch.is_empty() {
            break;
        }
        for known in asking.complete(batch).await? {
            match known {
                Some(known) => out.write(&known.object())?,
                None => summary.gone += 1,
            }
        }
    }
    finish(spool, runs, out)
}

fn adopt(spool: &Spool, runs: Vec<SortedRun>) -> Result<(), SnapshotError> {
    let mut after = String::new();
    let count = runs.len();
    for (index, SortedRun { run, last, .. }) in runs.into_iter().enumerate() {
        let last = String::from_utf8_lossy(&last).into_owned();
        let up_to = (index + 1 < count).then(|| last.clone());
        let after = std::mem::replace(&mut after, last);
        spool.adopt(&run, Span { after, up_to })?;
    }
    if count == 0 {
        return finish(spool, &[], spool.begin_run());
    }
    Ok(())
}

fn finish(spool: &Spool, runs: &[SortedRun], out: RunWriter) -> Result<(), SnapshotError> {
    let all = Span {
        after: String::new(),
        up_to: None,
    };
    spool.finish_run(out, all)?;
    runs.iter()
        .try_for_each(|sorted| spool.remove_aside(&sorted.run))
}

/// The rows of several runs in order, each once.
struct Merged {
    readers: Vec<RunReader>,
    /// The key that each reader is at, the first one on top.
    heads: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    /// The reader whose object is the present one; it has not moved on yet.
    current: Option<(Vec<u8>, usize)>,
}

impl Merged {
    fn new(spool: &Spool, runs: &[SortedRun]) -> Result<Self, SnapshotError> {
        let mut merged = Self {
            readers: Vec::new(),
            heads: BinaryHeap::new(),
            current: None,
        };
        for sorted in runs {
            if let Some(reader) = spool.read_aside(&sorted.run)? {
                merged.readers.push(reader);
                merged.step(merged.readers.len() - 1, Vec::new())?;
            }
        }
        Ok(merged)
    }

    /// Moves to the next row, past those that say the same; false at the end.
    fn advance(&mut self, summary: &mut ManifestSummary) -> Result<bool, SnapshotError> {
        if let Some((key, index)) = self.current.take() {
            let is_same = |head: &Reverse<(Vec<u8>, usize)>| head.0.0 == key;
            while self.heads.peek().is_some_and(is_same) {
                let Some(Reverse((buffer, other))) = self.heads.pop() else {
                    break;
                };
                same(&self.readers[index].object(), &self.readers[other].object())?;
                summary.repeated += 1;
                self.step(other, buffer)?;
            }
            self.step(index, key)?;
        }
        self.current = self.heads.pop().map(|Reverse(head)| head);
        Ok(self.current.is_some())
    }

    /// The row that it was moved to.
    fn object(&self) -> SnapshotObject<'_> {
        let index = self.current.as_ref().map_or(0, |(_, index)| *index);
        self.readers[index].object()
    }

    fn step(&mut self, index: usize, mut key: Vec<u8>) -> Result<(), SnapshotError> {
        let reader = &mut self.readers[index];
        if reader.advance()? {
            key.clear();
            key.extend_from_slice(reader.object().key);
            self.heads.push(Reverse((key, index)));
        }
        Ok(())
    }
}

impl Known {
    /// Whether the size is still to be asked for.
    pub(super) fn lacks_size(&self) -> bool {
        self.size == SIZE_UNKNOWN
    }
}
