//! Copying bytes between files inside the kernel, without moving them where the file system can
//! share blocks.

use rustix::{
    fd::BorrowedFd,
    fs::copy_file_range,
    io::{Errno, pread, pwrite},
};

use super::problem::{Attempt, Problem};
use crate::{ByteRange, ErrorKind};
use penstock_base::run_blocking;

/// Bytes that are copied before other tasks get their turn and a cancelled copy stops.
const TURN: u64 = 64 << 20;

/// Bytes that pass through user space at once where the kernel cannot copy.
const BUFFER: usize = 256 << 10;

/// Copies `range` of one file to `offset` of another.
pub(super) async fn copy_range(
    from: BorrowedFd<'_>,
    range: ByteRange,
    to: BorrowedFd<'_>,
    offset: u64,
) -> Attempt<()> {
    let mut position = range.start;
    while position < range.end {
        let pause = range.end.min(position + TURN);
        let target = offset + (position - range.start);
        run_blocking(|| copy_turn(from, position..pause, to, target))?;
        position = pause;
        tokio::task::yield_now().await;
    }
    Ok(())
}

fn copy_turn(
    from: BorrowedFd<'_>,
    range: ByteRange,
    to: BorrowedFd<'_>,
    offset: u64,
) -> Attempt<()> {
    let (mut source, mut target) = (range.start, offset);
    while source < range.end {
        let wanted = usize::try_from(range.end - source).unwrap_or(usize::MAX);
        match copy_file_range(from, Some(&mut source), to, Some(&mut target), wanted) {
            Ok(0) => return Err(truncated()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                return copy_through_memory(from, source..range.end, to, target);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn copy_through_memory(
    from: BorrowedFd<'_>,
    range: ByteRange,
    to: BorrowedFd<'_>,
    offset: u64,
) -> Attempt<()> {
    let mut buffer = vec![0; BUFFER];
    let (mut source, mut target) = (range.start, offset);
    while source < range.end {
        let wanted = BUFFER.min((range.end - source) as usize);
        let count = pread(from, &mut buffer[..wanted], source)?;
        if count == 0 {
            return Err(truncated());
        }
        let mut written = 0;
        while written < count {
            written += pwrite(to, &buffer[written..count], target + written as u64)?;
        }
        source += count as u64;
        target += count as u64;
    }
    Ok(())
}

fn truncated() -> Problem {
    let message = "the file was truncated while it was copied";
    Problem::new(ErrorKind::PreconditionFailed, message)
}
