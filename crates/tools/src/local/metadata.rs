//! Owners, modes, times and extended attributes: what a file has besides its content.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use rustix::{
    fs::{self, AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags},
    io::Errno,
};

use super::{Directory, kind_of};

/// Bytes of all names, or of one value, of extended attributes: what Linux allows at most.
const ATTRIBUTES_MAX: usize = 64 << 10;
/// Most values are no longer than this.
const VALUE_USUAL: usize = 256;
/// Access by list, which a directory may hand down to what is made in it.
const ACCESS_LIST: &CStr = c"system.posix_acl_access";

/// Extended attributes by name.
pub(crate) type Attributes = Vec<(CString, Vec<u8>)>;

/// The permission bits of `stat`.
pub(crate) fn permissions(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode & 0o7777)
}

/// The times of `stat`.
pub(crate) fn times(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: stat.st_atime,
            tv_nsec: stat.st_atime_nsec.cast_signed(),
        },
        last_modification: Timespec {
            tv_sec: stat.st_mtime,
            tv_nsec: stat.st_mtime_nsec.cast_signed(),
        },
    }
}

/// When the content changed last, in seconds and nanoseconds.
pub(crate) fn modified(stat: &Stat) -> (i64, u64) {
    (stat.st_mtime, stat.st_mtime_nsec)
}

/// Whose a file is.
pub(crate) fn owner(stat: &Stat) -> (u32, u32) {
    (stat.st_uid, stat.st_gid)
}

/// Which file something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    device: u64,
    number: u64,
}

impl FileId {
    /// That of a number in a file system or volume.
    pub(crate) fn new(device: u64, number: u64) -> Self {
        Self { device, number }
    }

    /// That of an open file; none of what has no content.
    pub fn of(file: impl AsFd) -> io::Result<Option<Self>> {
        let stat = fs::fstat(file)?;
        Ok((kind_of(&stat) == FileType::RegularFile).then(|| Self::from(&stat)))
    }
}

impl From<&Stat> for FileId {
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            number: stat.st_ino,
        }
    }
}

/// Whether two are one file.
pub(crate) fn is_same_file(one: &Stat, other: &Stat) -> bool {
    FileId::from(one) == FileId::from(other)
}

/// What an open file is. Fails if that is not the file that was seen under its name, which might have had another mode.
pub(crate) fn stat_of_same(file: impl AsFd, seen: &Stat) -> io::Result<Stat> {
    let stat = fs::fstat(file)?;
    match is_same_file(&stat, seen) {
        true => Ok(stat),
        false => Err(another()),
    }
}

/// The same for what was seen in a listing, which tells no more than the kind.
pub(crate) fn stat_of_kind(stat: Stat, seen: FileType) -> io::Result<Stat> {
    match kind_of(&stat) == seen {
        true => Ok(stat),
        false => Err(another()),
    }
}

pub(crate) fn another() -> io::Error {
    io::Error::other("another file got its name just now; try again")
}

/// Several things that are all tried, whatever becomes of those before.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Option<Errno>);

impl Attempts {
    /// Notes what became of one; returns what came of it, if anything did.
    pub(crate) fn note<T>(&mut self, done: rustix::io::Result<T>) -> Option<T> {
        match done {
            Ok(value) => Some(value),
            Err(error) => {
                self.0.get_or_insert(error);
                None
            }
        }
    }

    /// Gives an open file its owner. Returns those rights that it must not lend then: all where that failed.
    pub(crate) fn give(&mut self, file: impl AsFd, owner: (u32, u32)) -> Mode {
        self.note(give(file, owner)).unwrap_or(LENT)
    }

    /// The first failure.
    pub(crate) fn end(self) -> rustix::io::Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Rights of its owner and its group, which a file lends to who runs it.
pub(crate) const LENT: Mode = Mode::SUID.union(Mode::SGID);

/// The rights of a file whose content this process replaces, as the system leaves them where it is written to.
pub(crate) fn after_writing(mode: Mode) -> Mode {
    let mut lent = Mode::SUID;
    lent.set(Mode::SGID, mode.contains(Mode::XGRP));
    match is_root() {
        true => mode,
        false => mode.difference(lent),
    }
}

/// Gives an open file its owner. Who may not give files away keeps them, as with cp(1), and gets the group if
/// that is possible. Returns those rights that the file must not lend then.
pub(crate) fn give(file: impl AsFd, owner: (u32, u32)) -> rustix::io::Result<Mode> {
    let (user, group) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
    match fs::fchown(&file, Some(user), Some(group)) {
        Err(Errno::PERM) if !is_root() => {
            let mut withheld = Mode::empty();
            withheld.set(Mode::SUID, user != rustix::process::geteuid());
            withheld.set(Mode::SGID, fs::fchown(&file, None, Some(group)).is_err());
            Ok(withheld)
        }
        other => other.map(|()| Mode::empty()),
    }
}

/// Sets the times of what is no file or directory.
pub(crate) fn date_in(
    directory: &Directory,
    name: &CStr,
    times: &Timestamps,
) -> rustix::io::Result<()> {
    fs::utimensat(directory, name, times, AtFlags::SYMLINK_NOFOLLOW)
}

/// What cannot be opened, such as a FIFO, to change it. No link that takes its place is followed.
pub(crate) struct Handle(OwnedFd);

impl Handle {
    /// Holds `name`.
    pub(crate) fn of(directory: &Directory, name: &CStr) -> rustix::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(directory, name, flags, Mode::empty()).map(Self)
    }

