//! What copies and archives ask of the tree that they read and of the one that they write, wherever they are: files of
//! this machine ([`local`]) or of a volume ([`volume`]).
//!
//! A file on its way ([`Written`]) is published or gone. Bytes may come from several threads at any place where the tree
//! keeps holes ([`Keeps::holes`]), and else in their order.

pub(crate) mod local;
pub(crate) mod volume;

use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    fmt, io,
    sync::Arc,
    time::SystemTime,
};

use bytes::Bytes;
use penstock_base::Mutex;
use penstock_vfs::{Attributes, FileKind, NewKind};
use rustix::io::Errno;

use crate::{
    Report,
    volume::{VolumeFile, errno_of},
};

/// What is said where names of one file become files.
pub(crate) const LOST_LINKS: &str = "hard links: each name became a file of its own";

/// What is said where extended attributes are not taken.
pub(crate) const LOST_ATTRIBUTES: &str = "access lists or other extended attributes";

/// Extended attributes by name.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Which file something is, among all trees of one copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    pub(crate) device: u64,
    pub(crate) number: u64,
}

/// What is known of a file.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) attributes: Attributes,
    /// The file system or volume that it is in.
    pub(crate) device: u64,
}

impl Facts {
    pub(crate) fn key(&self) -> FileKey {
        FileKey {
            device: self.device,
            number: self.attributes.inode.0,
        }
    }
}

/// A file of any kind that is copied.
pub(crate) trait Source: Send + Sync + fmt::Debug {
    /// What it is; of a link, not of what it leads to.
    fn facts(&self) -> io::Result<Facts>;

    /// Lists a directory from its beginning.
    fn listing(&self) -> io::Result<Box<dyn Listing>>;

    /// The target of a symbolic link.
    fn read_link(&self) -> io::Result<Vec<u8>>;

    /// Its extended attributes; none where there are no such.
    fn xattrs(&self) -> io::Result<Xattrs>;

    /// Opens a regular file.
    fn open(&self) -> io::Result<Box<dyn Content>>;
}

/// A name in a directory that is copied.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) name: CString,
    pub(crate) is_directory: bool,
    pub(crate) file: Box<dyn Source>,
}

/// A directory that is being listed.
pub(crate) trait Listing: Send + Sync {
    /// The next names; none at the end.
    fn next_page(&self) -> io::Result<Vec<Found>>;
}

/// An open file.
pub(crate) trait Content: Send + Sync {
    /// Up to `length` bytes; fewer only at the end.
    fn read_at(&self, offset: u64, length: usize) -> io::Result<Bytes>;

    /// Whether it was written to since it was seen.
    fn has_changed(&self, seen: &Attributes) -> io::Result<bool>;

    /// It as a file of a volume.
    fn as_volume(&self) -> Option<&VolumeFile> {
        None
    }
}

/// What a copy is to have besides its content; what is none is left as it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dress {
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) permissions: Option<u16>,
    /// When it was read and written last.
    pub(crate) times: Option<(SystemTime, SystemTime)>,
    pub(crate) xattrs: Option<Xattrs>,
    /// Other attributes than these stay.
    pub(crate) adds_xattrs: bool,
}

impl Dress {
    pub(crate) fn is_nothing(&self) -> bool {
        let Self {
            owner,
            permissions,
            times,
            xattrs,
            adds_xattrs: _,
        } = self;
        owner.is_none() && permissions.is_none() && times.is_none() && xattrs.is_none()
    }
}

/// Who is told what the target does not keep.
pub(crate) type Lost<'a> = &'a (dyn Fn(&str) + Sync);

/// What was told that a target does not keep: each kind once.
pub(crate) struct Losses<'a> {
    report: &'a Report,
    told: Mutex<HashSet<String>>,
}

impl<'a> Losses<'a> {
    pub(crate) fn new(report: &'a Report) -> Self {
        Self {
            report,
            told: Mutex::default(),
        }
    }

    /// Tells that the target keeps nothing of a kind.
    pub(crate) fn tell(&self, kind: &str) {
        if self.told.lock().insert(kind.to_owned()) {
            self.report
                .remark(format_args!("the target does not keep {kind}"));
        }
    }

    /// Tells if the target keeps no owners, modes and times.
    pub(crate) fn check_metadata(&self, target: &dyn Target) {
        if !target.keeps().metadata {
            self.tell("owners, modes and times: posix-metadata is off");
        }
    }
}

/// Whether a name was to be free and was not.
pub(crate) fn was_taken(error: &io::Error) -> bool {
    errno_of(error) == Some(Errno::EXIST)
}

