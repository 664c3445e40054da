//! What is mounted where, as the kernel says it.

use std::{fs, path::Path};

use penstock_base::mount_table::{self, MountEntry};

/// Where FUSE connections are controlled.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Ends the FUSE connection of a mount: whoever waits for an answer gets an error.
pub(crate) fn abort(mount: &MountEntry) {
    // A connection is named by the second half of the device number.
    let minor = mount.device.split_once(':').map(|(_, minor)| minor);
    if let Some(minor) = minor.filter(|_| mount.is_fuse()) {
        // Without permission, or when it is gone already, there is nothing more to try.
        let _ = fs::write(format!("{CONNECTIONS}/{minor}/abort"), "1");
    }
}

/// Everything that is mounted at `path`, or below it with `below`, the latest mount first.
pub(crate) fn mounts(path: &Path, below: bool) -> Vec<MountEntry> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let is_wanted = |mount: &MountEntry| {
        mount.mountpoint == path || below && mount.mountpoint.starts_with(path)
    };
    mount_table::parse(&table).rev().filter(is_wanted).collect()
}

/// The mount that is seen at `path`.
pub(crate) fn mount_at(path: &Path) -> Option<MountEntry> {
    mounts(path, false).into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_and_what_is_below_it_is_mounted() {
        assert!(!mounts(Path::new("/"), false).is_empty());
        assert!(mounts(Path::new("/"), true).len() > 1);
        assert!(mount_at(Path::new("/no/such/place")).is_none());
    }
}
