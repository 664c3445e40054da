//! An open directory.
//!
//! Everything is named by one name in it, and no link is followed: whoever renames meanwhile what leads here,
//! or puts a link in the place of something, does not lead a tool out of the tree.

use std::{
    ffi::{CStr, CString, OsStr},
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::Arc,
};

use penstock_base::Mutex;
use rustix::{
    fs::{self, AtFlags, FileType, Mode, OFlags, RawDir, Stat, StatxAttributes, StatxFlags, statx},
    io::Errno,
};

use super::metadata::another;

/// Bytes of names that are listed at once.
const PAGE_BYTES: usize = 32 << 10;

/// When a file was made; where its file system does not tell, when anything of it changed last, which other names change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin(i64, u32);

impl Origin {
    /// As the generation of an inode.
    pub(crate) fn generation(self) -> u32 {
        self.0 as u32 ^ self.1.rotate_left(2)
    }
}

/// What a listing tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: CString,
    /// As the directory has it; unknown on some file systems.
    pub(crate) kind: FileType,
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    descriptor: OwnedFd,
    /// Its position is the descriptor's: one lists at a time.
    listing: Mutex<()>,
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Directory {
    /// Opens a directory that a user named: links in the path are followed.
    pub(crate) fn open(path: &Path) -> rustix::io::Result<Arc<Self>> {
        let flags = DIRECTORY.difference(OFlags::NOFOLLOW);
        fs::open(path, flags, Mode::empty()).map(Self::new)
    }

    /// Opens a directory in this one. Fails with `LOOP` or `NOTDIR` if it is something else.
    pub(crate) fn open_in(&self, name: &CStr) -> rustix::io::Result<Arc<Self>> {
        fs::openat(self, name, DIRECTORY, Mode::empty()).map(Self::new)
    }

    fn new(descriptor: OwnedFd) -> Arc<Self> {
        Arc::new(Self {
            descriptor,
            listing: Mutex::new(()),
        })
    }

    /// The next names; none at the end.
    pub(crate) fn next_page(&self) -> rustix::io::Result<Vec<Entry>> {
        let _one = self.listing.lock();
        let mut space = [MaybeUninit::uninit(); PAGE_BYTES];
        let mut listing = RawDir::new(&self.descriptor, &mut space);
        let mut page = Vec::new();
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                page.push(Entry {
                    name: name.to_owned(),
                    kind: entry.file_type(),
                });
            }
            // A page of nothing but these two is not the end.
            if listing.is_buffer_empty() && !page.is_empty() {
                break;
            }
        }
        Ok(page)
    }

    /// All names, for who must have them in order.
    pub(crate) fn list(&self) -> rustix::io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        loop {
            let page = self.next_page()?;
            if page.is_empty() {
                return Ok(entries);
            }
            entries.extend(page);
        }
    }

    /// Lists from the beginning again.
    pub(crate) fn rewind(&self) -> rustix::io::Result<()> {
        fs::seek(self, fs::SeekFrom::Start(0)).map(drop)
    }

    /// What is known of `name`; of a link, not of what it leads to.
    pub(crate) fn stat(&self, name: &CStr) -> rustix::io::Result<Stat> {
        fs::statat(self, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// The same, or none if there is no such name.
    pub(crate) fn stat_if_any(&self, name: &CStr) -> rustix::io::Result<Option<Stat>> {
        match self.stat(name) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What is known of the directory itself.
    pub(crate) fn own_stat(&self) -> rustix::io::Result<Stat> {
        fs::fstat(self)
    }

    /// The kind of `name`, which is asked for where the listing did not tell.
    pub(crate) fn kind(&self, entry: &Entry) -> rustix::io::Result<FileType> {
        match entry.kind {
            FileType::Unknown => self.stat(&entry.name).map(|stat| kind_of(&stat)),
            known => Ok(known),
        }
    }

    /// Whether another file system, or another part of the same one, is mounted on `name`. Kernels before 5.8 tell
    /// the first only.
    pub(crate) fn is_mount_point(&self, name: &CStr) -> rustix::io::Result<bool> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let found = statx(self, name, flags, StatxFlags::TYPE)?;
        let told = StatxAttributes::MOUNT_ROOT;
        if found.stx_attributes_mask.contains(told) {
            return Ok(found.stx_attributes.contains(told));
        }
        Ok(self.own_stat()?.st_dev != self.stat(name)?.st_dev)
    }

    /// What tells the file that was seen under `name` from another one that gets its number.
    pub(crate) fn origin(&self, name: &CStr, seen: &Stat) -> io::Result<Origin> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let asked = StatxFlags::INO | StatxFlags::CTIME | StatxFlags::BTIME;
        let found = statx(self, name, flags, asked)?;
        if found.stx_ino != seen.st_ino {
            return Err(another());
        }
        let is_told = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        let time = match is_told {
            true => found.stx_btime,
            false => found.stx_ctime,
        };
        Ok(Origin(time.tv_sec, time.tv_nsec))
    }

    /// Removes `name`, which is no directory.
    pub(crate) fn remove_file(&self, name: &CStr) -> rustix::io::Result<()> {
        fs::unlinkat(self, name, AtFlags::empty())
    }

    /// Removes the empty directory `name`.
    pub(crate) fn remove_directory(&self, name: &CStr) -> rustix::io::Result<()> {
        fs::unlinkat(self, name, AtFlags::REMOVEDIR)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The kind of file that `stat` describes.
pub(crate) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// A path that a user gave, as a name in an open directory.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) directory: Arc<Directory>,
    pub(crate) name: CString,
}

impl Place {
    /// Opens what is above the last name of `path`. A path that ends in `.` or `..` has no last name; `.` stands for
    /// it.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let Some((above, name)) = split(path) else {
            return Ok(Self {
                directory: Directory::open(path)?,
                name: c".".to_owned(),
            });
        };
        Ok(Self {
            directory: Directory::open(above)?,
            name: c_string(name)?,
        })
    }

    /// The same, but a link with a `/` behind it is what it leads to, as copies have it.
    pub(crate) fn through(path: &Path) -> io::Result<Self> {
        let place = Self::of(path)?;
        let found = match path.as_os_str().as_bytes().ends_with(b"/") {
            true => place.directory.stat_if_any(&place.name)?,
            false => None,
        };
        match found.as_ref().map(kind_of) {
            Some(FileType::Symlink) => Ok(Self {
                directory: Directory::open(path)?,
                name: c".".to_owned(),
            }),
            _ => Ok(place),
        }
    }
}

/// What is above the last name of `path`, and that name; none if it ends in `.` or `..` or is `/`.
fn split(path: &Path) -> Option<(&Path, &[u8])> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/')? + 1;
    let begin = bytes[..end].iter().rposition(|byte| *byte == b'/');
    let name = &bytes[begin.map_or(0, |begin| begin + 1)..end];
    let above = match begin {
        None => Path::new("."),
        Some(0) => Path::new("/"),
        Some(begin) => Path::new(OsStr::from_bytes(&bytes[..begin])),
    };
    (name != b"." && name != b"..").then_some((above, name))
}

/// The last name of `path`, whatever it leads to; none if it has none.
pub(crate) fn last_name(path: &Path) -> io::Result<Option<CString>> {
    split(path).map(|(_, name)| c_string(name)).transpose()
}

/// A name for the system. Fails if it holds a NUL.
pub(crate) fn c_string(name: &[u8]) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}
