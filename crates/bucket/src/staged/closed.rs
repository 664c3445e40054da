//! What staged files leave behind that were closed a short while ago: bytes that the store has, too.
//!
//! Who writes a file often reads it next. So a file that was saved and closed leaves its staging file,
//! and whoever opens the same version again finds it there. Nothing of that is needed: it goes when
//! space is short, before anything else does, when the version is replaced, after some time, and
//! with the mount.

use std::{
    collections::HashMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use penstock_base::{
    GIB,
    clock::{self, Instant},
};
use penstock_object::{ETag, Key};
use penstock_transfer::ObjectVersion;

use crate::{
    open_file::OpenFile,
    staged::{
        StagedFile, State, content::Content, disk::DiskFile, folder::Folder, lock, space::Payment,
    },
};

/// Files that are left at once.
const FILES_MAX: usize = 1024;
/// Bytes that are left at most, and the part of the staging directory, and of what is free on its
/// disk, that they may take.
const BYTES_MAX: u64 = GIB;
const SHARE: u64 = 4;
/// Pieces of a file that is worth leaving: each takes memory.
const PIECES_MAX: usize = 64;
/// How long a file is left.
const LEFT_FOR: Duration = Duration::from_secs(600);

/// The staging file of a closed file. It is removed with this.
#[derive(Debug)]
struct Left {
    version: ObjectVersion,
    /// What the staging file has of the version.
    local: Vec<Range<u64>>,
    path: PathBuf,
    bytes: u64,
    since: Instant,
    _payment: Payment,
}

impl Drop for Left {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[derive(Debug, Default)]
struct Files {
    by_key: HashMap<Key, Left>,
    bytes: u64,
    /// Nobody opens anything any more.
    ended: bool,
}

impl Files {
    fn remove(&mut self, key: &Key) -> Option<Left> {
        let left = self.by_key.remove(key)?;
        self.bytes -= left.bytes;
        Some(left)
    }

    fn insert(&mut self, left: Left) -> Option<Left> {
        let replaced = self.remove(&left.version.key);
        self.bytes += left.bytes;
        self.by_key.insert(left.version.key.clone(), left);
        replaced
    }

    fn remove_oldest(&mut self) -> Option<Left> {
        let oldest = self.by_key.values().min_by_key(|left| left.since)?;
        let key = oldest.version.key.clone();
        self.remove(&key)
    }
}

/// What closed files left.
#[derive(Debug)]
pub(crate) struct Closed {
    bytes_max: u64,
    files: Mutex<Files>,
}

impl Closed {
    /// For a staging directory of `size` bytes.
    pub(crate) fn new(size: u64) -> Self {
        Self {
            bytes_max: BYTES_MAX.min(size / SHARE),
            files: Mutex::default(),
        }
    }

    /// Removes what was left longest. Returns whether there was any.
    pub(crate) fn give_up_one(&self) -> bool {
        let given_up = self.lock().remove_oldest();
        given_up.is_some()
    }

    /// Removes what was left too long ago.
    pub(crate) fn expire(&self) {
        let now = clock::now();
        let is_old = |left: &Left| left.since + LEFT_FOR < now;
        let mut files = self.lock();
        let old = files.by_key.values().filter(|left| is_old(left));
        let old: Vec<Key> = old.map(|left| left.version.key.clone()).collect();
        let removed: Vec<_> = old.iter().map(|key| files.remove(key)).collect();
        drop(files);
        drop(removed);
    }

    /// Removes what the file of this key left.
    pub(crate) fn forget(&self, key: &Key) {
        let left = self.lock().remove(key);
        drop(left);
    }

    /// Removes everything, and takes nothing from now on.
    pub(crate) fn end(&self) {
        let mut files = self.lock();
        files.ended = true;
        let left = std::mem::take(&mut files.by_key);
        drop(files);
        drop(left);
    }

    /// The store has the version `original` of `key` as `moved` now.
    pub(crate) fn follow(&self, (key, original): (&Key, &ETag), moved: &ObjectVersion) {
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

    /// What was left of exactly this version.
    fn take(&self, version: &ObjectVersion) -> Option<Left> {
        let left = self.lock().remove(&version.key)?;
        (left.version == *version).then_some(left)
    }

    /// Keeps what a file left, on a file system with `free` bytes, which others want, too.
    fn leave(&self, left: Left, free: u64) {
        let bytes_max = self.bytes_max.min(free / SHARE);
        let mut files = self.lock();
        if files.ended || left.bytes > bytes_max {
            drop(files);
            return drop(left);
        }
        let mut given_up = vec![files.insert(left)];
        while files.by_key.len() > FILES_MAX || files.bytes > bytes_max {
            given_up.push(files.remove_oldest());
        }
        drop(files);
        drop(given_up);
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StagedFile {
    /// Leaves the staging file of a closed file, of which everything is saved, to whoever opens it
    /// next. Returns whether it is worth that.
    pub(super) fn leave(&self, state: State) -> bool {
        let Some((version, local)) = state.content.local(PIECES_MAX) else {
            return false;
        };
        let Some(disk) = lock(&self.disk).take() else {
            return false;
        };
        let left = Left {
            bytes: local.iter().map(|range| range.end - range.start).sum(),
            version: version.clone(),
            local,
            path: disk.path().to_owned(),
            since: clock::now(),
            _payment: state.payment,
        };
        let free = self.staging.folder().disk().map_or(0, |(free, _)| free);
        self.staging.closed().leave(left, free);
        true
    }

    /// Goes on with what this version of the file left when it was closed, if it did.
    pub(crate) fn take_over(&self, file: &Arc<OpenFile>, version: &ObjectVersion) {
        let Some(left) = self.staging.closed().take(version) else {
            return;
        };
        let path = self.staging.folder().data(&self.id);
        let Ok(disk) = moved(&left.path, &path) else {
            return;
        };
        *lock(&self.disk) = Some(Arc::new(DiskFile::new(disk, path)));
        let mut content = Content::of(version.clone());
        for range in &left.local {
            content.fetched(range.clone());
        }
        // It was written here, and the door holds nothing else of it.
        let show = |_: &Content| file.view().ours = true;
        self.engage_file(file, (content, version.key.clone()), show);
    }
}

fn moved(from: &Path, to: &Path) -> std::io::Result<fs::File> {
    let file = Folder::open(from)?;
    fs::rename(from, to)?;
    Ok(file)
}
