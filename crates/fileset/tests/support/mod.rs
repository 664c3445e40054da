//! A file system under test: an embedded engine, a bucket in memory, and a way to let it crash.

#![allow(unreachable_pub, dead_code, reason = "each test file uses some of it")]

pub mod some;

use std::{
    future::Future,
    ops::{ControlFlow, Range},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use penstock_base::{BufferPool, FileName, FsError, FsResult, MemoryBudget, clock};
use penstock_fileset::{
    AccessTimes, Ahead, Coherence, FilesetVolume, Format, Inlined, Opening, Spool,
    check::check,
    engine::{
        Barrier, EmbeddedEngine, EmbeddedLock, EmbeddedSettings, Engine, EngineError, EngineResult,
        Operation as EngineOperation, Query,
    },
};
use penstock_object::{
    ListOptions, Store,
    sealed::{DataKey, Sealed},
};
use penstock_object_testing::{Faults, Faulty, MemoryStore};
use penstock_transfer::Transfer;
use penstock_vfs::{
    Allocation, AttributeChanges, Attributes, Dentry, Detail, DirectorySink, Entry, Exclusivity,
    HandleId, Identity, Inode, ListFrom, Lookup, New, NewKind, OpenOptions, Position, RemoveKind,
    RenameMode, Seek, Statistics, Volume, WritePlace, XattrMode,
};
use tokio::sync::Notify;

pub const ROOT: Inode = Inode::ROOT;
const MEMORY: u64 = 128 << 20;

/// A file system and who uses it.
#[derive(Clone)]
pub struct Place {
    pub volume: Arc<FilesetVolume>,
    pub engine: Arc<dyn Engine>,
    /// The bucket itself, whatever fails on the way to it.
    pub bucket: Arc<dyn Store>,
    /// The same as whoever has no key sees it, where it is encrypted.
    pub raw: Arc<dyn Store>,
    pub faults: Arc<Faults>,
    /// The way to the bucket, on which things fail.
    way: Arc<dyn Store>,
    /// As a mount has it.
    pub ahead: Option<Ahead>,
    pub memory: Arc<MemoryBudget>,
    /// Where the metadata and the spool are, unless somebody else has the keys.
    directory: Option<Arc<tempfile::TempDir>>,
    by: Identity,
}

/// Where small files are before the bucket has an object with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Small {
    /// Nowhere: each save stores an object.
    Stored,
    /// As with `durability=local`.
    Spooled,
    /// As with `durability=store`.
    Inlined,
}

impl Small {
    pub const ALL: [Self; 3] = [Self::Stored, Self::Spooled, Self::Inlined];
}

pub fn name(text: &str) -> FileName {
    FileName::new(text.as_bytes()).unwrap()
}

/// Somebody whom nobody has checked.
pub fn user(uid: u32) -> Identity {
    Identity::new(uid, uid, [])
}

pub fn file(permissions: u16) -> New<'static> {
    New {
        kind: NewKind::Regular,
        permissions,
        umask: 0,
        exclusivity: Exclusivity::New,
    }
}

pub fn directory(permissions: u16) -> New<'static> {
    New {
        kind: NewKind::Directory,
        ..file(permissions)
    }
}

fn lock(directory: &Path) -> EmbeddedLock {
    let settings = EmbeddedSettings {
        directory: directory.join("metadata"),
        memory: 16 << 20,
    };
    EmbeddedLock::take(&settings).unwrap()
}

/// The metadata in a directory, and the spool there before `way` if there is to be one.
fn open_engine(
    directory: &Path,
    (small, way): (Small, &Arc<dyn Store>),
) -> (Arc<dyn Engine>, Option<Arc<Spool>>) {
    let lock = lock(directory);
    let spool = (small == Small::Spooled).then(|| open_spool(directory, way, &lock));
    let barrier = spool.clone().map(|spool| spool as Arc<dyn Barrier>);
    let engine = EmbeddedEngine::open_locked(lock, barrier);
    (Arc::new(engine.unwrap()), spool)
}

/// What is before the bucket.
async fn open_ahead(
    engine: &Arc<dyn Engine>,
    spool: Option<Arc<Spool>>,
    (small, way): (Small, &Arc<dyn Store>),
) -> Option<Ahead> {
    if small == Small::Inlined {
        let inlined = Inlined::open(Arc::clone(engine), Arc::clone(way)).await;
        return Some(Ahead::Inlined(inlined.unwrap()));
    }
    spool.map(Ahead::Spool)
}

