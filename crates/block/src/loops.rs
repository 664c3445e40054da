//! Loop devices.
//!
//! A loop device makes a block device of a file. Over the files of a FUSE mount it is the one block
//! transport that every kernel has. What matters:
//!
//! - **Direct I/O.** A buffered loop device has two reads in flight, whatever the number of readers.
//!   The kernel may leave direct I/O off without a word, so it is looked at afterwards.
//! - **Several devices.** One has at most 128 requests in flight.
//! - **Autoclear.** A device goes with its last user, also when we are not there any more to do it.
//! - **Read-ahead stays** with the number of a device after it is detached, so whoever sets it must
//!   set it back.

mod over_fuse;
#[cfg(test)]
mod over_fuse_tests;

use std::{
    fs::{File, OpenOptions},
    io,
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::Path,
};

pub(crate) use over_fuse::LoopOverFuse;

use crate::{
    BlockError,
    device::DeviceName,
    system::{self, LoopSource},
};

/// Requests that one loop device has in flight.
pub(crate) const REQUESTS_IN_FLIGHT: u16 = 128;

/// Bytes in a logical block, of devices as of disks.
const BLOCK_SIZE: u32 = 4096;

/// How often somebody else may be faster in taking the free device.
const ATTEMPTS_MAX: usize = 64;

/// A loop device that is attached. It goes when this and every other user is gone.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    name: DeviceName,
    _open: File,
}

/// Whether reads of a loop device go through the page cache of the file behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caching {
    /// They go through it: for local files that were just written.
    Buffered,
    /// They go around it; attaching fails where the kernel cannot do that.
    Direct,
}

impl LoopDevice {
    /// Attaches `file`, read-only. The device carries the name `tag`.
    pub(crate) fn attach(file: &File, tag: &str, caching: Caching) -> Result<Self, BlockError> {
        let control = File::open("/dev/loop-control").map_err(BlockError::system(
            "cannot open /dev/loop-control (`modprobe loop`)",
        ))?;
        for _ in 0..ATTEMPTS_MAX {
            let number = system::free_loop(&control)
                .map_err(BlockError::system("the kernel gives out no loop device"))?;
            let name = DeviceName(format!("loop{number}"));
            if let Some(device) = Self::configure(name, file, tag, caching)? {
                return Ok(device);
            }
        }
        Err(BlockError::NoLoopDevice(ATTEMPTS_MAX))
    }

    /// None when somebody else took the device meanwhile.
    fn configure(
        name: DeviceName,
        file: &File,
        tag: &str,
        caching: Caching,
    ) -> Result<Option<Self>, BlockError> {
        let node = name.node();
        let open = open_node(&node);
        let open = open.map_err(BlockError::system(format!(
            "cannot open {}",
            node.display()
        )))?;
        let source = LoopSource {
            file: file.as_fd(),
            block_size: BLOCK_SIZE,
            direct: caching == Caching::Direct,
            name: tag,
        };
        match system::configure_loop(&open, &source) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Ok(None),
            Err(error) => {
                let what = format!("cannot set up {}", node.display());
                return Err(BlockError::system(what)(error));
            }
        }
        let device = Self { name, _open: open };
        let is_direct = device
            .name
            .attribute("loop/dio")
            .is_ok_and(|dio| dio == "1");
        if caching == Caching::Direct && !is_direct {
            return Err(BlockError::Buffered(node));
        }
        Ok(Some(device))
    }

    /// Its name.
    pub(crate) fn name(&self) -> &DeviceName {
        &self.name
    }
}

fn open_node(node: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_CLOEXEC)
        .open(node)
}

/// The name that a loop device carries, if it has something behind it.
pub(crate) fn carried_tag(name: &DeviceName) -> Option<String> {
    if !name.is_attached() {
        return None;
    }
    let node = open_node(&name.node()).ok()?;
    system::loop_name(&node).ok()?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tags::{is_tagged, wait_until_clear};

    #[tokio::test]
    async fn a_loop_device_is_read_only_tagged_and_goes_when_it_is_closed() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("image");
        std::fs::write(&path, vec![7; 8192]).expect("written");
        let file = File::open(&path).expect("opened");
        let tag = format!("penstock-test-{}", std::process::id());
        let device = LoopDevice::attach(&file, &tag, Caching::Buffered).expect("root and loop");
        let name = device.name().clone();
        assert!(is_tagged(&name, &tag) && !is_tagged(&name, "other"));
        assert_eq!(std::fs::read(name.node()).expect("read"), vec![7; 8192]);
        assert_eq!(name.attribute("ro").expect("shown"), "1");
        let blocks = name.attribute("queue/logical_block_size");
        assert_eq!(blocks.expect("shown"), "4096");
        drop(device);
        assert!(wait_until_clear(&name, &tag).await);
    }
}
