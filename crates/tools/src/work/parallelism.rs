//! How many threads pay: as many as make it faster.
//!
//! On a file service each operation waits, and twice the threads do twice the work until the service is busy.
//! On a local disk two threads for two processors are all that helps, and more only cost. So the number begins
//! at that of the processors and doubles as long as the throughput of an interval grows with it; what did not
//! grow is taken back, and tried again after a while. New threads begin with what pays later, such as a directory that is
//! opened and listed: so a number that did not grow at once is measured in two more intervals first.

use penstock_base::processors;

/// More threads than this are refused.
pub const THREADS_MAX: usize = 1024;
/// As many threads as a measured number reaches.
const MEASURED_MAX: usize = 64;
/// Growth of throughput, in percent, for which twice the threads are kept.
const WORTHWHILE_PERCENT: u64 = 15;
/// Intervals after which a number that did not grow is tried again.
const RETRY_INTERVALS: u32 = 30;

/// How many threads work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// This many, from 1 to [`THREADS_MAX`].
    Fixed(usize),
    /// As many as make it faster.
    Measured,
}

/// The number of threads as it develops.
#[derive(Debug)]
pub(super) struct Parallelism {
    limit: usize,
    maximum: usize,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The next interval is the first with this number.
    Fresh,
    /// The number was doubled; before, an interval had this much work.
    Doubled { before: u64 },
    /// The first interval with twice the threads had not more; the next had this much, if it is over.
    Settling { before: u64, second: Option<u64> },
    /// It stays for so many intervals.
    Steady { left: u32 },
    /// It never changes.
    Fixed,
}

impl Parallelism {
    /// What `threads` begin with.
    pub(super) fn new(threads: Threads) -> Self {
        match threads {
            Threads::Fixed(count) => {
                let limit = count.clamp(1, THREADS_MAX);
                Self {
                    limit,
                    maximum: limit,
                    phase: Phase::Fixed,
                }
            }
            Threads::Measured => Self {
                limit: processors::count().clamp(2, MEASURED_MAX),
                maximum: MEASURED_MAX,
                phase: Phase::Fresh,
            },
        }
    }

    /// How many may work now.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// How many may ever work.
    pub(super) fn maximum(&self) -> usize {
        self.maximum
    }

    /// Takes note of the work that an interval had, and decides on the next.
    pub(super) fn observe(&mut self, work: u64) {
        self.phase = match self.phase {
            Phase::Fixed => Phase::Fixed,
            Phase::Fresh => self.double(work),
            Phase::Doubled { before } if is_worthwhile(before, work) => self.double(work),
            Phase::Doubled { before } => Phase::Settling {
                before,
                second: None,
            },
            Phase::Settling {
                before,
                second: None,
            } => Phase::Settling {
                before,
                second: Some(work),
            },
            Phase::Settling {
                before,
                second: Some(second),
            } => self.keep_or_take_back(before, u64::midpoint(second, work)),
            Phase::Steady { left: 0 } => self.double(work),
            Phase::Steady { left } => Phase::Steady { left: left - 1 },
        };
    }

    fn keep_or_take_back(&mut self, before: u64, after: u64) -> Phase {
        if is_worthwhile(before, after) {
            return self.double(after);
        }
        self.limit = (self.limit / 2).max(1);
        Phase::Steady {
            left: RETRY_INTERVALS,
        }
    }

    fn double(&mut self, before: u64) -> Phase {
        if self.limit * 2 > self.maximum {
            return Phase::Steady {
                left: RETRY_INTERVALS,
            };
        }
        self.limit *= 2;
        Phase::Doubled { before }
    }
}

fn is_worthwhile(before: u64, after: u64) -> bool {
    after.saturating_mul(100) > before.saturating_mul(100 + WORTHWHILE_PERCENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(intervals: usize, work: impl Fn(usize) -> u64) -> usize {
        let mut parallelism = Parallelism::new(Threads::Measured);
        for _ in 0..intervals {
            parallelism.observe(work(parallelism.limit()));
        }
        parallelism.limit()
    }

    #[test]
    fn where_each_operation_waits_threads_are_doubled_to_the_end() {
        assert_eq!(after(10, |threads| threads as u64 * 20), MEASURED_MAX);
    }

    #[test]
    fn where_a_disk_is_busy_more_threads_are_taken_back() {
        let begin = Parallelism::new(Threads::Measured).limit();
        assert_eq!(after(10, |_| 1000), begin);
        assert_eq!(after(10, |threads| threads.min(16) as u64 * 50), 16);
    }

    /// Eight threads of `parrm` were all that a mount with 5 ms a request got, where 32 were twice as fast.
    #[test]
    fn threads_that_begin_with_what_pays_later_are_kept() {
        let mut parallelism = Parallelism::new(Threads::Measured);
        let mut settled = parallelism.limit();
        for _ in 0..20 {
            let at_work = parallelism.limit().min(settled);
            settled = parallelism.limit();
            parallelism.observe(at_work as u64 * 20);
        }
        assert_eq!(parallelism.limit(), MEASURED_MAX);
    }

    #[test]
    fn a_fixed_number_stays() {
        let mut parallelism = Parallelism::new(Threads::Fixed(7));
        (1..100).for_each(|work| parallelism.observe(work * work));
        assert_eq!(parallelism.limit(), 7);
    }
}