/// The bucket as a volume reads it.
fn read_through(ahead: Option<&Ahead>, way: &Arc<dyn Store>) -> Arc<dyn Store> {
    match ahead {
        Some(Ahead::Spool(spool)) => spool.clone(),
        Some(Ahead::Inlined(inlined)) => inlined.clone(),
        None => Arc::clone(way),
    }
}

fn open_spool(directory: &Path, way: &Arc<dyn Store>, lock: &EmbeddedLock) -> Arc<Spool> {
    Spool::open(&directory.join("spool"), Arc::clone(way), lock).unwrap()
}

/// `store` as whoever has the key sees it, if there is one.
fn seen_with(key: Option<&DataKey>, store: Arc<dyn Store>) -> Arc<dyn Store> {
    match key {
        Some(key) => Arc::new(Sealed::new(store, key.clone(), 8 << 20)),
        None => store,
    }
}

async fn open_volume(
    engine: &Arc<dyn Engine>,
    way: &Arc<dyn Store>,
    (ahead, memory): (Option<&Ahead>, &Arc<MemoryBudget>),
) -> Arc<FilesetVolume> {
    open_coherent(engine, way, (ahead, memory), Coherence::default()).await
}

async fn open_coherent(
    engine: &Arc<dyn Engine>,
    way: &Arc<dyn Store>,
    (ahead, memory): (Option<&Ahead>, &Arc<MemoryBudget>),
    coherence: Coherence,
) -> Arc<FilesetVolume> {
    let pool = BufferPool::new(Arc::clone(memory));
    let transfer = Transfer::new(read_through(ahead, way), pool);
    let how = Opening {
        ahead: ahead.cloned(),
        coherence,
        ..Opening::default()
    };
    FilesetVolume::open_with(Arc::clone(engine), transfer, how)
        .await
        .unwrap()
}

/// Copies a directory with all below it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

/// An engine that keeps one of the next operations or syncs back until it is told to go on.
#[derive(Debug)]
pub struct Gate {
    inner: Arc<dyn Engine>,
    /// Operations until the one that waits; 0 for none.
    until: AtomicU64,
    /// The same of syncs.
    until_sync: AtomicU64,
    /// The same until the one that finds no room.
    until_full: AtomicU64,
    open: Notify,
    /// Rings when it waits.
    pub reached: Notify,
}

impl Gate {
    /// The `nth` operation from now on waits.
    pub fn hold(&self, nth: u64) {
        self.until.store(nth, Ordering::SeqCst);
    }

    /// The next sync waits.
    pub fn hold_sync(&self) {
        self.until_sync.store(1, Ordering::SeqCst);
    }

    /// The `nth` operation from now on finds no room on the disk.
    pub fn refuse(&self, nth: u64) {
        self.until_full.store(nth, Ordering::SeqCst);
    }

    /// What waits goes on.
    pub fn go_on(&self) {
        self.open.notify_one();
    }

    async fn pass(&self, until: &AtomicU64) {
        if is_it(until) {
            self.reached.notify_one();
            self.open.notified().await;
        }
    }
}

/// Whether this is the one that is counted down to.
fn is_it(until: &AtomicU64) -> bool {
    let count = |left: u64| left.checked_sub(1);
    let before = until.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count);
    before == Ok(1)
}

#[async_trait::async_trait]
impl Engine for Gate {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        self.inner.run_query(query).await
    }

    async fn run(&self, operation: EngineOperation) -> EngineResult<()> {
        self.pass(&self.until).await;
        if is_it(&self.until_full) {
            return Err(EngineError::Full("as it was told".to_owned()));
        }
        self.inner.run(operation).await
    }

    async fn sync(&self) -> EngineResult<()> {
        self.pass(&self.until_sync).await;
        self.inner.sync().await
    }

    async fn hand_over(&self) -> EngineResult<()> {
        self.inner.hand_over().await
    }

    async fn close(&self) -> EngineResult<()> {
        self.inner.close().await
    }
}

impl Place {
    /// An empty file system of root's.
    pub async fn new() -> Self {
        Self::with_memory(MEMORY).await
    }

    /// The same with this many bytes for what is read and written.
    pub async fn with_memory(bytes: u64) -> Self {
        let ground = (tempfile::tempdir().unwrap(), bytes);
        Self::over(ground, |engine| engine, Small::Stored).await
    }

