//! The volume as doors see it: each method hands over to the module that does the work.

use std::{ops::Range, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{Contents, FileName, FsError, FsResult, NAME_LENGTH_MAX, metrics::Registry};
use penstock_transfer::Transfer;
use penstock_vfs::{
    Allocation, AttributeChanges, Caller, Created, DirectorySink, Door, Entry, HandleId, Inode,
    Lookup, OpenOptions, Opened, RemoveKind, RenameMode, SpecialFile, Statistics, Volume,
    WritePlace, XattrMode,
};

use crate::{BucketSettings, Staging, core::Core};

/// References that are given back before somebody else may use the tree.
const FORGOTTEN_AT_ONCE: usize = 64;
/// Bytes in a block of `statfs`.
const STATISTICS_BLOCK_SIZE: u32 = 4096;
/// Blocks that a bucket shows as its size and as free: 4 EiB, which a signed 64-bit byte count
/// still holds.
const STATISTICS_BLOCKS: u64 = 1 << 50;
/// Files that a bucket shows as its capacity and as free.
const STATISTICS_FILES: u64 = 1 << 40;

/// A bucket, or a prefix of one, in which a file is an object. See the crate.
#[derive(Debug)]
pub struct BucketVolume {
    core: Arc<Core>,
}

impl BucketVolume {
    /// A volume over the store of `transfer`. Makes no request.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "callers have a shared registry"
    )]
    pub fn new(
        transfer: Arc<Transfer>,
        settings: BucketSettings,
        metrics: Arc<Registry>,
    ) -> Arc<Self> {
        Arc::new(Self {
            core: Core::new(transfer, settings, None, &metrics),
        })
    }

    /// A volume whose files can be written anywhere, into `staging`. Call
    /// [`BucketVolume::recover`] before anything else.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "callers have a shared registry"
    )]
    pub fn staged(
        transfer: Arc<Transfer>,
        settings: BucketSettings,
        staging: Arc<Staging>,
        metrics: Arc<Registry>,
    ) -> Arc<Self> {
        Arc::new(Self {
            core: Core::new(transfer, settings, Some(staging), &metrics),
        })
    }

    /// Shows what an earlier mount left in the staging directory, and begins to save it. Needs a
    /// runtime; asks the store nothing before it returns. What must not be saved is put aside.
    pub fn recover(&self) {
        self.core.recover();
    }
}

#[async_trait]
impl Volume for BucketVolume {
    async fn lookup(&self, _caller: Caller, parent: Inode, name: &FileName) -> FsResult<Lookup> {
        self.core.lookup(parent, name).await
    }

    fn attach(&self, door: Arc<dyn Door>) {
        self.core.namespace.lock().attach(door);
    }

    fn forget(&self, inode: Inode, count: u64) {
        self.core.namespace.lock().forget(inode, count);
    }

    fn forget_all(&self, forgotten: &mut dyn Iterator<Item = (Inode, u64)>) {
        let mut forgotten = forgotten.peekable();
        while forgotten.peek().is_some() {
            // Others shall get their turn in between.
            let mut tree = self.core.namespace.lock();
            for (inode, count) in forgotten.by_ref().take(FORGOTTEN_AT_ONCE) {
                tree.forget(inode, count);
            }
        }
    }

    async fn attributes(&self, _caller: Caller, inode: Inode) -> FsResult<Entry> {
        self.core.attributes(inode).await
    }

    async fn set_attributes(
        &self,
        _caller: Caller,
        inode: Inode,
        changes: AttributeChanges,
    ) -> FsResult<Entry> {
        self.core.set_attributes(inode, changes).await
    }

    async fn read_symlink(&self, _caller: Caller, inode: Inode) -> FsResult<Bytes> {
        self.core.read_symlink(inode).await
    }

    async fn make_symlink(
        &self,
        caller: Caller,
        parent: Inode,
        name: &FileName,
        target: &[u8],
    ) -> FsResult<Entry> {
        let link = (target, caller);
        self.core.make_symlink((parent, name), link).await
    }

    async fn make_special(
        &self,
        caller: Caller,
        parent: Inode,
        name: &FileName,
        special: (SpecialFile, u16),
    ) -> FsResult<Entry> {
        let made = self.core.make_special((parent, name), caller, special);
        made.await
    }

