//! What whoever fills a disk leaves to others on it.

use crate::MIB;

/// Bytes that are left, at most.
const MAX: u64 = 64 * MIB;
/// The part of the disk that is left: one in this many.
const SHARE: u64 = 20;

/// Bytes of a file system of `total` bytes that are left to others.
pub fn kept_free(total: u64) -> u64 {
    MAX.min(total / SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_disk_keeps_a_part_and_a_large_one_no_more_than_enough() {
        assert_eq!(kept_free(200 * MIB), 10 * MIB);
        assert_eq!(kept_free(1 << 40), 64 * MIB);
    }
}
