//! One who uses the file system: a directory of its own, one operation after the other, and a model that says what must come
//! of each.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::discriminant,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use penstock_base::{FsError, FsResult, Mutex, clock};
use penstock_vfs::{
    Allocation, AttributeChanges, HandleId, Identity, Inode, NewKind, OpenOptions, Position,
    RemoveKind, RenameMode, Volume, WritePlace,
};
use tokio::sync::RwLock;

use crate::{
    deeds::{Deed, Draw},
    disk::Disk,
    look::{bytes, reach, tree},
    model::{FileId, Model, Node, Tree, split},
    network::Network,
    record::Record,
    support::{Place, directory, file},
};

/// How long an operation may take: longer than all that it waits for.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// Pieces of a scattered write, and how far apart they are.
const PIECES: u64 = 300;
const STRIDE: u64 = 7;
/// Reads of a file whose content is not known, with time in between.
const ATTEMPTS_MAX: u32 = 1000;
/// Those of them behind which no request fails any more until the file is read. One of hundreds of parts, each in another place,
/// is never read as a whole before: no cache stands before this bucket, as it does in a mount.
const ATTEMPTS_WITH_FAILURES: u32 = 100;
/// Handles of files without a name.
const STRAYS_MAX: usize = 3;

/// A process that serves the file system, as its clients know it.
pub struct Served {
    pub place: Place,
    pub disk: Arc<Disk>,
    pub record: Arc<Record>,
    pub network: Arc<Network>,
    /// Held alone by who wants no client in the midst of something.
    pub gate: RwLock<()>,
    /// Operations of the engine that somebody was told are durable.
    pub acknowledged: Arc<AtomicU64>,
}

impl Served {
    /// Somebody was told that these operations are durable.
    pub fn acknowledge(&self, operations: u64) {
        self.acknowledged.fetch_max(operations, Ordering::Relaxed);
    }
}

/// Whether it may happen while the store fails.
pub fn passes(error: &FsError) -> bool {
    let text = error.to_string();
    matches!(error, FsError::Io(_) | FsError::TimedOut(_)) && !text.contains("unexpectedly")
}

/// See the module.
pub struct Client {
    pub name: String,
    pub model: Arc<Mutex<Model>>,
    chance: Rng,
    handles: BTreeMap<FileId, HandleId>,
    /// Open files that were changed since a sync of them: a close of others promises nothing.
    changed: Mutex<BTreeSet<FileId>>,
    writes: u64,
}

impl Client {
    pub fn new(number: usize, seed: u64) -> Self {
        Self {
            name: format!("client-{number}"),
            model: Arc::new(Mutex::new(Model::new())),
            chance: Rng::with_seed(seed),
            handles: BTreeMap::new(),
            changed: Mutex::default(),
            writes: (number as u64) << 32,
        }
    }

    /// The process is gone, and with it all handles.
    pub fn crashed(&mut self) {
        self.handles.clear();
        self.changed.lock().clear();
    }

    pub async fn act(&mut self, served: &Served, deeds: usize) {
        for _ in 0..deeds {
            self.rest().await;
            let _turn = served.gate.read().await;
            let tree = self.model.lock().tree().clone();
            let deed = Draw {
                chance: &mut self.chance,
                tree: &tree,
            }
            .deed();
            served.record.note(format_args!("{}: {deed:?}", self.name));
            let done = clock::deadline(PATIENCE, self.carry_out(served, deed)).await;
            done.expect("an operation ends");
        }
    }

    /// Time goes by, now and then enough for what is done behind.
    async fn rest(&mut self) {
        let milliseconds = match self.chance.u8(0..40) {
            0 => self.chance.u64(0..15_000),
            1..10 => self.chance.u64(0..500),
            _ => 0,
        };
        clock::sleep(Duration::from_millis(milliseconds)).await;
    }

