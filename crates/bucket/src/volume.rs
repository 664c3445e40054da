//! The volume as doors see it: each method hands over to the module that does the work.

use std::{
    ops::Range,
    sync::{Arc, Weak},
};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{
    FileName, FsError, FsResult, NAME_LENGTH_MAX, Payload, Utf8Name, metrics::Registry, random,
};
use penstock_transfer::{Transfer, staging::Staging};
use penstock_vfs::{
    Allocation, AttributeChanges, Change, Dentry, DirectorySink, Entry, Features, HandleId,
    Identity, Inode, ListFrom, Lookup, Made, New, OpenOptions, Opened, Position, RemoveKind,
    RenameMode, Renamed, Statistics, Unsaved, UnsavedItem, Volume, Watcher, WritePlace, Written,
    XattrMode,
};

use crate::{
    BucketSettings,
    attributes::SetAttributes,
    files::Files,
    freed, gauges,
    listing::Listings,
    lookup::Lookups,
    metadata::Metadata,
    mount::Mount,
    names::Names,
    open_file::Mode,
    rename::Renames,
    staged::{StagedMode, behind, sync},
    write_back,
};

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
    mount: Arc<Mount>,
    lookups: Arc<Lookups>,
    metadata: Arc<Metadata>,
    files: Arc<Files>,
    listings: Arc<Listings>,
    names: Arc<Names>,
    renames: Arc<Renames>,
    attributes: Arc<SetAttributes>,
    /// What was written and not saved goes with the process.
    epoch: u64,
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
        Self::over(
            &Mount::new(transfer, settings, Mode::Streaming, &metrics),
            &metrics,
        )
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
        let mode = Mode::Staged(StagedMode::new(staging));
        Self::over(&Mount::new(transfer, settings, mode, &metrics), &metrics)
    }

    fn over(mount: &Arc<Mount>, registry: &Registry) -> Arc<Self> {
        let (ids, lookups) = (Arc::default(), Lookups::new(mount));
        let metadata = Metadata::new(mount, &lookups);
        let files = Files::new(mount, &lookups, &metadata, &ids);
        gauges::register(registry, &files);
        if let Mode::Staged(mode) = &mount.mode {
            sync::begin(mode);
        }
        behind::begin(&files);
        write_back::begin(mount);
        freed::begin(&mount.namespace);
        Arc::new(Self {
            mount: Arc::clone(mount),
            listings: Listings::new(mount, &lookups, &ids),
            names: Names::new(&files),
            renames: Renames::new(&files),
            attributes: SetAttributes::new(&files),
            lookups,
            metadata,
            files,
            epoch: random::number(),
        })
    }

    /// Shows what an earlier mount left in the staging directory, and begins to save it. Needs a
    /// runtime; asks the store nothing before it returns. What must not be saved is put aside.
    pub fn recover(&self) {
        if let Some(write_back) = self.mount.write_back() {
            write_back.recover(&self.mount);
        }
        if let Mode::Staged(mode) = &self.mount.mode {
            self.files.recover(mode);
        }
    }
}

#[async_trait]
impl Volume for BucketVolume {
    fn features(&self) -> Features {
        Features {
            xattrs: self.mount.keeps_xattrs(),
            random_writes: self.mount.mode.staged().is_some(),
            saves_on_close: true,
            saves_names_behind: self.mount.save_behind().is_some(),
            ..Features::READ_ONLY
        }
    }

