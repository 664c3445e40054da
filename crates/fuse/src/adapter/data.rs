//! Open files and their bytes.

use std::{
    pin::{Pin, pin},
    time::Duration,
};

use penstock_base::{FsError, clock};
use penstock_vfs::{HandleId, Position, WritePlace};
use tokio::task::spawn_blocking;
use tracing::warn;

use super::{Adapter, Answer, By, Closed, Outcome, Reply, Subject, Undo, WriteUnderWay};
use crate::{
    protocol::{DescriptorTable, Transfer, encode},
    signals,
    transport::WriteData,
};

/// A save that takes longer is worth a look at who waits for it.
const QUICK_SAVE: Duration = Duration::from_millis(100);

pub(super) async fn open(adapter: Adapter, subject: Subject, flags: u32) -> Outcome {
    let options = adapter.open_options(flags);
    let opened = adapter.volume.open(&subject.by, subject.node, options);
    let opened = opened.await?;
    let reply = adapter.note_open(&subject, &opened, flags);
    let answer = Answer::body(|body| encode::opened(body, &reply));
    Ok(answer.or_undo(Undo::Release(opened.handle)))
}

pub(super) async fn read(
    adapter: Adapter,
    subject: Subject,
    (transfer, is_direct): (Transfer, bool),
) -> Outcome {
    let size = transfer.size;
    let at = Position {
        handle: transfer.handle,
        offset: transfer.offset,
    };
    let read = || adapter.volume.read(&subject.by, at, size);
    let range = (subject.node, transfer.range());
    let by = By {
        sent: subject.sent,
        is_direct,
    };
    let payload = adapter.overlaps.read(range, by, read).await?;
    if payload.len() > size as usize {
        let text = format!(
            "{} bytes were read where {size} were asked for",
            payload.len()
        );
        return Err(FsError::Io(text).into());
    }
    Ok(Reply::Data(payload).into())
}

/// Writes what was received, which may be less than the program wanted to write.
pub(super) async fn write(
    adapter: Adapter,
    subject: Subject,
    (transfer, appends, is_direct): (Transfer, bool, bool),
    (data, under_way): (WriteData, Option<WriteUnderWay>),
) -> Outcome {
    let place = adapter.write_place(transfer.offset, appends, is_direct);
    let handle = transfer.handle;
    let (bytes, memory) = data.paid().await?;
    let length = u32::try_from(bytes.len()).expect("at most one block");
    let written = adapter.volume.write(&subject.by, handle, place, bytes);
    let moved = written.await?.moved_to.is_some();
    let is_late = under_way.as_ref().is_some_and(WriteUnderWay::is_late);
    drop((memory, under_way));
    let answer = Answer::body(|body| encode::written(body, length));
    if matches!(place, WritePlace::EndInPieces(_)) || is_direct && is_late {
        // The kernel drops what it keeps of the place before such a write, and not after one of asynchronous I/O; what was
        // read in between is what the file held before.
        let dropped = adapter.notifier.drop_content(subject.node);
        adapter
            .overlaps
            .forget_answered(subject.node, dropped)
            .await;
        return Ok(answer);
    }
    // The kernel holds the page that it writes until it hears the answer.
    let is_outdated = moved || is_late;
    Ok(answer.and_drop(is_outdated.then_some(subject.node)))
}

/// A descriptor was closed. See [`super::writers`] for which of them concern the volume.
///
/// A process that was killed closes its files on the way out. It hears of no error any more, and
/// no signal ends its wait, so it is let go at once and the file is saved behind it.
pub(super) async fn flush(
    adapter: Adapter,
    subject: Subject,
    handle: HandleId,
    table: DescriptorTable,
) -> Outcome {
    let closed = Closed {
        handle,
        inode: subject.node,
        table,
        thread: subject.thread,
    };
    let unlocking = adapter.unlocking(subject.node, table);
    let flushed = save_closed(&adapter, closed).await;
    // Who takes the lock next reads what was saved.
    unless_killed(subject.thread, pin!(unlocking.unlock())).await;
    flushed
}

async fn save_closed(adapter: &Adapter, closed: Closed) -> Outcome {
    if !adapter.features.saves_on_close {
        adapter.volume.flush(closed.handle).await?;
        return Ok(Answer::done());
    }
    let Some(save) = adapter.writers.close(closed) else {
        return Ok(Answer::done());
    };
    let (handle, process) = (closed.handle, closed.thread);
    let mut saved = Box::pin({
        let adapter = adapter.clone();
        async move {
            let saved = adapter.volume.flush(handle).await;
            adapter.writers.settled(save);
            saved
        }
    });
    match unless_killed(process, saved.as_mut()).await {
        Some(saved) => saved?,
        None => drop(tokio::spawn(async move {
            if let Err(error) = saved.await {
                warn!(process, %error, "a file of a killed process could not be saved");
            }
        })),
    }
    Ok(Answer::done())
}

/// What comes of the work for a close, or nothing if thread `process` was killed and the work is not done soon.
async fn unless_killed<T>(
    process: u32,
    mut work: Pin<&mut (impl Future<Output = T> + ?Sized)>,
) -> Option<T> {
    if let Ok(done) = clock::deadline(QUICK_SAVE, work.as_mut()).await {
        return Some(done);
    }
    tokio::select! {
        biased;
        done = work => Some(done),
        () = until_known_as_killed(process) => None,
    }
}

/// Returns when thread `process` is known to be on its way out because of a signal; never of one that is not.
///
/// A process that closes its file because it becomes another program (execve(2)) is not to be looked at before that is
/// answered: the look waits for it.
async fn until_known_as_killed(process: u32) {
    let looked = spawn_blocking(move || signals::was_killed(process)).await;
    if !looked.is_ok_and(|was_killed| was_killed) {
        std::future::pending::<()>().await;
    }
}

pub(super) async fn sync(adapter: Adapter, handle: HandleId, data_only: bool) -> Outcome {
    adapter.volume.sync(handle, 0..u64::MAX, data_only).await?;
    Ok(Answer::done())
}

pub(super) async fn release(
    adapter: Adapter,
    subject: Subject,
    handle: HandleId,
    unlocks: bool,
) -> Outcome {
    adapter.note_closed(handle);
    adapter.unlock_released(subject.node, handle, unlocks).await;
    adapter.volume.release(handle).await;
    Ok(Answer::done())
}
