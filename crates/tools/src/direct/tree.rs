//! What a copy asks of the tree that it reads and of the one that it writes, wherever they are.

use std::{
    ffi::{CStr, CString},
    fmt, io,
    sync::Arc,
    time::SystemTime,
};

use bytes::Bytes;
use penstock_vfs::{Attributes, NewKind};

/// Extended attributes by name.
pub(super) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Which file something is, among all trees of one copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileKey {
    pub(super) device: u64,
    pub(super) number: u64,
}

/// What is known of a file.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) attributes: Attributes,
    /// The file system or volume that it is in.
    pub(super) device: u64,
}

impl Facts {
    pub(super) fn key(&self) -> FileKey {
        FileKey {
            device: self.device,
            number: self.attributes.inode.0,
        }
    }
}

/// A file of any kind that is copied.
pub(super) trait Source: Send + Sync + fmt::Debug {
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
pub(super) struct Found {
    pub(super) name: CString,
    pub(super) is_directory: bool,
    pub(super) file: Box<dyn Source>,
}

/// A directory that is being listed.
pub(super) trait Listing: Send + Sync {
    /// The next names; none at the end.
    fn next_page(&self) -> io::Result<Vec<Found>>;
}

/// An open file.
pub(super) trait Content: Send + Sync {
    /// Up to `length` bytes; fewer only at the end.
    fn read_at(&self, offset: u64, length: usize) -> io::Result<Bytes>;

    /// Whether it was written to since it was seen.
    fn has_changed(&self, seen: &Attributes) -> io::Result<bool>;
}

/// What a copy is to have besides its content; what is none is left as it is.
#[derive(Debug, Clone, Default)]
pub(super) struct Dress {
    pub(super) owner: Option<(u32, u32)>,
    pub(super) permissions: Option<u16>,
    /// When it was read and written last.
    pub(super) times: Option<(SystemTime, SystemTime)>,
    pub(super) xattrs: Option<Xattrs>,
}

impl Dress {
    pub(super) fn is_nothing(&self) -> bool {
        let Self {
            owner,
            permissions,
            times,
            xattrs,
        } = self;
        owner.is_none() && permissions.is_none() && times.is_none() && xattrs.is_none()
    }
}

/// Who is told what the target does not keep.
pub(super) type Lost<'a> = &'a (dyn Fn(&str) + Sync);

/// What a target can keep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keeps {
    /// Owners, modes and times.
    pub(super) metadata: bool,
    /// Several names of one file.
    pub(super) links: bool,
    /// Nothing where nothing was written.
    pub(super) holes: bool,
}

/// A directory that is copied into.
pub(super) trait Target: Send + Sync + fmt::Debug {
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

    /// Makes a directory in it into which only its owner looks.
    fn make_directory(&self, name: &CStr) -> io::Result<Arc<dyn Target>>;

    /// Begins a file that takes the place of what is there when it is published.
    fn create(&self, name: &CStr, existing: Option<&Facts>) -> io::Result<Box<dyn Written>>;

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

    /// The same of a name in it, which stands for no directory.
    fn dress_named(&self, name: &CStr, dress: &Dress, lost: Lost<'_>) -> io::Result<()>;

    /// Whether another file system is mounted on a name in it.
    fn is_mount_point(&self, _name: &CStr) -> io::Result<bool> {
        Ok(false)
    }

    fn remove_file(&self, name: &CStr) -> io::Result<()>;

    fn remove_directory(&self, name: &CStr) -> io::Result<()>;

    /// This directory as one of files of this machine.
    fn as_local(&self) -> Option<&super::local::LocalTarget> {
        None
    }

    /// This directory as one of a volume.
    fn as_volume(&self) -> Option<&super::volume::VolumeTarget> {
        None
    }
}

/// A file on its way. Dropped before it is published, nothing of it is there.
pub(super) trait Written: Send {
    fn write_at(&mut self, offset: u64, data: Bytes) -> io::Result<()>;

    /// Makes it so long; what was not written is zeros.
    fn set_size(&mut self, size: u64) -> io::Result<()>;

    fn dress(&mut self, dress: &Dress, lost: Lost<'_>) -> io::Result<()>;

    /// Ends what was written, and says whether that worked.
    fn finish(&mut self) -> io::Result<()>;

    /// What was written, from where it is kept, once it is finished.
    fn content(&self) -> io::Result<Box<dyn Content>>;

    /// Gives what is finished its name.
    fn publish(self: Box<Self>) -> io::Result<()>;
}
