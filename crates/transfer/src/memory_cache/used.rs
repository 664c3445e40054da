//! What of a run was asked for, about, in a few words of memory.

use std::ops::Range;

/// Parts of a run of which it is known whether somebody asked for bytes of them.
const PARTS: u64 = 256;
const WORD: u64 = u64::BITS as u64;

/// See the module. A part counts once, however often it is asked for.
#[derive(Debug)]
pub(super) struct Used {
    run: Range<u64>,
    /// A bit for each part.
    parts: [u64; (PARTS / WORD) as usize],
    /// Ranges that had a part of which nobody had asked for anything.
    ranges: u64,
    /// Bytes in these.
    bytes: u64,
}

impl Used {
    /// Nothing of a run that is not empty.
    pub(super) fn of(run: &Range<u64>) -> Self {
        Self {
            run: run.clone(),
            parts: [0; (PARTS / WORD) as usize],
            ranges: 0,
            bytes: 0,
        }
    }

    /// Somebody asked for bytes of it.
    pub(super) fn add(&mut self, asked: &Range<u64>) {
        let part = self.part();
        let place = |at: u64| (at - self.run.start) / part;
        let mut is_new = false;
        for index in place(asked.start)..=place(asked.end - 1) {
            let (word, bit) = ((index / WORD) as usize, 1 << (index % WORD));
            is_new |= self.parts[word] & bit == 0;
            self.parts[word] |= bit;
        }
        if is_new {
            self.ranges += 1;
            self.bytes += asked.end - asked.start;
        }
    }

    /// Ranges that were asked for.
    pub(super) fn ranges(&self) -> u64 {
        self.ranges
    }

    /// Bytes that were asked for: no more than are in the parts that were.
    pub(super) fn bytes(&self) -> u64 {
        let parts: u32 = self.parts.iter().map(|word| word.count_ones()).sum();
        let most = (u64::from(parts) * self.part()).min(self.run.end - self.run.start);
        self.bytes.min(most)
    }

    fn part(&self) -> u64 {
        (self.run.end - self.run.start).div_ceil(PARTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_again_counts_once() {
        let mut used = Used::of(&(1000..1000 + 1024 * 1024));
        for _ in 0..3 {
            used.add(&(1000..5096));
            used.add(&(1000 + 8192..1000 + 8292));
        }
        assert_eq!((used.ranges(), used.bytes()), (2, 4196));
        used.add(&(1000..1000 + 1024 * 1024));
        assert_eq!((used.ranges(), used.bytes()), (3, 1024 * 1024));
    }

    #[test]
    fn a_run_of_a_byte_is_used_by_who_asked_for_it() {
        let mut used = Used::of(&(7..8));
        used.add(&(7..8));
        assert_eq!((used.ranges(), used.bytes()), (1, 1));
    }
}
