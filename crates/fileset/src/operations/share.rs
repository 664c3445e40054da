//! Copying a range of a file without moving a byte: the runs that the source shows are shown by the target as well.
//!
//! What a chunk shows has a use, so it is neither garbage nor about to be deleted. The operation that looks at a chunk of the
//! source adds the uses of the target: whoever overwrites, cuts or removes the source comes before it, and it copies what is
//! there then, or after it, and finds the target's uses. A chunk of a snapshot shows what has a use or is held for that
//! snapshot, as long as the snapshot is there, which the operation looks at too; what is held so is alive again.

use std::{ops::Range, time::SystemTime};

use penstock_base::{FsError, FsResult};
use penstock_vfs::Inode;

use super::{
    extents::{
        Edit, FileChange, STEP, STEP_BYTES, SizeChange, Step, Written, clearing, edit,
        some_extents_in,
    },
    node,
};
use crate::{
    engine::{Reads, Transaction},
    schema::{BLOCK_SIZE, Extent},
    snapshots,
};

/// A range of a file that is to be shown at a place of a file of the live tree.
#[derive(Debug, Clone)]
pub(crate) struct Sharing {
    /// The file, and where the range begins.
    pub(crate) source: (Inode, u64),
    /// The file, and the place. The range ends there before 2^63.
    pub(crate) target: (Inode, u64),
    pub(crate) length: u64,
    /// Bytes for which the target has room.
    pub(crate) room: u64,
    pub(crate) now: SystemTime,
    /// Somebody who is not root copies.
    pub(crate) drops_set_id: bool,
}

/// What an operation copied.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared {
    /// Bytes, from the beginning of the range.
    pub(crate) length: u64,
    /// Chunks of the target that have too many extents by now.
    pub(crate) crowded: Vec<u64>,
}

/// What the source shows of as much of a range as one operation copies.
struct Shown {
    extents: Vec<Written>,
    length: u64,
}

impl Shown {
    /// Bytes that are written.
    fn bytes(&self) -> u64 {
        let lengths = self.extents.iter();
        lengths.map(|it| u64::from(it.extent.length)).sum()
    }
}

fn shown(reads: &dyn Reads, sharing: &Sharing) -> FsResult<Shown> {
    let ((source, from), (target, to)) = (sharing.source, sharing.target);
    let size = node(reads, source)?.size;
    let length = sharing.length.min(size.saturating_sub(from));
    if source == target && from.abs_diff(to) < length {
        return Err(FsError::InvalidArgument(
            "a range is not copied over a part of itself",
        ));
    }
    let range = from..from + length;
    let (extents, until) = some_extents_in(reads, source, &range, STEP_BYTES)?;
    Ok(Shown {
        extents,
        length: until - from,
    })
}

/// How much of the range the next operation looks at, and how many bytes of that are written.
pub(crate) fn next_share(reads: &dyn Reads, sharing: &Sharing) -> FsResult<(u64, u64)> {
    let shown = shown(reads, sharing)?;
    Ok((shown.length, shown.bytes()))
}

/// Copies as much as one operation may, from the beginning of the range: nothing only if the source ends there. `None` if
/// that takes more room than there is. Fails with `InvalidArgument` if a range of one file overlaps its place.
pub(crate) fn share(
    transaction: &mut dyn Transaction,
    sharing: &Sharing,
) -> FsResult<Option<Shared>> {
    let shown = snapshots::look_at(&*transaction, |trees| shown(trees, sharing))?;
    if shown.length == 0 {
        return Ok(Some(Shared::default()));
    }
    if shown.bytes() > sharing.room {
        return Ok(None);
    }
    let (inode, start) = sharing.target;
    let range = start..start + shown.length;
    let mut edits = clearing(transaction, inode, &range, STEP + 1)?;
    edits.extend(shown.extents.iter().flat_map(|it| moved(it, sharing)));
    // What is to be cleared of a chunk stays in front.
    edits.sort_by_key(Edit::chunk);
    let change = |step: &Step| FileChange {
        size: Some(SizeChange::AtLeast(copied_until(step, &range))),
        modified: Some(sharing.now),
        changed: Some(sharing.now),
        drops_set_id: sharing.drops_set_id,
    };
    let step = edit(transaction, inode, (&edits, 0), &change)?;
    Ok(Some(Shared {
        length: copied_until(&step, &range) - start,
        crowded: step.crowded,
    }))
}

/// Where what a step copied to a range ends.
fn copied_until(step: &Step, range: &Range<u64>) -> u64 {
    match step.is_last {
        true => range.end,
        false => (step.chunk + 1) * BLOCK_SIZE,
    }
}

/// What shows a part of the source at its place in the target, which the end of a chunk may cut.
fn moved(written: &Written, sharing: &Sharing) -> impl Iterator<Item = Edit> {
    let at = written.offset - sharing.source.1 + sharing.target.1;
    let (chunk, within) = (at / BLOCK_SIZE, (at % BLOCK_SIZE) as u32);
    let length = written.extent.length.min(BLOCK_SIZE as u32 - within);
    let part = |at, skip, length| Extent {
        at,
        length,
        skip: written.extent.skip + skip,
        stored: written.extent.stored.clone(),
    };
    let first = Edit::Show(chunk, part(within, 0, length));
    let rest = written.extent.length - length;
    let rest = (rest > 0).then(|| Edit::Show(chunk + 1, part(0, length, rest)));
    [Some(first), rest].into_iter().flatten()
}
