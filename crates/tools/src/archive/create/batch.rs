//! Members on their way to the writer, several at a time.
//!
//! To hand something from thread to thread takes longer than to read a small file from memory, and much less than a file
//! service takes for an answer. So as many members go together as are looked at in a short time: one where each waits.

use std::{
    sync::{
        Arc, Condvar, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel, sync_channel},
    },
    time::Duration,
};

use penstock_base::Mutex;

use super::{
    job::{Found, Task},
    walk::Planned,
};
use crate::work::Crew;

/// Members that are looked at ahead of the writer.
const AHEAD_MAX: usize = 256;
/// Members that go together.
const TOGETHER_MAX: usize = 32;
/// How long it may take to look at those that go together.
const TOGETHER_TIME: Duration = Duration::from_millis(1);

/// How long a member takes of late.
#[derive(Debug)]
pub(super) struct Pace(AtomicU64);

impl Pace {
    /// Nothing is known: members go one by one.
    pub(super) fn unknown() -> Self {
        Self(AtomicU64::new(TOGETHER_TIME.as_nanos() as u64))
    }

    /// Takes note of some. Threads may overwrite what others note, which is as good.
    pub(super) fn note(&self, took: Duration, count: usize) {
        let each = took.as_nanos() as u64 / count.max(1) as u64;
        let before = self.0.load(Ordering::Relaxed);
        self.0.store((before * 3 + each) / 4, Ordering::Relaxed);
    }

    /// How many go together.
    fn together(&self) -> usize {
        let each = self.0.load(Ordering::Relaxed).max(1);
        ((TOGETHER_TIME.as_nanos() as u64 / each) as usize).clamp(1, TOGETHER_MAX)
    }
}

/// Members in order, as they are prepared.
pub(super) struct Coming {
    results: Receiver<(usize, Receiver<Vec<Found>>)>,
    ahead: Arc<Ahead>,
}

impl Iterator for Coming {
    type Item = Vec<Found>;

    /// The next of them; none at the end, and when the work is to end.
    fn next(&mut self) -> Option<Vec<Found>> {
        let (count, result) = self.results.recv().ok()?;
        let found = result.recv().ok();
        self.ahead.leave(count);
        found
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.ahead.end();
    }
}

/// Counts members ahead of the writer.
#[derive(Debug, Default)]
struct Ahead {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    members: usize,
    is_over: bool,
}

impl Ahead {
    /// Waits until so many more may come. Says no when nobody takes them any more.
    fn enter(&self, count: usize) -> bool {
        let mut state = self.state.lock();
        while state.members + count > AHEAD_MAX && !state.is_over {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.members += count;
        !state.is_over
    }

    /// The writer took so many.
    fn leave(&self, count: usize) {
        self.state.lock().members -= count;
        self.changed.notify_one();
    }

    /// The writer takes nothing more.
    fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_one();
    }
}

/// Gives members to a crew.
pub(super) struct Batches<'a> {
    crew: &'a Crew<Task>,
    pace: &'a Pace,
    waiting: Vec<Planned>,
    results: Sender<(usize, Receiver<Vec<Found>>)>,
    ahead: Arc<Ahead>,
}

impl<'a> Batches<'a> {
    /// A way to the crew, and where results come out.
    pub(super) fn new(crew: &'a Crew<Task>, pace: &'a Pace) -> (Self, Coming) {
        // As many as [`Ahead`] lets in.
        let (sender, results) = channel();
        let ahead = Arc::new(Ahead::default());
        let batches = Self {
            crew,
            pace,
            waiting: Vec::new(),
            results: sender,
            ahead: Arc::clone(&ahead),
        };
        (batches, Coming { results, ahead })
    }

    /// Takes one more. Says no when the work is to end.
    pub(super) fn add(&mut self, planned: Planned) -> bool {
        self.waiting.push(planned);
        self.waiting.len() < self.pace.together() || self.flush()
    }

    /// Passes on what waits.
    pub(super) fn flush(&mut self) -> bool {
        let planned = std::mem::take(&mut self.waiting);
        if planned.is_empty() {
            return true;
        }
        let (done, result) = sync_channel(1);
        self.ahead.enter(planned.len())
            && self.results.send((planned.len(), result)).is_ok()
            && self.crew.submit(Task::Prepare(planned, done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_go_together_where_they_are_fast_and_one_by_one_where_each_waits() {
        let pace = Pace::unknown();
        assert_eq!(pace.together(), 1);
        (0..20).for_each(|_| pace.note(Duration::from_micros(10), 1));
        assert_eq!(pace.together(), TOGETHER_MAX);
        (0..20).for_each(|_| pace.note(Duration::from_millis(50), 10));
        assert_eq!(pace.together(), 1);
    }

    #[test]
    fn who_waits_for_a_writer_that_gave_up_hears_so() {
        let ahead = Ahead::default();
        assert!(ahead.enter(AHEAD_MAX));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| ahead.enter(1));
            ahead.end();
            assert!(!waiting.join().unwrap_or(true));
        });
    }
}
