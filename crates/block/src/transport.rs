//! Disks as block devices of the kernel, and the ways there are.

use std::{fmt, os::fd::OwnedFd, path::Path, sync::Arc};

use async_trait::async_trait;
use penstock_vfs::Disk;

use crate::{BlockError, device::DeviceName, nbd, ublk};

/// A way to make disks known to the kernel as block devices.
#[async_trait]
pub(crate) trait Transport: Send + Sync {
    /// Attaches `disks`, read-only, as block devices in the same order. `tag` names the devices,
    /// where that can be seen, so that leftovers of a process that was killed can be told apart.
    async fn attach(
        &self,
        disks: Vec<Arc<dyn Disk>>,
        tag: &str,
    ) -> Result<Box<dyn Attachment>, BlockError>;
}

/// What goes on with devices that a dead process attached.
#[async_trait]
pub(crate) trait Resume: Transport {
    /// Serves `disks`, which are those that were attached, on `connection`, which
    /// [`Attachment::connection`] gave out, as the devices `names`, which carry `tag`.
    async fn resume(
        &self,
        disks: Vec<Arc<dyn Disk>>,
        connection: OwnedFd,
        names: &[DeviceName],
        tag: &str,
    ) -> Result<Box<dyn Attachment>, BlockError>;
}

/// Devices that are attached. Dropping it detaches those that nobody uses.
#[async_trait]
pub(crate) trait Attachment: Send + Sync + fmt::Debug {
    /// The devices, in the order of the disks.
    fn devices(&self) -> Vec<DeviceName>;

    /// The devices are mounted now: from here on they go with their last user.
    async fn leave_to_users(&mut self) -> Result<(), BlockError>;

    /// What another process has to keep open so that reads wait while this one is dead, where
    /// that is possible.
    fn connection(&self) -> Option<OwnedFd>;

    /// Waits until nobody uses the devices and they are gone.
    async fn gone(&self);
}

/// The ways to attach disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportKind {
    /// Loop devices in direct-io mode on the files of a private FUSE mount.
    Loop,
    /// The network block device, over a socket within this machine.
    Nbd,
    /// Block devices served by a process through io_uring.
    Ublk,
}

impl TransportKind {
    /// Every way, best known first.
    pub const ALL: [Self; 3] = [Self::Loop, Self::Nbd, Self::Ublk];

    /// The way that is called so.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Nbd => "nbd",
            Self::Ublk => "ublk",
        }
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether a transport can be used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// It can.
    Ready,
    /// It cannot; the text says what is missing and what to do.
    Missing(String),
}

/// Looks whether this kernel has what `kind` needs, without changing anything.
pub fn available(kind: TransportKind) -> Availability {
    let exists = |path: &str| Path::new(path).exists();
    let missing = |text: &str| Availability::Missing(text.to_owned());
    match kind {
        _ if !penstock_base::is_root() => missing("block devices need root"),
        TransportKind::Loop if !exists("/dev/loop-control") => missing(
            "there is no /dev/loop-control; load the module with `modprobe loop`, or pass the device into this container",
        ),
        TransportKind::Loop if !exists("/dev/fuse") => missing(
            "there is no /dev/fuse; load the module with `modprobe fuse`, or pass the device into this container",
        ),
        TransportKind::Loop => Availability::Ready,
        TransportKind::Nbd => match nbd::look_for_driver() {
            Ok(()) => Availability::Ready,
            Err(why) => missing(why),
        },
        TransportKind::Ublk => match ublk::look_for_driver() {
            Ok(()) => Availability::Ready,
            Err(why) => missing(why),
        },
    }
}

/// Fails when `kind` cannot be used here.
pub(crate) fn check(kind: TransportKind) -> Result<(), BlockError> {
    if !penstock_base::is_root() {
        return Err(BlockError::NotRoot);
    }
    match available(kind) {
        Availability::Ready => Ok(()),
        Availability::Missing(why) => Err(BlockError::NoTransport(kind, why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_lacks_is_named_with_its_module() {
        for (kind, shown, module) in [
            (TransportKind::Nbd, "/sys/module/nbd", "modprobe nbd"),
            (
                TransportKind::Ublk,
                "/dev/ublk-control",
                "modprobe ublk_drv",
            ),
        ] {
            let why = match available(kind) {
                Availability::Missing(why) => why,
                Availability::Ready => String::new(),
            };
            assert_eq!(why.contains(module), !Path::new(shown).exists(), "{why}");
        }
    }

    #[test]
    fn a_way_is_found_by_its_name() {
        for kind in TransportKind::ALL {
            assert_eq!(TransportKind::named(kind.name()), Some(kind));
        }
        assert_eq!(TransportKind::named("fuse"), None);
    }
}
