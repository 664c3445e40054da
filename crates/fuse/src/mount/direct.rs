//! `mount(2)`, for root.

use std::{
    ffi::CString,
    fs::OpenOptions,
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use super::{MountError, UnmountError, UnmountMode};
use crate::{
    FuseSettings,
    system::{self, MountArguments},
};

const DEVICE: &str = "/dev/fuse";

pub(super) fn mount(
    place: &Path,
    root_mode: u32,
    settings: &FuseSettings,
) -> Result<OwnedFd, MountError> {
    let device = open_device()?;
    let arguments = MountArguments {
        source: c_text(&settings.source)?,
        kind: c"fuse.penstock",
        flags: flags(settings),
        options: c_text(&options(&device, root_mode, settings))?,
    };
    system::mount(place, &arguments).map_err(refused)?;
    Ok(device)
}

/// Opens the device; also tells others why it cannot be opened.
fn open_device() -> Result<OwnedFd, MountError> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE);
    device
        .map(OwnedFd::from)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => MountError::NoDevice,
            _ => MountError::DeviceDenied(error.to_string()),
        })
}

fn options(device: &OwnedFd, root_mode: u32, settings: &FuseSettings) -> String {
    let (user, group) = system::effective_ids();
    let mut options = format!(
        "fd={},rootmode={:o},user_id={user},group_id={group}",
        device.as_raw_fd(),
        root_mode & libc::S_IFMT,
    );
    if settings.allow_other {
        options.push_str(",allow_other");
    }
    if settings.checks_permissions() {
        options.push_str(",default_permissions");
    }
    options
}

pub(super) fn flags(settings: &FuseSettings) -> libc::c_ulong {
    let flag = |set: bool, flag| if set { flag } else { 0 };
    flag(!settings.suid, system::MS_NOSUID)
        | flag(!settings.dev, system::MS_NODEV)
        | flag(settings.read_only, system::MS_RDONLY)
        | flag(settings.noexec, system::MS_NOEXEC)
        | flag(settings.noatime, system::MS_NOATIME)
}

pub(super) fn refused(error: io::Error) -> MountError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => MountError::Denied,
        Some(libc::ENODEV) => MountError::NoDevice,
        _ => MountError::System(error),
    }
}

fn c_text(text: &str) -> Result<CString, MountError> {
    CString::new(text).map_err(|error| MountError::System(error.into()))
}

pub(super) fn unmount(place: &Path, mode: UnmountMode) -> Result<(), UnmountError> {
    let flags = match mode {
        UnmountMode::Plain => 0,
        UnmountMode::Lazy => libc::MNT_DETACH,
        UnmountMode::Force => libc::MNT_FORCE | libc::MNT_DETACH,
    };
    system::unmount(place, flags).map_err(|error| {
        let place = place.to_path_buf();
        match error.raw_os_error() {
            Some(libc::EBUSY) => UnmountError::Busy(place),
            Some(libc::EPERM) => UnmountError::Denied(place),
            _ => UnmountError::Failed(place, error.to_string()),
        }
    })
}
