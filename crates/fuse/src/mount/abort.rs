//! Cutting the connection of a mount from outside.
//!
//! The kernel's control file system (fusectl) has a file for each connection. A write to it ends every
//! request of the mount, so that nothing waits for a process that cannot answer any more: also where a
//! thread of that process sleeps in the kernel, and so keeps `/dev/fuse` open after a kill.
//!
//! The kernel empties the open file when the connection goes. A [`ConnectionAbort`] therefore never cuts
//! the connection of a later mount that has the same number.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use penstock_base::mount_table::MountEntry;
use rustix::{
    fs::{Mode, OFlags, openat},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

use super::{Answer, UnmountError, UnmountMode, check, direct, table, untold};

/// Where systems mount fusectl.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// An open file that cuts one connection.
#[derive(Debug)]
pub struct ConnectionAbort(File);

impl ConnectionAbort {
    /// That of the mount whose files have this device number, `major:minor`. Fails where fusectl is not
    /// mounted, and the user may not mount it either.
    pub(super) fn open(device: &str) -> io::Result<Self> {
        Self::of_connection(device.rsplit(':').next().unwrap_or_default())
    }

    fn of_connection(number: &str) -> io::Result<Self> {
        let file = Path::new(number).join("abort");
        let mounted = OpenOptions::new()
            .write(true)
            .open(Path::new(CONNECTIONS).join(&file));
        let opened = mounted.or_else(|_| {
            let connections = unseen_connections()?;
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            Ok::<_, io::Error>(openat(&connections, &file, flags, Mode::empty())?.into())
        });
        opened.map(Self)
    }

    /// Cuts the connection. It does nothing to one that is gone.
    pub fn cut(&self) -> io::Result<()> {
        (&self.0).write_all(b"1")
    }
}

impl AsFd for ConnectionAbort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The file of a [`ConnectionAbort`] that came from another process.
impl From<OwnedFd> for ConnectionAbort {
    fn from(file: OwnedFd) -> Self {
        Self(file.into())
    }
}

/// fusectl, mounted nowhere in the file tree: containers seldom have it.
fn unseen_connections() -> io::Result<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    Ok(fsmount(context.as_fd(), flags, MountAttrFlags::empty())?)
}

/// Cuts the connection of this program's mount at `place`, unless the mount answers. Returns whether it
/// was cut.
pub fn cut_silent(place: &Path) -> Result<bool, UnmountError> {
    let entry = table::entry_at(place).map_err(|error| untold(place, &error))?;
    let entry = entry.filter(MountEntry::is_ours);
    let Some(entry) = entry.filter(|_| check::answer(place) == Answer::Silent) else {
        return Ok(false);
    };
    let cut = ConnectionAbort::open(&entry.device).and_then(|abort| abort.cut());
    if cut.is_err() {
        direct::unmount(place, UnmountMode::Force)?;
    }
    Ok(true)
}

/// Cuts every connection whose `/dev/fuse` the process holds open, also of mounts that are out of sight. Returns how
/// many; none where the kernel does not tell a descriptor's connection (6.18 does, 6.12 does not).
///
/// A process whose first thread has ended shows what the others hold.
pub fn cut_held_by(process: u32) -> io::Result<usize> {
    let held = connections_held_by(process);
    let cuts: Vec<_> = held
        .iter()
        .map(|number| ConnectionAbort::of_connection(number)?.cut())
        .collect();
    cuts.into_iter().collect::<io::Result<()>>()?;
    Ok(held.len())
}

fn connections_held_by(process: u32) -> BTreeSet<String> {
    let listed = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let threads = listed(Path::new(&format!("/proc/{process}/task")));
    let descriptors = threads.flat_map(|thread| listed(&thread.path().join("fdinfo")));
    let texts = descriptors.filter_map(|descriptor| fs::read_to_string(descriptor.path()).ok());
    texts.filter_map(|text| connection_of(&text)).collect()
}

/// The connection that the `fdinfo` of a descriptor tells.
fn connection_of(text: &str) -> Option<String> {
    let mut numbers = text
        .lines()
        .filter_map(|line| line.strip_prefix("fuse_connection:"));
    numbers.next().map(|number| number.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_of_a_mount_tells_its_connection() {
        let mount = "pos:\t0\nflags:\t02100002\nmnt_id:\t24\nino:\t90\nfuse_connection:\t42\n";
        assert_eq!(connection_of(mount).as_deref(), Some("42"));
        assert_eq!(connection_of("pos:\t0\nflags:\t02\n"), None);
    }

    #[test]
    fn connections_are_found_where_nothing_is_mounted() {
        if crate::system::effective_ids().0 != 0 {
            penstock_skips::skipped("mounting needs root");
            return;
        }
        let connections = unseen_connections().expect("root may");
        let root = rustix::fs::fstatfs(&connections).expect("it answers");
        let mounted = rustix::fs::statfs("/sys").expect("it answers");
        assert_ne!(root.f_type, mounted.f_type);
        let absent = ConnectionAbort::open("0:4000000000");
        assert_eq!(absent.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
