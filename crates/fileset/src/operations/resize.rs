//! Cutting, punching and growing files.
//!
//! What is cut is what is there when the operation runs, whoever wrote it meanwhile.

use std::{fmt, ops::Range, sync::Arc, time::SystemTime};

use penstock_base::FsResult;
use penstock_vfs::{Attributes, Inode};

use super::{
    attributes,
    extents::{FileChange, STEP, SizeChange, Step, clearing, edit},
    node, put_node,
};
use crate::{
    engine::{Reads, Transaction},
    schema::BLOCK_SIZE,
};

type Check = dyn Fn(&Attributes) -> FsResult<()> + Send + Sync;

/// What must be so of a file for a change of it, by what the operation sees of it.
#[derive(Clone)]
pub(crate) struct Condition(Arc<Check>);

impl Condition {
    /// Fails as `check` does.
    pub(crate) fn new(check: impl Fn(&Attributes) -> FsResult<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    /// Fails unless it is so of a file.
    pub(crate) fn check(&self, file: &Attributes) -> FsResult<()> {
        (self.0)(file)
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condition")
    }
}

/// A file that gets another size.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    pub(crate) inode: Inode,
    pub(crate) size: u64,
    /// Where this operation begins: at the size, or behind it where the file is cut in steps.
    pub(crate) from: u64,
    /// What else changes, with the last step.
    pub(crate) change: FileChange,
    pub(crate) condition: Option<Condition>,
}

/// A step of a cut.
#[derive(Debug, Clone)]
pub(crate) struct CutStep {
    pub(crate) step: Step,
    /// Chunks from the beginning of the step on that are written still.
    pub(crate) left: Vec<u64>,
}

/// Chunks that one step of a cut looks at.
const LOOK: usize = 2 * STEP;

/// Cuts a file, from its end, as much as one operation may. `None` where more is written than it looks at: nothing is
/// changed then, and who knows the chunks begins nearer to the end.
pub(crate) fn cut(transaction: &mut dyn Transaction, cut: &Cut) -> FsResult<Option<CutStep>> {
    if let Some(condition) = &cut.condition {
        condition.check(&attributes(transaction, cut.inode)?)?;
    }
    let mut edits = clearing(transaction, cut.inode, &(cut.from..u64::MAX), LOOK)?;
    if edits.len() == LOOK {
        return Ok(None);
    }
    edits.reverse();
    let at_most = |size| FileChange {
        size: Some(SizeChange::AtMost(size)),
        ..FileChange::default()
    };
    let change = |step: &Step| match step.is_last {
        true if cut.from == cut.size => cut.change.clone(),
        true => at_most(cut.from),
        false => at_most(cut.from.max(step.chunk * BLOCK_SIZE)),
    };
    let step = edit(transaction, cut.inode, (&edits, 0), &change)?;
    let left = edits[step.edits..].iter().rev();
    let left = left.map(super::Edit::chunk).collect();
    Ok(Some(CutStep { step, left }))
}

/// Some chunks that are written from the one on in which `from` lies, in order, and whether there may be more.
pub(crate) fn some_written(
    reads: &dyn Reads,
    inode: Inode,
    from: u64,
) -> FsResult<(Vec<u64>, bool)> {
    let found = clearing(reads, inode, &(from..u64::MAX), LOOK)?;
    let chunks = found.iter().map(super::Edit::chunk).collect();
    Ok((chunks, found.len() == LOOK))
}

/// Where the next step of a cut begins that has left these chunks.
pub(crate) fn next_cut(size: u64, left: &[u64]) -> u64 {
    match left.len() > STEP {
        true => size.max(left[left.len() - STEP] * BLOCK_SIZE),
        false => size,
    }
}

/// Clears a range of a file, from its beginning, as much as one operation may. Nothing is changed where nothing is
/// written.
pub(crate) fn punch(
    transaction: &mut dyn Transaction,
    inode: Inode,
    range: &Range<u64>,
    now: SystemTime,
) -> FsResult<Step> {
    let edits = clearing(transaction, inode, range, STEP + 1)?;
    if edits.is_empty() {
        return Ok(Step {
            is_last: true,
            ..Step::default()
        });
    }
    let change = |_: &Step| FileChange {
        modified: Some(now),
        changed: Some(now),
        ..FileChange::default()
    };
    edit(transaction, inode, (&edits, 0), &change)
}

/// Makes a file at least so long.
pub(crate) fn grow(
    transaction: &mut dyn Transaction,
    inode: Inode,
    size: u64,
    now: SystemTime,
) -> FsResult<()> {
    let mut file = node(transaction, inode)?;
    if file.size < size {
        file.size = size;
        file.modified = now;
        file.changed = file.changed.max(now);
        put_node(transaction, inode, &file);
    }
    Ok(())
}
