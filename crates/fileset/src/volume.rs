//! The file system as doors know it.
//!
//! Each operation is one transaction of the engine ([`crate::operations`]), or goes to open files ([`crate::files`]).
//! What is left here is what only a door needs: references, handles, what a listing remembers, and that what becomes
//! of a change is told.

mod attributes;
mod listing;
mod snapshots;

use std::{ops::Range, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{FsError, FsResult, Payload, clock, random, run_blocking};
use penstock_transfer::Transfer;
use penstock_vfs::{
    AccessMask, Allocation, AttributeChanges, Attributes, Change, Dentry, DirectorySink, Entry,
    Features, FileKind, HandleId, Identity, Inode, ListFrom, LockTable, Locks, Lookup, Made, New,
    NewKind, NodeId, OpenOptions, Opened, Position, RemoveKind, RenameMode, Renamed, Seek,
    Statistics, Unsaved, Volume, WritePlace, Written, XattrMode, permission,
};

use crate::{
    collector,
    data::{Objects, Spool},
    engine::{Engine, Reads, Transaction, query, transact},
    files::Files,
    garbage::{Garbage, Sweep, sweep_bucket},
    held::Held,
    listings::Listings,
    numbers::Numbers,
    operations::{self, Asked, Attribute, LINKS_MAX, Making, NewFile, Place, Renaming},
    schema::{self, Format},
    snapshots::{Preserving, check_changeable, look},
    uploads,
    usage::{format_of, usage},
};

/// How long a door may believe what it is told. Nobody else changes a file system on an embedded engine, so this only
/// bounds what a kernel keeps.
const TTL: Duration = Duration::from_secs(1);

/// How long a name is believed: those of snapshots come and go without the kernel.
fn believed_for(dentry: Dentry<'_>) -> Duration {
    match dentry.parent == schema::SNAPSHOTS {
        true => Duration::ZERO,
        false => TTL,
    }
}
/// Bytes that `statfs` counts in.
const STATISTICS_BLOCK: u64 = 4096;
/// What a file system seems to hold, in bytes and in files: a bucket has no end.
const SEEMING_BYTES: u64 = 1 << 60;
const SEEMING_FILES: u64 = 1 << 40;

/// What the parts of a volume share.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) engine: Arc<Preserving>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) files: Arc<Files>,
    pub(crate) held: Arc<Held>,
}

/// A file system.
#[derive(Debug)]
pub struct FilesetVolume {
    parts: Arc<Parts>,
    numbers: Numbers,
    listings: Listings,
    locks: LockTable,
    /// Another one each time: what was only accepted is lost with the process.
    epoch: u64,
    /// Of the file system: part of the numbers that outlive a mount.
    identity: u64,
}

impl FilesetVolume {
    /// Makes an empty file system whose root belongs to `by`. Fails with `AlreadyExists` if there is one.
    pub async fn format(engine: &dyn Engine, by: &Identity, format: Format) -> FsResult<()> {
        let asked = asked(by);
        transact(engine, move |transaction| {
            operations::format(transaction, &asked, &format)
        })
        .await?;
        Ok(engine.sync().await?)
    }

    /// Serves the file system whose metadata is in `engine` and whose objects are behind `transfer`. What files
    /// without a name left, whose holder died, is collected. Fails with `NotFound` where there is none.
    pub async fn open(engine: Arc<dyn Engine>, transfer: Arc<Transfer>) -> FsResult<Arc<Self>> {
        Self::open_with(engine, transfer, None).await
    }

    /// The same with a spool, through which `transfer` reads and which is a barrier of the engine. A save of a small
    /// file then waits for no request, and closing a file for no disk.
    pub async fn open_with(
        engine: Arc<dyn Engine>,
        transfer: Arc<Transfer>,
        spool: Option<Arc<Spool>>,
    ) -> FsResult<Arc<Self>> {
        let identity = format_of(&*engine).await?.identity;
        if let Some(spool) = &spool {
            run_blocking(|| spool.note_boot());
        }
        let objects = Arc::new(Objects::with_spool(transfer, spool));
        let engine = Arc::new(Preserving::new(engine));
        let parts = Arc::new(Parts {
            files: Files::new(engine.clone(), Arc::clone(&objects)),
            engine,
            objects,
            held: Arc::default(),
        });
        for orphan in query(&*parts.engine, |reads| operations::orphans(reads)).await? {
            parts.held.orphaned(orphan);
        }
        tokio::spawn(collector::run(Arc::downgrade(&parts)));
        tokio::spawn(uploads::run(Arc::downgrade(&parts)));
        Ok(Arc::new(Self {
            parts,
            numbers: Numbers::default(),
            listings: Listings::default(),
            locks: LockTable::default(),
            epoch: random::number(),
            identity,
        }))
    }

