//! Files of this machine as one side of a copy.

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use penstock_vfs::{Attributes, Device, FileKind, Inode, NewKind, SpecialFile};
use rustix::{
    fs::{self, AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps},
    io::Errno,
};

use super::{
    Content, Dress, Facts, Found, Keeps, LOST_ATTRIBUTES, Listing, Lost, Source, Target, Written,
    Xattrs, was_taken,
};
use crate::{
    local::{
        self, Attempts, Directory, FileId, Handle, Temporary, Unfinished, c_string, clear_way,
        kind_of, make_under, read_fully, stat_of_same, write_fully,
    },
    volume::errno_of,
};

/// The list of who may use a file.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
const NANOSECONDS: u64 = 1_000_000_000;

/// A name in an open directory.
#[derive(Debug)]
pub(crate) struct LocalSource {
    pub(crate) directory: Arc<Directory>,
    pub(crate) name: CString,
}

impl LocalSource {
    fn open_as(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        fs::openat(&self.directory, &self.name, flags, Mode::empty())
    }
}

impl Source for LocalSource {
    fn facts(&self) -> io::Result<Facts> {
        facts_of(
            &self.directory,
            &self.name,
            &self.directory.stat(&self.name)?,
        )
    }

    fn listing(&self) -> io::Result<Box<dyn Listing>> {
        let directory = self.directory.open_in(&self.name)?;
        Ok(Box::new(LocalListing(directory)))
    }

    fn read_link(&self) -> io::Result<Vec<u8>> {
        let target = fs::readlinkat(&self.directory, &self.name, Vec::new())?;
        Ok(target.into_bytes())
    }

    fn xattrs(&self) -> io::Result<Xattrs> {
        match self.facts()?.attributes.kind {
            FileKind::Regular | FileKind::Directory => {}
            // What cannot be opened has no other attributes that could be kept elsewhere.
            FileKind::Symlink | FileKind::Special(_) => return Ok(Vec::new()),
        }
        let all = local::attributes(self.open_as(OFlags::empty())?)?;
        let owned = all.into_iter();
        Ok(owned
            .map(|(name, value)| (name.into_bytes(), value))
            .collect())
    }

    fn open(&self) -> io::Result<Box<dyn Content>> {
        let seen = self.directory.stat(&self.name)?;
        let file = self.open_as(OFlags::empty())?;
        stat_of_same(&file, &seen)?;
        Ok(Box::new(LocalContent(file)))
    }
}

/// An open directory of which names are read.
struct LocalListing(Arc<Directory>);

impl Listing for LocalListing {
    fn next_page(&self) -> io::Result<Vec<Found>> {
        let page = self.0.next_page()?.into_iter();
        Ok(page
            .map(|entry| Found {
                // What cannot be looked at fails when it is copied.
                is_directory: self
                    .0
                    .kind(&entry)
                    .is_ok_and(|kind| kind == FileType::Directory),
                file: Box::new(LocalSource {
                    directory: Arc::clone(&self.0),
                    name: entry.name.clone(),
                }),
                name: entry.name,
            })
            .collect())
    }
}

struct LocalContent(OwnedFd);

impl Content for LocalContent {
    fn read_at(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        let mut buffer = vec![0; length];
        let count = read_fully(&self.0, &mut buffer, offset)?;
        buffer.truncate(count);
        Ok(buffer.into())
    }

    fn has_changed(&self, seen: &Attributes) -> io::Result<bool> {
        let now = facts(&fs::fstat(&self.0)?).attributes;
        Ok(now.size != seen.size || now.modified != seen.modified)
    }
}

/// An open directory that is copied into.
#[derive(Debug)]
pub(crate) struct LocalTarget(pub(crate) Arc<Directory>);

impl LocalTarget {
    fn named(&self, name: &CStr) -> LocalSource {
        LocalSource {
            directory: Arc::clone(&self.0),
            name: name.to_owned(),
        }
    }

    fn under_name(
        &self,
        name: &CStr,
        is_taken: bool,
        make: &dyn Fn(&CStr) -> rustix::io::Result<()>,
    ) -> io::Result<()> {
        Ok(make_under(&self.0, (name, is_taken), make)?)
    }

