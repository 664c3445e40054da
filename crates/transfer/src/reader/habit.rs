//! Whether files are read to their end.
//!
//! A file that is read from its first byte may be read to its last, or be looked at. For a file of a
//! few MiB the careful way, a mebibyte first and then ever more, costs six requests and as many
//! waits instead of one. Who reads many such files usually reads all of them in the same manner, so
//! the last ones tell what to do with the next: a few in a row that were read to the end make
//! the next be fetched whole, and one or two that were not make it careful again.

use std::{
    ops::Range,
    sync::atomic::{AtomicU32, Ordering},
};

use penstock_base::MIB;

/// Bytes up to which a file is fetched whole by habit: what a part has at most, unless set otherwise.
const SIZE_MAX: u64 = 8 * MIB;
/// The score from which on files are expected to be read to the end.
const EXPECTED: u32 = 4;
/// The highest score.
const SCORE_MAX: u32 = 8;

/// What the readers of a mount have in common.
#[derive(Debug, Default)]
pub(crate) struct Habit {
    score: AtomicU32,
}

impl Habit {
    /// Whether a file of `size` bytes, of which the first are read, will be read to its end.
    pub(crate) fn expects_whole(&self, size: u64) -> bool {
        size <= SIZE_MAX && self.score.load(Ordering::Relaxed) >= EXPECTED
    }

    /// Notes that a file of `size` bytes was read from its beginning, `bytes` of it altogether.
    fn note(&self, size: u64, bytes: u64) {
        if size > SIZE_MAX {
            return;
        }
        let score = self.score.load(Ordering::Relaxed);
        let next = if bytes >= size {
            (score + 1).min(SCORE_MAX)
        } else {
            score / 2
        };
        // One of two that note at once may be lost: nothing depends on it.
        self.score.store(next, Ordering::Relaxed);
    }
}

/// How one reader goes through its object.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// The first bytes were read first.
    from_start: bool,
    /// Bytes of all reads. Head and tail alone, all that many readers of archives want, do not add
    /// up to a file.
    bytes: u64,
    told: bool,
}

impl Course {
    /// Takes in a read of `range`. It is the `first` as long as no read of this reader has ended.
    pub(crate) fn read(&mut self, range: &Range<u64>, first: bool) {
        self.from_start |= first && range.start == 0;
        self.bytes += range.end - range.start;
    }

    /// Whether as much was read as an object of `size` bytes has.
    pub(crate) fn is_whole(&self, size: u64) -> bool {
        self.bytes >= size
    }

    /// Tells the habit, once, how much of an object of `size` bytes was read: as soon as that is
    /// all of it, for files may stay open, or when nobody reads it any more.
    pub(crate) fn tell(&mut self, habit: &Habit, size: u64) {
        if self.from_start && !self.told {
            self.told = true;
            habit.note(size, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reader_tells_once_and_only_if_it_began_at_the_beginning() {
        let habit = Habit::default();
        let mut course = Course::default();
        for start in [0, 1] {
            course.read(&(start..2), start == 0);
        }
        (0..EXPECTED).for_each(|_| course.tell(&habit, 2));
        assert_eq!(habit.score.load(Ordering::Relaxed), 1);
        let mut middle = Course::default();
        middle.read(&(1..2), true);
        middle.read(&(0..1), false);
        middle.tell(&habit, 2);
        assert_eq!(habit.score.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_few_in_a_row_make_a_habit_and_two_that_differ_end_it() {
        let habit = Habit::default();
        for _ in 0..EXPECTED {
            assert!(!habit.expects_whole(SIZE_MAX));
            habit.note(SIZE_MAX, SIZE_MAX);
        }
        assert!(habit.expects_whole(SIZE_MAX));
        assert!(!habit.expects_whole(SIZE_MAX + 1));
        (0..100).for_each(|_| habit.note(SIZE_MAX, SIZE_MAX));
        habit.note(SIZE_MAX, 1);
        assert!(habit.expects_whole(1), "one is an exception");
        habit.note(SIZE_MAX, 1);
        assert!(!habit.expects_whole(1));
    }

    #[test]
    fn large_files_say_nothing() {
        let habit = Habit::default();
        (0..100).for_each(|_| habit.note(SIZE_MAX + 1, SIZE_MAX + 1));
        assert!(!habit.expects_whole(1));
    }
}