    /// Holds `name`, which was made as this kind. Fails with `STALE` if something else has the name by now.
    pub(crate) fn of_kind(
        directory: &Directory,
        name: &CStr,
        kind: FileType,
    ) -> rustix::io::Result<Self> {
        let handle = Self::of(directory, name)?;
        match kind_of(&fs::fstat(&handle.0)?) == kind {
            true => Ok(handle),
            false => Err(Errno::STALE),
        }
    }

    /// Gives it its owner. Who may not give files away keeps it.
    pub(crate) fn give(&self, owner: (u32, u32)) -> rustix::io::Result<()> {
        let (user, group) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
        match fs::chownat(&self.0, c"", Some(user), Some(group), AtFlags::EMPTY_PATH) {
            Err(Errno::PERM) if !is_root() => Ok(()),
            other => other,
        }
    }

    /// Sets the mode of what was given this access list.
    pub(crate) fn set_mode(&self, mode: Mode, given: Option<&[u8]>) -> rustix::io::Result<()> {
        let lost = given.filter(|_| self.access_list().is_none());
        fs::chmod(
            self.path(),
            lost.map_or(mode, |list| without_mask(mode, list)),
        )
    }

    /// The list of who may use it, as the system has it; the only attribute that such files have.
    pub(crate) fn access_list(&self) -> Option<Vec<u8>> {
        let list = self.access_list_alone().ok()?;
        list.into_iter().next().map(|(_, list)| list)
    }

    /// The same as an attribute. Fails if nobody knows whether there is one.
    pub(crate) fn access_list_alone(&self) -> rustix::io::Result<Attributes> {
        let mut list = vec![0; ATTRIBUTES_MAX];
        let size = fs::getxattr(self.path(), ACCESS_LIST, &mut list[..]);
        alone(size.map(|size| list[..size].to_vec()))
    }