    async fn carry_out(&mut self, served: &Served, deed: Deed) {
        match deed {
            Deed::Make(path) => self.make_file(served, &path).await,
            Deed::MakeDirectory(path) => {
                let new = directory(0o755).kind;
                self.make(served, (&path, Node::Directory), new).await;
            }
            Deed::MakeSymlink(path) => {
                let target = format!("to {}", self.chance.u16(..));
                let node = Node::Symlink(target.clone());
                let new = NewKind::Symlink(target.as_bytes());
                self.make(served, (&path, node), new).await;
            }
            Deed::Link(from, to) => self.link(served, &from, &to).await,
            Deed::RemoveFile(path) => self.remove(served, &path, RemoveKind::File).await,
            Deed::RemoveDirectory(path) => self.remove(served, &path, RemoveKind::Directory).await,
            Deed::Rename(from, to, mode) => self.rename(served, (&from, &to), mode).await,
            Deed::SyncDirectory => self.sync_directory(served).await,
            Deed::Look => self.look(served).await,
            deed => self.use_file(served, deed).await,
        }
    }

    async fn use_file(&mut self, served: &Served, deed: Deed) {
        let (Deed::Write(path, _)
        | Deed::Scatter(path, _)
        | Deed::Cut(path, _)
        | Deed::Punch(path, _)
        | Deed::Copy(_, (path, _))
        | Deed::Read(path)
        | Deed::Sync(path)
        | Deed::Close(path)) = &deed
        else {
            return;
        };
        let it = self.opened(served, path).await;
        match deed {
            Deed::Write(_, range) => {
                let length = range.end - range.start;
                self.write(served, it, &[(range.start, length)]).await;
            }
            Deed::Scatter(_, at) => {
                let pieces = (0..PIECES).map(|piece| (at + piece * STRIDE, 1));
                self.write(served, it, &pieces.collect::<Vec<_>>()).await;
            }
            Deed::Cut(path, size) => self.cut(served, it, (&path, size)).await,
            Deed::Punch(_, range) => self.punch(served, it, range).await,
            Deed::Copy((source, range), (_, to)) => {
                let source = self.opened(served, &source).await;
                self.copy(served, (source, range), (it, to)).await;
            }
            Deed::Read(_) => self.read(served, it).await,
            Deed::Sync(_) => self.sync(served, it).await,
            _ => {
                self.close(served, it).await;
                self.close_strays(served).await;
            }
        }
    }

    // Names.

    /// The inode of a directory's path, with a reference to it.
    async fn reach(&self, served: &Served, path: &str) -> Inode {
        let top = reach(&served.place, Inode::ROOT, &self.name).await;
        let inode = reach(&served.place, top, path).await;
        served.place.volume.forget(top, 1);
        inode
    }

    /// Changes names as the model says that they become: a call that must fail fails, and every other succeeds.
    async fn change_names<T>(
        &self,
        served: &Served,
        expected: FsResult<Tree>,
        call: impl Future<Output = FsResult<T>>,
    ) -> Option<T> {
        let begun = served.disk.applied();
        if let Ok(tree) = &expected {
            self.model.lock().begin(tree.clone(), begun);
        }
        match (call.await, expected) {
            (Ok(done), Ok(_)) => {
                self.model.lock().done(served.disk.applied());
                Some(done)
            }
            (Err(error), Err(expected)) => {
                assert_eq!(
                    discriminant(&error),
                    discriminant(&expected),
                    "{error} for {expected}"
                );
                None
            }
            (Ok(_), Err(expected)) => panic!("it succeeds and should fail: {expected}"),
            (Err(error), Ok(_)) => panic!("it fails and should not: {error}"),
        }
    }

    async fn make(&self, served: &Served, (path, node): (&str, Node), kind: NewKind<'_>) -> bool {
        let (parent, name) = split(path);
        let parent = self.reach(served, parent).await;
        let expected = self.model.lock().tree().made(path, node);
        let new = penstock_vfs::New {
            kind,
            ..file(0o644)
        };
        let call = served.place.make(parent, name, new);
        let made = self.change_names(served, expected, call).await;
        if let Some(made) = made {
            served.place.volume.forget(made, 1);
        }
        served.place.volume.forget(parent, 1);
        made.is_some()
    }

