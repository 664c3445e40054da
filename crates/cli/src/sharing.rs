//! A fileset at several mount points of one machine.
//!
//! ```text
//! process --- one mount of the kernel, one page cache -+- /mnt1   (mounted by the process)
//!  (owns the metadata)                                 +- /mnt2   (a bind mount, made by `penstock mount`)
//! ```
//!
//! One process has the metadata of a fileset. Each further mount point is a bind mount of its mount ([`join`]), so that
//! nothing can be seen at one of them that is not at all others. What belongs together is told by the number of the
//! files' device in the mount table ([`Places`]). The process serves until the last mount point is gone, whichever that
//! is; its socket keeps the name of the first one until somebody else mounts there.
//!
//! Buckets are mounted independently of one another.

mod join;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use penstock_base::mount_table::{self as table, MountEntry};
use penstock_fuse::{UnmountError, UnmountMode};
use tokio::task::spawn_blocking;
use tracing::warn;

use crate::{
    control::{Phase, SocketDirectory, Status, client},
    filesets,
    mount_table::{self, Unreadable},
    options::{self, Values},
};

pub(crate) use join::{Joined, join};

/// Bytes of the longest mount point that an order to unmount names. One that is longer means the whole mount.
const NAMED_MAX: usize = 2048;

/// Whether it is a mount of a fileset, alive or dead.
pub(crate) fn is_of_fileset(entry: &MountEntry) -> bool {
    entry.is_ours() && filesets::name_in(&entry.source).is_some()
}

/// The mount points of one mount of a fileset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Places {
    device: String,
    source: String,
}

impl Places {
    /// Those of the mount on `mountpoint`, if it is one of a fileset.
    pub(crate) fn of(mountpoint: &Path) -> Result<Option<Self>, Unreadable> {
        let entry = mount_table::find(mountpoint)?.filter(is_of_fileset);
        Ok(entry.map(|entry| Self {
            device: entry.device,
            source: entry.source,
        }))
    }

    /// The number of the files' device.
    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    /// The mount points that there are now, also such as others are mounted on.
    pub(crate) fn list(&self) -> Result<Vec<PathBuf>, Unreadable> {
        Ok(self.listed(&mount_table::read()?))
    }

    fn listed(&self, table: &[u8]) -> Vec<PathBuf> {
        let entries = table::parse(table).filter(|entry| self.has(entry));
        let mut places: Vec<_> = entries.map(|entry| entry.mountpoint).collect();
        places.sort();
        places.dedup();
        places
    }

    fn has(&self, entry: &MountEntry) -> bool {
        // A directory that somebody bound elsewhere is a way to files, and no mount point of the fileset.
        is_of_fileset(entry)
            && entry.device == self.device
            && entry.source == self.source
            && entry.root == Path::new("/")
    }

    /// Takes one of them out of the file tree. Success when it is not there any more.
    pub(crate) async fn unmount(
        &self,
        place: PathBuf,
        mode: UnmountMode,
    ) -> Result<(), UnmountError> {
        let untold = |error: Unreadable| UnmountError::Failed(place.clone(), error.to_string());
        if !self.list().map_err(untold)?.contains(&place) {
            return Ok(());
        }
        let uppermost = mount_table::find(&place).map_err(untold)?;
        if !uppermost.is_some_and(|entry| self.has(&entry)) {
            return Err(UnmountError::Busy(place));
        }
        let unmounting = place.clone();
        let unmounted = spawn_blocking(move || penstock_fuse::unmount(&unmounting, mode)).await;
        unmounted.unwrap_or_else(|error| Err(UnmountError::Failed(place, error.to_string())))
    }

    /// Takes all of them out of the file tree, deeper ones first. One that stays keeps none of the others.
    pub(crate) async fn unmount_all(&self, mode: UnmountMode) -> Result<(), UnmountError> {
        let mut outcome = Ok(());
        let all = self.list().map_err(|error| {
            UnmountError::Failed(PathBuf::from(&self.source), error.to_string())
        })?;
        for place in all.into_iter().rev() {
            let unmounted = self.unmount(place, mode).await;
            outcome = outcome.and(unmounted);
        }
        outcome
    }

    /// Takes those away that a connection which was cut has left dead.
    pub(crate) async fn clear(&self) {
        let left = match self.list() {
            Ok(left) => left,
            Err(error) => return warn!(%error, "dead mounts may stay behind"),
        };
        let cleared = spawn_blocking(move || {
            for place in left {
                if let Err(error) = penstock_fuse::remove_dead_mounts(&place) {
                    warn!(%error, "a dead mount stays behind");
                }
            }
        });
        let _ = cleared.await;
    }
}

/// The kernel's name of the file tree that this process sees.
pub(crate) fn own_tree() -> String {
    let name = fs::read_link("/proc/self/ns/mnt").unwrap_or_default();
    name.display().to_string()
}

/// What options are set to that hold for all mount points of a mount.
pub(crate) fn told(values: &Values) -> BTreeMap<String, String> {
    let all = options::table::ALL.into_iter();
    all.filter_map(|spec| Some((spec.name.to_owned(), values.told(spec)?)))
        .collect()
}

/// The mount point as an order to unmount names it.
pub(crate) fn named(mountpoint: &Path) -> Option<PathBuf> {
    let text = mountpoint.to_str()?;
    (text.len() <= NAMED_MAX).then(|| mountpoint.to_owned())
}