    /// Looks through the bucket for objects that leaked, as it does by itself once a day.
    pub async fn sweep(&self, how: Sweep) -> FsResult<Garbage> {
        sweep_bucket(&*self.parts.engine, &self.parts.objects, how).await
    }

    async fn query<T: Send>(
        &self,
        wanted: impl FnMut(&dyn Reads) -> FsResult<T> + Send,
    ) -> FsResult<T> {
        look(&*self.parts.engine, wanted).await
    }

    async fn transact<T: Send + 'static>(
        &self,
        operation: impl FnMut(&mut dyn Transaction) -> FsResult<T> + Send + 'static,
    ) -> FsResult<T> {
        transact(&*self.parts.engine, operation).await
    }

    fn entry(&self, mut attributes: Attributes) -> Entry {
        self.parts.files.show(&mut attributes);
        Entry {
            attributes,
            entry_ttl: TTL,
            attributes_ttl: TTL,
        }
    }

    /// What a reference that the caller has just taken leads to. Without the file the reference goes.
    async fn held(&self, inode: Inode) -> FsResult<Entry> {
        let attributes = self
            .query(|reads| operations::attributes(reads, inode))
            .await;
        match attributes {
            Ok(attributes) => Ok(self.entry(attributes)),
            Err(error) => {
                self.parts.held.give_back(inode, 1);
                Err(error)
            }
        }
    }

    async fn opened(&self, inode: Inode, options: OpenOptions) -> FsResult<Opened> {
        if options.truncate {
            self.parts.files.resize(inode, 0, false).await?;
        }
        self.parts.held.take(inode)?;
        let handle = self.parts.files.open(inode, options.access).await;
        let handle = handle.inspect_err(|_| self.parts.held.give_back(inode, 1))?;
        Ok(Opened {
            is_unchanged: true,
            closes_silently: !options.access.writes(),
            ..Opened::new(handle)
        })
    }

    fn orphaned(&self, orphan: Option<Inode>) {
        if let Some(orphan) = orphan {
            self.parts.held.orphaned(orphan);
        }
    }
}

fn asked(by: &Identity) -> Asked {
    Asked {
        by: by.clone(),
        now: clock::wall_time(),
    }
}

fn new_file(new: New<'_>) -> NewFile {
    let (kind, target) = match new.kind {
        NewKind::Regular => (FileKind::Regular, None),
        NewKind::Directory => (FileKind::Directory, None),
        NewKind::Symlink(target) => (FileKind::Symlink, Some(Bytes::copy_from_slice(target))),
        NewKind::Special(special) => (FileKind::Special(special), None),
    };
    NewFile {
        kind,
        target,
        permissions: new.permissions,
        exclusivity: new.exclusivity,
    }
}

/// What somebody needs to be allowed to open a file so.
fn wanted(options: OpenOptions) -> AccessMask {
    let part = |is_wanted, mask| if is_wanted { mask } else { AccessMask::EXISTS };
    let reads = part(options.access.reads(), AccessMask::READ);
    let writes = options.access.writes() || options.truncate;
    reads.union(part(writes, AccessMask::WRITE))
}