    async fn make_file(&mut self, served: &Served, path: &str) {
        let made = self.model.lock().new_file();
        let before = served.disk.applied();
        if self
            .make(served, (path, Node::File(made)), NewKind::Regular)
            .await
        {
            served.acknowledge(before);
        } else {
            self.model.lock().files.remove(&made);
        }
    }

    async fn link(&self, served: &Served, from: &str, to: &str) {
        let node = self.model.lock().tree().0[from].clone();
        let (parent, name) = split(to);
        let inode = self.reach(served, from).await;
        let parent = self.reach(served, parent).await;
        let expected = self.model.lock().tree().made(to, node);
        let call = served.place.link(inode, (parent, name));
        if self.change_names(served, expected, call).await.is_some() {
            served.place.volume.forget(inode, 1);
        }
        served.place.volume.forget(inode, 1);
        served.place.volume.forget(parent, 1);
    }

    async fn remove(&mut self, served: &Served, path: &str, kind: RemoveKind) {
        let (parent, name) = split(path);
        let parent = self.reach(served, parent).await;
        let expected = self.model.lock().tree().removed(path, kind);
        let call = served.place.remove(parent, name, kind);
        self.change_names(served, expected, call).await;
        served.place.volume.forget(parent, 1);
        self.forget_unnamed(served).await;
    }

    async fn rename(&mut self, served: &Served, names: (&str, &str), mode: RenameMode) {
        let (from, to) = (split(names.0), split(names.1));
        let parents = (
            self.reach(served, from.0).await,
            self.reach(served, to.0).await,
        );
        let expected = self.model.lock().tree().renamed(names, mode);
        let places = ((parents.0, from.1), (parents.1, to.1));
        let call = served.place.rename(places.0, places.1, mode);
        self.change_names(served, expected, call).await;
        served.place.volume.forget(parents.0, 1);
        served.place.volume.forget(parents.1, 1);
        self.forget_unnamed(served).await;
    }

    async fn sync_directory(&self, served: &Served) {
        let applied = served.disk.applied();
        let top = self.reach(served, "").await;
        let handle = served.place.open_directory(top).await;
        let synced = served.place.volume.sync_directory(handle).await;
        synced.expect("the disk works");
        served.acknowledge(applied);
        served.place.volume.release_directory(handle).await;
        served.place.volume.forget(top, 1);
    }

    /// Compares names, and lengths of files.
    async fn look(&self, served: &Served) {
        let top = self.reach(served, "").await;
        let (found, lengths) = tree(&served.place, top).await;
        served.place.volume.forget(top, 1);
        let model = self.model.lock();
        let picture = model.picture();
        assert_eq!(
            found.0.keys().collect::<Vec<_>>(),
            picture.tree.0.keys().collect::<Vec<_>>()
        );
        for (path, length) in lengths {
            let Node::File(file) = &picture.tree.0[&path] else {
                panic!("{path} is a file");
            };
            assert_eq!(length, picture.files[file].len() as u64, "{path}");
        }
    }

    // Files.

    /// A file by its path, open.
    async fn opened(&mut self, served: &Served, path: &str) -> FileId {
        let node = self.model.lock().tree().0[path].clone();
        let Node::File(file) = node else {
            panic!("{path} is a file");
        };
        if !self.handles.contains_key(&file) {
            let inode = self.reach(served, path).await;
            let handle = served.place.open(inode, OpenOptions::READ_WRITE).await;
            served.place.volume.forget(inode, 1);
            self.handles.insert(file, handle.expect("it is there"));
        }
        file
    }

