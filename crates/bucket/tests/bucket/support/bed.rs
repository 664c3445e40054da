//! A volume to test, and the bucket behind it as another client sees it.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    sync::{Arc, LazyLock, Mutex},
};

use bytes::Bytes;
use penstock_base::{
    BufferPool, FileName, FsError, FsResult, MIB, MemoryBudget, clock, metrics::Registry,
};
use penstock_bucket::{BucketSettings, BucketVolume, Staging, StagingSettings};
use penstock_object::{GetOptions, Key, ListOptions, PutOptions, Store};
use penstock_object_testing::MemoryStore;
use penstock_transfer::Transfer;
use penstock_vfs::{
    AttributeChanges, Attributes, Dentry, DirectorySink, Entry, Exclusivity, FileKind, HandleId,
    Identity, Inode, ListFrom, Lookup, New, NewKind, OpenOptions, Opened, Position, RemoveKind,
    RenameMode, Volume, WritePlace,
};

use crate::support::Probe;

pub(crate) const READ: OpenOptions = OpenOptions::READ;
pub(crate) const WRITE: OpenOptions = OpenOptions::WRITE;
pub(crate) const READ_WRITE: OpenOptions = OpenOptions::READ_WRITE;

pub(crate) static CALLER: LazyLock<Identity> = LazyLock::new(Identity::root);

/// A file that is made, or taken if it is there.
pub(crate) fn new_file(permissions: u16) -> New<'static> {
    New {
        kind: NewKind::Regular,
        permissions,
        umask: 0,
        exclusivity: Exclusivity::TakeExisting,
    }
}

pub(crate) fn new_directory(permissions: u16) -> New<'static> {
    New {
        kind: NewKind::Directory,
        permissions,
        umask: 0,
        exclusivity: Exclusivity::New,
    }
}

/// A file that was made or found and is open.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) entry: Entry,
    pub(crate) opened: Opened,
}

pub(crate) fn name(text: &str) -> FileName {
    FileName::new(text.as_bytes()).unwrap()
}

/// A volume to test.
pub(crate) struct Bed {
    /// The bucket, for another client: not counted, never failing.
    pub(crate) remote: Arc<MemoryStore>,
    pub(crate) probe: Arc<Probe>,
    pub(crate) volume: Arc<BucketVolume>,
    pub(crate) budget: Arc<MemoryBudget>,
    registry: Arc<Registry>,
    /// Where files are staged, in staged mode.
    scratch: Option<tempfile::TempDir>,
    /// References that this client of the volume holds.
    held: Mutex<HashMap<Inode, u64>>,
    /// Handles that append: a door says so with each write.
    appending: Mutex<HashSet<HandleId>>,
}

/// An entry of a listing.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) next: u64,
    pub(crate) entry: Entry,
}

/// Takes some entries and then is full.
struct Receiver {
    entries: Vec<Listed>,
    room: usize,
}

