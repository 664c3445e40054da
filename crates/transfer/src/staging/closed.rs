//! What staged files leave behind that were closed a short while ago: bytes that the store has, too.
//!
//! A file that was written is often read next. So a file that was saved and closed leaves its staging file,
//! and the next open of the same version finds it there. Nothing of that is needed: it goes when
//! space is short, before anything else does, when the version is replaced, after some time, and
//! with the mount.
//!
//! What is left is found, kept and let go of in memory alone, also under the lock of the tree. The
//! next open of the file opens the staging file before it locks the tree, and keeps its name; what goes is
//! removed by the sweeper ([`crate::staging::sweep`]).

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use penstock_base::{
    GIB,
    clock::{self, Instant},
};
use penstock_object::{ETag, Key};

use crate::{
    ObjectVersion,
    lock::lock,
    staging::{
        content::Content,
        disk::DiskFile,
        folder::{FileId, Folder},
        sweep::Remains,
    },
};

/// Files that are left at once, at least and at most.
const FILES_MAX: (u64, u64) = (1024, 65_536);
/// Bytes of memory for each, and the share of the memory budget that all of them may take.
const LEFT_COST: u64 = 512;
const MEMORY_SHARE: u64 = 64;
/// Bytes that are left at most, and the part of the staging directory, and of what is free on its
/// disk, that they may take.
const BYTES_MAX: u64 = GIB;
const SHARE: u64 = 4;
/// Pieces of a file that is worth leaving: each takes memory.
const PIECES_MAX: usize = 64;
/// How long a file is left.
const LEFT_FOR: Duration = Duration::from_secs(600);

/// The staging file of a closed file. It is removed after this is dropped.
#[derive(Debug)]
pub struct Left {
    version: ObjectVersion,
    /// What the staging file has of the version.
    local: Vec<Range<u64>>,
    id: FileId,
    bytes: u64,
    since: Instant,
    /// Greater than that of what was left before.
    serial: u64,
    remains: Remains,
}

/// The same with the staging file open, for a file that is being opened.
#[derive(Debug)]
pub struct Reopened {
    left: Left,
    disk: DiskFile,
}

impl Left {
    /// Opens what was left in `folder`. It is removed if the disk refuses. Blocks.
    pub(super) fn reopen(self, folder: &Folder) -> Option<Reopened> {
        let file = Folder::open(&folder.data(&self.id)).ok()?;
        let disk = DiskFile::new(file);
        Some(Reopened { left: self, disk })
    }
}

impl Reopened {
    /// What the staging file has of the version, as the content of a file that goes on with it, the file's name
    /// and the staging file. The taker pays for them from now on.
    pub(super) fn take(self) -> (Content, FileId, DiskFile) {
        let Self { left, disk } = self;
        let mut content = Content::of(left.version);
        for range in left.local {
            content.fetched(range);
        }
        left.remains.spare();
        (content, left.id, disk)
    }

    /// Which version the staging file has bytes of.
    pub fn version(&self) -> &ObjectVersion {
        &self.left.version
    }
}

#[derive(Debug, Default)]
struct Files {
    by_key: HashMap<Key, Left>,
    /// Those left longest come first.
    by_age: BTreeMap<u64, Key>,
    last: u64,
    bytes: u64,
    /// The mount ends: nothing is left from now on.
    ended: bool,
}

impl Files {
    fn remove(&mut self, key: &Key) -> Option<Left> {
        let left = self.by_key.remove(key)?;
        self.by_age.remove(&left.serial);
        self.bytes -= left.bytes;
        Some(left)
    }

    fn insert(&mut self, left: Left) -> Option<Left> {
        let replaced = self.remove(&left.version.key);
        self.bytes += left.bytes;
        self.by_age.insert(left.serial, left.version.key.clone());
        self.by_key.insert(left.version.key.clone(), left);
        replaced
    }

    fn remove_oldest(&mut self) -> Option<Left> {
        let key = self.by_age.values().next()?.clone();
        self.remove(&key)
    }

    fn oldest(&self) -> Option<&Left> {
        self.by_key.get(self.by_age.values().next()?)
    }