    /// A file that has its name at once, which is free.
    fn begin_new(&self, name: &CStr) -> io::Result<Box<dyn Written>> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?;
        // What its directory handed down.
        local::remove_access_list(&file)?;
        let id = FileId::from(&fs::fstat(&file)?);
        let name = Unfinished::new(&self.0, name.to_owned(), id);
        Ok(Box::new(LocalNew { name, file }))
    }

    /// A file in the place of a directory, which goes at once, or of what else has its name.
    fn begin_instead(&self, name: &CStr) -> io::Result<Box<dyn Written>> {
        match self.remove_directory(name) {
            Err(error) if errno_of(&error) == Some(Errno::NOTDIR) => {
                let written = self.begin_temporary(name)?;
                local::remove_access_list(&written.file)?;
                Ok(Box::new(written))
            }
            removed => removed.and_then(|()| self.begin_new(name)),
        }
    }

    /// A file that takes the place of what has its name when it is whole.
    fn begin_temporary(&self, name: &CStr) -> io::Result<LocalWritten> {
        Ok(LocalWritten {
            file: Temporary::create(&self.0, name)?,
            name: name.to_owned(),
        })
    }
}

impl Target for LocalTarget {
    fn keeps(&self) -> Keeps {
        Keeps {
            metadata: true,
            links: true,
            holes: true,
        }
    }

    fn learn(&self) -> io::Result<()> {
        Ok(())
    }

    fn facts(&self) -> io::Result<Facts> {
        Ok(facts(&self.0.own_stat()?))
    }

    fn find(&self, name: &CStr) -> io::Result<Option<Facts>> {
        Ok(self.0.stat_if_any(name)?.as_ref().map(facts))
    }

    fn source(&self, name: &CStr) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(self.named(name)))
    }

    fn as_source(&self) -> Box<dyn Source> {
        Box::new(self.named(c"."))
    }

    fn open_in(&self, name: &CStr) -> io::Result<Arc<dyn Target>> {
        Ok(Arc::new(Self(self.0.open_in(name)?)))
    }

    fn make_directory(&self, name: &CStr, permissions: u16) -> io::Result<Arc<dyn Target>> {
        fs::mkdirat(&self.0, name, Mode::from_raw_mode(permissions.into()))?;
        self.open_in(name)
    }

    fn create(&self, name: &CStr, _existing: Option<&Facts>) -> io::Result<Box<dyn Written>> {
        Ok(Box::new(self.begin_temporary(name)?))
    }

    fn begin(&self, name: &CStr, may_replace: bool) -> io::Result<Box<dyn Written>> {
        match self.begin_new(name) {
            Err(error) if was_taken(&error) && may_replace => self.begin_instead(name),
            begun => begun,
        }
    }

    fn room(&self) -> Option<u64> {
        let room = fs::fstatvfs(&self.0).ok()?;
        // A file system that does not tell its size has room.
        (room.f_blocks > 0).then(|| room.f_bavail.saturating_mul(room.f_frsize))
    }

    fn clear_way(&self, name: &CStr) {
        clear_way(&self.0, name);
    }

    fn make_other(
        &self,
        name: &CStr,
        kind: NewKind<'_>,
        permissions: u16,
        is_taken: bool,
    ) -> io::Result<()> {
        let mode = Mode::from_raw_mode(permissions.into());
        let (kind, device) = match kind {
            NewKind::Symlink(target) => {
                let target = c_string(target)?;
                return self.under_name(name, is_taken, &|under| {
                    fs::symlinkat(&target, &self.0, under)
                });
            }
            NewKind::Special(SpecialFile::Pipe) => (FileType::Fifo, 0),
            NewKind::Special(SpecialFile::Socket) => (FileType::Socket, 0),
            NewKind::Special(SpecialFile::CharacterDevice(device)) => {
                (FileType::CharacterDevice, device.0)
            }
            NewKind::Special(SpecialFile::BlockDevice(device)) => (FileType::BlockDevice, device.0),
            NewKind::Regular | NewKind::Directory => return Err(Errno::INVAL.into()),
        };
        self.under_name(name, is_taken, &|under| {
            fs::mknodat(&self.0, under, kind, mode, device.into())
        })
    }

    fn link(&self, from: &dyn Target, first: &CStr, name: &CStr, is_taken: bool) -> io::Result<()> {
        let from = from.as_local().ok_or(Errno::XDEV)?;
        self.under_name(name, is_taken, &|under| {
            fs::linkat(&from.0, first, &self.0, under, AtFlags::empty())
        })
    }

    fn dress(&self, dress: &Dress, lost: Lost<'_>) -> io::Result<()> {
        dress_open(&self.0, dress, lost)
    }

    fn dress_named(
        &self,
        (name, kind): (&CStr, FileKind),
        dress: &Dress,
        lost: Lost<'_>,
    ) -> io::Result<()> {
        let stat = self.0.stat(name)?;
        // What took the place of what was made is another's.
        if facts(&stat).attributes.kind != kind {
            return Err(Errno::STALE.into());
        }
        let kind = kind_of(&stat);
        if kind == FileType::RegularFile {
            return dress_open(self.named(name).open_as(OFlags::empty())?, dress, lost);
        }
        let mut attempts = Attempts::default();
        let handle = Handle::of_kind(&self.0, name, kind)?;
        if let Some(owner) = dress.owner {
            attempts.note(handle.give(owner));
        }
        let mut lists = dress.xattrs.iter().flatten();
        let list = lists.find(|(name, _)| name == ACCESS_LIST);
        let list = list.map(|(_, value)| value.as_slice());
        if dress.adds_xattrs && kind != FileType::Symlink {
            attempts.note(handle.set_access_list(list));
        }
        if let Some(permissions) = dress.permissions.filter(|_| kind != FileType::Symlink) {
            let mode = Mode::from_raw_mode(permissions.into());
            attempts.note(handle.set_mode(mode, list));
        }
        if let Some(times) = dress.times {
            attempts.note(local::date_in(&self.0, name, &timestamps(times)));
        }
        Ok(attempts.end()?)
    }

    fn is_mount_point(&self, name: &CStr) -> io::Result<bool> {
        Ok(self.0.is_mount_point(name)?)
    }

    fn remove_file(&self, name: &CStr) -> io::Result<()> {
        Ok(self.0.remove_file(name)?)
    }

    fn remove_directory(&self, name: &CStr) -> io::Result<()> {
        Ok(self.0.remove_directory(name)?)
    }

    fn as_local(&self) -> Option<&Self> {
        Some(self)
    }
}

