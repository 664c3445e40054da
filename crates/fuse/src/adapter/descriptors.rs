//! Which descriptors of a file a process still has.
//!
//! The kernel tells of every descriptor that is closed and never how many are left, so this looks
//! into proc(5). What cannot be seen there (other users' processes, other PID namespaces) counts
//! as not there.

use std::{ffi::CStr, fs, os::fd::OwnedFd};

use penstock_base::mount_table;
use penstock_vfs::Inode;
use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, statat},
    io::{Errno, read},
};

/// Descriptors of a process that are looked at; a process with more is none that a shell made.
const DESCRIPTORS_MAX: usize = 256;
/// Bytes of what proc(5) says of a descriptor that are read. The fields of interest come first.
const INFO_MAX: usize = 512;
/// The bits of the open flags that tell what a descriptor is open for.
const ACCESS_MODE: u32 = libc::O_ACCMODE as u32;
const READ_ONLY: u32 = libc::O_RDONLY as u32;

/// What tells the descriptors of a mount from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountId {
    /// Its number in the system's mount table.
    pub(crate) number: u64,
    /// The device of its files, which bind mounts of it have too.
    pub(crate) device: String,
}

impl MountId {
    /// Whether it has this number, or is mounted elsewhere under it.
    fn is(&self, number: u64) -> bool {
        number == self.number || self.is_bound_as(number)
    }

    fn is_bound_as(&self, number: u64) -> bool {
        let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
        let mut entries = mount_table::parse(&table);
        entries.any(|entry| entry.id == number && entry.device == self.device)
    }
}

/// Whether the process of `thread` has a descriptor through which it can write `inode`.
pub(super) fn can_still_write(thread: u32, mount: &MountId, inode: Inode) -> bool {
    let open = |name: &str| open_directory(&format!("/proc/{thread}/{name}"));
    let (Ok(links), Ok(infos)) = (open("fd"), open("fdinfo")) else {
        return false;
    };
    let Ok(listed) = Dir::read_from(&links) else {
        return false;
    };
    let numbers = listed
        .flatten()
        .filter(|entry| entry.file_name().to_bytes()[0] != b'.');
    numbers.take(DESCRIPTORS_MAX).any(|entry| {
        let number = entry.file_name();
        may_write(&links, number) && writes(&info(&infos, number), mount, inode)
    })
}

fn open_directory(path: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
}

/// Whether a descriptor may be one to write, by its link in proc(5), which has its rights: that costs a fifth of what opening
/// and reading its description does, and most of a process are directories, or to read.
///
/// Where the link leads is not read: that waits for an exec(3) of the process, which waits for the answer about a descriptor
/// that it closes.
fn may_write(links: &OwnedFd, number: &CStr) -> bool {
    match statat(links, number, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(link) => Mode::from_raw_mode(link.st_mode).contains(Mode::WUSR),
        Err(error) => error != Errno::NOENT,
    }
}

/// What proc(5) says of a descriptor; nothing of one that is gone.
fn info(infos: &OwnedFd, number: &CStr) -> String {
    let mut bytes = [0; INFO_MAX];
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat(infos, number, flags, Mode::empty());
    let length = file.and_then(|file| read(&file, &mut bytes)).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

/// Lines of a name, a colon and a number; `flags` is octal.
fn writes(info: &str, mount: &MountId, inode: Inode) -> bool {
    let field = |name: &str, radix| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|text| u64::from_str_radix(text.trim(), radix).ok())
    };
    let flags = field("flags:", 8).and_then(|flags| u32::try_from(flags).ok());
    field("ino:", 10) == Some(inode.0)
        && flags.is_some_and(|flags| flags & ACCESS_MODE != READ_ONLY)
        && field("mnt_id:", 10).is_some_and(|number| mount.is(number))
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        fs,
        os::{fd::AsRawFd, linux::fs::MetadataExt, unix::fs::OpenOptionsExt},
    };

    use super::*;

    /// Where a file of this process is mounted.
    pub(in super::super) fn mount_of(file: &fs::File) -> MountId {
        let own = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
        let info = fs::read_to_string(own).expect("open");
        let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        let mount = mount.and_then(|text| text.trim().parse().ok());
        MountId {
            number: mount.expect("a number"),
            device: String::new(),
        }
    }

    #[test]
    fn finds_what_the_process_can_write() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("file");
        let process = std::process::id();
        let written = fs::File::create(&path).expect("writable");
        let inode = Inode(written.metadata().expect("open").st_ino());
        let mount = mount_of(&written);
        assert!(can_still_write(process, &mount, inode));
        let table = fs::read("/proc/self/mountinfo").expect("there");
        let elsewhere = |device| MountId { number: 0, device };
        assert!(!can_still_write(process, &elsewhere(String::new()), inode));
        // What a process that was moved below another root has is not in its table.
        if let Some(entry) = mount_table::parse(&table).find(|entry| entry.id == mount.number) {
            assert!(can_still_write(process, &elsewhere(entry.device), inode));
        }
        assert!(!can_still_write(process, &mount, Inode(inode.0 + 1)));
        let _reader = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(&path)
            .expect("readable");
        drop(written);
        assert!(!can_still_write(process, &mount, inode), "it only reads");
        assert!(!can_still_write(0, &mount, inode), "no such process");
    }
}