    async fn make_directory(
        &self,
        caller: Caller,
        parent: Inode,
        name: &FileName,
        permissions: u16,
    ) -> FsResult<Entry> {
        let kept = self.core.new_directory(parent, caller, permissions);
        self.core.make_directory(parent, name, kept).await
    }

    async fn remove(
        &self,
        _caller: Caller,
        parent: Inode,
        name: &FileName,
        kind: RemoveKind,
    ) -> FsResult<()> {
        self.core.remove(parent, name, kind).await
    }

    async fn rename(
        &self,
        _caller: Caller,
        source: (Inode, &FileName),
        target: (Inode, &FileName),
        mode: RenameMode,
    ) -> FsResult<()> {
        self.core.rename(source, target, mode).await
    }

    async fn open(&self, _caller: Caller, inode: Inode, options: OpenOptions) -> FsResult<Opened> {
        self.core.open(inode, options).await
    }

    async fn create(
        &self,
        caller: Caller,
        parent: Inode,
        name: &FileName,
        permissions: u16,
        options: OpenOptions,
    ) -> FsResult<Created> {
        let mut created = self.core.create((parent, name), options).await?;
        let inode = created.entry.attributes.inode;
        if self.core.keeps_metadata() {
            self.core.own_new_file(inode, caller, permissions);
            created.entry = self.core.entry(inode)?;
        }
        Ok(created)
    }

    async fn read(&self, handle: HandleId, offset: u64, length: u32) -> FsResult<Contents> {
        let handle = self.core.handles.file(handle)?;
        self.core.read(&handle, offset, length).await
    }

    async fn write(&self, handle: HandleId, place: WritePlace, data: Bytes) -> FsResult<()> {
        let handle = self.core.handles.file(handle)?;
        self.core.write(&handle, place, data).await
    }

    async fn allocate(
        &self,
        handle: HandleId,
        range: Range<u64>,
        allocation: Allocation,
    ) -> FsResult<()> {
        let handle = self.core.handles.file(handle)?;
        self.core.allocate(&handle, range, allocation).await
    }

    async fn flush(&self, handle: HandleId) -> FsResult<()> {
        let handle = self.core.handles.file(handle)?;
        self.core.flush(&handle).await
    }

    async fn sync(&self, handle: HandleId, _data_only: bool) -> FsResult<()> {
        let handle = self.core.handles.file(handle)?;
        self.core.sync(&handle).await
    }

    async fn release(&self, handle: HandleId) {
        self.core.release(handle).await;
    }

    async fn undo_open(&self, handle: HandleId) {
        self.core.undo_open(handle).await;
    }

    async fn open_directory(&self, _caller: Caller, inode: Inode) -> FsResult<HandleId> {
        self.core.open_directory(inode)
    }

    async fn read_directory(
        &self,
        handle: HandleId,
        position: u64,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        let handle = self.core.handles.directory(handle)?;
        self.core.read_directory(&handle, position, sink).await
    }

    async fn release_directory(&self, handle: HandleId) {
        self.core.handles.remove(handle);
    }

    fn keeps_xattrs(&self) -> bool {
        self.core.keeps_xattrs()
    }

    async fn xattr(&self, _caller: Caller, inode: Inode, name: &[u8]) -> FsResult<Bytes> {
        self.core.xattr(inode, name).await
    }

    async fn xattrs(&self, _caller: Caller, inode: Inode) -> FsResult<Vec<Bytes>> {
        self.core.xattrs(inode).await
    }

    async fn set_xattr(
        &self,
        _caller: Caller,
        inode: Inode,
        attribute: (&[u8], &[u8]),
        mode: XattrMode,
    ) -> FsResult<()> {
        self.core.set_xattr(inode, attribute, mode).await
    }

    async fn remove_xattr(&self, _caller: Caller, inode: Inode, name: &[u8]) -> FsResult<()> {
        self.core.remove_xattr(inode, name).await
    }

    async fn statistics(&self) -> FsResult<Statistics> {
        Ok(Statistics {
            block_size: STATISTICS_BLOCK_SIZE,
            blocks: STATISTICS_BLOCKS,
            blocks_free: STATISTICS_BLOCKS,
            files: STATISTICS_FILES,
            files_free: STATISTICS_FILES,
            name_length_max: NAME_LENGTH_MAX as u32,
        })
    }

    async fn shut_down(&self) -> Vec<(String, FsError)> {
        self.core.shut_down().await
    }
}
