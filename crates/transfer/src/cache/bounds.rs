//! How much room the cache may take.

use penstock_base::MIB;

use super::folder::DiskSpace;

/// What must stay free on the file system; the larger of the two holds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct KeepFree {
    /// Bytes. Default 0.
    pub bytes: u64,
    /// A part of the file system, from 0 to 1. Default 0.
    pub ratio: f64,
}

impl KeepFree {
    /// Bytes that must stay free.
    pub(super) fn of(self, disk: DiskSpace) -> u64 {
        let part = disk.total as f64 * self.ratio.clamp(0.0, 1.0);
        self.bytes.max(part as u64)
    }

    /// Bytes that have to be freed before `wanted` can be written.
    pub(super) fn missing(self, disk: DiskSpace, wanted: u64) -> u64 {
        self.of(disk)
            .saturating_add(wanted)
            .saturating_sub(disk.free)
    }
}

/// The bytes that a cache without a size of its own may occupy when it occupies `used`: half of
/// what it would find free if it were empty.
pub(super) fn default_size(disk: DiskSpace, used: u64) -> u64 {
    (disk.free.saturating_add(used) / 2).max(MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stricter_rule_holds() {
        let disk = DiskSpace {
            free: 300,
            total: 1000,
        };
        let keep = |bytes, ratio| KeepFree { bytes, ratio }.missing(disk, 50);
        assert_eq!([keep(0, 0.0), keep(250, 0.0), keep(260, 0.1)], [0, 0, 10]);
        assert_eq!(
            [keep(0, 0.25), keep(260, 0.5), keep(u64::MAX, 0.0)],
            [0, 250, u64::MAX - 300]
        );
    }

    #[test]
    fn the_default_does_not_shrink_because_the_cache_is_full() {
        let disk = |free| DiskSpace {
            free,
            total: 100 * MIB,
        };
        assert_eq!(default_size(disk(80 * MIB), 0), 40 * MIB);
        assert_eq!(default_size(disk(40 * MIB), 40 * MIB), 40 * MIB);
    }
}