struct LocalWritten {
    file: Temporary,
    name: CString,
}

impl Written for LocalWritten {
    fn write_at(&self, offset: u64, data: Bytes) -> io::Result<()> {
        write_fully(&self.file, &data, offset)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        Ok(fs::ftruncate(&self.file, size)?)
    }

    fn dress(&mut self, dress: &Dress, lost: Lost<'_>) -> io::Result<()> {
        dress_open(&self.file, dress, lost)
    }

    fn finish(&mut self) -> io::Result<()> {
        local::flush(&self.file)
    }

    fn content(&self) -> io::Result<Box<dyn Content>> {
        // From the disk, not from what was just written.
        fs::fdatasync(&self.file)?;
        fs::fadvise(&self.file, 0, None, fs::Advice::DontNeed)?;
        let file = self.file.as_fd().try_clone_to_owned()?;
        Ok(Box::new(LocalContent(file)))
    }

    fn publish(self: Box<Self>) -> io::Result<()> {
        self.file.publish(&self.name)
    }
}

/// A file that has its name while it is written.
struct LocalNew {
    name: Unfinished,
    file: OwnedFd,
}

impl Written for LocalNew {
    fn write_at(&self, offset: u64, data: Bytes) -> io::Result<()> {
        write_fully(&self.file, &data, offset)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        Ok(fs::ftruncate(&self.file, size)?)
    }

    fn dress(&mut self, dress: &Dress, lost: Lost<'_>) -> io::Result<()> {
        dress_open(&self.file, dress, lost)
    }

    fn finish(&mut self) -> io::Result<()> {
        local::flush(&self.file)
    }

    fn content(&self) -> io::Result<Box<dyn Content>> {
        Ok(Box::new(LocalContent(self.file.try_clone()?)))
    }

    fn publish(self: Box<Self>) -> io::Result<()> {
        let Self { file, mut name } = *self;
        local::close(file)?;
        name.finish();
        Ok(())
    }
}

fn dress_open(file: impl AsFd, dress: &Dress, lost: Lost<'_>) -> io::Result<()> {
    let mut attempts = Attempts::default();
    let withheld = dress
        .owner
        .map_or(Mode::empty(), |owner| attempts.give(&file, owner));
    let named = |(name, value): &(Vec<u8>, Vec<u8>)| Some((c_string(name).ok()?, value.clone()));
    let wanted = dress.xattrs.iter().flatten().filter_map(named).collect();
    if dress.xattrs.is_some() {
        let existing = match dress.adds_xattrs {
            true => Ok(Vec::new()),
            false => local::attributes(&file),
        };
        let set = |existing| local::set_attributes(&file, &wanted, &existing);
        if attempts.note(existing.and_then(set)) == Some(false) {
            lost(LOST_ATTRIBUTES);
        }
    }
    if let Some(permissions) = dress.permissions {
        let mode = Mode::from_raw_mode(permissions.into()).difference(withheld);
        attempts.note(local::set_mode(&file, mode, &wanted));
    }
    if let Some(times) = dress.times {
        attempts.note(fs::futimens(&file, &timestamps(times)));
    }
    Ok(attempts.end()?)
}

