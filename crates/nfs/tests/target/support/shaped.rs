//! The volume in memory with what a test wants of it: operations that are held back, writes that are lost, no lasting
//! numbers.

use std::{
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use penstock_base::{FsError, FsResult, Payload};
use penstock_vfs::{
    AttributeChanges, CallId, Change, Dentry, DirectorySink, Durability, Entry, Exclusivity,
    Features, Given, HandleId, Identity, Inode, ListFrom, Lock, LockFamily, LockOwner, Locks,
    Lookup, Made, New, NodeId, OpenOptions, Opened, Position, RemoveKind, RenameMode, Renamed,
    Statistics, Volume, Waiting, WritePlace, Written,
};
use penstock_vfs_conformance::MemoryVolume;
use tokio::sync::watch;

/// What a volume is like.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub lasting: bool,
    pub random_writes: bool,
    /// Writes are not durable before they are synced.
    pub accepts: bool,
    /// It keeps the number of an exclusive create.
    pub verifies: bool,
    pub links_max: u32,
    pub locks: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            lasting: true,
            random_writes: true,
            accepts: false,
            verifies: true,
            links_max: 1000,
            locks: true,
        }
    }
}

/// See the module.
pub struct Shaped {
    pub inner: MemoryVolume,
    shape: Shape,
    /// READs wait while this is true.
    reads_held: watch::Sender<bool>,
    removals_held: watch::Sender<bool>,
    writes_held: watch::Sender<bool>,
    locks_held: watch::Sender<bool>,
    unlocks_held: watch::Sender<bool>,
    resolves_held: watch::Sender<bool>,
    syncs_held: watch::Sender<bool>,
    releases_held: watch::Sender<bool>,
    /// Reads and removals that were begun.
    pub begun: AtomicU64,
    pub syncs: AtomicU64,
    pub opens: AtomicU64,
    pub releases: AtomicU64,
    pub sync_fails: AtomicBool,
    /// What renames fail with.
    pub rename_fails: Mutex<Option<FsError>>,
    pub epoch: AtomicU64,
    /// Where writes went, in their order.
    pub written: Mutex<Vec<u64>>,
    /// References that were taken and not given back.
    pub references: AtomicU64,
}

impl Default for Shaped {
    fn default() -> Self {
        Self::new(Shape::default())
    }
}

impl Shaped {
    pub fn new(shape: Shape) -> Self {
        Self {
            inner: MemoryVolume::new(),
            shape,
            reads_held: watch::Sender::new(false),
            removals_held: watch::Sender::new(false),
            writes_held: watch::Sender::new(false),
            locks_held: watch::Sender::new(false),
            unlocks_held: watch::Sender::new(false),
            resolves_held: watch::Sender::new(false),
            syncs_held: watch::Sender::new(false),
            releases_held: watch::Sender::new(false),
            begun: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            releases: AtomicU64::new(0),
            sync_fails: AtomicBool::new(false),
            rename_fails: Mutex::default(),
            epoch: AtomicU64::new(0x0102_0304_0506_0708),
            written: Mutex::default(),
            references: AtomicU64::new(0),
        }
    }

    pub fn hold_reads(&self, held: bool) {
        self.reads_held.send_replace(held);
    }

    pub fn hold_removals(&self, held: bool) {
        self.removals_held.send_replace(held);
    }

    pub fn hold_writes(&self, held: bool) {
        self.writes_held.send_replace(held);
    }

    pub fn hold_locks(&self, held: bool) {
        self.locks_held.send_replace(held);
    }

    /// Ranges are given back late while this is so.
    pub fn hold_unlocks(&self, held: bool) {
        self.unlocks_held.send_replace(held);
    }

    /// Files of handles are found late while this is so.
    pub fn hold_resolves(&self, held: bool) {
        self.resolves_held.send_replace(held);
    }

    /// What was written is made durable late while this is so.
    pub fn hold_syncs(&self, held: bool) {
        self.syncs_held.send_replace(held);
    }

