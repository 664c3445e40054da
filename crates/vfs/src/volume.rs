//! The seam between volumes and doors.

use std::{ops::Range, sync::Weak};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{FsError, FsResult, Payload};

use crate::{
    AccessMask, Allocation, AttributeChanges, CallId, Change, Dentry, DirectorySink, Entry,
    Features, FileKind, HandleId, Identity, Inode, ListFrom, Locks, Lookup, Made, New, NodeId,
    OpenOptions, Opened, Position, RemoveKind, RenameMode, Renamed, Seek, Statistics, Unsaved,
    UnsavedItem, Watcher, WritePlace, Written, XattrMode, permission,
};

const NO_XATTRS: FsError = FsError::Unsupported("this volume keeps no extended attributes");
const NO_SYMLINK: FsError = FsError::InvalidArgument("only symbolic links have targets");
const NO_LINKS: FsError = FsError::NotPermitted("this volume has no hard links");

/// A file system that a door can serve.
///
/// Rules that hold for every method:
/// - **References.** [`Volume::lookup`], [`Volume::parent`], [`Volume::hold`], [`Volume::resolve`],
///   [`Volume::make`], [`Volume::link`] and each entry that a [`DirectorySink`] takes with its attributes give the
///   caller one reference to an inode; it stays valid until as many are given back by [`Volume::forget`]. A volume
///   whose inodes live as long as itself counts none, and leaves `hold` and `forget` as they are.
/// - **Defaults.** What a volume has to say itself is how names lead to inodes, what an inode is, what is in a
///   directory and in a file. The defaults make the rest of a volume that nothing can change: a handle is the number
///   of its inode, and closing it reports nothing.
/// - **Identity.** `by` is on whose behalf the operation runs. A volume that keeps owners and modes checks an
///   identity that is not trusted, with [`crate::permission`].
/// - **Cancellation.** A door drops the future of a call whose caller was interrupted. Work that
///   must not stop half way (a rename, the completion of an upload) goes on in a task of its own.
/// - **Changes.** What is not implemented of them fails with `ReadOnly`; a volume that nothing can
///   change implements only what looks and reads.
/// - **Errors.** Beside those that a method names, any may fail with `PermissionDenied`, `Stale`,
///   `TimedOut`, `OutOfMemory` or `Io`.
#[async_trait]
pub trait Volume: Send + Sync + 'static {
    /// What it can do. The same at each call.
    fn features(&self) -> Features;

    /// Makes a door known that serves this volume, which several may ([`crate::Watchers`]). It is told of changes until
    /// it is gone. A volume that has nothing to tell need not know.
    fn watch(&self, _door: Weak<dyn Watcher>) {}

    /// A number that is another one whenever bytes that were [`Accepted`](crate::Durability::Accepted) may have been
    /// lost since: the write verifier of NFS. A volume that never accepts any has one for ever.
    fn epoch(&self) -> u64 {
        0
    }

    /// Its locks, if it has any that a door should use: see [`Locks`].
    fn locks(&self) -> Option<&dyn Locks> {
        None
    }

    /// What waits to be made durable.
    fn unsaved(&self) -> Unsaved {
        Unsaved::default()
    }

    /// The same one by one, what waits longest first.
    fn unsaved_items(&self) -> Vec<UnsavedItem> {
        Vec::new()
    }

    /// Finds a name.
    async fn lookup(&self, by: &Identity, dentry: Dentry<'_>) -> FsResult<Lookup>;

    /// The directory that a directory is in; that of the root is itself.
    async fn parent(&self, by: &Identity, directory: Inode) -> FsResult<Entry>;

    /// Takes one more reference to an inode that a door knew once. Fails with `Stale` if the volume does not
    /// know it any more.
    async fn hold(&self, by: &Identity, inode: Inode) -> FsResult<Entry> {
        self.attributes(by, inode).await
    }

    /// The number of a file that outlives the mount, where [`Features::persistent_ids`] says that there are such.
    fn node_id(&self, _inode: Inode) -> Option<NodeId> {
        None
    }

    /// Finds the file that [`Volume::node_id`] numbered, in this process or another. Fails with `Stale` if it is
    /// gone, or if the bytes are none of this volume's.
    async fn resolve(&self, _by: &Identity, _id: &NodeId) -> FsResult<Entry> {
        Err(FsError::Stale)
    }

    /// Gives back `count` references to an inode. Never blocks, never fails.
    fn forget(&self, _inode: Inode, _count: u64) {}

    /// The same for many inodes.
    fn forget_all(&self, forgotten: &mut dyn Iterator<Item = (Inode, u64)>) {
        forgotten.for_each(|(inode, count)| self.forget(inode, count));
    }

    /// What `stat` shows.
    async fn attributes(&self, by: &Identity, inode: Inode) -> FsResult<Entry>;

    /// What `by` may do with a file.
    async fn access(&self, by: &Identity, inode: Inode) -> FsResult<AccessMask> {
        let entry = self.attributes(by, inode).await?;
        Ok(permission::allowed(&entry.attributes, by))
    }

    /// Changes mode, owner, size or times. Changing the size is truncation, which comes first: if it fails nothing
    /// is changed, and if what follows fails the file has its new size. Fails with `NotSynchronized` where
    /// [`AttributeChanges::only_if_changed_at`] says so.
    async fn set_attributes(
        &self,
        _by: &Identity,
        _inode: Inode,
        _changes: AttributeChanges,
    ) -> FsResult<Entry> {
        Err(FsError::ReadOnly)
    }

    /// The target of a symbolic link. Fails with `InvalidArgument` if it is none.
    async fn read_symlink(&self, _by: &Identity, _inode: Inode) -> FsResult<Bytes> {
        Err(NO_SYMLINK)
    }

    /// Whether names were changed in this call, here or through another door. What that change began with, such as a name
    /// that it took away, need not be there any more. Where [`Features::remembers_calls`] is not set a door need not ask.
    async fn knows_call(&self, _call: &CallId) -> FsResult<bool> {
        Ok(false)
    }

    /// Makes a file, a directory, a link, or a pipe, socket or device, and opens it if `open` says how; only files
    /// are opened. Without `open` a new file is durable when this returns. Fails with `AlreadyExists`, with
    /// `Unsupported` where there are no symbolic links, and with `NotPermitted` where there are no pipes.
    async fn make(
        &self,
        _by: &Identity,
        _dentry: Dentry<'_>,
        _new: New<'_>,
        _open: Option<OpenOptions>,
    ) -> FsResult<Made> {
        Err(FsError::ReadOnly)
    }

    /// Gives a file, which is no directory, one more name. Fails with `AlreadyExists`, `TooManyLinks` and, where there
    /// are no hard links, `NotPermitted`.
    async fn link(&self, _by: &Identity, _inode: Inode, _dentry: Dentry<'_>) -> FsResult<Made> {
        Err(NO_LINKS)
    }

    /// Removes a file or an empty directory. Fails with `NotFound`, `IsADirectory`,
    /// `NotADirectory` or `DirectoryNotEmpty`.
    async fn remove(
        &self,
        _by: &Identity,
        _dentry: Dentry<'_>,
        _kind: RemoveKind,
    ) -> FsResult<Change> {
        Err(FsError::ReadOnly)
    }

    /// Moves a name. The volume documents how atomic that is.
    async fn rename(
        &self,
        _by: &Identity,
        _source: Dentry<'_>,
        _target: Dentry<'_>,
        _mode: RenameMode,
    ) -> FsResult<Renamed> {
        Err(FsError::ReadOnly)
    }

    /// Opens a file. Fails with `IsADirectory`, `Busy` or `ReadOnly`, and with `InvalidArgument` if it is neither file
    /// nor directory.
    async fn open(&self, by: &Identity, inode: Inode, options: OpenOptions) -> FsResult<Opened> {
        let entry = self.attributes(by, inode).await?;
        Opened::to_read(&entry.attributes, options)
    }

    /// Reads up to `length` bytes; fewer only at the end of the file.
    async fn read(&self, by: &Identity, at: Position, length: u32) -> FsResult<Payload>;

    /// Writes all of `data` where `place` says, or fails and writes nothing. Returns when the volume has
    /// accepted the bytes, which may wait for memory. The bytes may be kept without a copy: the
    /// door pays the budget for them until the call returns, and the volume, if it keeps them,
    /// from before it returns.
    async fn write(
        &self,
        _by: &Identity,
        _handle: HandleId,
        _place: WritePlace,
        _data: Bytes,
    ) -> FsResult<Written> {
        Err(FsError::BadHandle)
    }

    /// Changes what is allocated of a file, in the range `range`, which is not empty. Fails with
    /// `Unsupported` where a volume has no such thing, and with `NoSpace`.
    async fn allocate(
        &self,
        _by: &Identity,
        _handle: HandleId,
        _range: Range<u64>,
        _allocation: Allocation,
    ) -> FsResult<()> {
        Err(FsError::Unsupported("nothing is allocated here"))
    }

    /// The first place at or behind `from` that is what `wanted` says. Fails with `NoSuchPlace` behind the end of the
    /// file, and for data if none follows. Where [`Features::finds_holes`] is not set a door need not ask.
    async fn seek(&self, _from: Position, _wanted: Seek) -> FsResult<u64> {
        Err(FsError::Unsupported("this volume knows of no holes"))
    }

    /// Copies up to `length` bytes from one open file to another, or within one, and returns how many were copied; fewer
    /// at the end of the source, or where the volume ends a long copy. Fails with `InvalidArgument` where ranges of one
    /// file overlap, and changes nothing then. Where [`Features::copies_ranges`] is not set a door need not ask.
    async fn copy_range(
        &self,
        _by: &Identity,
        _source: Position,
        _target: Position,
        _length: u64,
    ) -> FsResult<u64> {
        Err(FsError::Unsupported("this volume copies nothing by itself"))
    }

    /// A descriptor of the handle was closed: reports what went wrong with earlier writes, and
    /// makes them durable where closing does that.
    async fn flush(&self, _handle: HandleId) -> FsResult<()> {
        Ok(())
    }

    /// Returns when what was written to `range`, whoever wrote it, is durable; the volume may make more so. A volume
    /// whose writes are not [`Durable`](crate::Durability::Durable) at once must implement it.
    async fn sync(&self, _handle: HandleId, _range: Range<u64>, _data_only: bool) -> FsResult<()> {
        Ok(())
    }

    /// Makes durable what is in the directory of this handle and below it: names and what was closed. Of use
    /// where [`crate::Features::saves_names_behind`] says so; elsewhere all is durable already.
    async fn sync_directory(&self, _handle: HandleId) -> FsResult<()> {
        Ok(())
    }

    /// Returns when what was written to a file, or is in a directory and below it, is where the volume keeps it in the
    /// end. Of use where [`crate::Features::saves_names_behind`] says so and `sync` may promise less.
    async fn save(&self, _by: &Identity, _inode: Inode) -> FsResult<()> {
        Ok(())
    }

    /// The last descriptor was closed; the handle is gone.
    async fn release(&self, _handle: HandleId) {}

    /// The handle is gone, and what was written through it is not wanted: where it is not seen before a flush it never is,
    /// and a file that was made with the handle is not there. Elsewhere the same as [`Volume::release`].
    async fn abandon(&self, handle: HandleId) {
        self.release(handle).await;
    }

    /// The handle is gone, and who asked for it never heard of it nor of [`Opened::is_unchanged`]: what the door has of
    /// the content may be that of an earlier version.
    async fn undo_open(&self, handle: HandleId) {
        self.release(handle).await;
    }

    /// Opens a directory for listing. Fails with `NotADirectory`.
    async fn open_directory(&self, by: &Identity, inode: Inode) -> FsResult<HandleId> {
        match self.attributes(by, inode).await?.attributes.kind {
            FileKind::Directory => Ok(HandleId(inode.0)),
            _ => Err(FsError::NotADirectory),
        }
    }

    /// Lists entries into `sink` until it is full or the directory ends. `.` and `..` are the door's business.
    async fn read_directory(
        &self,
        handle: HandleId,
        from: ListFrom<'_>,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()>;

    /// Closes a directory.
    async fn release_directory(&self, _handle: HandleId) {}

    /// Lists entries as [`Volume::read_directory`] does, without a handle: for a door that keeps none. Goes on after a
    /// name; positions but the beginning may need a handle and be `Unsupported`.
    async fn list(
        &self,
        by: &Identity,
        directory: Inode,
        from: ListFrom<'_>,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        let handle = self.open_directory(by, directory).await?;
        let listed = self.read_directory(handle, from, sink).await;
        self.release_directory(handle).await;
        listed
    }

    /// The value of an extended attribute. Fails with `NoAttribute` or `Unsupported`.
    async fn xattr(&self, _by: &Identity, _inode: Inode, _name: &[u8]) -> FsResult<Bytes> {
        Err(NO_XATTRS)
    }

    /// The names of all extended attributes.
    async fn xattrs(&self, _by: &Identity, _inode: Inode) -> FsResult<Vec<Bytes>> {
        Err(NO_XATTRS)
    }

    /// Sets an extended attribute. Fails with `AlreadyExists` or `NoAttribute` as
    /// `mode` says, and with `NoSpace` when it does not fit beside the others.
    async fn set_xattr(
        &self,
        _by: &Identity,
        _inode: Inode,
        _name: &[u8],
        _value: &[u8],
        _mode: XattrMode,
    ) -> FsResult<()> {
        Err(NO_XATTRS)
    }

    /// Removes an extended attribute. Fails with `NoAttribute`.
    async fn remove_xattr(&self, _by: &Identity, _inode: Inode, _name: &[u8]) -> FsResult<()> {
        Err(NO_XATTRS)
    }

    /// What `statfs` shows of the part of the volume that `inode` is in.
    async fn statistics(&self, _by: &Identity, _inode: Inode) -> FsResult<Statistics> {
        Ok(Statistics::full(self.features().name_bytes_max))
    }

    /// Makes everything durable before the mount goes away; returns the paths of files that
    /// could not be saved with the reason for each. Handles that are still open are closed here:
    /// who unmounts right behind a `close` may never tell of it.
    async fn shut_down(&self) -> Vec<(String, FsError)> {
        Vec::new()
    }
}
