//! What is mounted where.

use std::{fs, path::Path};

use penstock_base::mount_table::{self, MountEntry};

/// What is mounted on `mountpoint` itself, topmost.
pub(crate) fn find(mountpoint: &Path) -> Option<MountEntry> {
    let table = fs::read("/proc/self/mountinfo").ok()?;
    mount_table::find(&table, mountpoint)
}

/// Whether the mount of this number is on `mountpoint`, perhaps below another one.
pub(crate) fn has(number: u64, mountpoint: &Path) -> bool {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut entries = mount_table::parse(&table);
    entries.any(|entry| entry.id == number && entry.mountpoint == mountpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_mounted() {
        assert!(find(Path::new("/")).is_some());
        assert!(find(Path::new("/no/such/place")).is_none());
    }
}
