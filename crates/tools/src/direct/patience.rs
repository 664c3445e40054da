//! When a store is taken for dead: each file would wait for its deadline otherwise, one after the other.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use penstock_base::{FsError, Mutex, clock::Instant};

/// How long an operation tries before its failure says something of the store and not of one file.
const SLOW: Duration = Duration::from_secs(5);
/// Such failures in a row, with nothing done between them, after which no more is tried.
const FAILURES_MAX: u32 = 4;

/// What failures say of the store. Told of each.
#[derive(Debug, Default)]
pub(super) struct Patience {
    row: Mutex<Row>,
    is_over: AtomicBool,
}

#[derive(Debug, Default)]
struct Row {
    /// What was done when it began.
    done: u64,
    failures: u32,
}

impl Patience {
    /// An operation that began at `begun` failed when `done` entries were done by all. Whether the store is dead as of
    /// this failure; said once.
    pub(super) fn ends(&self, error: &io::Error, begun: Instant, done: u64) -> bool {
        if !is_of_store(error) || begun.elapsed() < SLOW {
            return false;
        }
        let mut row = self.row.lock();
        if row.done != done {
            *row = Row { done, failures: 0 };
        }
        row.failures += 1;
        row.failures >= FAILURES_MAX && !self.is_over.swap(true, Ordering::Relaxed)
    }

    /// Whether it was said.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Whether a volume says that its store does not answer, or not with what it should.
fn is_of_store(error: &io::Error) -> bool {
    let told = error.get_ref().and_then(|told| told.downcast_ref());
    matches!(told, Some(FsError::TimedOut(_) | FsError::Io(_)))
}

#[cfg(test)]
mod tests {
    use penstock_base::clock;

    use super::*;
    use crate::volume::io_error;

    fn away() -> io::Error {
        io_error(FsError::TimedOut("no answer".to_owned()))
    }

    #[tokio::test(start_paused = true)]
    async fn slow_failures_with_nothing_done_between_them_end_it() {
        let (patience, begun) = (Patience::default(), clock::now());
        clock::sleep(SLOW).await;
        let told: Vec<bool> = (0..6).map(|_| patience.ends(&away(), begun, 3)).collect();
        assert_eq!(told, [false, false, false, true, false, false]);
        // What was in hand then may end well, or fail later.
        assert!(!patience.ends(&away(), begun, 4));
        assert!(patience.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_done_between_failures_begins_another_row() {
        let (patience, begun) = (Patience::default(), clock::now());
        clock::sleep(SLOW).await;
        assert!((0..20).all(|done| !patience.ends(&away(), begun, done)));
        assert!(!patience.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_single_files_end_nothing() {
        let (patience, begun) = (Patience::default(), clock::now());
        assert!(
            (0..20).all(|_| !patience.ends(&away(), begun, 0)),
            "at once"
        );
        clock::sleep(SLOW).await;
        let damaged = io_error(FsError::Corrupt("a block".to_owned()));
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        for error in [damaged, denied] {
            assert!((0..20).all(|_| !patience.ends(&error, begun, 0)), "{error}");
        }
    }
}