/// The socket of the process that serves the mount on `mountpoint`, or served the last one there. None where that has
/// left it, and serves another mount point.
pub(crate) fn socket_of(
    sockets: &SocketDirectory,
    mountpoint: &Path,
) -> Result<Option<PathBuf>, Unreadable> {
    let entry = mount_table::find(mountpoint)?;
    Ok(socket_for(sockets, mountpoint, entry.as_ref()))
}

/// The same where this is mounted there.
fn socket_for(
    sockets: &SocketDirectory,
    mountpoint: &Path,
    entry: Option<&MountEntry>,
) -> Option<PathBuf> {
    let own = sockets.socket_of(mountpoint);
    let is_shared = entry.is_some_and(is_of_fileset);
    if entry.is_some() && !is_shared {
        let left = client::status(&own).is_ok_and(|status| has_left(&status, mountpoint));
        return (!left).then_some(own);
    }
    let serves = |status: &Status| match entry.filter(|_| is_shared) {
        Some(entry) => is_of(status, entry),
        None => is_at(status, mountpoint),
    };
    let gone = match client::status(&own) {
        Ok(status) if serves(&status) => return Some(own),
        Ok(_) => true,
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => false,
            _ => return Some(own),
        },
    };
    let elsewhere = || {
        let mut all = client::all(sockets).into_iter();
        let found = all.find(|found| serves(&found.status));
        found.map(|found| found.socket)
    };
    let found = is_shared.then(elsewhere).flatten();
    found.or_else(|| (!gone).then_some(own))
}

/// Every socket of `mountpoint`, that of [`socket_of`] first.
pub(crate) fn sockets_at(
    sockets: &SocketDirectory,
    mountpoint: &Path,
) -> Result<Vec<PathBuf>, Unreadable> {
    let present = socket_of(sockets, mountpoint)?;
    let present = present.unwrap_or_else(|| sockets.socket_of(mountpoint));
    let earlier = sockets.earlier(mountpoint).into_iter();
    let earlier = earlier.map(|earlier| earlier.path);
    Ok(std::iter::once(present).chain(earlier).collect())
}

/// Whether the process serves a mount that is elsewhere by now, and keeps a socket of this name.
fn has_left(status: &Status, mountpoint: &Path) -> bool {
    status.phase == Phase::Mounted && status.sharing.is_some() && !is_at(status, mountpoint)
}

/// Whether the process is that of what is mounted. One that was there before may still save, under the same name.
fn is_of(status: &Status, entry: &MountEntry) -> bool {
    let is_it = match &status.sharing {
        Some(sharing) => sharing.device == entry.device,
        None => is_at(status, &entry.mountpoint),
    };
    is_it && status.phase != Phase::Saving
}

/// Whether the process is, or was, that of the mount point.
fn is_at(status: &Status, mountpoint: &Path) -> bool {
    places(status).any(|at| at == mountpoint)
}

/// The mount points of a mount, one of them perhaps twice.
pub(crate) fn places(status: &Status) -> impl Iterator<Item = &Path> {
    let others = status.sharing.iter().flat_map(|sharing| &sharing.places);
    std::iter::once(&status.mountpoint)
        .chain(others)
        .map(PathBuf::as_path)
}

/// The mount points by which the socket of the mount on `mountpoint` may be called, itself first. Asks nobody.
pub(crate) fn names(mountpoint: &Path) -> Result<Vec<PathBuf>, Unreadable> {
    let mut names = vec![mountpoint.to_owned()];
    if let Some(places) = Places::of(mountpoint)? {
        let others = places.list()?.into_iter();
        names.extend(others.filter(|at| at != mountpoint));
    }
    Ok(names)
}

/// The mount points of a mount, for people.
pub(crate) fn shown(status: &Status) -> String {
    let several = status.sharing.as_ref().map(|sharing| &sharing.places);
    match several.filter(|places| status.phase == Phase::Mounted && places.len() > 1) {
        Some(places) => listed(places),
        None => status.mountpoint.display().to_string(),
    }
}

/// Paths in one line.
pub(crate) fn listed(places: &[PathBuf]) -> String {
    let shown: Vec<_> = places
        .iter()
        .map(|place| place.display().to_string())
        .collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] =
        b"40 22 0:50 / /mnt/b rw,nosuid - fuse.penstock fileset://home rw,user_id=0\n\
        41 22 0:50 / /mnt/a ro,nosuid - fuse.penstock fileset://home rw,user_id=0\n\
        42 22 0:50 /sub /mnt/sub rw - fuse.penstock fileset://home rw,user_id=0\n\
        43 22 0:51 / /mnt/c rw - fuse.penstock fileset://home rw,user_id=0\n\
        44 22 0:50 / /mnt/d rw - fuse.penstock fileset://work rw,user_id=0\n\
        45 22 0:50 / /mnt/e rw - fuse.penstock file:///home rw,user_id=0\n\
        46 22 0:50 / /mnt/f rw - tmpfs fileset://home rw\n";

    #[test]
    fn mount_points_of_one_mount_have_its_device_its_source_and_its_root() {
        let places = Places {
            device: "0:50".to_owned(),
            source: "fileset://home".to_owned(),
        };
        let found = places.listed(TABLE);
        assert_eq!(found, ["/mnt/a", "/mnt/b"].map(PathBuf::from));
        assert_eq!(listed(&found), "/mnt/a, /mnt/b");
    }

    #[test]
    fn an_order_names_a_mount_point_that_fits_into_a_request() {
        assert_eq!(named(Path::new("/mnt/x")), Some("/mnt/x".into()));
        let long = format!("/{}", "x".repeat(NAMED_MAX));
        assert_eq!(named(Path::new(&long)), None);
    }
}