/// What the system says of a file; of one with several names also what tells it from another one that gets its number.
pub(crate) fn facts_of(directory: &Directory, name: &CStr, stat: &Stat) -> io::Result<Facts> {
    let mut facts = facts(stat);
    if facts.attributes.kind != FileKind::Directory && facts.attributes.links > 1 {
        facts.attributes.generation = directory.origin(name, stat)?.generation();
    }
    Ok(facts)
}

/// What the system says of a file.
pub(crate) fn facts(stat: &Stat) -> Facts {
    let device = Device(u32::try_from(stat.st_rdev).unwrap_or(u32::MAX));
    let kind = match kind_of(stat) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Special(SpecialFile::Pipe),
        FileType::Socket => FileKind::Special(SpecialFile::Socket),
        FileType::CharacterDevice => FileKind::Special(SpecialFile::CharacterDevice(device)),
        FileType::BlockDevice => FileKind::Special(SpecialFile::BlockDevice(device)),
        FileType::RegularFile | FileType::Unknown => FileKind::Regular,
    };
    let modified = time((stat.st_mtime, stat.st_mtime_nsec));
    Facts {
        device: stat.st_dev,
        attributes: Attributes {
            permissions: (stat.st_mode & 0o7777) as u16,
            links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: stat.st_size.cast_unsigned(),
            allocated: stat.st_blocks.cast_unsigned() * 512,
            accessed: time((stat.st_atime, stat.st_atime_nsec)),
            modified,
            ..Attributes::new(Inode(stat.st_ino), kind, modified)
        },
    }
}

fn time((seconds, nanoseconds): (i64, u64)) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let whole = match seconds < 0 {
        true => SystemTime::UNIX_EPOCH - whole,
        false => SystemTime::UNIX_EPOCH + whole,
    };
    whole + Duration::from_nanos(nanoseconds)
}

fn timespec(time: SystemTime) -> Timespec {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Timespec {
            tv_sec: since.as_secs().cast_signed(),
            tv_nsec: since.subsec_nanos().into(),
        },
        Err(before) => {
            let before = before.duration();
            let (seconds, rest) = (before.as_secs(), u64::from(before.subsec_nanos()));
            let borrowed = u64::from(rest > 0);
            Timespec {
                tv_sec: -(seconds + borrowed).cast_signed(),
                tv_nsec: (borrowed * NANOSECONDS - rest).cast_signed(),
            }
        }
    }
}

fn timestamps((accessed, modified): (SystemTime, SystemTime)) -> Timestamps {
    Timestamps {
        last_access: timespec(accessed),
        last_modification: timespec(modified),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_become_whole_takes_none_with_it_that_replaced_it() {
        let folder = tempfile::tempdir().unwrap();
        let target = LocalTarget(Directory::open(folder.path()).unwrap());
        let cut_off = target.begin(c"file", true).unwrap();
        let other = target.begin(c"file", true).unwrap();
        other.write_at(0, Bytes::from_static(b"whole")).unwrap();
        other.publish().unwrap();
        drop(cut_off);
        assert!(target.find(c"file").unwrap().is_some());
        drop(target.begin(c"alone", true).unwrap());
        assert!(target.find(c"alone").unwrap().is_none());
    }

    #[test]
    fn another_file_with_the_number_of_one_before_has_another_generation() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let made = || {
            for name in ["one", "other"] {
                let _ = std::fs::remove_file(folder.path().join(name));
            }
            std::fs::write(folder.path().join("one"), "x").unwrap();
            std::fs::hard_link(folder.path().join("one"), folder.path().join("other")).unwrap();
            let source = |name: &CStr| LocalSource {
                directory: Arc::clone(&directory),
                name: name.to_owned(),
            };
            let facts = [c"one", c"other"].map(|name| source(name).facts().unwrap());
            let generations = facts.map(|facts| facts.attributes.generation);
            assert_eq!(generations[0], generations[1]);
            generations[0]
        };
        // The clock of a file system may stand still for some milliseconds.
        let first = made();
        assert!((0..10_000).any(|_| made() != first));
    }

    #[test]
    fn times_before_1970_come_back_as_they_were() {
        for given in [(-1, 0), (-1, 999_999_999), (-5, 1), (0, 7), (1_234, 0)] {
            let spec = timespec(time(given));
            assert_eq!((spec.tv_sec, spec.tv_nsec.cast_unsigned()), given);
        }
    }
}
