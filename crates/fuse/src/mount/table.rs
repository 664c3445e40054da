//! The system's mount table. Reading it touches no mount, so it works when a mount hangs.

use std::{io, path::Path};

use penstock_base::mount_table::{self, MountEntry};

/// The uppermost mount at `place`, an absolute path without symbolic links.
pub(super) fn entry_at(place: &Path) -> io::Result<Option<MountEntry>> {
    Ok(mount_table::find(&mount_table::read()?, place))
}