    /// The same whose bucket is encrypted.
    pub async fn encrypted_with_memory(bytes: u64) -> Self {
        let ground = (tempfile::tempdir().unwrap(), bytes);
        let key = DataKey::random().unwrap();
        Self::sealed_over(ground, |engine| engine, (Small::Stored, Some(key))).await
    }

    /// The same with a spool.
    pub async fn encrypted_and_spooled() -> Self {
        let ground = (tempfile::tempdir().unwrap(), MEMORY);
        let key = DataKey::random().unwrap();
        Self::sealed_over(ground, |engine| engine, (Small::Spooled, Some(key))).await
    }

    /// The same whose metadata is below `path`.
    pub async fn on(path: &Path) -> Self {
        let ground = (tempfile::tempdir_in(path).unwrap(), MEMORY);
        Self::over(ground, |engine| engine, Small::Stored).await
    }

    /// The same whose small files wait for the bucket in a spool.
    pub async fn spooled() -> Self {
        let ground = (tempfile::tempdir().unwrap(), MEMORY);
        Self::over(ground, |engine| engine, Small::Spooled).await
    }

    /// The same whose small files are with the metadata first.
    pub async fn inlined() -> Self {
        Self::with_small(Small::Inlined).await
    }

    /// The same with small files there.
    pub async fn with_small(small: Small) -> Self {
        let ground = (tempfile::tempdir().unwrap(), MEMORY);
        Self::over(ground, |engine| engine, small).await
    }

    /// The same with an engine that can be kept waiting.
    pub async fn inlined_and_gated() -> (Self, Arc<Gate>) {
        Self::with_gate(Small::Inlined).await
    }

    /// The same whose bucket is encrypted.
    pub async fn encrypted_with_small(small: Small) -> Self {
        let ground = (tempfile::tempdir().unwrap(), MEMORY);
        let key = DataKey::random().unwrap();
        Self::sealed_over(ground, |engine| engine, (small, Some(key))).await
    }

    /// The same with another engine around its own.
    pub async fn around(around: impl FnOnce(Arc<dyn Engine>) -> Arc<dyn Engine>) -> Self {
        let ground = (tempfile::tempdir().unwrap(), MEMORY);
        Self::over(ground, around, Small::Stored).await
    }

    /// The same with an engine that can be kept waiting.
    pub async fn gated() -> (Self, Arc<Gate>) {
        Self::with_gate(Small::Stored).await
    }

    /// The same with a spool.
    pub async fn spooled_and_gated() -> (Self, Arc<Gate>) {
        Self::with_gate(Small::Spooled).await
    }

    async fn with_gate(small: Small) -> (Self, Arc<Gate>) {
        let mut gate = None;
        let around = |inner| {
            let made = Arc::new(Gate {
                inner,
                until: AtomicU64::new(0),
                until_sync: AtomicU64::new(0),
                until_full: AtomicU64::new(0),
                open: Notify::new(),
                reached: Notify::new(),
            });
            gate = Some(Arc::clone(&made));
            made as Arc<dyn Engine>
        };
        let ground = (tempfile::tempdir().unwrap(), MEMORY);
        let place = Self::over(ground, around, small).await;
        (place, gate.unwrap())
    }

    /// A machine that has keys and a bucket which others have at the same time.
    pub async fn sharing(engine: Arc<dyn Engine>, bucket: Arc<dyn Store>) -> Self {
        Self::sharing_with(engine, bucket, Small::Stored).await
    }

    /// The same with strict coherence.
    pub async fn sharing_strictly(engine: Arc<dyn Engine>, bucket: Arc<dyn Store>) -> Self {
        Self::sharing_as(engine, bucket, (Small::Stored, Coherence::Strict)).await
    }

    /// The same with small files there.
    pub async fn sharing_with(
        engine: Arc<dyn Engine>,
        bucket: Arc<dyn Store>,
        small: Small,
    ) -> Self {
        Self::sharing_as(engine, bucket, (small, Coherence::default())).await
    }

    async fn sharing_as(
        engine: Arc<dyn Engine>,
        bucket: Arc<dyn Store>,
        (small, coherence): (Small, Coherence),
    ) -> Self {
        let memory = MemoryBudget::new(MEMORY);
        let faults = Faults::new(1);
        let faulty = Faulty::new(Arc::clone(&bucket), Arc::clone(&faults));
        let way: Arc<dyn Store> = Arc::new(faulty);
        let ahead = open_ahead(&engine, None, (small, &way)).await;
        let with = (ahead.as_ref(), &memory);
        let volume = open_coherent(&engine, &way, with, coherence).await;
        Self {
            memory,
            volume,
            engine,
            raw: Arc::clone(&bucket),
            bucket,
            faults,
            way,
            ahead,
            directory: None,
            by: Identity::new(0, 0, []),
        }
    }

