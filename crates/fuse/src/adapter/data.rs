//! Open files and their bytes.

use std::{ops::Range, time::Duration};

use penstock_base::{FsError, clock};
use penstock_vfs::{Allocation, HandleId, Inode, WritePlace};
use tracing::warn;

use super::{Adapter, Answer, Closed, Outcome, Reply, Subject, Undo, WriteUnderWay};
use crate::{
    errno::Errno,
    protocol::{Transfer, encode},
    signals,
    transport::WriteData,
};

/// A save that takes longer is worth a look at who waits for it.
const QUICK_SAVE: Duration = Duration::from_millis(100);

pub(super) async fn open(adapter: Adapter, subject: Subject, flags: u32) -> Outcome {
    let options = adapter.open_options(flags);
    let opened = adapter.volume.open(subject.caller, subject.node, options);
    let opened = opened.await?;
    let reply = adapter.note_open(subject, &opened, flags);
    let answer = Answer::body(|body| encode::opened(body, &reply));
    Ok(answer.or_undo(Undo::Release(opened.handle)))
}

pub(super) async fn read(adapter: Adapter, inode: Inode, transfer: Transfer) -> Outcome {
    let Transfer {
        handle,
        offset,
        size,
    } = transfer;
    let read = || adapter.volume.read(handle, offset, size);
    let contents = adapter.overlaps.read((inode, transfer.range()), read);
    let contents = contents.await?;
    if contents.len() > size as usize {
        let text = format!(
            "{} bytes were read where {size} were asked for",
            contents.len()
        );
        return Err(FsError::Io(text).into());
    }
    Ok(Reply::Data(contents).into())
}

/// Writes what was received, which may be less than the program wanted to write.
pub(super) async fn write(
    adapter: Adapter,
    (inode, handle, place): (Inode, HandleId, WritePlace),
    (data, under_way): (WriteData, Option<WriteUnderWay>),
) -> Outcome {
    let (bytes, memory) = data.paid().await?;
    let length = u32::try_from(bytes.len()).expect("at most one block");
    adapter.volume.write(handle, place, bytes).await?;
    drop((memory, under_way));
    if matches!(place, WritePlace::EndInPieces(_)) {
        // The kernel drops what it keeps of the place before such a write and not after it; what was read
        // in between ends with zeros where these bytes are now.
        adapter.notifier.drop_content(inode).await;
    }
    Ok(Answer::body(|body| encode::written(body, length)))
}

/// A descriptor was closed. See [`super::writers`] for which of them concern the volume.
///
/// A process that was killed closes its files on the way out. It hears of no error any more, and
/// no signal ends its wait, so it is let go at once and the file is saved behind it.
pub(super) async fn flush(adapter: Adapter, closed: Closed) -> Outcome {
    let Some(save) = adapter.writers.close(closed) else {
        return Ok(Answer::done());
    };
    let (handle, process) = (closed.handle, closed.thread);
    let mut saved = Box::pin(async move {
        let saved = adapter.volume.flush(handle).await;
        adapter.writers.settled(save);
        saved
    });
    if let Ok(saved) = clock::deadline(QUICK_SAVE, saved.as_mut()).await {
        saved?;
        return Ok(Answer::done());
    }
    if signals::was_killed(process) {
        tokio::spawn(async move {
            if let Err(error) = saved.await {
                warn!(process, %error, "a file of a killed process could not be saved");
            }
        });
        return Ok(Answer::done());
    }
    saved.await?;
    Ok(Answer::done())
}

pub(super) async fn sync(adapter: Adapter, handle: HandleId, data_only: bool) -> Outcome {
    adapter.volume.sync(handle, data_only).await?;
    Ok(Answer::done())
}

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
    handle: HandleId,
    range: Range<u64>,
    allocation: Allocation,
) -> Outcome {
    adapter.volume.allocate(handle, range, allocation).await?;
    Ok(Answer::done())
}

pub(super) async fn release(adapter: Adapter, handle: HandleId) -> Outcome {
    adapter.note_closed(handle);
    adapter.volume.release(handle).await;
    Ok(Answer::done())
}
