//! What is mounted where.

use std::{fmt, io, path::Path};

use penstock_base::mount_table::{self, MountEntry};

use crate::failure::Failure;

/// What is mounted is not known.
#[derive(Debug)]
pub(crate) struct Unreadable(io::Error);

impl fmt::Display for Unreadable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl From<Unreadable> for Failure {
    fn from(error: Unreadable) -> Self {
        Self::new(
            format!("what is mounted is not known: {error}"),
            "run this where /proc is mounted, and allow more open files if these were too many",
        )
    }
}

/// The table as it is now.
pub(crate) fn read() -> Result<Vec<u8>, Unreadable> {
    mount_table::read().map_err(Unreadable)
}

/// What is mounted on `mountpoint` itself, topmost.
pub(crate) fn find(mountpoint: &Path) -> Result<Option<MountEntry>, Unreadable> {
    Ok(mount_table::find(&read()?, mountpoint))
}

/// Whether the mount of this number is on `mountpoint`, perhaps below another one.
pub(crate) fn has(number: u64, mountpoint: &Path) -> Result<bool, Unreadable> {
    let table = read()?;
    let mut entries = mount_table::parse(&table);
    Ok(entries.any(|entry| entry.id == number && entry.mountpoint == mountpoint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_mounted() {
        let is_mounted = |place| find(Path::new(place)).expect("readable").is_some();
        assert!(is_mounted("/"));
        assert!(!is_mounted("/no/such/place"));
    }
}
