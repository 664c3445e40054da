//! A further mount point of a mount.

use std::path::Path;

use super::{MountError, UnmountMode, direct};
use crate::{FuseSettings, system};

/// Puts the mount on `from` at the mount point of the settings, too, read-only and without programs, devices and
/// set-id bits as they say. For root, and after [`super::check_mount_point`].
///
/// Both are the same mount to the daemon and to the kernel's caches; the end of one leaves the other. What is mounted
/// later below one of them is not seen below the other.
pub fn bind(from: &Path, settings: &FuseSettings) -> Result<(), MountError> {
    let place = &settings.mount_point;
    system::bind(from, place).map_err(direct::refused)?;
    let limited = system::limit_bound(place, direct::flags(settings));
    limited.map_err(|error| {
        // What it would allow nobody asked for.
        let _ = direct::unmount(place, UnmountMode::Lazy);
        direct::refused(error)
    })
}
