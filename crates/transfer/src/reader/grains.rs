//! Compares grains with their checksums while they arrive, when their bytes are in the processor's cache.

use penstock_base::{ChecksumKind, Summing};

use super::extent::Grains;

/// What arrived of some grains, from the beginning of one.
#[derive(Debug)]
pub(super) struct Comparison {
    grains: Grains,
    /// The grain that is arriving.
    index: u64,
    summing: Summing,
    /// Bytes that are missing of it.
    missing: u64,
    seen: u64,
    compared: u64,
}

impl Comparison {
    /// For bytes that arrive from `place` of the object on, where a grain begins.
    pub(super) fn new(grains: Grains, place: u64) -> Self {
        let index = place.saturating_sub(grains.run.start) / grains.size;
        let missing = grains.length(index);
        Self {
            grains,
            index,
            summing: Summing::new(ChecksumKind::Crc32c),
            missing,
            seen: 0,
            compared: 0,
        }
    }

    /// Bytes that arrived.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// How many of them are those that were written.
    pub(super) fn compared(&self) -> u64 {
        self.compared
    }

    /// Takes in what arrived next. Returns whether all grains that are complete are those that were written.
    pub(super) fn add(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let count = self.missing.min(bytes.len() as u64);
            // What lies behind the run has no checksum.
            if count == 0 {
                return false;
            }
            let (now, later) = bytes.split_at(count as usize);
            self.summing.add(now);
            self.seen += count;
            self.missing -= count;
            bytes = later;
            if self.missing == 0 && !self.complete() {
                return false;
            }
        }
        true
    }

    fn complete(&mut self) -> bool {
        let sum = self.summing.take().value();
        let expected = self.grains.checksums.get(self.index as usize);
        if expected.is_none_or(|expected| u64::from(*expected) != sum) {
            return false;
        }
        self.compared = self.seen;
        self.index += 1;
        self.missing = self.grains.length(self.index);
        true
    }
}

#[cfg(test)]
mod tests {
    use penstock_base::Checksum;
    use proptest::prelude::*;

    use super::*;

    fn grains(bytes: &[u8], size: u64) -> Grains {
        let sum = |bytes: &[u8]| {
            let mut summing = Summing::new(ChecksumKind::Crc32c);
            summing.add(bytes);
            match summing.take() {
                Checksum::Crc32c(sum) => sum,
                other => unreachable!("{other:?}"),
            }
        };
        Grains {
            run: 5..5 + bytes.len() as u64,
            size,
            checksums: bytes.chunks(size as usize).map(sum).collect(),
            frames: None,
        }
    }

    proptest! {
        #[test]
        fn no_byte_is_shown_before_its_grain_was_compared(
            bytes in prop::collection::vec(any::<u8>(), 1..200),
            size in 1u64..40,
            pieces in prop::collection::vec(1usize..30, 1..20),
            first in 0u64..5,
            damage in proptest::option::of(0usize..200),
        ) {
            let grains = grains(&bytes, size);
            let first = (first * size).min((bytes.len() as u64 - 1) / size * size);
            let mut sent = bytes[first as usize..].to_vec();
            let damaged = damage.filter(|at| *at < sent.len());
            damaged.into_iter().for_each(|at| sent[at] ^= 1);
            let mut comparison = Comparison::new(grains, 5 + first);
            let (mut rest, mut pieces) = (&sent[..], pieces.iter().cycle());
            while !rest.is_empty() {
                let piece = rest.len().min(*pieces.next().expect("endless"));
                let is_right = comparison.add(&rest[..piece]);
                rest = &rest[piece..];
                let shown = comparison.compared();
                prop_assert!(damaged.is_none_or(|at| shown <= at as u64 / size * size));
                if !is_right {
                    prop_assert!(damaged.is_some());
                    return Ok(());
                }
            }
            prop_assert!(damaged.is_none() && comparison.compared() == sent.len() as u64);
        }
    }

    #[test]
    fn what_lies_behind_a_run_is_never_right() {
        let mut comparison = Comparison::new(grains(&[1; 10], 4), 5);
        assert!(comparison.add(&[1; 10]));
        assert!(!comparison.add(&[1]));
    }
}
