//! The seam between volumes and doors.

use std::{ops::Range, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{Contents, FileName, FsError, FsResult};

use crate::{
    Allocation, AttributeChanges, Caller, Created, DirectorySink, Door, Entry, HandleId, Inode,
    Lookup, OpenOptions, Opened, RemoveKind, RenameMode, SpecialFile, Statistics, WritePlace,
    XattrMode,
};

const NO_XATTRS: FsError = FsError::Unsupported("this volume keeps no extended attributes");

/// A file system that a door can serve.
///
/// Rules that hold for every method:
/// - **References.** [`Volume::lookup`], [`Volume::create`], [`Volume::make_directory`],
///   [`Volume::make_symlink`], [`Volume::make_special`] and each entry that a [`DirectorySink`] takes give the caller one
///   reference to an inode; it stays valid until as many are given back by [`Volume::forget`].
/// - **Cancellation.** A door drops the future of a call whose caller was interrupted. Work that
///   must not stop half way (a rename, the completion of an upload) goes on in a task of its own.
/// - **Changes.** What is not implemented of them fails with `ReadOnly`; a volume that nothing can
///   change implements only what looks and reads.
/// - **Errors.** Beside those that a method names, any may fail with `PermissionDenied`, `Stale`,
///   `TimedOut`, `OutOfMemory` or `Io`.
#[async_trait]
pub trait Volume: Send + Sync + 'static {
    /// Finds `name` in a directory.
    async fn lookup(&self, caller: Caller, parent: Inode, name: &FileName) -> FsResult<Lookup>;

    /// Makes the door known that serves this volume, as soon as there is one. A volume that
    /// never wants references back need not know.
    fn attach(&self, _door: Arc<dyn Door>) {}

    /// Gives back `count` references to an inode. Never blocks, never fails.
    fn forget(&self, inode: Inode, count: u64);

    /// The same for many inodes.
    fn forget_all(&self, forgotten: &mut dyn Iterator<Item = (Inode, u64)>) {
        forgotten.for_each(|(inode, count)| self.forget(inode, count));
    }

    /// What `stat` shows.
    async fn attributes(&self, caller: Caller, inode: Inode) -> FsResult<Entry>;

    /// Changes mode, owner, size or times, all or none. Changing the size is truncation.
    async fn set_attributes(
        &self,
        _caller: Caller,
        _inode: Inode,
        _changes: AttributeChanges,
    ) -> FsResult<Entry> {
        Err(FsError::ReadOnly)
    }

    /// The target of a symbolic link.
    async fn read_symlink(&self, caller: Caller, inode: Inode) -> FsResult<Bytes>;

    /// Makes a symbolic link. Fails with `AlreadyExists` or `Unsupported`.
    async fn make_symlink(
        &self,
        _caller: Caller,
        _parent: Inode,
        _name: &FileName,
        _target: &[u8],
    ) -> FsResult<Entry> {
        Err(FsError::ReadOnly)
    }

    /// Makes a pipe, a socket or a device. Fails with `AlreadyExists`, and with `NotPermitted`
    /// where there are none.
    async fn make_special(
        &self,
        _caller: Caller,
        _parent: Inode,
        _name: &FileName,
        _special: (SpecialFile, u16),
    ) -> FsResult<Entry> {
        Err(FsError::NotPermitted(
            "this volume has no pipes, sockets and devices",
        ))
    }

    /// Makes a directory. Fails with `AlreadyExists`.
    async fn make_directory(
        &self,
        _caller: Caller,
        _parent: Inode,
        _name: &FileName,
        _permissions: u16,
    ) -> FsResult<Entry> {
        Err(FsError::ReadOnly)
    }

    /// Removes a file or an empty directory. Fails with `NotFound`, `IsADirectory`,
    /// `NotADirectory` or `DirectoryNotEmpty`.
    async fn remove(
        &self,
        _caller: Caller,
        _parent: Inode,
        _name: &FileName,
        _kind: RemoveKind,
    ) -> FsResult<()> {
        Err(FsError::ReadOnly)
    }

    /// Moves a name. The volume documents how atomic that is.
    async fn rename(
        &self,
        _caller: Caller,
        _source: (Inode, &FileName),
        _target: (Inode, &FileName),
        _mode: RenameMode,
    ) -> FsResult<()> {
        Err(FsError::ReadOnly)
    }

    /// Opens a file. Fails with `IsADirectory`, `Busy` or `ReadOnly`.
    async fn open(&self, caller: Caller, inode: Inode, options: OpenOptions) -> FsResult<Opened>;

    /// Creates a file and opens it; opens what is there unless `exclusive`.
    async fn create(
        &self,
        _caller: Caller,
        _parent: Inode,
        _name: &FileName,
        _permissions: u16,
        _options: OpenOptions,
    ) -> FsResult<Created> {
        Err(FsError::ReadOnly)
    }

    /// Reads up to `length` bytes at `offset`; fewer only at the end of the file.
    async fn read(&self, handle: HandleId, offset: u64, length: u32) -> FsResult<Contents>;

    /// Writes all of `data` where `place` says, or fails and writes nothing. Returns when the volume has
    /// accepted the bytes, which may wait for memory. The bytes may be kept without a copy: the
    /// door pays the budget for them until the call returns, and the volume, if it keeps them,
    /// from before it returns.
    async fn write(&self, _handle: HandleId, _place: WritePlace, _data: Bytes) -> FsResult<()> {
        Err(FsError::ReadOnly)
    }

    /// Changes what is allocated of a file, in the range `range`, which is not empty. Fails with
    /// `Unsupported` where a volume has no such thing, and with `NoSpace`.
    async fn allocate(
        &self,
        _handle: HandleId,
        _range: Range<u64>,
        _allocation: Allocation,
    ) -> FsResult<()> {
        Err(FsError::Unsupported("nothing is allocated here"))
    }

    /// A descriptor of the handle was closed: reports what went wrong with earlier writes, and
    /// makes them durable where closing does that.
    async fn flush(&self, handle: HandleId) -> FsResult<()>;

    /// Returns when everything written through the handle is durable.
    async fn sync(&self, handle: HandleId, data_only: bool) -> FsResult<()>;

    /// The last descriptor was closed; the handle is gone.
    async fn release(&self, handle: HandleId);

    /// The handle is gone, and the kernel never heard of it: what [`Opened::keep_cache`] told it to drop is
    /// still there.
    async fn undo_open(&self, handle: HandleId) {
        self.release(handle).await;
    }

    /// Opens a directory for listing.
    async fn open_directory(&self, caller: Caller, inode: Inode) -> FsResult<HandleId>;

    /// Lists entries from `position` (0 or one that an earlier call gave out) into `sink` until
    /// it is full or the directory ends. `.` and `..` are the door's business.
    async fn read_directory(
        &self,
        handle: HandleId,
        position: u64,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()>;

    /// Closes a directory.
    async fn release_directory(&self, handle: HandleId);

    /// Whether files have extended attributes here. Where they have none a door need not ask.
    fn keeps_xattrs(&self) -> bool {
        false
    }

    /// The value of an extended attribute. Fails with `NoAttribute` or `Unsupported`.
    async fn xattr(&self, _caller: Caller, _inode: Inode, _name: &[u8]) -> FsResult<Bytes> {
        Err(NO_XATTRS)
    }

    /// The names of all extended attributes.
    async fn xattrs(&self, _caller: Caller, _inode: Inode) -> FsResult<Vec<Bytes>> {
        Err(NO_XATTRS)
    }

    /// Sets an extended attribute, name and value. Fails with `AlreadyExists` or `NoAttribute` as
    /// `mode` says, and with `NoSpace` when it does not fit beside the others.
    async fn set_xattr(
        &self,
        _caller: Caller,
        _inode: Inode,
        _attribute: (&[u8], &[u8]),
        _mode: XattrMode,
    ) -> FsResult<()> {
        Err(NO_XATTRS)
    }

    /// Removes an extended attribute. Fails with `NoAttribute`.
    async fn remove_xattr(&self, _caller: Caller, _inode: Inode, _name: &[u8]) -> FsResult<()> {
        Err(NO_XATTRS)
    }

    /// What `statfs` shows.
    async fn statistics(&self) -> FsResult<Statistics>;

    /// Makes everything durable before the mount goes away; returns the paths of files that
    /// could not be saved with the reason for each. Handles that are still open are closed here:
    /// a kernel that unmounts right behind a `close` never tells of it.
    async fn shut_down(&self) -> Vec<(String, FsError)>;
}