#[async_trait]
impl Volume for FilesetVolume {
    fn features(&self) -> Features {
        Features {
            file_size_max: i64::MAX as u64,
            links_max: LINKS_MAX,
            xattrs: true,
            random_writes: true,
            persistent_ids: true,
            saves_on_close: true,
            saves_names_behind: true,
            finds_holes: true,
            ..Features::READ_ONLY
        }
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn locks(&self) -> Option<&dyn Locks> {
        Some(&self.locks)
    }

    fn unsaved(&self) -> Unsaved {
        let unsaved = self.parts.files.unsaved();
        let waiting = self.parts.objects.waiting();
        Unsaved {
            bytes: unsaved.bytes + waiting.map_or(0, |spool| spool.waiting().0),
            ..unsaved
        }
    }

    async fn lookup(&self, by: &Identity, dentry: Dentry<'_>) -> FsResult<Lookup> {
        loop {
            let found = self
                .query(|reads| operations::lookup(reads, by, dentry))
                .await?;
            let Some(found) = found else {
                return Ok(Lookup::Absent(believed_for(dentry)));
            };
            if self.parts.held.take(found.inode).is_err() {
                // Its last name went since.
                continue;
            }
            match self.held(found.inode).await {
                Err(FsError::Stale) => {}
                Err(error) => return Err(error),
                Ok(entry) => {
                    let entry_ttl = believed_for(dentry);
                    return Ok(Lookup::Found(Entry { entry_ttl, ..entry }));
                }
            }
        }
    }

    async fn parent(&self, _by: &Identity, directory: Inode) -> FsResult<Entry> {
        let node = self
            .query(|reads| operations::directory(reads, directory))
            .await?;
        let parent = Inode(node.parent);
        self.parts.held.take(parent)?;
        self.held(parent).await
    }

    async fn hold(&self, _by: &Identity, inode: Inode) -> FsResult<Entry> {
        self.parts.held.take(inode)?;
        self.held(inode).await
    }

    fn node_id(&self, inode: Inode) -> Option<NodeId> {
        let number = [self.identity.to_be_bytes(), inode.0.to_be_bytes()];
        NodeId::new(number.as_flattened())
    }

    async fn resolve(&self, by: &Identity, id: &NodeId) -> FsResult<Entry> {
        let (identity, inode) = id.as_bytes().split_at_checked(8).ok_or(FsError::Stale)?;
        let inode = inode.try_into().map_err(|_| FsError::Stale)?;
        match identity == self.identity.to_be_bytes() {
            true => self.hold(by, Inode(u64::from_be_bytes(inode))).await,
            false => Err(FsError::Stale),
        }
    }

    fn forget(&self, inode: Inode, count: u64) {
        self.parts.held.give_back(inode, count);
    }

    async fn attributes(&self, _by: &Identity, inode: Inode) -> FsResult<Entry> {
        let attributes = self
            .query(|reads| operations::attributes(reads, inode))
            .await?;
        Ok(self.entry(attributes))
    }

    async fn set_attributes(
        &self,
        by: &Identity,
        inode: Inode,
        changes: AttributeChanges,
    ) -> FsResult<Entry> {
        check_changeable(inode)?;
        self.change_attributes(by, inode, changes).await
    }

    async fn read_symlink(&self, _by: &Identity, inode: Inode) -> FsResult<Bytes> {
        let target = self.query(|reads| {
            operations::node(reads, inode)?;
            Ok(reads.get(&schema::target(inode))?)
        });
        let target = target.await?;
        target.ok_or(FsError::InvalidArgument("only symbolic links have targets"))
    }

    async fn make(
        &self,
        by: &Identity,
        dentry: Dentry<'_>,
        new: New<'_>,
        open: Option<OpenOptions>,
    ) -> FsResult<Made> {
        if self.is_of_snapshots(dentry) {
            return self.make_snapshot(by, dentry, &new).await;
        }
        self.check_place(dentry)?;
        let new = new_file(new);
        if open.is_some() && new.kind != FileKind::Regular {
            return Err(FsError::InvalidArgument("only files are opened"));
        }
        let is_durable = open.is_none() && new.kind == FileKind::Regular;
        let making = Making {
            asked: asked(by),
            place: Place::new(dentry),
            new,
            inode: self.numbers.next(&*self.parts.engine).await?,
        };
        let made = self.transact(move |transaction| operations::make(transaction, &making));
        let made = made.await?;
        self.parts.held.take(made.inode)?;
        let entry = self.held(made.inode).await?;
        let opened = match open {
            Some(options) => {
                let options = OpenOptions {
                    truncate: options.truncate && made.existed,
                    ..options
                };
                if made.existed {
                    permission::check(&entry.attributes, by, wanted(options))?;
                }
                let opened = self.opened(made.inode, options).await;
                Some(opened.inspect_err(|_| self.parts.held.give_back(made.inode, 1))?)
            }
            None => None,
        };
        if is_durable {
            self.parts.engine.sync().await?;
        }
        Ok(Made {
            entry: match opened.is_some() && made.existed {
                true => self.attributes(by, made.inode).await?,
                false => entry,
            },
            opened,
            existed: made.existed,
            directory: made.directory,
        })
    }

    async fn link(&self, by: &Identity, inode: Inode, dentry: Dentry<'_>) -> FsResult<Made> {
        self.check_place(dentry)?;
        check_changeable(inode)?;
        let (asked, place) = (asked(by), Place::new(dentry));
        let linked =
            self.transact(move |transaction| operations::link(transaction, &asked, inode, &place));
        let directory = linked.await?;
        self.parts.held.take(inode)?;
        Ok(Made {
            directory,
            ..Made::new(self.held(inode).await?)
        })
    }

    async fn remove(
        &self,
        by: &Identity,
        dentry: Dentry<'_>,
        kind: RemoveKind,
    ) -> FsResult<Change> {
        if self.is_of_snapshots(dentry) {
            return self.drop_snapshot(by, dentry, kind).await;
        }
        check_changeable(dentry.parent)?;
        let (asked, place) = (asked(by), Place::new(dentry));
        let removed =
            self.transact(move |transaction| operations::remove(transaction, &asked, &place, kind));
        let removed = removed.await?;
        self.orphaned(removed.orphan);
        Ok(removed.directory)
    }

    async fn rename(
        &self,
        by: &Identity,
        source: Dentry<'_>,
        target: Dentry<'_>,
        mode: RenameMode,
    ) -> FsResult<Renamed> {
        self.check_place(target)?;
        check_changeable(source.parent)?;
        let renaming = Renaming {
            asked: asked(by),
            source: Place::new(source),
            target: Place::new(target),
            mode,
        };
        let moved = self.transact(move |transaction| operations::rename(transaction, &renaming));
        let moved = moved.await?;
        self.orphaned(moved.orphan);
        Ok(moved.renamed)
    }

    async fn open(&self, by: &Identity, inode: Inode, options: OpenOptions) -> FsResult<Opened> {
        let file = self
            .query(|reads| operations::attributes(reads, inode))
            .await?;
        match file.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsADirectory),
            _ => return Err(FsError::InvalidArgument("only files are opened")),
        }
        if wanted(options).contains(AccessMask::WRITE) {
            check_changeable(inode)?;
        }
        permission::check(&file, by, wanted(options))?;
        self.opened(inode, options).await
    }

    async fn read(&self, _by: &Identity, at: Position, length: u32) -> FsResult<Payload> {
        let read = self.parts.files.read(at, length).await;
        match read {
            Err(error) => Err(self.why_not_read(at.handle, error).await),
            read => read,
        }
    }

    async fn write(
        &self,
        by: &Identity,
        handle: HandleId,
        place: WritePlace,
        data: Bytes,
    ) -> FsResult<Written> {
        self.parts.files.write(by, handle, (place, data)).await
    }

    async fn allocate(
        &self,
        _by: &Identity,
        handle: HandleId,
        range: Range<u64>,
        allocation: Allocation,
    ) -> FsResult<()> {
        let handle = self.parts.files.handle(handle)?;
        if !handle.access.writes() {
            return Err(FsError::BadHandle);
        }
        self.parts
            .files
            .allocate(handle.file, range, allocation)
            .await
    }

    async fn seek(&self, from: Position, wanted: Seek) -> FsResult<u64> {
        self.parts.files.seek(from, wanted).await
    }

    async fn flush(&self, handle: HandleId) -> FsResult<()> {
        let handle = self.parts.files.handle(handle)?;
        match handle.access.writes() {
            // As on a local disk: a killed process loses nothing of it, a power cut may.
            true if self.parts.objects.waiting().is_some() => {
                self.parts.files.hand_over(&handle.file).await
            }
            true => self.parts.files.sync(&handle.file).await,
            false => Ok(()),
        }
    }

    async fn sync(&self, handle: HandleId, _range: Range<u64>, _data_only: bool) -> FsResult<()> {
        let handle = self.parts.files.handle(handle)?;
        self.parts.files.sync(&handle.file).await
    }

    async fn sync_directory(&self, handle: HandleId) -> FsResult<()> {
        self.listings.find(handle, 0)?;
        Ok(self.parts.engine.sync().await?)
    }

    async fn release(&self, handle: HandleId) {
        if let Some(file) = self.parts.files.close(handle) {
            self.parts.held.give_back(file.inode, 1);
        }
    }

    async fn open_directory(&self, by: &Identity, inode: Inode) -> FsResult<HandleId> {
        let attributes = self
            .query(|reads| operations::directory_attributes(reads, inode))
            .await?;
        permission::check(&attributes, by, AccessMask::READ)?;
        self.parts.held.take(inode)?;
        let handle = self.parts.files.next_handle();
        self.listings.open(handle, inode);
        Ok(handle)
    }

    async fn read_directory(
        &self,
        handle: HandleId,
        from: ListFrom<'_>,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        let (directory, after) = match from {
            ListFrom::After(name) => (self.listings.find(handle, 0)?.0, Some(name.clone())),
            ListFrom::Position(0) => (self.listings.find(handle, 0)?.0, None),
            ListFrom::Position(position) => {
                let (directory, remembered) = self.listings.find(handle, position)?;
                let look =
                    |reads: &dyn Reads| operations::find_position(reads, directory, position);
                let name = match remembered {
                    Some(name) => Some(name),
                    None => self.query(look).await?,
                };
                let gone = FsError::InvalidArgument("the directory changed since that position");
                (directory, Some(name.ok_or(gone)?))
            }
        };
        self.list_into((directory, after), Some(handle), sink).await
    }

    async fn release_directory(&self, handle: HandleId) {
        if let Some(inode) = self.listings.close(handle) {
            self.parts.held.give_back(inode, 1);
        }
    }

    async fn xattr(&self, by: &Identity, inode: Inode, name: &[u8]) -> FsResult<Bytes> {
        self.query(|reads| operations::xattr(reads, by, inode, name))
            .await
    }

    async fn xattrs(&self, _by: &Identity, inode: Inode) -> FsResult<Vec<Bytes>> {
        self.query(|reads| operations::xattrs(reads, inode)).await
    }

    async fn set_xattr(
        &self,
        by: &Identity,
        inode: Inode,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<()> {
        check_changeable(inode)?;
        let asked = asked(by);
        let attribute = Attribute {
            name: Bytes::copy_from_slice(name),
            value: Bytes::copy_from_slice(value),
        };
        self.transact(move |transaction| {
            operations::set_xattr(transaction, &asked, inode, (&attribute, mode))
        })
        .await
    }

    async fn remove_xattr(&self, by: &Identity, inode: Inode, name: &[u8]) -> FsResult<()> {
        check_changeable(inode)?;
        let (asked, name) = (asked(by), name.to_vec());
        self.transact(move |transaction| {
            operations::remove_xattr(transaction, &asked, inode, &name)
        })
        .await
    }

    async fn statistics(&self, _by: &Identity, _inode: Inode) -> FsResult<Statistics> {
        let usage = usage(&*self.parts.engine).await?;
        let used = usage.bytes.div_ceil(STATISTICS_BLOCK);
        let blocks = SEEMING_BYTES / STATISTICS_BLOCK;
        let free = blocks.saturating_sub(used);
        Ok(Statistics {
            block_size: STATISTICS_BLOCK as u32,
            blocks,
            blocks_free: free,
            blocks_available: free,
            files: SEEMING_FILES,
            files_free: SEEMING_FILES.saturating_sub(usage.files),
            name_length_max: self.features().name_bytes_max,
        })
    }

    async fn shut_down(&self) -> Vec<(String, FsError)> {
        self.parts.files.end_folding().await;
        let failed = self.parts.files.save_all().await;
        let failed = failed.into_iter();
        let mut failed: Vec<_> = failed
            .map(|(file, error)| (format!("inode {}", file.inode.0), error))
            .collect();
        if let Err(error) = uploads::drain(&self.parts).await {
            let what = "bytes that are on this disk alone".to_owned();
            failed.push((what, error));
        }
        if let Err(error) = collector::work(&self.parts).await {
            tracing::info!(%error, "what removed files left is cleared away when the file system is opened again");
        }
        if let Err(error) = self.parts.engine.close().await {
            failed.push(("the metadata".to_owned(), error.into()));
        }
        failed
    }
}