    async fn over(
        ground: (tempfile::TempDir, u64),
        around: impl FnOnce(Arc<dyn Engine>) -> Arc<dyn Engine>,
        small: Small,
    ) -> Self {
        Self::sealed_over(ground, around, (small, None)).await
    }

    async fn sealed_over(
        (directory, memory): (tempfile::TempDir, u64),
        around: impl FnOnce(Arc<dyn Engine>) -> Arc<dyn Engine>,
        (small, key): (Small, Option<DataKey>),
    ) -> Self {
        let raw: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let faults = Faults::new(1);
        let bucket = seen_with(key.as_ref(), Arc::clone(&raw));
        let faulty = Faulty::new(Arc::clone(&raw), Arc::clone(&faults));
        let way = seen_with(key.as_ref(), Arc::new(faulty));
        let (engine, spool) = open_engine(directory.path(), (small, &way));
        let engine = around(engine);
        let by = Identity::new(0, 0, []);
        FilesetVolume::format(&*engine, &by, Format::new(1))
            .await
            .unwrap();
        let memory = MemoryBudget::new(memory);
        let ahead = open_ahead(&engine, spool, (small, &way)).await;
        let volume = open_volume(&engine, &way, (ahead.as_ref(), &memory)).await;
        Self {
            memory,
            volume,
            engine,
            bucket,
            raw,
            faults,
            way,
            ahead,
            directory: Some(Arc::new(directory)),
            by,
        }
    }

    /// The same file system, used by somebody else.
    pub fn by(&self, by: Identity) -> Self {
        Self { by, ..self.clone() }
    }

    /// The same file system, served beside it so that reading sets times.
    pub async fn noting(&self, access_times: AccessTimes) -> Self {
        let how = Opening {
            access_times,
            ..Opening::default()
        };
        let opened = FilesetVolume::open_with(Arc::clone(&self.engine), self.transfer(), how);
        Self {
            volume: opened.await.unwrap(),
            ..self.clone()
        }
    }

    /// What is on the disk now is all that is left: as after a kill. What ran goes on with the old files.
    pub async fn crash(&mut self) {
        self.crash_with(|_| ()).await;
    }

    /// The same after the power went, of which the spool has lost all but `kept` bytes of each object. The first mount
    /// after that comes no farther than to open the spool.
    pub async fn lose_power(&mut self, kept: u64) {
        let way = Arc::clone(&self.way);
        let lose = |left: &Path| {
            for entry in std::fs::read_dir(left.join("spool")).unwrap() {
                let path = entry.unwrap().path();
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                let length = file.metadata().unwrap().len();
                file.set_len(match path.ends_with("boot") {
                    true => 0,
                    false => length.min(kept),
                })
                .unwrap();
            }
            drop(open_spool(left, &way, &lock(left)));
        };
        self.crash_with(lose).await;
    }

    async fn crash_with(&mut self, lose: impl FnOnce(&Path)) {
        let left = tempfile::tempdir().unwrap();
        copy(self.ground(), left.path());
        lose(left.path());
        let small = (self.small(), &self.way);
        let (engine, spool) = open_engine(left.path(), small);
        self.ahead = open_ahead(&engine, spool, small).await;
        self.engine = engine;
        self.memory = MemoryBudget::new(self.memory.total());
        let means = (self.ahead.as_ref(), &self.memory);
        self.volume = open_volume(&self.engine, &self.way, means).await;
        // The old one must not go before what uses it does.
        std::mem::forget(self.directory.replace(Arc::new(left)));
    }

    /// Where small files are first.
    pub fn small(&self) -> Small {
        match self.ahead {
            None => Small::Stored,
            Some(Ahead::Spool(_)) => Small::Spooled,
            Some(Ahead::Inlined(_)) => Small::Inlined,
        }
    }

    /// Bytes and objects that wait for the bucket.
    pub fn waiting(&self) -> (u64, u64) {
        self.ahead.as_ref().map_or((0, 0), Ahead::waiting)
    }

    fn ground(&self) -> &Path {
        self.directory.as_ref().expect("its own engine").path()
    }