    /// Changes a file. What failed may have changed it, all or in part: then it is as it is found.
    async fn change_bytes<T>(
        &self,
        served: &Served,
        (file, after): (FileId, Vec<u8>),
        call: impl Future<Output = FsResult<T>>,
    ) -> Option<T> {
        let before = self.model.lock().content(file).live();
        self.model.lock().content(file).change(after.clone());
        if *before != after {
            self.changed.lock().insert(file);
        }
        let error = match call.await {
            Ok(done) => return Some(done),
            Err(error) => error,
        };
        assert!(passes(&error), "{error}");
        let found = self.learn(served, file).await;
        let is_one = |at: usize| {
            let of = |bytes: &[u8]| bytes.get(at).copied().unwrap_or(0);
            [&before[..], &after[..]].map(of).contains(&found[at])
        };
        assert!([before.len(), after.len()].contains(&found.len()));
        assert!(
            (0..found.len()).all(is_one),
            "bytes that were never written"
        );
        self.model.lock().content(file).change(found);
        None
    }

    /// The bytes of a file, once the store has them.
    async fn learn(&self, served: &Served, file: FileId) -> Vec<u8> {
        let mut healed = None;
        for attempt in 0..ATTEMPTS_MAX {
            if attempt == ATTEMPTS_WITH_FAILURES {
                healed = Some(served.network.healed());
            }
            match bytes(&served.place, self.handles[&file]).await {
                Ok(found) => return found,
                Err(error) => assert!(passes(&error), "{error}"),
            }
            clock::sleep(Duration::from_secs(1)).await;
        }
        drop(healed);
        panic!("a file cannot be read");
    }

    async fn write(&mut self, served: &Served, file: FileId, pieces: &[(u64, u64)]) {
        self.writes += 1;
        let pieces: Vec<_> = pieces
            .iter()
            .map(|(offset, length)| (*offset, stamped(self.writes, *length as usize)))
            .collect();
        let mut after = self.model.lock().content(file).live().to_vec();
        for (offset, data) in &pieces {
            put(&mut after, *offset as usize, data);
        }
        let handle = self.handles[&file];
        let call = async {
            for (offset, data) in &pieces {
                served
                    .place
                    .write(handle, WritePlace::At(*offset), data)
                    .await?;
            }
            Ok(())
        };
        self.change_bytes(served, (file, after), call).await;
    }

    async fn cut(&self, served: &Served, file: FileId, (path, size): (&str, u64)) {
        let inode = self.reach(served, path).await;
        let mut after = self.model.lock().content(file).live().to_vec();
        after.resize(size as usize, 0);
        let changes = AttributeChanges {
            size: Some(size),
            ..AttributeChanges::default()
        };
        let call = served.place.change(inode, changes);
        self.change_bytes(served, (file, after), call).await;
        served.place.volume.forget(inode, 1);
    }

    async fn punch(&self, served: &Served, file: FileId, range: std::ops::Range<u64>) {
        let mut after = self.model.lock().content(file).live().to_vec();
        let within = |at: u64| (at as usize).min(after.len());
        let hole = within(range.start)..within(range.end);
        after[hole].fill(0);
        let how = Allocation::PunchHole;
        let call = served.place.allocate(self.handles[&file], range, how);
        self.change_bytes(served, (file, after), call).await;
    }

    async fn copy(
        &self,
        served: &Served,
        (source, range): (FileId, std::ops::Range<u64>),
        (target, to): (FileId, u64),
    ) {
        let (shown, before) = {
            let mut model = self.model.lock();
            (model.content(source).live(), model.content(target).live())
        };
        let within = |at: u64| (at as usize).min(shown.len());
        let part = &shown[within(range.start)..within(range.end)];
        if source == target && range.start.abs_diff(to) < part.len() as u64 {
            return;
        }
        let copied = |length: usize| {
            let mut after = before.to_vec();
            if length > 0 {
                put(&mut after, to as usize, &part[..length]);
            }
            after
        };
        let at = |file: FileId, offset| Position {
            handle: self.handles[&file],
            offset,
        };
        let by = Identity::root();
        let places = (at(source, range.start), at(target, to));
        let length = range.end - range.start;
        let call = served
            .place
            .volume
            .copy_range(&by, places.0, places.1, length);
        let change = (target, copied(part.len()));
        let Some(done) = self.change_bytes(served, change, call).await else {
            return;
        };
        let done = done as usize;
        assert!(done <= part.len() && (done > 0 || part.is_empty()));
        self.model.lock().content(target).change(copied(done));
    }

