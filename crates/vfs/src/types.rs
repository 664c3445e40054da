//! The nouns of a file system.

use std::{
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use penstock_base::{FileName, FsError, FsResult, LocalFile};

use crate::{AccessList, Owner};

/// The number of a file within its volume, never reused while the volume is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode(pub u64);

impl Inode {
    /// The root directory, in every volume.
    pub const ROOT: Self = Self(1);
}

/// An open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HandleId(pub u64);

/// A name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dentry<'a> {
    /// The directory.
    pub parent: Inode,
    /// The name in it.
    pub name: &'a FileName,
}

impl<'a> Dentry<'a> {
    /// The name `name` in the directory `parent`.
    pub fn new(parent: Inode, name: &'a FileName) -> Self {
        Self { parent, name }
    }
}

/// Where the bytes of a write go.
///
/// The write itself says it, not the handle: a cache is written back, each piece to its place,
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
    /// Tells the file from those that had the number of its inode before it, also in another mount: a door that
    /// gives out handles which outlive the mount puts it into them. 0 where a number means one file for ever.
    pub generation: u32,
    /// What kind of file.
    pub kind: FileKind,
    /// Permission bits, the low twelve bits of a mode.
    pub permissions: u16,
    /// Who may do what, where the mode does not say all of it: the two say the same of owner, mask and others.
    pub access_list: Option<AccessList>,
    /// Names that lead to it.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes that can be read.
    pub size: u64,
    /// Bytes that it occupies.
    pub allocated: u64,
    /// Last read.
    pub accessed: SystemTime,
    /// Last change of the content.
    pub modified: SystemTime,
    /// Last change of anything.
    pub changed: SystemTime,
}

impl Attributes {
    /// An empty file of root's that nobody may use, all of whose times are `time`.
    pub fn new(inode: Inode, kind: FileKind, time: SystemTime) -> Self {
        Self {
            inode,
            generation: 0,
            kind,
            permissions: 0,
            access_list: None,
            links: 1,
            uid: 0,
            gid: 0,
            size: 0,
            allocated: 0,
            accessed: time,
            modified: time,
            changed: time,
        }
    }

    /// Whose it is.
    pub fn owner(&self) -> Owner {
        Owner {
            uid: self.uid,
            gid: self.gid,
        }
    }

    /// What a client compares to see whether somebody else changed the file meanwhile.
    pub fn brief(&self) -> BriefAttributes {
        BriefAttributes {
            size: self.size,
            modified: self.modified,
            changed: self.changed,
        }
    }
}

/// What NFS calls weak cache consistency data: enough of a file to notice a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BriefAttributes {
    /// Bytes that can be read.
    pub size: u64,
    /// Last change of the content.
    pub modified: SystemTime,
    /// Last change of anything.
    pub changed: SystemTime,
}

/// What a change did to a file or directory. A volume that cannot tell both from the very moment of the change
/// tells neither.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Right before it.
    pub before: Option<BriefAttributes>,
    /// Right after it.
    pub after: Option<Attributes>,
}

impl Change {
    /// A change of which the volume cannot tell.
    pub const UNTOLD: Self = Self {
        before: None,
        after: None,
    };
}

/// What a rename did to its two directories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renamed {
    /// Where the name was.
    pub source: Change,
    /// Where it is.
    pub target: Change,
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
    /// That it is read is no access that its times shall show, as with `O_NOATIME`.
    pub unnoted: bool,
}

impl OpenOptions {
    /// To read.
    pub const READ: Self = Self::to(Access::Read);
    /// To write.
    pub const WRITE: Self = Self::to(Access::Write);
    /// To read and write.
    pub const READ_WRITE: Self = Self::to(Access::ReadWrite);

    /// For this, and nothing else.
    pub const fn to(access: Access) -> Self {
        Self {
            access,
            append: false,
            truncate: false,
            unnoted: false,
        }
    }
}

/// An open handle with what is true of the file behind it. What follows from that is the door's business: FUSE makes
/// flags of it, NFS needs none.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The handle.
    pub handle: HandleId,
    /// Its bytes pass once, as far as the volume knows, and in the order in which a program asks: those of a stream that
    /// is written, or of a small file that is read as a whole. A copy that is kept of them is of no use, and writes
    /// that are gathered come too late.
    pub passes_once: bool,
    /// What a door was shown of the content when it opened the file before, or wrote to it, is what the file holds.
    pub is_unchanged: bool,
    /// What others write to the file shows in the next read, so each read is to ask: a copy that a door keeps is not.
    pub reads_through: bool,
    /// Closing the handle has nothing to report and nothing to save, so [`crate::Volume::flush`] need not be called.
    pub closes_silently: bool,
    /// A local file that holds, byte for byte, what this handle reads.
    pub local: Option<Arc<dyn LocalFile>>,
}

impl Opened {
    /// A handle to read with, of a file that may be another one at each open.
    pub fn new(handle: HandleId) -> Self {
        Self {
            handle,
            passes_once: false,
            is_unchanged: false,
            reads_through: false,
            closes_silently: true,
            local: None,
        }
    }

    /// The same of a file of a volume that nothing can change: the handle is the number of the inode. Fails with
    /// `ReadOnly` if `options` want more, and as [`crate::Volume::open`] does if it is no file.
    pub fn to_read(file: &Attributes, options: OpenOptions) -> FsResult<Self> {
        match file.kind {
            FileKind::Directory => Err(FsError::IsADirectory),
            FileKind::Symlink | FileKind::Special(_) => {
                Err(FsError::InvalidArgument("only files are opened"))
            }
            FileKind::Regular if options.access.writes() || options.truncate => {
                Err(FsError::ReadOnly)
            }
            FileKind::Regular => Ok(Self::new(HandleId(file.inode.0))),
        }
    }
}

