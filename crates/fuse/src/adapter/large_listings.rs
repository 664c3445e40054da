//! Whether programs look at what they list.
//!
//! An entry with attributes costs the kernel an inode, many times as much as a name, and it has to be asked to
//! forget it when memory is short. That pays if a program looks at the entry, as `ls -l` does and `ls` and `find`
//! do not. The entries of a directory of usual size all have attributes. Beyond that the program decides: the
//! kernel may not believe the first name of a reply, and unless somebody looks up a name in the directory before
//! the next reply, that one has names only.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use penstock_vfs::Inode;

use super::directory::Detail;

/// Entries of a listing that have attributes whoever reads them. The kernel makes as many inodes in a tenth of
/// a second.
const ALWAYS_SHOWN: u64 = 20_000;

/// Directories whose listings are beyond [`ALWAYS_SHOWN`].
#[derive(Debug, Default)]
pub(super) struct LargeListings {
    /// For each directory whether a name in it was looked up since the last reply.
    looked_up: Mutex<HashMap<Inode, bool>>,
    /// How many there are, so that nobody else needs the lock.
    count: AtomicUsize,
}

impl LargeListings {
    /// Which entries have attributes in a reply that begins at `position` of a listing of `directory`.
    pub(super) fn detail(&self, directory: Inode, position: u64) -> Detail {
        if position < ALWAYS_SHOWN {
            return Detail::All;
        }
        let mut looked_up = self.lock();
        let before = looked_up.insert(directory, false);
        self.count.store(looked_up.len(), Ordering::Relaxed);
        match before {
            Some(false) => Detail::None,
            Some(true) | None => Detail::Probing,
        }
    }

    /// Notes that a name in `directory` is looked up.
    pub(super) fn note_lookup(&self, directory: Inode) {
        if self.count.load(Ordering::Relaxed) > 0
            && let Some(looked_up) = self.lock().get_mut(&directory)
        {
            *looked_up = true;
        }
    }

    /// Notes that a listing of `directory` has ended. Another one learns anew.
    pub(super) fn ended(&self, directory: Inode) {
        if self.count.load(Ordering::Relaxed) > 0 {
            let mut looked_up = self.lock();
            looked_up.remove(&directory);
            self.count.store(looked_up.len(), Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Inode, bool>> {
        self.looked_up
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: Inode = Inode(7);

    #[test]
    fn the_first_entries_are_always_shown() {
        let listings = LargeListings::default();
        for position in [0, 2, ALWAYS_SHOWN - 1] {
            assert_eq!(listings.detail(DIRECTORY, position), Detail::All);
        }
    }

    #[test]
    fn later_ones_are_shown_as_long_as_somebody_looks() {
        let listings = LargeListings::default();
        let next = || listings.detail(DIRECTORY, ALWAYS_SHOWN);
        assert_eq!(next(), Detail::Probing);
        listings.note_lookup(DIRECTORY);
        assert_eq!(next(), Detail::Probing);
        listings.note_lookup(Inode(8));
        assert_eq!(next(), Detail::None);
        assert_eq!(next(), Detail::None);
        listings.note_lookup(DIRECTORY);
        assert_eq!(next(), Detail::Probing);
        assert_eq!(next(), Detail::None);
        listings.ended(DIRECTORY);
        assert_eq!(next(), Detail::Probing);
    }
}
