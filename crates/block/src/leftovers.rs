//! What a process that was killed left behind.
//!
//! With its process the reads of a volume fail, but the mount stays, and with it the devices.
//! Unmounting is enough to take everything away, but for network block devices and those of ublk,
//! whose readers may wait for another process, and which may not have had a user yet: they are given
//! up. What is left
//! then is what the kernel read ahead for the device's number, and the volume's own file.
//!
//! Only what is ours and dead is touched. *Ours* is a volume that has a file in the state directory,
//! which is private to root, and of the devices that it names those that carry its tag, which no
//! other volume of this machine has, in whatever container. *Dead* is one whose file nobody holds
//! locked. So a start takes away all there are, whose devices would be missed; who names a mount
//! point means that one alone, and the readers of another dead volume keep its names.

use std::{fs, path::Path};

use penstock_fuse::UnmountMode;
use tracing::{info, warn};

use crate::{
    DeviceRecord, Record, StateDirectory,
    device::DeviceName,
    journal::{self, Abandoned, Found},
    mount, nbd,
    tags::{self, tagged_devices},
    ublk,
};

/// Mounts of one device that are taken away: a mount point and what was bound from there.
const MOUNTS_MAX: usize = 1024;

/// A volume whose process was gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// What it was.
    pub record: Record,
    /// Nothing of it is left. Otherwise somebody still has files of it open.
    pub complete: bool,
}

/// The volumes whose processes live.
pub fn volumes(state: &StateDirectory) -> Vec<Record> {
    let alive = found(state).filter_map(|found| match found {
        Found::Alive(record) => Some(record),
        Found::Dead(_) => None,
    });
    alive.collect()
}

/// The volumes whose processes are gone and that are still there.
pub fn dead_volumes(state: &StateDirectory) -> Vec<Record> {
    let dead = found(state).filter_map(|found| match found {
        Found::Alive(_) => None,
        Found::Dead(dead) => dead.record,
    });
    dead.collect()
}

/// Takes away what volumes left behind whose processes are gone. Who has files open in one keeps
/// them, with errors; the rest goes when they are closed.
pub async fn clean(state: &StateDirectory) -> Vec<Cleaned> {
    clean_if(state, |_| true).await
}

/// The same of volumes that were mounted on `mount_point`, an absolute path, and of no others.
pub async fn clean_at(state: &StateDirectory, mount_point: &Path) -> Vec<Cleaned> {
    let was_there =
        |record: Option<&Record>| record.is_some_and(|record| record.mount_point == mount_point);
    clean_if(state, was_there).await
}

/// Every volume that has a file in the state directory.
fn found(state: &StateDirectory) -> impl Iterator<Item = Found> {
    let files = state.files().into_iter();
    files.filter_map(|path| journal::look(&path))
}

async fn clean_if(
    state: &StateDirectory,
    concerns: impl Fn(Option<&Record>) -> bool,
) -> Vec<Cleaned> {
    let dead = found(state).filter_map(|found| match found {
        Found::Alive(_) => None,
        Found::Dead(dead) => concerns(dead.record.as_ref()).then_some(dead),
    });
    let mut cleaned = Vec::new();
    for dead in dead {
        cleaned.extend(clean_one(state.path(), &dead).await);
    }
    cleaned
}

async fn clean_one(state: &Path, dead: &Abandoned) -> Option<Cleaned> {
    let Some(record) = dead.record.clone() else {
        dead.forget();
        return None;
    };
    remove_private_place(&state.join(&record.tag));
    let devices = record.devices.iter().map(DeviceRecord::device);
    // Those that were attached last may not be written down.
    let others = tagged_devices(&record.tag).into_iter().map(DeviceName);
    let others = others.filter(|device| tags::is_tagged(device, &record.tag));
    let mut devices: Vec<_> = devices.chain(others).collect();
    devices.sort();
    devices.dedup();
    for device in &devices {
        if tags::is_tagged(device, &record.tag) {
            unmount_all(device);
        }
    }
    for device in &devices {
        // Readers would wait for a process that does not come, and hold the other devices.
        nbd::release(device, &record.tag);
        ublk::release(device, &record.tag);
    }
    let mut complete = true;
    for device in &devices {
        complete &= tags::wait_until_clear(device, &record.tag).await;
    }
    if complete {
        for device in &record.devices {
            device.restore_read_ahead();
        }
        dead.forget();
        info!(source = record.source, mount_point = %record.mount_point.display(),
              "removed what a volume left behind whose process was killed");
    } else {
        warn!(source = record.source, mount_point = %record.mount_point.display(),
              "files of a dead volume are still open; its devices go when they are closed");
    }
    Some(Cleaned { record, complete })
}

/// The process may have been killed while its private mount still stood in the tree.
fn remove_private_place(place: &Path) {
    if mount::table().iter().any(|entry| entry.mountpoint == place) {
        let _ = penstock_fuse::unmount(place, UnmountMode::Lazy);
    }
    let _ = fs::remove_dir(place);
}

fn unmount_all(device: &DeviceName) {
    let Ok(number) = device.number() else {
        return;
    };
    for entry in mount::mounts_of(&number).iter().take(MOUNTS_MAX) {
        let place = &entry.mountpoint;
        if let Err(error) = penstock_fuse::unmount(place, UnmountMode::Lazy) {
            warn!(%error, "a dead volume stays mounted");
        }
    }
}
