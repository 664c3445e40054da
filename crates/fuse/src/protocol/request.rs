//! Requests as typed values that borrow from the message.

use std::ops::Range;

use penstock_vfs::{AttributeChanges, HandleId, Inode};

use super::{InitRequest, RequestHeader};

/// One request with its head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    /// The head.
    pub header: RequestHeader,
    /// What is asked for.
    pub request: Request<'a>,
}

/// What is asked for. Names are bytes without the NUL.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Request<'a> {
    Init(InitRequest),
    Lookup {
        name: &'a [u8],
    },
    Forget {
        count: u64,
    },
    BatchForget(Forgotten<'a>),
    GetAttributes,
    SetAttributes(AttributeChanges),
    ReadSymlink,
    MakeSymlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MakeNode {
        name: &'a [u8],
        mode: u32,
        /// Bits of the mode that are taken away unless an access list is handed down.
        umask: u32,
        /// Which device, if it is to be one.
        device: u32,
    },
    MakeDirectory {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    RemoveDirectory {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: Inode,
        new_name: &'a [u8],
        /// `RENAME_NOREPLACE` and so on.
        flags: u32,
    },
    /// The node gets this name in the directory of the head.
    Link {
        node: Inode,
        name: &'a [u8],
    },
    /// `flags` as given to `open`.
    Open {
        flags: u32,
    },
    Create {
        name: &'a [u8],
        flags: u32,
        mode: u32,
        umask: u32,
    },
    Read {
        transfer: Transfer,
        /// The kernel keeps nothing of it.
        is_direct: bool,
    },
    /// `data` is empty when it was received elsewhere.
    Write {
        transfer: Transfer,
        /// The bytes go to the end of the file, wherever that is.
        appends: bool,
        /// It goes past the page cache, and other pieces of the same call may be under way.
        is_direct: bool,
        /// Through which table the data came; the kernel tells for direct writes.
        table: Option<DescriptorTable>,
        data: &'a [u8],
    },
    Statistics,
    Flush {
        handle: HandleId,
        /// In which table a descriptor was closed.
        table: DescriptorTable,
    },
    Sync {
        handle: HandleId,
        data_only: bool,
    },
    SyncDirectory {
        handle: HandleId,
    },
    /// `command` as given to `ioctl`.
    Control {
        command: u32,
    },
    Release {
        handle: HandleId,
        /// A lock of the whole file may go with it.
        unlocks: bool,
    },
    /// Which lock keeps the caller out.
    GetLock(LockRequest),
    SetLock {
        lock: LockRequest,
        waits: bool,
    },
    /// `whence` as given to `lseek`.
    Seek {
        handle: HandleId,
        offset: u64,
        whence: u32,
    },
    CopyRange(CopyRange),
    /// `mode` as given to `fallocate`.
    Allocate {
        handle: HandleId,
        offset: u64,
        length: u64,
        mode: u32,
    },
    OpenDirectory,
    ReadDirectory(Transfer),
    ReadDirectoryPlus(Transfer),
    ReleaseDirectory {
        handle: HandleId,
    },
    /// `size` is what the caller has room for; 0 asks how much that must be.
    GetXattr {
        name: &'a [u8],
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    /// `flags` as given to `setxattr`.
    SetXattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
        /// It is an access list, by somebody to whom the group of the file is strange.
        drops_set_gid: bool,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    Interrupt {
        victim: u64,
    },
    Destroy,
    /// An opcode whose body nobody here looks at.
    Other,
}

/// Whose bytes a `WRITE` brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOrigin {
    /// A program waits in write(2), and writes again what was not taken.
    Program,
    /// A program writes past the page cache. The kernel sends the pieces of the call at once, as many as
    /// it sends of its page cache at most, and one of which not all was taken fails the call.
    Direct,
    /// The kernel writes back what a program left in the page cache, gathered or through a mapping.
    /// Nobody looks at how much was taken: what was not is lost, unless the answer is an error.
    PageCache,
}

/// A table of file descriptors, by a number that the kernel makes up for it: its threads share
/// the table of a process, and a fork copies it. The protocol calls it lock owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DescriptorTable(pub u64);

/// A lock that is asked for, or given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct LockRequest {
    pub handle: HandleId,
    pub owner: DescriptorTable,
    pub start: u64,
    /// The last byte.
    pub last: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    pub process: u32,
    /// It is one of flock(2).
    pub whole: bool,
}

/// What a `COPY_FILE_RANGE` copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CopyRange {
    pub source: HandleId,
    pub source_offset: u64,
    pub target: HandleId,
    pub target_offset: u64,
    pub length: u64,
    /// The answer has room for more than 4 GiB.
    pub is_wide: bool,
}

/// Where bytes or entries are read or written, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Transfer {
    pub handle: HandleId,
    pub offset: u64,
    /// Bytes; for directories the most that a reply may have.
    pub size: u32,
}

impl Transfer {
    /// The bytes of a file that it is about. They end where an offset can say so.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.size.into())
    }
}

/// The inodes of a `BATCH_FORGET`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgotten<'a> {
    /// Pairs of inode and count, sixteen bytes each.
    pub(super) pairs: &'a [u8],
}

impl Forgotten<'_> {
    /// Each inode with how many references to it are given back.
    pub fn iter(&self) -> impl Iterator<Item = (Inode, u64)> {
        self.pairs.as_chunks::<16>().0.iter().map(|pair| {
            let (node, count) = pair.split_at(8);
            (Inode(number(node)), number(count))
        })
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("half of sixteen bytes"))
}