/// What a target can keep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keeps {
    /// Owners, modes and times.
    pub(crate) metadata: bool,
    /// Several names of one file.
    pub(crate) links: bool,
    /// Nothing where nothing was written: bytes are taken at any place, in any order.
    pub(crate) holes: bool,
}

/// A directory that is copied into.
pub(crate) trait Target: Send + Sync + fmt::Debug {
    fn keeps(&self) -> Keeps;

    /// Asks for everything in it at once, where that spares a question for each name.
    fn learn(&self) -> io::Result<()>;

    /// What is known of the directory itself.
    fn facts(&self) -> io::Result<Facts>;

    /// What is known of a name in it.
    fn find(&self, name: &CStr) -> io::Result<Option<Facts>>;

    /// A file in it, as it would be copied.
    fn source(&self, name: &CStr) -> io::Result<Box<dyn Source>>;

    /// The directory itself likewise.
    fn as_source(&self) -> Box<dyn Source>;

    fn open_in(&self, name: &CStr) -> io::Result<Arc<dyn Target>>;

    /// Makes a directory in it, with these rights until it is dressed.
    fn make_directory(&self, name: &CStr, permissions: u16) -> io::Result<Arc<dyn Target>>;

    /// Begins a file that takes the place of what is there when it is published.
    fn create(&self, name: &CStr, existing: Option<&Facts>) -> io::Result<Box<dyn Written>>;

    /// Begins a file that has no attributes yet, in the place of what is there if that may go, of a directory if it is
    /// empty. On this machine it has a name that is free at once, until it is dropped, and one that is taken when it is
    /// published.
    fn begin(&self, name: &CStr, may_replace: bool) -> io::Result<Box<dyn Written>>;

    /// Bytes for which there is room, where that is known.
    fn room(&self) -> Option<u64> {
        None
    }

    /// Removes the content that a copy which was killed was about to give this name, before something without content
    /// takes it. What cannot be removed stays. A volume keeps no
    /// lock that would tell what another copy is writing now.
    fn clear_way(&self, name: &CStr);

    /// Makes what has no content, in the place of what is there.
    fn make_other(
        &self,
        name: &CStr,
        kind: NewKind<'_>,
        permissions: u16,
        is_taken: bool,
    ) -> io::Result<()>;

    /// Gives what is called `first` in the directory `from` the name `name` too, in the place of what is there.
    fn link(&self, from: &dyn Target, first: &CStr, name: &CStr, is_taken: bool) -> io::Result<()>;

    /// Gives the directory itself what it is to have.
    fn dress(&self, dress: &Dress, lost: Lost<'_>) -> io::Result<()>;

    /// The same of a name in it, which stands for no directory. Fails if what has the name by now is of another kind.
    fn dress_named(
        &self,
        named: (&CStr, FileKind),
        dress: &Dress,
        lost: Lost<'_>,
    ) -> io::Result<()>;

    /// Removes a name, which is no directory or an empty one.
    fn remove_any(&self, name: &CStr) -> io::Result<()> {
        match self.remove_file(name) {
            Err(error) if errno_of(&error) == Some(Errno::ISDIR) => self.remove_directory(name),
            other => other,
        }
    }

    /// Whether another file system is mounted on a name in it.
    fn is_mount_point(&self, _name: &CStr) -> io::Result<bool> {
        Ok(false)
    }

    fn remove_file(&self, name: &CStr) -> io::Result<()>;

    fn remove_directory(&self, name: &CStr) -> io::Result<()>;

    /// This directory as one of files of this machine.
    fn as_local(&self) -> Option<&local::LocalTarget> {
        None
    }

    /// This directory as one of a volume.
    fn as_volume(&self) -> Option<&volume::VolumeTarget> {
        None
    }
}

/// A file on its way. Dropped before it is published, nothing of it is there.
pub(crate) trait Written: Send + Sync {
    fn write_at(&self, offset: u64, data: Bytes) -> io::Result<()>;

    /// Copies up to `length` bytes from the same place of `source` without reading them. Returns how many: none at its end,
    /// and where bytes have to be carried.
    fn copy_from(&self, _source: &dyn Content, _offset: u64, _length: u64) -> io::Result<u64> {
        Ok(0)
    }

    /// Makes it so long; what was not written is zeros.
    fn set_size(&self, size: u64) -> io::Result<()>;

    fn dress(&mut self, dress: &Dress, lost: Lost<'_>) -> io::Result<()>;

    /// Ends what was written, and says whether that worked.
    fn finish(&mut self) -> io::Result<()>;

    /// What was written, from where it is kept, once it is finished.
    fn content(&self) -> io::Result<Box<dyn Content>>;

    /// Gives what is finished its name.
    fn publish(self: Box<Self>) -> io::Result<()>;
}