    fn next_serial(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// What closed files left.
#[derive(Debug)]
pub struct Closed {
    bytes_max: u64,
    files_max: usize,
    files: Mutex<Files>,
}

impl Closed {
    /// For a staging directory of `size` bytes and a memory budget of `memory` bytes.
    pub(crate) fn new(size: u64, memory: u64) -> Self {
        let affordable = (memory / MEMORY_SHARE / LEFT_COST).clamp(FILES_MAX.0, FILES_MAX.1);
        Self {
            bytes_max: BYTES_MAX.min(size / SHARE),
            files_max: affordable as usize,
            files: Mutex::default(),
        }
    }

    /// Removes what was left longest. Returns whether there was any.
    pub(crate) fn give_up_one(&self) -> bool {
        let given_up = self.lock().remove_oldest();
        given_up.is_some()
    }

    /// Removes what was left too long ago, and what is too much for a file system with `free` bytes.
    pub fn expire(&self, free: u64) {
        let now = clock::now();
        let is_old = |left: &Left| left.since + LEFT_FOR < now;
        let mut files = self.lock();
        let mut removed = Vec::new();
        while files.oldest().is_some_and(is_old) {
            removed.push(files.remove_oldest());
        }
        let surplus = self.bound(&mut files, free);
        drop(files);
        drop((removed, surplus));
    }

    /// Removes what the file of this key left.
    pub fn forget(&self, key: &Key) {
        let left = self.lock().remove(key);
        drop(left);
    }

    /// Removes everything, and takes nothing from now on.
    pub(crate) fn end(&self) {
        let mut files = self.lock();
        files.ended = true;
        files.bytes = 0;
        files.by_age.clear();
        let left = std::mem::take(&mut files.by_key);
        drop(files);
        drop(left);
    }

    /// The store has the version `original` of `key` as `moved` now.
    pub fn follow(&self, key: &Key, original: &ETag, moved: &ObjectVersion) {
        let mut files = self.lock();
        let Some(mut left) = files.remove(key) else {
            return;
        };
        let replaced = if left.version.etag == *original && left.version.size == moved.size {
            left.version = moved.clone();
            files.insert(left)
        } else {
            Some(left)
        };
        drop(files);
        drop(replaced);
    }

    /// Whether something was left of exactly this version.
    pub fn has(&self, version: &ObjectVersion) -> bool {
        let files = self.lock();
        let left = files.by_key.get(&version.key);
        left.is_some_and(|left| left.version == *version)
    }

    /// What was left of exactly this version. What was left of another one goes.
    pub fn take(&self, version: &ObjectVersion) -> Option<Left> {
        let left = self.lock().remove(&version.key)?;
        (left.version == *version).then_some(left)
    }

    /// Keeps what the file `id` of which everything is saved leaves to the next that opens it, if that is worth
    /// it, on a file system with `free` bytes, which others want, too.
    pub(super) fn leave(&self, id: FileId, content: &Content, remains: Remains, free: u64) {
        let Some((version, local)) = content.local(PIECES_MAX) else {
            return;
        };
        let left = Left {
            bytes: local.iter().map(|range| range.end - range.start).sum(),
            version: version.clone(),
            local,
            id,
            since: clock::now(),
            serial: 0,
            remains,
        };
        let mut files = self.lock();
        if files.ended || left.bytes > self.bytes_max(free) {
            drop(files);
            return drop(left);
        }
        let serial = files.next_serial();
        let replaced = files.insert(Left { serial, ..left });
        let surplus = self.bound(&mut files, free);
        drop(files);
        drop((replaced, surplus));
    }

    /// Takes out what is too much.
    fn bound(&self, files: &mut Files, free: u64) -> Vec<Option<Left>> {
        let mut surplus = Vec::new();
        while files.by_key.len() > self.files_max || files.bytes > self.bytes_max(free) {
            surplus.push(files.remove_oldest());
        }
        surplus
    }

    fn bytes_max(&self, free: u64) -> u64 {
        self.bytes_max.min(free / SHARE)
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        lock(&self.files)
    }
}