    fn watch(&self, door: Weak<dyn Watcher>) {
        self.mount.namespace.lock().watch(door);
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn unsaved(&self) -> Unsaved {
        Unsaved {
            parts_under_way: self.files.mount.transfer.uploads_under_way(),
            ..self.files.unsaved()
        }
    }

    fn unsaved_items(&self) -> Vec<UnsavedItem> {
        self.files.unsaved_items()
    }

    async fn lookup(&self, _by: &Identity, dentry: Dentry<'_>) -> FsResult<Lookup> {
        let name = name_to_find(dentry.name)?;
        self.lookups.lookup(dentry.parent, &name).await
    }

    async fn parent(&self, _by: &Identity, directory: Inode) -> FsResult<Entry> {
        let parent = self.mount.namespace.lock().directory_above(directory)?;
        self.mount.hold(parent)
    }

    async fn hold(&self, _by: &Identity, inode: Inode) -> FsResult<Entry> {
        self.mount.hold(inode)
    }

    fn forget(&self, inode: Inode, count: u64) {
        self.mount.namespace.lock().forget(inode, count);
    }

    fn forget_all(&self, forgotten: &mut dyn Iterator<Item = (Inode, u64)>) {
        let mut forgotten = forgotten.peekable();
        while forgotten.peek().is_some() {
            // Others shall get their turn in between.
            let mut tree = self.mount.namespace.lock();
            for (inode, count) in forgotten.by_ref().take(FORGOTTEN_AT_ONCE) {
                tree.forget(inode, count);
            }
        }
    }

    async fn attributes(&self, _by: &Identity, inode: Inode) -> FsResult<Entry> {
        self.lookups.attributes(inode).await
    }

    async fn set_attributes(
        &self,
        _by: &Identity,
        inode: Inode,
        changes: AttributeChanges,
    ) -> FsResult<Entry> {
        self.attributes.set_attributes(inode, changes).await
    }

    async fn read_symlink(&self, _by: &Identity, inode: Inode) -> FsResult<Bytes> {
        self.names.read_symlink(inode).await
    }

    async fn make(
        &self,
        by: &Identity,
        dentry: Dentry<'_>,
        new: New<'_>,
        open: Option<OpenOptions>,
    ) -> FsResult<Made> {
        let name = name_to_make(dentry.name)?;
        self.names.make(by, (dentry.parent, &name), new, open).await
    }

    async fn remove(
        &self,
        _by: &Identity,
        dentry: Dentry<'_>,
        kind: RemoveKind,
    ) -> FsResult<Change> {
        let name = name_to_find(dentry.name)?;
        self.names.remove(dentry.parent, &name, kind).await?;
        Ok(Change::UNTOLD)
    }

    async fn rename(
        &self,
        _by: &Identity,
        source: Dentry<'_>,
        target: Dentry<'_>,
        mode: RenameMode,
    ) -> FsResult<Renamed> {
        let (from, to) = (name_to_find(source.name)?, name_to_make(target.name)?);
        let (source, target) = ((source.parent, &from), (target.parent, &to));
        self.renames.rename(source, target, mode).await?;
        Ok(Renamed::default())
    }

    async fn open(&self, _by: &Identity, inode: Inode, options: OpenOptions) -> FsResult<Opened> {
        self.files.open(inode, options).await
    }

    async fn read(&self, _by: &Identity, at: Position, length: u32) -> FsResult<Payload> {
        let handle = self.files.handles.get(at.handle)?;
        self.files.read(&handle, at.offset, length).await
    }

    async fn write(
        &self,
        _by: &Identity,
        handle: HandleId,
        place: WritePlace,
        data: Bytes,
    ) -> FsResult<Written> {
        let handle = self.files.handles.get(handle)?;
        self.files.write(&handle, place, data).await
    }

    async fn allocate(
        &self,
        _by: &Identity,
        handle: HandleId,
        range: Range<u64>,
        allocation: Allocation,
    ) -> FsResult<()> {
        let handle = self.files.handles.get(handle)?;
        self.files.allocate(&handle, range, allocation).await
    }

    async fn flush(&self, handle: HandleId) -> FsResult<()> {
        let handle = self.files.handles.get(handle)?;
        self.files.flush(&handle).await
    }

    async fn sync(&self, handle: HandleId, _range: Range<u64>, _data_only: bool) -> FsResult<()> {
        let handle = self.files.handles.get(handle)?;
        self.files.sync(&handle).await
    }

    async fn sync_directory(&self, handle: HandleId) -> FsResult<()> {
        let directory = self.listings.handles.get(handle)?.inode();
        self.files.sync_below(directory).await
    }

    async fn save(&self, _by: &Identity, inode: Inode) -> FsResult<()> {
        self.files.save_inode(inode).await
    }

    async fn release(&self, handle: HandleId) {
        self.files.release(handle).await;
    }

    async fn abandon(&self, handle: HandleId) {
        self.files.abandon(handle).await;
    }

    async fn undo_open(&self, handle: HandleId) {
        self.files.undo_open(handle).await;
    }

    async fn open_directory(&self, _by: &Identity, inode: Inode) -> FsResult<HandleId> {
        self.listings.open_directory(inode)
    }

    async fn read_directory(
        &self,
        handle: HandleId,
        from: ListFrom<'_>,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        let handle = self.listings.handles.get(handle)?;
        match from {
            ListFrom::Position(position) => {
                self.listings.read_directory(&handle, position, sink).await
            }
            ListFrom::After(name) => {
                let name = name_to_find(name)?;
                let directory = handle.inode();
                self.listings.list_after(directory, Some(&name), sink).await
            }
        }
    }

    async fn list(
        &self,
        _by: &Identity,
        directory: Inode,
        from: ListFrom<'_>,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        match from {
            ListFrom::START => self.listings.list_after(directory, None, sink).await,
            ListFrom::After(name) => {
                let name = name_to_find(name)?;
                self.listings.list_after(directory, Some(&name), sink).await
            }
            ListFrom::Position(_) => Err(FsError::Unsupported(
                "positions in a bucket need an open directory",
            )),
        }
    }

    async fn release_directory(&self, handle: HandleId) {
        self.listings.handles.remove(handle);
    }

    async fn xattr(&self, _by: &Identity, inode: Inode, name: &[u8]) -> FsResult<Bytes> {
        self.metadata.xattr(inode, name).await
    }

    async fn xattrs(&self, _by: &Identity, inode: Inode) -> FsResult<Vec<Bytes>> {
        self.metadata.xattrs(inode).await
    }

    async fn set_xattr(
        &self,
        _by: &Identity,
        inode: Inode,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<()> {
        self.metadata.set_xattr(inode, (name, value), mode).await
    }

    async fn remove_xattr(&self, _by: &Identity, inode: Inode, name: &[u8]) -> FsResult<()> {
        self.metadata.remove_xattr(inode, name).await
    }

    async fn statistics(&self, _by: &Identity, _inode: Inode) -> FsResult<Statistics> {
        Ok(Statistics {
            block_size: STATISTICS_BLOCK_SIZE,
            blocks: STATISTICS_BLOCKS,
            blocks_free: STATISTICS_BLOCKS,
            blocks_available: STATISTICS_BLOCKS,
            files: STATISTICS_FILES,
            files_free: STATISTICS_FILES,
            name_length_max: NAME_LENGTH_MAX as u32,
        })
    }

    async fn shut_down(&self) -> Vec<(String, FsError)> {
        self.files.shut_down().await
    }
}

/// A name under which something is looked for. Keys are UTF-8, so a name that is not leads nowhere.
fn name_to_find(name: &FileName) -> FsResult<Utf8Name> {
    Utf8Name::try_from(name).map_err(|_| FsError::NotFound)
}

/// A name under which something is made.
fn name_to_make(name: &FileName) -> FsResult<Utf8Name> {
    Utf8Name::try_from(name).map_err(|_| FsError::NameNotUtf8)
}
