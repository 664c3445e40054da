//! How large each part of an upload is.
//!
//! An upload has at most [`Capabilities::parts_max`] parts, and nobody says beforehand how much
//! will be written. Small parts are better: they need less memory and the upload begins earlier.
//! So parts begin small and double at offsets that are chosen as late as possible while the
//! largest object still fits. A part is held in memory as a whole, therefore memory bounds the
//! doubling, and with it the largest object: with 8 MiB parts and a 512 MiB budget an upload to S3
//! may have about 420 GiB, with 4 GiB of memory 3 TiB.
//!
//! A tenth of the numbers is left for parts that are sent early when memory is short.

use penstock_object::Capabilities;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartSchedule {
    base: u64,
    /// Doublings until the largest part.
    doublings: u32,
    /// Parts of each size but the largest.
    parts_per_size: u64,
    limit: u64,
    early_max: u32,
}

impl PartSchedule {
    /// Parts from `base` bytes up to about `affordable`, within what the store takes.
    pub(crate) fn new(capabilities: &Capabilities, base: u64, affordable: u64) -> Self {
        let base = base.clamp(capabilities.part_size_min, capabilities.part_size_max);
        let largest = affordable.clamp(base, capabilities.part_size_max);
        let doublings = (largest / base).ilog2();
        let early_max = capabilities.parts_max / 10;
        let parts = u64::from(capabilities.parts_max - early_max);
        let mut schedule = Self {
            base,
            doublings,
            parts_per_size: parts,
            limit: 0,
            early_max,
        };
        schedule.parts_per_size = schedule.latest_doubling(parts, capabilities.object_size_max);
        let capacity = schedule.capacity(parts, schedule.parts_per_size);
        schedule.limit = capacity.min(capabilities.object_size_max);
        schedule
    }

    /// Bytes in the part that begins after `offset` bytes of the object.
    pub(crate) fn size_at(&self, offset: u64) -> u64 {
        let mut end = 0;
        for doubling in 0..self.doublings {
            end += self.parts_per_size * (self.base << doubling);
            if offset < end {
                return self.base << doubling;
            }
        }
        self.largest()
    }

    /// Bytes in the largest object.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Parts that may be sent before they are full.
    pub(crate) fn early_max(&self) -> u32 {
        self.early_max
    }

    fn largest(&self) -> u64 {
        self.base << self.doublings
    }

    /// The most parts of each size with which `parts` parts still hold the largest object; where
    /// they cannot hold it, three quarters of what they could hold at best.
    fn latest_doubling(&self, parts: u64, object_size_max: u64) -> u64 {
        let at_best = parts * self.largest();
        let wanted = object_size_max.min(at_best / 4 * 3);
        let lost_per_part = at_best - self.capacity(parts, 1).min(at_best);
        match (at_best - wanted).checked_div(lost_per_part) {
            Some(count) => count.min(parts / u64::from(self.doublings.max(1))),
            None => parts,
        }
    }

    /// Bytes in `parts` parts when there are `count` of each size but the largest.
    fn capacity(&self, parts: u64, count: u64) -> u64 {
        let small = count * self.base * ((1 << self.doublings) - 1);
        let large = parts - (count * u64::from(self.doublings)).min(parts);
        small + large * self.largest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::{GIB, MIB};
    use proptest::prelude::*;

    fn capabilities(parts_max: u32, part_size_max: u64, object_size_max: u64) -> Capabilities {
        Capabilities {
            scheme: "memory",
            object_size_max,
            put_size_max: part_size_max,
            part_size_min: 5 * MIB,
            part_size_max,
            parts_max,
            copy_size_max: part_size_max,
            append: false,
            symlinks: false,
            metadata_size_max: 8 << 10,
            write_if_absent: true,
        }
    }

    /// Parts of an object of `size` bytes, and the largest of them.
    fn parts_of(schedule: &PartSchedule, size: u64) -> (u64, u64) {
        let (mut offset, mut count, mut largest) = (0, 0, 0);
        while offset < size {
            let part = schedule.size_at(offset);
            (offset, count, largest) = (offset + part, count + 1, part.max(largest));
        }
        (count, largest)
    }

    #[test]
    fn s3_takes_its_largest_object_and_starts_to_grow_late() {
        let s3 = capabilities(10_000, 5 * GIB, 5 << 40);
        let schedule = PartSchedule::new(&s3, 8 * MIB, 5 * GIB);
        assert_eq!(schedule.limit(), 5 << 40);
        assert_eq!(parts_of(&schedule, 7 * GIB), (7 * 128, 8 * MIB));
        assert!(parts_of(&schedule, 5 << 40).0 <= 9000);
    }

    #[test]
    fn memory_bounds_parts_and_objects() {
        let oss = capabilities(10_000, 5 * GIB, 48 << 40);
        let schedule = PartSchedule::new(&oss, 8 * MIB, 64 * MIB);
        assert_eq!(parts_of(&schedule, schedule.limit()).1, 64 * MIB);
        assert!(schedule.limit() > 400 * GIB, "{}", schedule.limit() / GIB);
        assert_eq!(parts_of(&schedule, 8 * GIB).1, 8 * MIB);
    }

    proptest! {
        #[test]
        fn every_allowed_object_fits(
            parts_max in 10u32..20_000,
            base in (5 * MIB)..(64 * MIB),
            affordable in (5 * MIB)..(16 * GIB),
            part_max in (64 * MIB)..(5 * GIB),
            object_max in (64 * MIB)..(48u64 << 40),
            fraction in 0.0f64..=1.0,
        ) {
            let store = capabilities(parts_max, part_max, object_max);
            let schedule = PartSchedule::new(&store, base, affordable);
            prop_assert!(schedule.limit() <= object_max);
            let (count, largest) = parts_of(&schedule, (schedule.limit() as f64 * fraction) as u64);
            prop_assert!(count + u64::from(schedule.early_max()) <= u64::from(parts_max));
            prop_assert!(largest <= part_max.min(affordable.max(base)));
            let best = u64::from(parts_max) / 10 * 9 * schedule.size_at(u64::MAX);
            prop_assert!(schedule.limit() >= object_max.min(best / 4 * 3));
        }
    }
}
