//! What there is of the driver and its devices, for those who look from outside.

use std::{fs, io, path::Path};

use io_uring::IoUring;
use tracing::warn;

use super::{
    control::{Control, NODE},
    layout::feature::{ENCODED_COMMANDS, USER_COPY},
    owner,
};
use crate::device::DeviceName;

/// Where every device shows, started or not.
const DEVICES: &str = "/sys/class/ublk-char";

/// What a device's block device is called, before its number.
const BLOCK_DEVICE: &str = "ublkb";

/// What every device needs of the driver.
pub(super) const NEEDED: u64 = USER_COPY | ENCODED_COMMANDS;

/// What is missing before the driver can be used, and what to do.
pub(crate) fn look_for_driver() -> Result<(), &'static str> {
    if !Path::new(NODE).exists() {
        return Err(
            "there is no /dev/ublk-control; load the module with `modprobe ublk_drv` (Linux 6.5 \
             with CONFIG_BLK_DEV_UBLK), pass the device into this container, or use \
             --transport=loop",
        );
    }
    if IoUring::new(1).is_err() {
        return Err(
            "io_uring is switched off here; allow it with `sysctl kernel.io_uring_disabled=0`, or \
             in this container, or use --transport=loop",
        );
    }
    match Control::open().and_then(|control| control.features()) {
        Ok(features) if features & NEEDED == NEEDED => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(
            "/dev/ublk-control may not be used here; allow the device in this container, or use \
             --transport=loop",
        ),
        _ => {
            Err("the driver ublk is older than Linux 6.5; use --transport=loop or --transport=nbd")
        }
    }
}

/// The devices that there are, by the names of their block devices.
pub(crate) fn names() -> Vec<String> {
    let entries = fs::read_dir(DEVICES).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let numbers = names.filter_map(|name| name.strip_prefix("ublkc")?.parse().ok());
    numbers.map(|number| name_of(number).0).collect()
}

/// Whether a device of this name is one of this driver.
pub(crate) fn is_ours(name: &DeviceName) -> bool {
    number_of(name).is_some()
}

/// The tag that the device carries, if it is there.
pub(crate) fn carried_tag(name: &DeviceName) -> Option<String> {
    let control = Control::open().ok()?;
    let info = control.info(number_of(name)?).ok()?;
    owner::tag_of(info.owner)
}

/// Gives up a device that a dead process left.
pub(crate) fn release(name: &DeviceName, tag: &str) {
    let Some(device) = number_of(name) else {
        return;
    };
    if carried_tag(name).as_deref() != Some(tag) {
        return;
    }
    let released = Control::open().and_then(|control| {
        control.stop(device)?;
        control.remove(device)
    });
    if let Err(error) = released {
        warn!(device = name.0, %error, "a dead volume's device stays");
    }
}

pub(super) fn name_of(device: u32) -> DeviceName {
    DeviceName(format!("{BLOCK_DEVICE}{device}"))
}

pub(super) fn number_of(name: &DeviceName) -> Option<u32> {
    name.0.strip_prefix(BLOCK_DEVICE)?.parse().ok()
}