/// What [`crate::Volume::make`] makes.
#[derive(Debug, Clone, Copy)]
pub struct New<'a> {
    /// What kind of file, with what only that kind has.
    pub kind: NewKind<'a>,
    /// Permission bits, the low twelve bits of a mode.
    pub permissions: u16,
    /// Of these, bits that are taken away unless the directory hands an access list down. A door that takes them away itself
    /// says 0, and one to a volume without [`crate::Features::access_lists`] must.
    pub umask: u16,
    /// What to do when the name is taken.
    pub exclusivity: Exclusivity,
}

/// What kind of file is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewKind<'a> {
    /// An empty file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link to this path.
    Symlink(&'a [u8]),
    /// A pipe, a socket or a device.
    Special(SpecialFile),
}

/// What happens when the name of a new file is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusivity {
    /// A regular file that is there is taken as it is; anything else fails as with `New`.
    TakeExisting,
    /// Fails with `AlreadyExists`.
    New,
    /// The same, unless the file that is there was made with this very number, and nobody has set attributes of it since: a
    /// client repeats a request whose answer it did not get, and sets them when it has it. Only a volume that says so can keep the number.
    Verified(u64),
}

/// A file that [`crate::Volume::make`] made or found.
#[derive(Debug, Clone)]
pub struct Made {
    /// The file; the caller holds one reference until it forgets it.
    pub entry: Entry,
    /// The handle, if one was asked for.
    pub opened: Option<Opened>,
    /// Whether it was there before.
    pub existed: bool,
    /// What that did to the directory.
    pub directory: Change,
}

impl Made {
    /// A new file without a handle, in a directory of which the volume cannot tell.
    pub fn new(entry: Entry) -> Self {
        Self {
            entry,
            opened: None,
            existed: false,
            directory: Change::UNTOLD,
        }
    }
}

/// How durable something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The volume has it. It is lost if the volume is before the next [`crate::Volume::sync`], which its
    /// [`crate::Volume::epoch`] then tells.
    Accepted,
    /// It outlives the volume.
    Durable,
}

/// What a write did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// How durable the bytes are by now.
    pub durability: Durability,
    /// Where they stand, if that is not where the writer believed ([`WritePlace::offset`]): what a door keeps of
    /// either place is not true any more.
    pub moved_to: Option<u64>,
    /// What that did to the file.
    pub file: Change,
}

impl Written {
    /// The volume has the bytes, and cannot tell of the file.
    pub const ACCEPTED: Self = Self {
        durability: Durability::Accepted,
        moved_to: None,
        file: Change::UNTOLD,
    };
}

/// What [`crate::Volume::seek`] looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that was written, as `SEEK_DATA`.
    Data,
    /// The next byte that was not, or the end, as `SEEK_HOLE`.
    Hole,
}

/// A place in an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The open file.
    pub handle: HandleId,
    /// Bytes from its beginning.
    pub offset: u64,
}

/// What waits to be made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unsaved {
    /// Files of which something is not durable.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Parts of them on their way to where they are durable. Whoever waits for the files should not give up
    /// meanwhile.
    pub parts_under_way: u64,
}

/// Something that waits to be made durable, as people are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsavedItem {
    /// Its path from the root.
    pub path: String,
    /// What waits.
    pub kind: UnsavedKind,
    /// Bytes of content; 0 for a name.
    pub bytes: u64,
    /// For how long it has waited, where that is known.
    pub age: Option<Duration>,
    /// Why the last attempt failed, if one did and none succeeded since.
    pub failure: Option<FsError>,
}

/// What of something waits to be made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsavedKind {
    /// The content of a file.
    File,
    /// A directory, a link or how they are described.
    Name,
    /// That it was removed.
    Removal,
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
    /// Nothing is changed, and `NotSynchronized` said, unless the file was changed last at this time.
    pub only_if_changed_at: Option<SystemTime>,
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
    /// Sets it either way, by somebody trusted of whom the door knows that the group of the file is none of his: an access
    /// list takes the set-group-id bit away.
    SetByStranger,
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
    /// Blocks that the caller may still use.
    pub blocks_available: u64,
    /// Inodes in all.
    pub files: u64,
    /// Inodes free.
    pub files_free: u64,
    /// Bytes in the longest name.
    pub name_length_max: u32,
}

impl Statistics {
    /// A volume of no size that is known and no room.
    pub fn full(name_length_max: u32) -> Self {
        Self {
            block_size: 4096,
            blocks: 0,
            blocks_free: 0,
            blocks_available: 0,
            files: 0,
            files_free: 0,
            name_length_max,
        }
    }
}

/// From where a directory is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListFrom<'a> {
    /// A position: 0 is the beginning, others were given out with the entry before.
    Position(u64),
    /// The first name after this one in the volume's own order, whether it is there or not. Needs no
    /// position, which a handle may be needed to remember.
    After(&'a FileName),
}

impl ListFrom<'_> {
    /// The beginning.
    pub const START: Self = Self::Position(0);
}

/// What a listing tells of each entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Its name, kind and number. The receiver gets no reference.
    Names,
    /// Its attributes, and a reference.
    Attributes,
}

/// Where a directory listing goes.
pub trait DirectorySink: Send {
    /// What it wants to know of each entry.
    fn detail(&self) -> Detail {
        Detail::Attributes
    }

    /// Offers one entry. `next` is the position from which a later listing goes on after it.
    ///
    /// `Continue` means that it was taken and, with [`Detail::Attributes`], that the receiver now holds
    /// one reference to the inode, as after a lookup. `Break` means that it did not fit: no
    /// reference is held and the listing ends before it.
    fn push(&mut self, next: u64, name: &FileName, entry: &Entry) -> ControlFlow<()>;
}