impl DirectorySink for Receiver {
    fn push(&mut self, next: u64, name: &FileName, entry: &Entry) -> ControlFlow<()> {
        if self.entries.len() == self.room {
            return ControlFlow::Break(());
        }
        self.entries.push(Listed {
            name: name.to_string(),
            next,
            entry: entry.clone(),
        });
        ControlFlow::Continue(())
    }
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self::with(BucketSettings::default())
    }

    pub(crate) fn with(settings: BucketSettings) -> Self {
        Self::over(MemoryStore::new(), settings)
    }

    pub(crate) fn over(store: MemoryStore, settings: BucketSettings) -> Self {
        Self::with_memory(store, settings, 256 * MIB)
    }

    pub(crate) fn with_memory(store: MemoryStore, settings: BucketSettings, memory: u64) -> Self {
        Self::mount(Arc::new(store), settings, memory)
    }

    /// A volume in staged mode over a store with the limits of S3.
    pub(crate) fn staged() -> Self {
        Self::staged_with(BucketSettings::default())
    }

    pub(crate) fn staged_with(settings: BucketSettings) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        Self::over(MemoryStore::like_s3(), settings.clone()).stage(settings, scratch, u64::MAX)
    }

    /// The same with a memory budget.
    pub(crate) fn staged_with_memory(
        store: MemoryStore,
        settings: BucketSettings,
        memory: u64,
    ) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        Self::with_memory(store, settings.clone(), memory).stage(settings, scratch, u64::MAX)
    }

    /// The same with a staging directory of `size` bytes.
    pub(crate) fn staged_in(size: u64) -> Self {
        Self::staged_in_with(size, BucketSettings::default())
    }

    pub(crate) fn staged_in_with(size: u64, settings: BucketSettings) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        Self::over(MemoryStore::like_s3(), settings.clone()).stage(settings, scratch, size)
    }

    fn stage(mut self, settings: BucketSettings, scratch: tempfile::TempDir, size: u64) -> Self {
        let staging = StagingSettings {
            size,
            ..StagingSettings::new(scratch.path(), "memory")
        };
        let staging = Staging::open(staging, &self.budget).unwrap();
        let pool = BufferPool::new(Arc::clone(&self.budget));
        let transfer = Transfer::new(Arc::clone(&self.probe) as Arc<dyn Store>, pool);
        let registry = Arc::clone(&self.registry);
        self.volume = BucketVolume::staged(transfer, settings, staging, registry);
        self.scratch = Some(scratch);
        self
    }

    /// The next mount with the same staging directory, after this one broke off. `meanwhile` sees
    /// the directory in between.
    pub(crate) async fn killed(
        self,
        settings: BucketSettings,
        meanwhile: impl FnOnce(&std::path::Path),
    ) -> Self {
        let Self {
            remote,
            volume,
            scratch,
            ..
        } = self;
        // Nobody saves anything when a volume is dropped.
        drop(volume);
        let scratch = scratch.unwrap();
        meanwhile(scratch.path());
        let bed =
            Self::mount(remote, settings.clone(), 256 * MIB).stage(settings, scratch, u64::MAX);
        bed.volume.recover();
        bed.recovered().await;
        bed
    }

    /// The same, but nothing is saved yet. `prepare` sees the next mount before it looks.
    pub(crate) fn broken_off(self, settings: BucketSettings, prepare: impl FnOnce(&Self)) -> Self {
        let Self {
            remote,
            volume,
            scratch,
            ..
        } = self;
        drop(volume);
        let bed = Self::mount(remote, settings.clone(), 256 * MIB).stage(
            settings,
            scratch.unwrap(),
            u64::MAX,
        );
        prepare(&bed);
        bed.volume.recover();
        bed
    }

    /// Waits until everything is saved that an earlier mount left.
    pub(crate) async fn recovered(&self) {
        while self.metric("bucket_recovering_files") > 0 {
            clock::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    /// A folder of the staging directory.
    pub(crate) fn staging_path(&self, folder: &str) -> std::path::PathBuf {
        self.scratch.as_ref().unwrap().path().join(folder)
    }

    /// What lies in a folder of the staging directory.
    pub(crate) fn staging_files(&self, folder: &str) -> Vec<String> {
        let names = std::fs::read_dir(self.staging_path(folder)).unwrap();
        let mut names: Vec<String> = names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Checks that soon nothing is staged: what nobody needs is removed behind whoever closed it.
    pub(crate) async fn expect_swept(&self) {
        let is_there =
            || !self.staging_files("files").is_empty() || self.metric("bucket_staged_bytes") > 0;
        for _ in 0..10_000 {
            if !is_there() {
                return;
            }
            clock::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(self.staging_files("files"), [""; 0]);
        assert_eq!(self.metric("bucket_staged_bytes"), 0);
    }

    /// Journals of files that have something unsaved.
    pub(crate) fn journals(&self) -> Vec<String> {
        let mut names = self.staging_files("files");
        names.retain(|name| name.ends_with(".journal"));
        names
    }

    fn mount(remote: Arc<MemoryStore>, settings: BucketSettings, memory: u64) -> Self {
        let probe = Probe::new(Arc::clone(&remote) as Arc<dyn Store>);
        let budget = MemoryBudget::new(memory);
        let pool = BufferPool::new(Arc::clone(&budget));
        let transfer = Transfer::new(Arc::clone(&probe) as Arc<dyn Store>, pool);
        let registry = Registry::new();
        let volume = BucketVolume::new(transfer, settings, Arc::clone(&registry));
        Self {
            remote,
            probe,
            volume,
            budget,
            registry,
            scratch: None,
            held: Mutex::default(),
            appending: Mutex::default(),
        }
    }

    /// Another mount of the same bucket, which knows nothing yet.
    pub(crate) fn fresh(&self) -> Self {
        self.fresh_with(BucketSettings::default())
    }

    pub(crate) fn fresh_with(&self, settings: BucketSettings) -> Self {
        Self::mount(Arc::clone(&self.remote), settings, 256 * MIB)
    }

    /// Gives back every reference, as a kernel does that needs memory.
    pub(crate) fn forget_all(&self) {
        for (inode, count) in self.held.lock().unwrap().drain() {
            self.volume.forget(inode, count);
        }
    }

    fn hold(&self, inode: Inode) {
        *self.held.lock().unwrap().entry(inode).or_default() += 1;
    }

    /// Another client of the same bucket in staged mode, with a staging directory of its own.
    pub(crate) fn staged_beside(&self, settings: BucketSettings) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        self.fresh_with(settings.clone())
            .stage(settings, scratch, u64::MAX)
    }

    // The bucket as another client sees it.

    pub(crate) async fn put(&self, key: &str, body: impl AsRef<[u8]>) {
        let body = body.as_ref().to_vec().into();
        self.remote
            .put(&Key::new(key).unwrap(), body, PutOptions::default())
            .await
            .unwrap();
    }

    pub(crate) async fn delete(&self, key: &str) {
        self.remote.delete(&Key::new(key).unwrap()).await.unwrap();
    }

    pub(crate) async fn object(&self, key: &str) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        let got = self
            .remote
            .get(&Key::new(key).unwrap(), GetOptions::default(), &mut body)
            .await;
        got.ok().map(|_| body)
    }

    pub(crate) async fn keys(&self) -> Vec<String> {
        let (mut keys, mut options) = (Vec::new(), ListOptions::default());
        loop {
            let page = self.remote.list(options.clone()).await.unwrap();
            keys.extend(page.objects.into_iter().map(|object| object.key));
            options.continuation = page.continuation;
            if options.continuation.is_none() {
                return keys;
            }
        }
    }

    pub(crate) async fn unfinished_uploads(&self) -> Vec<String> {
        let page = self.remote.list_uploads("", None).await.unwrap();
        page.uploads
            .into_iter()
            .map(|upload| upload.key.to_string())
            .collect()
    }

    // What the volume did.

    pub(crate) fn requests(&self) -> String {
        self.probe.requests()
    }

    /// The sum of a metric over all its labels.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let samples = self.registry.samples();
        samples
            .iter()
            .filter(|sample| sample.name == name)
            .map(|sample| sample.value)
            .sum()
    }

    // The volume by path.

    pub(crate) async fn inode(&self, path: &str) -> FsResult<Inode> {
        let mut at = Inode::ROOT;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            at = self.lookup(at, part).await?.attributes.inode;
        }
        Ok(at)
    }

    pub(crate) async fn lookup(&self, parent: Inode, text: &str) -> FsResult<Entry> {
        match self
            .volume
            .lookup(&CALLER, Dentry::new(parent, &name(text)))
            .await?
        {
            Lookup::Found(entry) => {
                self.hold(entry.attributes.inode);
                Ok(entry)
            }
            Lookup::Absent(_) => Err(FsError::NotFound),
        }
    }

    /// The directory and the name of a path, as a kernel walks there.
    async fn place(&self, path: &str) -> FsResult<(Inode, FileName)> {
        let (parent, last) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.inode(parent).await?;
        let attributes = self.volume.attributes(&CALLER, parent).await?.attributes;
        match attributes.kind {
            FileKind::Directory => Ok((parent, name(last))),
            _ => Err(FsError::NotADirectory),
        }
    }

    pub(crate) async fn stat(&self, path: &str) -> FsResult<Attributes> {
        let inode = self.inode(path).await?;
        Ok(self.volume.attributes(&CALLER, inode).await?.attributes)
    }

    pub(crate) async fn open(&self, path: &str, options: OpenOptions) -> FsResult<HandleId> {
        Ok(self.opened(path, options).await?.handle)
    }

    /// Looks again if the file is stale, as a kernel does.
    pub(crate) async fn opened(&self, path: &str, options: OpenOptions) -> FsResult<Opened> {
        let inode = self.inode(path).await?;
        let opened = match self.volume.open(&CALLER, inode, options).await {
            Err(FsError::Stale) => {
                let inode = self.inode(path).await?;
                self.volume.open(&CALLER, inode, options).await?
            }
            opened => opened?,
        };
        self.note_opened(&opened, options);
        Ok(opened)
    }

    fn note_opened(&self, opened: &Opened, options: OpenOptions) {
        if options.append {
            self.appending.lock().unwrap().insert(opened.handle);
        }
    }

    pub(crate) async fn create(&self, path: &str) -> FsResult<HandleId> {
        Ok(self.created(path, WRITE).await?.opened.handle)
    }

    pub(crate) async fn created(&self, path: &str, options: OpenOptions) -> FsResult<Created> {
        self.created_as(path, new_file(0o644), options).await
    }

    /// Fails if it is there.
    pub(crate) async fn created_new(&self, path: &str, options: OpenOptions) -> FsResult<Created> {
        let new = New {
            exclusivity: Exclusivity::New,
            ..new_file(0o644)
        };
        self.created_as(path, new, options).await
    }

    async fn created_as(
        &self,
        path: &str,
        new: New<'_>,
        options: OpenOptions,
    ) -> FsResult<Created> {
        let (parent, name) = self.place(path).await?;
        let made = self
            .volume
            .make(&CALLER, Dentry::new(parent, &name), new, Some(options))
            .await?;
        self.hold(made.entry.attributes.inode);
        let opened = made.opened.expect("it was asked for");
        self.note_opened(&opened, options);
        Ok(Created {
            entry: made.entry,
            opened,
        })
    }

    pub(crate) async fn make_directory(
        &self,
        parent: Inode,
        name: &FileName,
        permissions: u16,
    ) -> FsResult<Entry> {
        let (dentry, new) = (Dentry::new(parent, name), new_directory(permissions));
        let made = self.volume.make(&CALLER, dentry, new, None).await?;
        Ok(made.entry)
    }

    pub(crate) async fn sync(&self, handle: HandleId) -> FsResult<()> {
        self.volume.sync(handle, 0..u64::MAX, false).await
    }

    pub(crate) async fn write(
        &self,
        handle: HandleId,
        offset: u64,
        data: impl AsRef<[u8]>,
    ) -> FsResult<()> {
        let place = match self.appending.lock().unwrap().contains(&handle) {
            true => WritePlace::End(offset),
            false => WritePlace::At(offset),
        };
        self.volume
            .write(
                &CALLER,
                handle,
                place,
                Bytes::copy_from_slice(data.as_ref()),
            )
            .await
            .map(drop)
    }

    /// Closes a descriptor and the handle, as close(2) of the only descriptor does.
    pub(crate) async fn close(&self, handle: HandleId) -> FsResult<()> {
        let flushed = self.volume.flush(handle).await;
        self.volume.release(handle).await;
        flushed
    }

    pub(crate) async fn write_file(&self, path: &str, data: impl AsRef<[u8]>) -> FsResult<()> {
        let truncate = OpenOptions {
            truncate: true,
            ..WRITE
        };
        let handle = self.created(path, truncate).await?.opened.handle;
        let written = self.write(handle, 0, data).await;
        self.close(handle).await.and(written)
    }

    pub(crate) async fn read(
        &self,
        handle: HandleId,
        offset: u64,
        length: u32,
    ) -> FsResult<Vec<u8>> {
        let payload = self
            .volume
            .read(&CALLER, Position { handle, offset }, length)
            .await?;
        Ok(payload.to_vec())
    }

    pub(crate) async fn read_file(&self, path: &str) -> FsResult<Vec<u8>> {
        let handle = self.open(path, READ).await?;
        let read = self.read(handle, 0, MIB as u32).await;
        self.volume.release(handle).await;
        read
    }

    pub(crate) async fn mkdir(&self, path: &str) -> FsResult<Entry> {
        let (parent, name) = self.place(path).await?;
        let entry = self.make_directory(parent, &name, 0o755).await?;
        self.hold(entry.attributes.inode);
        Ok(entry)
    }

    pub(crate) async fn unlink(&self, path: &str) -> FsResult<()> {
        let (parent, name) = self.place(path).await?;
        self.volume
            .remove(&CALLER, Dentry::new(parent, &name), RemoveKind::File)
            .await
            .map(drop)
    }

    pub(crate) async fn rmdir(&self, path: &str) -> FsResult<()> {
        let (parent, name) = self.place(path).await?;
        self.volume
            .remove(&CALLER, Dentry::new(parent, &name), RemoveKind::Directory)
            .await
            .map(drop)
    }

    pub(crate) async fn rename(&self, source: &str, target: &str) -> FsResult<()> {
        self.rename_as(source, target, RenameMode::Replace).await
    }

    pub(crate) async fn rename_as(
        &self,
        source: &str,
        target: &str,
        mode: RenameMode,
    ) -> FsResult<()> {
        let (source, target) = (self.place(source).await?, self.place(target).await?);
        let source = Dentry::new(source.0, &source.1);
        let target = Dentry::new(target.0, &target.1);
        let renamed = self.volume.rename(&CALLER, source, target, mode);
        renamed.await.map(drop)
    }

    pub(crate) async fn chmod(&self, path: &str, permissions: u16) -> FsResult<()> {
        let changes = AttributeChanges {
            permissions: Some(permissions),
            ..AttributeChanges::default()
        };
        let inode = self.inode(path).await?;
        let changed = self.volume.set_attributes(&CALLER, inode, changes).await;
        changed.map(drop)
    }

    pub(crate) async fn symlink(&self, target: &str, path: &str) -> FsResult<Entry> {
        let (parent, name) = self.place(path).await?;
        let new = New {
            kind: NewKind::Symlink(target.as_bytes()),
            permissions: 0o777,
            umask: 0,
            exclusivity: Exclusivity::New,
        };
        let dentry = Dentry::new(parent, &name);
        let entry = self.volume.make(&CALLER, dentry, new, None).await?.entry;
        self.hold(entry.attributes.inode);
        Ok(entry)
    }

    /// Names in a directory, in the order shown.
    pub(crate) async fn ls(&self, path: &str) -> FsResult<Vec<String>> {
        let listed = self.list(path, usize::MAX).await?;
        Ok(listed.into_iter().map(|listed| listed.name).collect())
    }

    /// Lists a directory with a receiver that takes `room` entries at a time.
    pub(crate) async fn list(&self, path: &str, room: usize) -> FsResult<Vec<Listed>> {
        let handle = self.open_dir(path).await?;
        let listed = self.list_all(handle, room).await;
        self.volume.release_directory(handle).await;
        listed
    }

    pub(crate) async fn list_all(&self, handle: HandleId, room: usize) -> FsResult<Vec<Listed>> {
        let mut all: Vec<Listed> = Vec::new();
        loop {
            let position = all.last().map_or(0, |last| last.next);
            let more = self.list_from(handle, position, room).await?;
            if more.is_empty() {
                return Ok(all);
            }
            all.extend(more);
        }
    }

    pub(crate) async fn open_dir(&self, path: &str) -> FsResult<HandleId> {
        let inode = self.inode(path).await?;
        self.volume.open_directory(&CALLER, inode).await
    }

    /// Names that a door without handles lists.
    pub(crate) async fn list_stateless(
        &self,
        directory: Inode,
        from: ListFrom<'_>,
        room: usize,
    ) -> FsResult<Vec<String>> {
        let mut receiver = Receiver {
            entries: Vec::new(),
            room,
        };
        let listed = self.volume.list(&CALLER, directory, from, &mut receiver);
        listed.await?;
        let entries = receiver.entries.into_iter();
        Ok(entries
            .map(|listed| {
                self.hold(listed.entry.attributes.inode);
                listed.name
            })
            .collect())
    }

    pub(crate) async fn list_from(
        &self,
        handle: HandleId,
        position: u64,
        room: usize,
    ) -> FsResult<Vec<Listed>> {
        let mut receiver = Receiver {
            entries: Vec::new(),
            room,
        };
        self.volume
            .read_directory(handle, ListFrom::Position(position), &mut receiver)
            .await?;
        for listed in &receiver.entries {
            self.hold(listed.entry.attributes.inode);
        }
        Ok(receiver.entries)
    }
}
