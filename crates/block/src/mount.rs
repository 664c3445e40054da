//! Mounting the file system that is on the devices.

use std::{ffi::CString, fmt, fs, io, path::Path};

use penstock_base::mount_table::{self, MountEntry};
use rustix::mount::MountFlags;

use crate::{BlockError, device::DeviceName};

/// The file systems that images are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// The names are on a device of their own, the data on the others.
    Erofs,
    /// Everything is on one device.
    Ext4,
}

impl FileSystem {
    /// What the kernel calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Erofs => "erofs",
            Self::Ext4 => "ext4",
        }
    }

    /// Options of mount(2), for the devices beyond the first, in the order of the image's slots.
    fn options(self, others: &[DeviceName]) -> String {
        match self {
            Self::Erofs => {
                let devices = others
                    .iter()
                    .map(|name| format!("device={}", name.node().display()));
                devices.collect::<Vec<_>>().join(",")
            }
            // There is no journal, and nothing may be written to look for one.
            Self::Ext4 => "noload".to_owned(),
        }
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How it is mounted beyond what always holds: read-only, no devices, no set-user-id programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MountChoices {
    /// Refuse to execute files.
    pub(crate) noexec: bool,
}

/// Mounts the file system on `devices`, of which the first has the superblock, at `place`.
pub(crate) fn mount(
    file_system: FileSystem,
    devices: &[DeviceName],
    place: &Path,
    choices: MountChoices,
) -> Result<(), BlockError> {
    let refused = |source| BlockError::Refused {
        file_system,
        place: place.to_owned(),
        source,
    };
    let Some((first, others)) = devices.split_first() else {
        return Err(refused(io::ErrorKind::InvalidInput.into()));
    };
    let options = CString::new(file_system.options(others));
    let options = options.map_err(|error| refused(error.into()))?;
    let mut flags =
        MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME;
    if choices.noexec {
        flags |= MountFlags::NOEXEC;
    }
    let options = options.as_c_str();
    let mounted = rustix::mount::mount(first.node(), place, file_system.name(), flags, options);
    mounted.map_err(|error| match error {
        rustix::io::Errno::NODEV => BlockError::NoFileSystem(file_system),
        error => refused(error.into()),
    })
}

/// Everything that is mounted, uppermost first.
pub(crate) fn table() -> Vec<MountEntry> {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    mount_table::parse(&text).rev().collect()
}

/// Every mount of the device with this `major:minor`, uppermost first: a mount point, and what
/// was bound from there.
pub(crate) fn mounts_of(number: &str) -> Vec<MountEntry> {
    let mut entries = table();
    entries.retain(|entry| entry.device == number);
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_devices_are_named_in_the_order_of_slots() {
        let names = ["loop7", "loop2"].map(|name| DeviceName(name.to_owned()));
        let options = FileSystem::Erofs.options(&names);
        assert_eq!(options, "device=/dev/loop7,device=/dev/loop2");
        assert_eq!(FileSystem::Ext4.options(&[]), "noload");
    }
}