    /// A way to the bucket for a command.
    pub fn transfer(&self) -> Arc<Transfer> {
        let pool = BufferPool::new(MemoryBudget::new(16 << 20));
        Transfer::new(read_through(self.ahead.as_ref(), &self.bucket), pool)
    }

    /// Fails unless a check finds nothing.
    pub async fn is_whole(&self) {
        let report = check(&*self.engine, &*self.bucket, self.ahead.as_ref())
            .await
            .unwrap();
        assert!(report.is_clean(), "{report:#?}");
    }

    /// The same while the bucket cannot be asked: all is in the spool.
    pub async fn is_whole_without_the_bucket(&self) {
        let bucket = MemoryStore::new();
        let report = check(&*self.engine, &bucket, self.ahead.as_ref());
        let report = report.await.unwrap();
        assert!(report.is_clean(), "{report:#?}");
    }

    /// From now on the spool cannot make files.
    pub fn break_spool(&self) {
        std::fs::remove_dir_all(self.ground().join("spool")).unwrap();
    }

    /// Waits for something that goes on behind the volume.
    pub async fn until<F: Future<Output = bool>>(&self, is_so: impl Fn() -> F) {
        let waited = clock::deadline(Duration::from_secs(30), async {
            while !is_so().await {
                clock::sleep(Duration::from_millis(5)).await;
            }
        });
        waited.await.unwrap();
    }

    pub async fn find(&self, parent: Inode, text: &str) -> FsResult<Attributes> {
        let name = name(text);
        match self
            .volume
            .lookup(&self.by, Dentry::new(parent, &name))
            .await?
        {
            Lookup::Found(entry) => Ok(entry.attributes),
            Lookup::Absent(_) => Err(FsError::NotFound),
        }
    }

    pub async fn make(&self, parent: Inode, text: &str, new: New<'_>) -> FsResult<Inode> {
        let name = name(text);
        let made = self
            .volume
            .make(&self.by, Dentry::new(parent, &name), new, None)
            .await?;
        Ok(made.entry.attributes.inode)
    }

    /// Writes a file whole, new or not.
    pub async fn store(&self, parent: Inode, text: &str, content: &[u8]) -> FsResult<()> {
        let new = New {
            exclusivity: Exclusivity::TakeExisting,
            ..file(0o644)
        };
        let inode = self.make(parent, text, new).await?;
        let options = OpenOptions {
            truncate: true,
            ..OpenOptions::WRITE
        };
        let handle = self.open(inode, options).await?;
        self.write(handle, WritePlace::At(0), content).await?;
        self.close(handle).await
    }

    pub async fn content(&self, parent: Inode, text: &str) -> FsResult<Vec<u8>> {
        let found = self.find(parent, text).await?;
        let handle = self.open(found.inode, OpenOptions::READ).await?;
        let read = self.read(handle, 0, u32::MAX).await;
        self.close(handle).await?;
        read
    }

    pub async fn open(&self, inode: Inode, options: OpenOptions) -> FsResult<HandleId> {
        Ok(self.volume.open(&self.by, inode, options).await?.handle)
    }

    pub async fn write(&self, handle: HandleId, place: WritePlace, data: &[u8]) -> FsResult<()> {
        let data = Bytes::copy_from_slice(data);
        self.volume
            .write(&self.by, handle, place, data)
            .await
            .map(drop)
    }

    pub async fn read(&self, handle: HandleId, offset: u64, length: u32) -> FsResult<Vec<u8>> {
        let at = Position { handle, offset };
        Ok(self.volume.read(&self.by, at, length).await?.to_vec())
    }

    /// Reads as a kernel does, piece by piece.
    pub async fn read_all(&self, handle: HandleId, length: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < length {
            let piece = self
                .read(handle, all.len() as u64, 128 << 10)
                .await
                .unwrap();
            assert!(!piece.is_empty());
            all.extend(piece);
        }
        all
    }

    pub async fn sync(&self, handle: HandleId) -> FsResult<()> {
        self.volume.sync(handle, 0..u64::MAX, false).await
    }

    pub async fn close(&self, handle: HandleId) -> FsResult<()> {
        let flushed = self.volume.flush(handle).await;
        self.volume.release(handle).await;
        flushed
    }

    pub async fn attributes(&self, inode: Inode) -> Attributes {
        self.volume
            .attributes(&self.by, inode)
            .await
            .unwrap()
            .attributes
    }