    /// Files are closed late while this is so.
    pub fn hold_releases(&self, held: bool) {
        self.releases_held.send_replace(held);
    }

    fn inner_locks(&self) -> &dyn Locks {
        self.inner.locks().expect("a volume in memory has locks")
    }

    async fn pass(&self, held: &watch::Sender<bool>) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let _ = held.subscribe().wait_for(|held| !held).await;
    }

    fn took<T>(&self, outcome: FsResult<T>) -> FsResult<T> {
        outcome.inspect(|_| {
            self.references.fetch_add(1, Ordering::SeqCst);
        })
    }
}

#[async_trait]
impl Volume for Shaped {
    fn features(&self) -> Features {
        Features {
            persistent_ids: self.shape.lasting,
            random_writes: self.shape.random_writes,
            links_max: self.shape.links_max,
            ..self.inner.features()
        }
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    fn locks(&self) -> Option<&dyn Locks> {
        self.shape.locks.then_some(self)
    }

    async fn lookup(&self, by: &Identity, dentry: Dentry<'_>) -> FsResult<Lookup> {
        let found = self.inner.lookup(by, dentry).await?;
        match found {
            Lookup::Found(_) => self.took(Ok(found)),
            absent => Ok(absent),
        }
    }

    async fn parent(&self, by: &Identity, directory: Inode) -> FsResult<Entry> {
        self.took(self.inner.parent(by, directory).await)
    }

    async fn hold(&self, by: &Identity, inode: Inode) -> FsResult<Entry> {
        self.took(self.inner.hold(by, inode).await)
    }

    fn node_id(&self, inode: Inode) -> Option<NodeId> {
        self.shape.lasting.then(|| self.inner.node_id(inode))?
    }

    async fn resolve(&self, by: &Identity, id: &NodeId) -> FsResult<Entry> {
        let _ = self.resolves_held.subscribe().wait_for(|held| !held).await;
        self.took(self.inner.resolve(by, id).await)
    }

    fn forget(&self, inode: Inode, count: u64) {
        self.references.fetch_sub(count, Ordering::SeqCst);
        self.inner.forget(inode, count);
    }

    async fn attributes(&self, by: &Identity, inode: Inode) -> FsResult<Entry> {
        self.inner.attributes(by, inode).await
    }

    async fn set_attributes(
        &self,
        by: &Identity,
        inode: Inode,
        changes: AttributeChanges,
    ) -> FsResult<Entry> {
        self.inner.set_attributes(by, inode, changes).await
    }

    async fn read_symlink(&self, by: &Identity, inode: Inode) -> FsResult<Bytes> {
        self.inner.read_symlink(by, inode).await
    }

    async fn knows_call(&self, call: &CallId) -> FsResult<bool> {
        self.inner.knows_call(call).await
    }

    async fn make(
        &self,
        by: &Identity,
        dentry: Dentry<'_>,
        new: New<'_>,
        open: Option<OpenOptions>,
    ) -> FsResult<Made> {
        if !self.shape.verifies && matches!(new.exclusivity, Exclusivity::Verified(_)) {
            return Err(FsError::Unsupported("no numbers are kept"));
        }
        self.took(self.inner.make(by, dentry, new, open).await)
    }

    async fn link(&self, by: &Identity, inode: Inode, dentry: Dentry<'_>) -> FsResult<Made> {
        self.took(self.inner.link(by, inode, dentry).await)
    }

    async fn remove(
        &self,
        by: &Identity,
        dentry: Dentry<'_>,
        kind: RemoveKind,
    ) -> FsResult<Change> {
        self.pass(&self.removals_held).await;
        self.inner.remove(by, dentry, kind).await
    }

    async fn rename(
        &self,
        by: &Identity,
        source: Dentry<'_>,
        target: Dentry<'_>,
        mode: RenameMode,
    ) -> FsResult<Renamed> {
        let failure = self.rename_fails.lock().unwrap().clone();
        failure.map_or(Ok(()), Err)?;
        self.inner.rename(by, source, target, mode).await
    }

    async fn open(&self, by: &Identity, inode: Inode, options: OpenOptions) -> FsResult<Opened> {
        self.opens.fetch_add(1, Ordering::SeqCst);
        self.inner.open(by, inode, options).await
    }

    async fn read(&self, by: &Identity, at: Position, length: u32) -> FsResult<Payload> {
        self.pass(&self.reads_held).await;
        self.inner.read(by, at, length).await
    }

    async fn write(
        &self,
        by: &Identity,
        handle: HandleId,
        place: WritePlace,
        data: Bytes,
    ) -> FsResult<Written> {
        self.pass(&self.writes_held).await;
        self.written.lock().unwrap().push(place.offset());
        let written = self.inner.write(by, handle, place, data).await?;
        Ok(match self.shape.accepts {
            true => Written {
                durability: Durability::Accepted,
                ..written
            },
            false => written,
        })
    }

    async fn sync(&self, handle: HandleId, range: Range<u64>, data_only: bool) -> FsResult<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        let _ = self.syncs_held.subscribe().wait_for(|held| !held).await;
        if self.sync_fails.load(Ordering::SeqCst) {
            return Err(FsError::Io("the store is gone".to_owned()));
        }
        self.inner.sync(handle, range, data_only).await
    }

