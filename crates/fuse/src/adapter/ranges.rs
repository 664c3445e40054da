//! Ranges of open files: what is allocated of them, where they have holes, and copies.

use std::ops::Range;

use penstock_vfs::{Allocation, HandleId, Position, Seek};

use super::{Adapter, Answer, Outcome, Subject};
use crate::{
    errno::Errno,
    protocol::{CopyRange, encode},
};

/// The range of an `fallocate`. The kernel has refused empty ones.
pub(super) fn range(offset: u64, length: u64) -> Result<Range<u64>, Errno> {
    let end = offset.checked_add(length).ok_or(Errno(libc::EFBIG))?;
    Ok(offset..end)
}

/// The mode of an `fallocate`. What moves the rest of a file no volume can do.
pub(super) fn allocation(mode: u32) -> Result<Allocation, Errno> {
    const UNSHARE: i32 = libc::FALLOC_FL_UNSHARE_RANGE;
    let mode = mode.cast_signed();
    let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    match mode & !libc::FALLOC_FL_KEEP_SIZE {
        0 | UNSHARE => Ok(Allocation::Reserve { keep_size }),
        libc::FALLOC_FL_PUNCH_HOLE => Ok(Allocation::PunchHole),
        libc::FALLOC_FL_ZERO_RANGE => Ok(Allocation::ZeroRange { keep_size }),
        _ => Err(Errno(libc::EOPNOTSUPP)),
    }
}

pub(super) async fn allocate(
    adapter: Adapter,
    subject: Subject,
    handle: HandleId,
    (range, allocation): (Range<u64>, Allocation),
) -> Outcome {
    let volume = &adapter.volume;
    let allocated = volume.allocate(&subject.by, handle, range, allocation);
    allocated.await?;
    Ok(Answer::done())
}

/// What `lseek` looks for. The kernel asks for nothing else.
pub(super) fn wanted(whence: u32) -> Result<Seek, Errno> {
    match whence.cast_signed() {
        libc::SEEK_DATA => Ok(Seek::Data),
        libc::SEEK_HOLE => Ok(Seek::Hole),
        _ => Err(Errno(libc::EINVAL)),
    }
}

pub(super) async fn seek(
    adapter: Adapter,
    (handle, offset): (HandleId, u64),
    wanted: Seek,
) -> Outcome {
    let found = adapter.volume.seek(Position { handle, offset }, wanted);
    let found = found.await?;
    Ok(Answer::body(|body| {
        body.u64(found);
    }))
}

/// Copies as much as the answer can tell.
pub(super) async fn copy(adapter: Adapter, subject: Subject, copy: CopyRange) -> Outcome {
    let source = Position {
        handle: copy.source,
        offset: copy.source_offset,
    };
    let target = Position {
        handle: copy.target,
        offset: copy.target_offset,
    };
    let longest = if copy.is_wide {
        u64::MAX
    } else {
        u32::MAX.into()
    };
    let length = copy.length.min(longest);
    let copied = adapter
        .volume
        .copy_range(&subject.by, source, target, length);
    let copied = copied.await?;
    Ok(Answer::body(|body| {
        if copy.is_wide {
            body.u64(copied);
        } else {
            encode::written(body, u32::try_from(copied).unwrap_or(u32::MAX));
        }
    }))
}
