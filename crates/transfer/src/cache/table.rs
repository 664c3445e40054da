//! Which versions are there, and which of them was used longest ago.
//!
//! The table knows names, sizes and times; keys lie in the files. About a hundred bytes each, and
//! at most [`VERSIONS_MAX`] of them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Weak},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{entry::Entry, folder::Found, ledger::Ledger, name::VersionName};

/// Versions that are kept: 25 MiB of table.
pub(super) const VERSIONS_MAX: usize = 1 << 18;

/// Versions whose files stay open between two uses; two descriptors each.
const OPEN_MAX: usize = 64;

/// How often the use of a version is noted on the disk.
const TOUCH_INTERVAL: Duration = Duration::from_secs(60);

/// The versions.
#[derive(Debug)]
pub(super) struct Table {
    versions: BTreeMap<VersionName, Known>,
    by_use: BTreeSet<(u64, VersionName)>,
    /// The versions that were opened last.
    open: VecDeque<Arc<Entry>>,
    ledger: Arc<Ledger>,
}

#[derive(Debug)]
struct Known {
    /// What the ledger was told.
    bytes: u64,
    /// Nanoseconds of Unix time.
    used: u64,
    /// What the disk says about that.
    touched: u64,
    entry: Weak<Entry>,
}

/// A version that the table has.
#[derive(Debug)]
pub(super) struct Use {
    /// Its files, if they are open.
    pub(super) entry: Option<Arc<Entry>>,
    /// Whether its use is to be noted on the disk.
    pub(super) touch: bool,
}

impl Table {
    /// No versions; their bytes are told to `ledger`.
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self {
            versions: BTreeMap::new(),
            by_use: BTreeSet::new(),
            open: VecDeque::new(),
            ledger,
        }
    }

    /// Number of versions.
    pub(super) fn len(&self) -> usize {
        self.versions.len()
    }

    /// Adds a version that lies on the disk.
    pub(super) fn add(&mut self, found: &Found) {
        let used = nanoseconds(found.used);
        self.insert(found.name, found.bytes, used, Weak::new());
    }

    /// Adds a version whose files were just made.
    pub(super) fn add_new(&mut self, entry: &Arc<Entry>, now: SystemTime) {
        self.insert(entry.name, 0, nanoseconds(now), Arc::downgrade(entry));
        self.keep_open(entry);
    }

    fn insert(&mut self, name: VersionName, bytes: u64, used: u64, entry: Weak<Entry>) {
        let known = Known {
            bytes,
            used,
            touched: used,
            entry,
        };
        self.by_use.insert((used, name));
        self.ledger.change(0, bytes);
        if let Some(before) = self.versions.insert(name, known) {
            self.ledger.change(before.bytes, 0);
            if before.used != used {
                self.by_use.remove(&(before.used, name));
            }
        }
    }

    /// Looks a version up for use.
    pub(super) fn look_up(&mut self, name: VersionName, now: SystemTime) -> Option<Use> {
        let known = self.versions.get_mut(&name)?;
        let now = nanoseconds(now);
        if now > known.used {
            self.by_use.remove(&(known.used, name));
            known.used = now;
            self.by_use.insert((now, name));
        }
        let touch = now.saturating_sub(known.touched) >= TOUCH_INTERVAL.as_nanos() as u64;
        if touch {
            known.touched = now;
        }
        Some(Use {
            entry: known.entry.upgrade(),
            touch,
        })
    }

    /// Notes that the files of a version are open; returns those that somebody else opened
    /// meanwhile, if so. `None` when the version is not there any more.
    pub(super) fn opened(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let known = self.versions.get_mut(&entry.name)?;
        if let Some(first) = known.entry.upgrade() {
            return Some(first);
        }
        known.entry = Arc::downgrade(&entry);
        self.keep_open(&entry);
        Some(entry)
    }

    fn keep_open(&mut self, entry: &Arc<Entry>) {
        if self.open.len() >= OPEN_MAX {
            self.open.pop_front();
        }
        self.open.push_back(Arc::clone(entry));
    }

    /// Reserves `bytes` more for a version; `false` when it is not there any more.
    pub(super) fn charge(&mut self, name: VersionName, bytes: u64) -> bool {
        let Some(known) = self.versions.get_mut(&name) else {
            return false;
        };
        self.ledger.change(known.bytes, known.bytes + bytes);
        known.bytes += bytes;
        true
    }

    /// A version occupies `bytes` in truth.
    pub(super) fn settle(&mut self, name: VersionName, bytes: u64) {
        if let Some(known) = self.versions.get_mut(&name) {
            self.ledger.change(known.bytes, bytes);
            known.bytes = bytes;
        }
    }

    /// The version that was used longest ago, other than `spared`.
    pub(super) fn oldest(&self, spared: Option<VersionName>) -> Option<VersionName> {
        let mut by_use = self.by_use.iter().map(|(_, name)| *name);
        by_use.find(|name| Some(*name) != spared)
    }

    /// The versions with names from `first` to `last`.
    pub(super) fn within(&self, first: VersionName, last: VersionName) -> Vec<VersionName> {
        let versions = self.versions.range(first..=last);
        versions.map(|(name, _)| *name).collect()
    }

    /// Every version.
    pub(super) fn names(&self) -> Vec<VersionName> {
        self.versions.keys().copied().collect()
    }

    /// Forgets a version and returns its bytes, which leave the ledger when the files, which the
    /// caller is about to remove, are closed.
    pub(super) fn remove(&mut self, name: VersionName) -> Option<Leaving> {
        let known = self.versions.remove(&name)?;
        self.by_use.remove(&(known.used, name));
        self.ledger.leave(known.bytes);
        self.open.retain(|entry| entry.name != name);
        Some(Leaving {
            bytes: known.bytes,
            entry: known.entry.upgrade(),
        })
    }
}

/// A version that was forgotten and whose files still have their names.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) bytes: u64,
    entry: Option<Arc<Entry>>,
}

impl Leaving {
    /// The files have no name any more.
    pub(super) fn gone(self, ledger: &Ledger) {
        match &self.entry {
            Some(entry) => entry.doom(self.bytes),
            None => ledger.free(self.bytes),
        }
    }
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