    async fn flush(&self, handle: HandleId) -> FsResult<()> {
        self.inner.flush(handle).await
    }

    async fn release(&self, handle: HandleId) {
        self.releases.fetch_add(1, Ordering::SeqCst);
        let _ = self.releases_held.subscribe().wait_for(|held| !held).await;
        self.inner.release(handle).await;
    }

    async fn open_directory(&self, by: &Identity, inode: Inode) -> FsResult<HandleId> {
        self.inner.open_directory(by, inode).await
    }

    async fn read_directory(
        &self,
        handle: HandleId,
        from: ListFrom<'_>,
        sink: &mut dyn DirectorySink,
    ) -> FsResult<()> {
        let mut counting = Counting { sink, taken: 0 };
        let listed = self.inner.read_directory(handle, from, &mut counting).await;
        self.references.fetch_add(counting.taken, Ordering::SeqCst);
        listed
    }

    async fn release_directory(&self, handle: HandleId) {
        self.inner.release_directory(handle).await;
    }

    async fn statistics(&self, by: &Identity, inode: Inode) -> FsResult<Statistics> {
        self.inner.statistics(by, inode).await
    }
}

#[async_trait]
impl Locks for Shaped {
    async fn conflict(
        &self,
        inode: Inode,
        family: LockFamily,
        wanted: &Lock,
    ) -> FsResult<Option<Lock>> {
        self.inner_locks().conflict(inode, family, wanted).await
    }

    async fn acquire(
        &self,
        inode: Inode,
        family: LockFamily,
        wanted: Lock,
        waiting: Waiting,
    ) -> FsResult<Given> {
        self.pass(&self.locks_held).await;
        let locks = self.inner_locks();
        locks.acquire(inode, family, wanted, waiting).await
    }

    async fn release(&self, inode: Inode, family: LockFamily, held: (LockOwner, Range<u64>)) {
        self.pass(&self.unlocks_held).await;
        self.inner_locks().release(inode, family, held).await;
    }

    async fn release_client(&self, client: u64) {
        self.inner_locks().release_client(client).await;
    }
}

/// Counts the references that a sink takes.
struct Counting<'a> {
    sink: &'a mut dyn DirectorySink,
    taken: u64,
}

impl DirectorySink for Counting<'_> {
    fn detail(&self) -> penstock_vfs::Detail {
        self.sink.detail()
    }

    fn push(
        &mut self,
        next: u64,
        name: &penstock_base::FileName,
        entry: &Entry,
    ) -> std::ops::ControlFlow<()> {
        let flow = self.sink.push(next, name, entry);
        let gives = self.sink.detail() == penstock_vfs::Detail::Attributes;
        self.taken += u64::from(gives && flow.is_continue());
        flow
    }
}
