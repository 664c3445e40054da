//! What the kernel shows and takes of a block device, in /sys/block.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tracing::warn;

/// A block device by its kernel name, such as `loop3`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceName(pub(crate) String);

impl DeviceName {
    /// `/dev/loop3`.
    pub(crate) fn node(&self) -> PathBuf {
        Path::new("/dev").join(&self.0)
    }

    /// `major:minor`, as the mount table names it.
    pub(crate) fn number(&self) -> io::Result<String> {
        self.attribute("dev")
    }

    /// Whether the kernel has it.
    pub(crate) fn exists(&self) -> bool {
        self.directory().exists()
    }

    /// An attribute, such as `loop/dio`.
    pub(crate) fn attribute(&self, name: &str) -> io::Result<String> {
        let text = fs::read_to_string(self.directory().join(name))?;
        Ok(text.trim().to_owned())
    }

    /// Whether a loop device has something behind it.
    pub(crate) fn is_attached(&self) -> bool {
        self.directory().join("loop/backing_file").exists()
    }

    /// KiB that the kernel reads ahead.
    pub(crate) fn read_ahead(&self) -> Option<u32> {
        self.attribute(READ_AHEAD).ok()?.parse().ok()
    }

    /// Sets what the kernel reads ahead. What cannot be set costs speed, so it is only logged.
    pub(crate) fn set_read_ahead(&self, kib: u32) {
        let path = self.directory().join(READ_AHEAD);
        if let Err(error) = fs::write(&path, kib.to_string()) {
            warn!(path = %path.display(), kib, %error, "read-ahead cannot be set");
        }
    }

    fn directory(&self) -> PathBuf {
        Path::new("/sys/block").join(&self.0)
    }
}

/// The kernel keeps it for a device's number, whoever uses that next.
const READ_AHEAD: &str = "queue/read_ahead_kb";
