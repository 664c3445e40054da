//! Which blocks of the data disk files lie on.

use std::collections::BTreeMap;

/// Runs of blocks that grow together. Files come nearly in the order of their places, so there is
/// one run for each hidden object and hardly another.
#[derive(Debug, Default)]
pub(super) struct UsedBlocks {
    /// Where runs begin and end, but for the one that grew last.
    runs: BTreeMap<u64, u64>,
    last: (u64, u64),
}

impl UsedBlocks {
    /// Adds blocks that were not used before.
    pub(super) fn add(&mut self, start: u64, blocks: u64) {
        let end = start + blocks;
        if blocks == 0 {
            return;
        }
        if start == self.last.1 {
            self.last.1 = end;
        } else {
            self.put_back();
            self.last = (start, end);
        }
        if let Some(next_end) = self.runs.remove(&self.last.1) {
            self.last.1 = next_end;
        }
    }

    /// The runs, in order, with gaps between them.
    pub(super) fn runs(mut self) -> Vec<(u64, u64)> {
        self.put_back();
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(self.runs.len());
        for (start, end) in self.runs {
            match joined.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => joined.push((start, end)),
            }
        }
        joined
    }

    fn put_back(&mut self) {
        let (start, end) = self.last;
        if start == end {
            return;
        }
        let before = self.runs.range_mut(..start).next_back();
        match before {
            Some((_, before_end)) if *before_end == start => *before_end = end,
            _ => {
                self.runs.insert(start, end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_together_in_any_order() {
        let mut used = UsedBlocks::default();
        for (start, blocks) in [(0, 2), (2, 1), (5, 1), (4, 1), (3, 0), (9, 1), (7, 2)] {
            used.add(start, blocks);
        }
        assert_eq!(used.runs(), [(0, 3), (4, 6), (7, 10)]);
        assert_eq!(UsedBlocks::default().runs(), []);
    }
}