    pub async fn is_gone(&self, inode: Inode) -> bool {
        self.volume.attributes(&self.by, inode).await.err() == Some(FsError::Stale)
    }

    /// Gives all references to an inode back.
    pub fn forget_all(&self, inode: Inode) {
        self.volume.forget(inode, u64::MAX);
    }

    pub async fn change(&self, inode: Inode, changes: AttributeChanges) -> FsResult<Attributes> {
        Ok(self
            .volume
            .set_attributes(&self.by, inode, changes)
            .await?
            .attributes)
    }

    pub async fn read_symlink(&self, inode: Inode) -> FsResult<Bytes> {
        self.volume.read_symlink(&self.by, inode).await
    }

    pub async fn link(&self, inode: Inode, (parent, text): (Inode, &str)) -> FsResult<()> {
        let name = name(text);
        self.volume
            .link(&self.by, inode, Dentry::new(parent, &name))
            .await
            .map(drop)
    }

    pub async fn remove(&self, parent: Inode, text: &str, kind: RemoveKind) -> FsResult<()> {
        let name = name(text);
        self.volume
            .remove(&self.by, Dentry::new(parent, &name), kind)
            .await
            .map(drop)
    }

    pub async fn rename(
        &self,
        from: (Inode, &str),
        to: (Inode, &str),
        mode: RenameMode,
    ) -> FsResult<()> {
        let (source, target) = (name(from.1), name(to.1));
        let (source, target) = (Dentry::new(from.0, &source), Dentry::new(to.0, &target));
        self.volume
            .rename(&self.by, source, target, mode)
            .await
            .map(drop)
    }

    pub async fn parent(&self, directory: Inode) -> Inode {
        self.volume
            .parent(&self.by, directory)
            .await
            .unwrap()
            .attributes
            .inode
    }

    pub async fn seek(&self, handle: HandleId, offset: u64, wanted: Seek) -> FsResult<u64> {
        self.volume.seek(Position { handle, offset }, wanted).await
    }

    pub async fn allocate(
        &self,
        handle: HandleId,
        range: Range<u64>,
        allocation: Allocation,
    ) -> FsResult<()> {
        self.volume
            .allocate(&self.by, handle, range, allocation)
            .await
    }

    pub async fn set_xattr(
        &self,
        inode: Inode,
        name: &str,
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<()> {
        self.volume
            .set_xattr(&self.by, inode, name.as_bytes(), value, mode)
            .await
    }

    pub async fn xattrs(&self, inode: Inode) -> FsResult<Vec<Bytes>> {
        self.volume.xattrs(&self.by, inode).await
    }

    pub async fn statistics(&self) -> Statistics {
        self.volume.statistics(&self.by, ROOT).await.unwrap()
    }

    pub async fn sync_directory(&self, directory: Inode) -> FsResult<()> {
        let handle = self.open_directory(directory).await;
        self.volume.sync_directory(handle).await
    }

    pub async fn open_directory(&self, directory: Inode) -> HandleId {
        self.volume
            .open_directory(&self.by, directory)
            .await
            .unwrap()
    }

    /// Names with their positions.
    pub async fn list(
        &self,
        handle: HandleId,
        from: ListFrom<'_>,
        room: (usize, Detail),
    ) -> Vec<(String, u64)> {
        self.try_list(handle, from, room).await.unwrap()
    }

    pub async fn try_list(
        &self,
        handle: HandleId,
        from: ListFrom<'_>,
        (room, detail): (usize, Detail),
    ) -> FsResult<Vec<(String, u64)>> {
        let mut receiver = Receiver {
            room,
            detail,
            taken: Vec::new(),
        };
        self.volume
            .read_directory(handle, from, &mut receiver)
            .await?;
        Ok(receiver.taken)
    }

    /// Keys of objects that hold data.
    pub async fn objects(&self) -> Vec<String> {
        let listed = self.bucket.list(ListOptions::default()).await.unwrap();
        listed
            .objects
            .into_iter()
            .map(|object| object.key)
            .collect()
    }
}

struct Receiver {
    room: usize,
    detail: Detail,
    taken: Vec<(String, u64)>,
}

impl DirectorySink for Receiver {
    fn detail(&self) -> Detail {
        self.detail
    }

    fn push(&mut self, next: u64, name: &FileName, _entry: &Entry) -> ControlFlow<()> {
        if self.taken.len() == self.room {
            return ControlFlow::Break(());
        }
        self.taken.push((name.to_string(), next));
        ControlFlow::Continue(())
    }
}