    /// Sets the list.
    pub(crate) fn set_access_list(&self, list: Option<&[u8]>) -> rustix::io::Result<()> {
        tolerate(match list {
            Some(list) => fs::setxattr(self.path(), ACCESS_LIST, list, XattrFlags::empty()),
            None => fs::removexattr(self.path(), ACCESS_LIST),
        })
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

/// Whether this process may give its files to a group.
pub(crate) fn may_give_to(group: u32) -> bool {
    let group = Gid::from_raw(group);
    let is_member = || rustix::process::getgroups().is_ok_and(|groups| groups.contains(&group));
    is_root() || group == rustix::process::getegid() || is_member()
}

/// Whether this process may do what only root may.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The extended attributes of an open file; none where the file system has none.
pub(crate) fn attributes(file: impl AsFd) -> rustix::io::Result<Attributes> {
    let names = match names(&file) {
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
        other => other?,
    };
    let mut attributes = Vec::new();
    for name in names {
        match value(&file, &name) {
            Ok(value) => attributes.push((name, value)),
            // Removed meanwhile, or nothing that this process may see.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(attributes)
}

fn names(file: impl AsFd) -> rustix::io::Result<Vec<CString>> {
    let mut space = [0_u8; VALUE_USUAL];
    let small = fs::flistxattr(&file, &mut space[..]);
    let list = match small {
        Ok(size) => space[..size].to_vec(),
        Err(Errno::RANGE) => {
            let mut space = vec![0; ATTRIBUTES_MAX];
            let size = fs::flistxattr(&file, &mut space[..])?;
            space.truncate(size);
            space
        }
        Err(error) => return Err(error),
    };
    let names = list
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    Ok(names.filter_map(|name| CString::new(name).ok()).collect())
}

fn value(file: impl AsFd, name: &CStr) -> rustix::io::Result<Vec<u8>> {
    let mut value = vec![0; VALUE_USUAL];
    let size = match fs::fgetxattr(&file, name, &mut value[..]) {
        Err(Errno::RANGE) => {
            value.resize(ATTRIBUTES_MAX, 0);
            fs::fgetxattr(&file, name, &mut value[..])?
        }
        other => other?,
    };
    value.truncate(size);
    Ok(value)
}

/// The access list of an open file as the only attribute; none where it has none.
pub(crate) fn access_list(file: impl AsFd) -> rustix::io::Result<Attributes> {
    alone(value(file, ACCESS_LIST))
}

fn alone(list: rustix::io::Result<Vec<u8>>) -> rustix::io::Result<Attributes> {
    match list {
        Err(Errno::NODATA | Errno::NOTSUP | Errno::NOSYS) => Ok(Vec::new()),
        list => Ok(vec![(ACCESS_LIST.to_owned(), list?)]),
    }
}

/// Sets the mode of an open file that was given these attributes. The mode of a file with an access list has the list's
/// mask where the rights of its group are: a file that does not take the list gets those of the group alone.
pub(crate) fn set_mode(file: impl AsFd, mode: Mode, given: &Attributes) -> rustix::io::Result<()> {
    fs::fchmod(&file, mode_with(&file, mode, given))
}

/// The mode that such a file gets.
pub(crate) fn mode_with(file: impl AsFd, mode: Mode, given: &Attributes) -> Mode {
    let list = given
        .iter()
        .find(|(name, _)| name.as_c_str() == ACCESS_LIST);
    let lost = list.filter(|_| fs::fgetxattr(file, ACCESS_LIST, &mut [0_u8; 0][..]).is_err());
    lost.map_or(mode, |(_, list)| without_mask(mode, list))
}

/// The mode of a file without its access list: a version of four bytes, and entries of a tag, rights and an identity (`linux/posix_acl_xattr.h`).
fn without_mask(mode: Mode, list: &[u8]) -> Mode {
    /// The owning group.
    const GROUP_TAG: u16 = 0x04;
    let entries = list.get(4..).unwrap_or_default().as_chunks::<8>().0;
    let group = entries
        .iter()
        .find(|[low, high, ..]| u16::from_le_bytes([*low, *high]) == GROUP_TAG);
    let rights = group.map_or(0, |[_, _, rights, ..]| u32::from(rights & 0o7));
    mode.difference(Mode::RWXG) | Mode::from_raw_mode(rights << 3)
}

/// Gives an open file these attributes and takes others away. What the system's rules do not take is passed over, as
/// cp(1) does. Says whether the file system takes such attributes.
pub(crate) fn set_attributes(
    file: impl AsFd,
    wanted: &Attributes,
    existing: &Attributes,
) -> rustix::io::Result<bool> {
    let mut are_taken = true;
    for (name, _) in existing {
        if wanted.iter().all(|(other, _)| other != name) {
            tolerate(fs::fremovexattr(&file, name.as_c_str()))?;
        }
    }
    for (name, value) in wanted {
        if existing.iter().all(|one| (&one.0, &one.1) != (name, value)) {
            let set = fs::fsetxattr(&file, name.as_c_str(), value, XattrFlags::empty());
            are_taken &= set != Err(Errno::NOTSUP);
            tolerate(set)?;
        }
    }
    Ok(are_taken)
}

/// Whether an open file with `existing` attributes would have others if it were given those that are `wanted`, as far as its
/// file system takes them and this process may set them.
pub(crate) fn would_change(file: impl AsFd, wanted: &Attributes, existing: &Attributes) -> bool {
    let is_taken = |name: &CStr| {
        let there = fs::fgetxattr(&file, name, &mut [0_u8; 0][..]);
        is_settable(name) && there != Err(Errno::NOTSUP)
    };
    let comes = |(name, value): &(CString, Vec<u8>)| {
        is_taken(name) && existing.iter().all(|one| (&one.0, &one.1) != (name, value))
    };
    let goes = |(name, _): &(CString, Vec<u8>)| {
        is_settable(name) && wanted.iter().all(|(other, _)| other != name)
    };
    wanted.iter().any(comes) || existing.iter().any(goes)
}

/// Whether attributes of this name are what copies make of them: the system has rules of its own for others.
fn is_settable(name: &CStr) -> bool {
    let is_of_root = name == c"security.capability" || name.to_bytes().starts_with(b"trusted.");
    let is_of_all = ["user.", "system.posix_acl_"];
    let is_of_all = is_of_all.map(|begin| name.to_bytes().starts_with(begin.as_bytes()));
    is_of_all.contains(&true) || (is_of_root && is_root())
}

/// Takes away the list that a new file got from its directory.
pub(crate) fn remove_access_list(file: impl AsFd) -> rustix::io::Result<()> {
    tolerate(fs::fremovexattr(file, ACCESS_LIST))
}

/// Whether a directory hands a list down to what is made in it.
pub(crate) fn hands_down(directory: &Directory) -> bool {
    fs::fgetxattr(directory, c"system.posix_acl_default", &mut [0_u8; 0][..])
        .is_ok_and(|size| size > 0)
}

fn tolerate(done: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match done {
        Err(Errno::NOTSUP | Errno::PERM | Errno::ACCESS | Errno::NODATA | Errno::INVAL) => Ok(()),
        other => other,
    }
}