    async fn read(&self, served: &Served, file: FileId) {
        let found = self.learn(served, file).await;
        self.is_live(file, &found);
    }

    fn is_live(&self, file: FileId, found: &[u8]) {
        let live = self.model.lock().content(file).live();
        if *found != **live {
            let differs = found
                .iter()
                .zip(&**live)
                .position(|(one, other)| one != other);
            let lengths = (found.len(), live.len());
            panic!("{file:?} differs at {differs:?}, lengths are {lengths:?}");
        }
    }

    async fn sync(&self, served: &Served, file: FileId) {
        let applied = served.disk.applied();
        let synced = served.place.sync(self.handles[&file]).await;
        self.told(served, (file, applied), synced);
    }

    async fn close(&mut self, served: &Served, file: FileId) {
        let applied = served.disk.applied();
        let handle = self.handles.remove(&file).expect("it is open");
        let is_changed = self.changed.lock().contains(&file);
        let closed = served.place.close(handle).await;
        if is_changed || closed.is_err() {
            self.told(served, (file, applied), closed);
        }
        self.changed.lock().remove(&file);
    }

    /// What a sync or a close said of what was changed before it.
    fn told(&self, served: &Served, (file, applied): (FileId, u64), synced: FsResult<()>) {
        match synced {
            Ok(()) => {
                self.model.lock().content(file).durable();
                self.changed.lock().remove(&file);
                served.acknowledge(applied);
            }
            Err(error) => assert!(passes(&error), "{error}"),
        }
    }

    fn named(&self) -> Vec<FileId> {
        self.model.lock().tree().files().into_keys().collect()
    }

    /// Open files without a name.
    fn strays(&self) -> Vec<FileId> {
        let named = self.named();
        let open = self.handles.keys().copied();
        open.filter(|file| !named.contains(file)).collect()
    }

    /// A file lost its last name: it is there as long as it is open.
    async fn forget_unnamed(&mut self, served: &Served) {
        if self.strays().len() > STRAYS_MAX || self.chance.bool() {
            self.close_strays(served).await;
        }
    }

    async fn close_strays(&mut self, served: &Served) {
        for file in self.strays() {
            self.read(served, file).await;
            self.close(served, file).await;
        }
    }

    /// Reads and closes all files.
    pub async fn close_all(&mut self, served: &Served) {
        self.close_strays(served).await;
        for file in self.handles.keys().copied().collect::<Vec<_>>() {
            self.read(served, file).await;
            self.close(served, file).await;
        }
    }

    /// Removes all that it has.
    pub async fn remove_all(&mut self, served: &Served) {
        loop {
            let tree = self.model.lock().tree().clone();
            let Some((path, node)) = tree.0.last_key_value() else {
                return;
            };
            let kind = match node {
                Node::Directory => RemoveKind::Directory,
                _ => RemoveKind::File,
            };
            self.remove(served, path, kind).await;
        }
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    bytes.resize(bytes.len().max(at + data.len()), 0);
    bytes[at..at + data.len()].copy_from_slice(data);
}

/// Bytes of which each tells the write that they are of, and about where in it they were.
fn stamped(write: u64, length: usize) -> Vec<u8> {
    let words = (0..length.div_ceil(8) as u64).flat_map(|word| {
        let mixed = (write << 24 | word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // Half of them the same, so that there is something to compress.
        let mixed = if word % 2 == 0 { write } else { mixed };
        (mixed | 0x0101_0101_0101_0101).to_le_bytes()
    });
    words.take(length).collect()
}
