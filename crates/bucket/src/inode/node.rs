//! One file or directory that somebody holds, and what is known about it.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use penstock_base::{Utf8Name, clock::Instant};
use penstock_object::{ETag, ObjectInfo, ObjectKind};
use penstock_vfs::{FileKind, Inode};

use crate::{inode::Directory, open_file::OpenFile, posix::KeptMetadata, write_back::Late};

/// Bytes that a node occupies, with what is known of it, but for its name: measured with a million.
const NODE_COST: u64 = 384;
/// Bytes that a directory occupies beyond that, but for its entries.
const DIRECTORY_COST: u64 = 512;
/// How long after what is known is not believed any more a use may follow the look that asked for it. A door
/// looks and uses at once; a distant or slow store answers the look within this.
const LOOK_LASTS: Duration = Duration::from_secs(1);

/// What the store said about a name, and until when that is believed.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) kind: FileKind,
    /// How the object came to be.
    pub(crate) object: ObjectKind,
    pub(crate) size: u64,
    /// `None` for directories of which no more is known; they show the time of the mount.
    pub(crate) modified: Option<SystemTime>,
    /// Since when the store has this version, as it tells, where it did.
    pub(crate) stored: Option<SystemTime>,
    /// `None` for directories.
    pub(crate) etag: Option<ETag>,
    pub(crate) until: Instant,
    /// What the object carries beside its bytes, where that was asked for; for a directory, what
    /// the object carries that marks it.
    pub(crate) kept: Option<Arc<KeptMetadata>>,
    /// The object that marks a directory, if that is not `dir/`.
    pub(crate) old_marker: Option<OldMarker>,
}

/// How older programs mark the directory `dir`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OldMarker {
    /// An object `dir` that says that it is a directory.
    Plain,
    /// An object `dir_$folder$`.
    Folder,
}

impl Known {
    /// A directory.
    pub(crate) fn directory(until: Instant) -> Self {
        Self {
            kind: FileKind::Directory,
            object: ObjectKind::Normal,
            size: 0,
            modified: None,
            stored: None,
            etag: None,
            until,
            kept: None,
            old_marker: None,
        }
    }

    /// Something of which no more is known than its name: whoever uses it asks the store.
    pub(crate) fn doubted(now: Instant) -> Self {
        Self {
            kind: FileKind::Regular,
            ..Self::directory(now)
        }
    }

    /// An object as HEAD describes it.
    pub(crate) fn object(info: &ObjectInfo, kind: FileKind, until: Instant) -> Self {
        Self {
            kind,
            object: info.kind,
            size: info.size,
            modified: Some(info.modified),
            stored: Some(info.modified),
            etag: Some(info.etag.clone()),
            until,
            kept: None,
            old_marker: None,
        }
    }
}

/// Where a file hangs in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) parent: Inode,
    pub(crate) name: Utf8Name,
}

/// Time stamps of what was done here and that the store does not keep.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LocalTimes {
    pub(crate) accessed: Option<SystemTime>,
    pub(crate) modified: Option<SystemTime>,
    pub(crate) changed: Option<SystemTime>,
}

/// When a file was last open, and which version the pages are of that a door may keep.
#[derive(Debug, Clone)]
pub(crate) struct LastOpen {
    /// `None` if of something that the file does not hold.
    pub(crate) etag: Option<ETag>,
    pub(crate) at: Instant,
}

/// Looks at a name that asked the store and whose answers were worth nothing a moment later, such as where
/// nothing is believed. The kernel begins each `stat` and `open` with such a look and asks for attributes and
/// opens right after it: to ask the store once more would find one more version of a file that others replace
/// again and again. So each look answers for one question for attributes and one open.
#[derive(Debug, Clone, Copy, Default)]
struct Looks {
    /// Those that no question for attributes has followed yet, and no open.
    of_attributes: u8,
    /// Those that no open has followed yet.
    of_opens: u8,
}

/// A file that a door holds, that is open, or that has such files below it.
#[derive(Debug)]
pub(crate) struct Node {
    /// `None` for the root and for what was removed or replaced while held.
    pub(crate) place: Option<Place>,
    pub(crate) kind: FileKind,
    /// Bytes that it occupied when it was made, with its entry in its directory and what the
    /// allocator adds.
    pub(super) cost: u64,
    /// References that doors hold.
    pub(crate) lookups: u64,
    /// Nodes below this one, handles and running operations.
    pub(crate) pins: u64,
    /// Whether it was looked up again since a door was last asked for such files.
    pub(crate) used: bool,
    looks: Looks,
    pub(crate) known: Option<Known>,
    times: Option<Box<LocalTimes>>,
    /// Metadata that goes to the store with the next save, or whenever it can.
    pub(crate) unsaved: Option<Arc<KeptMetadata>>,
    /// Metadata that a save under way sends.
    pub(crate) sent: Option<Arc<KeptMetadata>>,
    pub(crate) last_open: Option<Box<LastOpen>>,
    /// What the store lacks of a directory or a link, which waits in [`crate::write_back`].
    pub(crate) late: Option<Late>,
    /// What the open handles of this file share.
    pub(crate) file: Option<Arc<OpenFile>>,
    /// What is known about the names in this directory.
    pub(crate) directory: Option<Box<Directory>>,
}

