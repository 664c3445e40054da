//! The nouns of a file system.

use std::{
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use penstock_base::{FileName, LocalFile};

/// The number of a file within its volume, never reused while the volume is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode(pub u64);

impl Inode {
    /// The root directory, as FUSE fixes it.
    pub const ROOT: Self = Self(1);
}

/// An open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HandleId(pub u64);

/// Where the bytes of a write go.
///
/// The write itself says it, not the handle: a kernel writes its cache back, each page to its place,
/// through whatever handle may write, and a program may change its mind about appending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePlace {
    /// To this offset.
    At(u64),
    /// To the end of the file, wherever that is; the writer believes that it is here.
    End(u64),
    /// The same of one of several pieces, which come one after the other. Where they may overtake one
    /// another, for nobody waits for each, one that comes behind those it belongs in front of fails.
    EndInPieces(u64),
}

impl WritePlace {
    /// Where the writer believes that the bytes go.
    pub fn offset(self) -> u64 {
        let (Self::At(offset) | Self::End(offset) | Self::EndInPieces(offset)) = self;
        offset
    }
}

/// On whose behalf an operation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

/// What kind of file an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FileKind {
    Regular,
    Directory,
    Symlink,
    /// A name for something that is no file. A door never opens it: what is behind the name is
    /// the business of whoever runs the program that does.
    Special(SpecialFile),
}

/// What a name may stand for that is no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum SpecialFile {
    Pipe,
    Socket,
    CharacterDevice(Device),
    BlockDevice(Device),
}

/// Which device: major and minor number as Linux packs them into 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Device(pub u32);

/// What `stat` shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Which file.
    pub inode: Inode,
    /// What kind of file.
    pub kind: FileKind,
    /// Permission bits, the low twelve bits of a mode.
    pub permissions: u16,
    /// Names that lead to it.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Last read.
    pub accessed: SystemTime,
    /// Last change of the content.
    pub modified: SystemTime,
    /// Last change of anything.
    pub changed: SystemTime,
}

/// An inode with how long it may be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The file.
    pub attributes: Attributes,
    /// How long the name may be taken to lead here.
    pub entry_ttl: Duration,
    /// How long the attributes may be taken as true.
    pub attributes_ttl: Duration,
}

/// The answer to a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// The name leads to a file. The caller holds one reference until it forgets it.
    Found(Entry),
    /// There is no such name, and for this long that may be believed.
    Absent(Duration),
}

/// What an open handle may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Access {
    Read,
    Write,
    ReadWrite,
}

impl Access {
    /// Whether data may be read.
    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    /// Whether data may be written.
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// What the handle may do.
    pub access: Access,
    /// Every write goes to the end.
    pub append: bool,
    /// The file becomes empty.
    pub truncate: bool,
    /// Creation fails when the name is taken.
    pub exclusive: bool,
}

/// An open handle and what the door may do with it.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The handle.
    pub handle: HandleId,
    /// The door should bypass caches of its own: for writers, whose data goes straight through,
    /// and for small files that are read once.
    pub direct: bool,
    /// What a cache of the door holds of this file is still true.
    pub keep_cache: bool,
    /// Closing the handle has nothing to report, so it need not be flushed.
    pub skip_flush: bool,
    /// A local file that holds, byte for byte, what this handle reads. A door that can may read
    /// from it and ask the volume no more; one that cannot reads through the volume.
    pub local: Option<Arc<dyn LocalFile>>,
}

/// A file that was created, with a handle to it.
#[derive(Debug, Clone)]
pub struct Created {
    /// The new file; the caller holds one reference until it forgets it.
    pub entry: Entry,
    /// The handle.
    pub opened: Opened,
}

/// A new value for a time stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeChange {
    /// The time of the call.
    Now,
    /// This time.
    To(SystemTime),
}

/// What [`crate::Volume::set_attributes`] changes; `None` leaves a field alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct AttributeChanges {
    pub permissions: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<TimeChange>,
    pub modified: Option<TimeChange>,
    /// The handle through which the change is made, if one is open.
    pub handle: Option<HandleId>,
}

/// What [`crate::Volume::allocate`] does to a range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    /// Makes sure that there is room for it, as `fallocate` of mode 0. The file grows to the end
    /// of the range unless `keep_size`.
    Reserve {
        /// Leave the size alone.
        keep_size: bool,
    },
    /// Gives its room back, as `FALLOC_FL_PUNCH_HOLE`: it reads as zeros, and the size stays.
    PunchHole,
    /// Makes it zeros, as `FALLOC_FL_ZERO_RANGE`. The file grows to the end of the range unless
    /// `keep_size`.
    ZeroRange {
        /// Leave the size alone.
        keep_size: bool,
    },
}

/// What [`crate::Volume::remove`] may remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoveKind {
    /// Anything but a directory, as `unlink`.
    File,
    /// An empty directory, as `rmdir`.
    Directory,
}

/// What [`crate::Volume::rename`] does when the target exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it, as `rename`.
    Replace,
    /// Fails with `AlreadyExists`, as `RENAME_NOREPLACE`.
    NoReplace,
    /// Swaps both, as `RENAME_EXCHANGE`.
    Exchange,
}

/// What [`crate::Volume::set_xattr`] does when the attribute exists or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// Sets it either way.
    Set,
    /// Fails with `AlreadyExists` if it exists.
    Create,
    /// Fails with `NoAttribute` if it does not.
    Replace,
}

/// What `statfs` shows. A bucket has no size, so volumes may answer with large constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Blocks free.
    pub blocks_free: u64,
    /// Inodes in all.
    pub files: u64,
    /// Inodes free.
    pub files_free: u64,
    /// Bytes in the longest name.
    pub name_length_max: u32,
}

/// Where a directory listing goes.
pub trait DirectorySink: Send {
    /// Offers one entry. `next` is the position from which a later listing goes on after it.
    ///
    /// `Continue` means that it was taken and, if `entry` was given, that the receiver now holds
    /// one reference to the inode, as after a lookup. `Break` means that it did not fit: no
    /// reference is held and the listing ends before it.
    fn push(&mut self, next: u64, name: &FileName, entry: &Entry) -> ControlFlow<()>;
}