impl Node {
    pub(crate) fn new(place: Option<Place>, kind: FileKind, known: Option<Known>) -> Self {
        let name = place.as_ref().map_or(0, |place| place.name.as_str().len());
        let is_directory = kind == FileKind::Directory;
        Self {
            cost: NODE_COST + name as u64 + if is_directory { DIRECTORY_COST } else { 0 },
            place,
            kind,
            lookups: 0,
            pins: 0,
            known,
            times: None,
            used: false,
            looks: Looks::default(),
            unsaved: None,
            sent: None,
            last_open: None,
            late: None,
            file: None,
            directory: is_directory.then(Box::default),
        }
    }

    /// Time stamps of what was done here.
    pub(crate) fn times(&self) -> LocalTimes {
        self.times.as_deref().copied().unwrap_or_default()
    }

    pub(crate) fn times_mut(&mut self) -> &mut LocalTimes {
        self.times.get_or_insert_default()
    }

    /// From now on the file shows the time that the store tells.
    pub(crate) fn note_modified_by_store(&mut self) {
        if let Some(times) = &mut self.times {
            times.modified = None;
        }
    }

    /// Forgets the time stamps of what was done here.
    pub(crate) fn clear_times(&mut self) {
        self.times = None;
    }

    /// What it is described as is on its way to the store, or there.
    pub(crate) fn note_described(&mut self, kept: &Arc<KeptMetadata>) {
        self.clear_times();
        let is_this = |unsaved: &Arc<KeptMetadata>| Arc::ptr_eq(unsaved, kept);
        if self.unsaved.as_ref().is_some_and(is_this) {
            self.unsaved = None;
        }
    }

    /// A door may keep pages of the version `etag`, or of what the file does not hold any more. Returns what
    /// was noted before.
    pub(crate) fn note_pages(&mut self, etag: Option<ETag>, at: Instant) -> Option<Box<LastOpen>> {
        self.last_open.replace(Box::new(LastOpen { etag, at }))
    }

    /// Whether the pages that a door may keep, if any, are of `version`.
    pub(crate) fn keeps_pages_of(&self, version: &ETag) -> bool {
        let last = self.last_open.as_ref();
        last.is_none_or(|last| last.etag.as_ref() == Some(version))
    }

    /// From now on a door that keeps pages of the file keeps something that it does not hold: the next open
    /// drops them.
    pub(crate) fn doubt_pages(&mut self) {
        if let Some(last) = &mut self.last_open {
            last.etag = None;
        }
    }

    /// The version `original` is `copy` now, with the same bytes.
    pub(crate) fn follow_pages(&mut self, original: &ETag, copy: &ETag) {
        if let Some(last) = &mut self.last_open
            && last.etag.as_ref() == Some(original)
        {
            last.etag = Some(copy.clone());
        }
    }

    /// Whether this mount holds changes of the file that the store does not have yet.
    pub(crate) fn is_dirty(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.view().dirty)
    }

    /// Whether the store lacks something of the file, the link or the directory that this mount holds.
    pub(crate) fn is_unsaved(&self) -> bool {
        self.late.is_some() || self.is_dirty()
    }

    /// Whether a handle that is open may have seen something of what the file holds.
    pub(crate) fn is_seen(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.view().is_seen())
    }

    /// Whether another client's version may take the place of what an open file holds. Never that of what a door
    /// was told of a file: it keeps the size.
    pub(crate) fn may_take(&self) -> bool {
        self.file
            .as_ref()
            .is_some_and(|file| !file.view().is_seen())
    }

    /// Whether the file lost its name though nobody removed it here: the name leads to something of another
    /// client, or to nothing. What is written to it could be saved nowhere.
    pub(crate) fn lost_its_name(&self) -> bool {
        let is_removed = |file: &Arc<OpenFile>| file.view().removed;
        self.place.is_none() && !self.file.as_ref().is_some_and(is_removed)
    }

    /// Whether what is known can be believed without asking the store.
    pub(crate) fn is_current(&self, now: Instant) -> bool {
        self.is_unsaved() || self.known.as_ref().is_some_and(|known| known.until > now)
    }

    /// Notes that the store was just asked for the name, if its answer is believed no longer: what a door does
    /// with the file right after that look needs it.
    pub(crate) fn note_look(&mut self, now: Instant) {
        if !self.is_current(now) {
            self.looks.of_attributes = self.looks.of_attributes.saturating_add(1);
            self.looks.of_opens = self.looks.of_opens.saturating_add(1);
        }
    }

    /// Whether the question for attributes that comes now follows a look at the name that asked the store.
    pub(crate) fn shows_what_was_looked_up(&mut self, now: Instant) -> bool {
        let looks = &mut self.looks;
        let follows = looks.of_attributes > 0;
        looks.of_attributes -= u8::from(follows);
        follows && self.was_known(now)
    }

    /// The same of an open.
    pub(crate) fn opens_what_was_looked_up(&mut self, now: Instant) -> bool {
        let looks = &mut self.looks;
        let follows = looks.of_opens > 0;
        looks.of_opens -= u8::from(follows);
        looks.of_attributes = looks.of_attributes.min(looks.of_opens);
        follows && self.was_known(now)
    }

    /// Whether what is known was believed a moment ago.
    fn was_known(&self, now: Instant) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|known| known.until + LOOK_LASTS > now)
    }

    /// Makes the next use ask the store.
    pub(crate) fn distrust(&mut self, now: Instant) {
        self.looks = Looks::default();
        if let Some(known) = &mut self.known {
            known.until = now;
        }
    }
}
