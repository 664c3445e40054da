//! What is known about the names in one directory.
//!
//! The store's answers arrive late: a listing that was asked for before a file was removed here
//! may still show it. So every question is an *observation* that begins at an epoch, and every
//! local change is noted with its epoch while observations are under way. An answer about a name
//! that changed after the question was asked is not applied.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use penstock_base::{
    Utf8Name,
    clock::{self, Instant},
};
use penstock_vfs::Inode;

use crate::inode::Known;

/// Changes of one directory that are noted while somebody keeps an old listing of it. Beyond it
/// all are dropped, and no answer to a question from before is believed.
const CHANGES_MAX: usize = 65_536;

/// Unknown names that are asked for one by one before a directory is listed for them.
const UNKNOWN_MAX: u32 = 3;

/// Files whose metadata is asked for with the first such listing, and with the last ones: as long as names are looked
/// for one after the other each listing asks for twice as many as the one before.
const DESCRIBED: (usize, usize) = (32, 256);

/// How long one after the other they may come: as long as they do, each time that nothing is believed any more
/// one listing is made.
const LATELY: Duration = Duration::from_secs(10);
/// For how long a directory is not listed that is too large for that.
const UNLISTED_FOR: Duration = Duration::from_secs(60);

/// Entries for which a table may always keep its room.
pub(super) const SMALL_TABLE: usize = 1024;

/// A name that leads somewhere.
#[derive(Debug)]
pub(crate) enum Dentry {
    /// To a file that somebody holds.
    Held(Inode),
    /// To a file that nobody holds, remembered to answer the next question.
    Remembered(Box<Known>),
}

/// The names in one directory.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) entries: HashMap<Utf8Name, Dentry>,
    /// Names that are known to be free, and since when.
    pub(crate) absent: HashMap<Utf8Name, Instant>,
    /// Until when every name that is not in `entries` is known to be free, after a complete
    /// listing.
    pub(crate) complete_until: Option<Instant>,
    /// Counts the times that a name was forgotten which led somewhere.
    pub(crate) losses: u64,
    /// Names that were looked for lately and that memory did not know, or believed no longer.
    unknown: u32,
    /// When the last of these was looked for.
    unknown_at: Option<Instant>,
    /// When it was listed last for such names.
    pub(super) listed_at: Option<Instant>,
    /// Files whose metadata is asked for with the next such listing.
    describes: usize,
    /// The last one left files whose metadata was not asked for.
    pub(super) is_undescribed: bool,
    /// Not to be listed for such names before this: it is too large for that.
    unlisted_until: Option<Instant>,
    /// Whether an object marks this directory, where that is known.
    pub(crate) marker: Option<bool>,
    /// Entries that are `Remembered`.
    pub(crate) remembered: usize,
    /// Until when anything that is `Remembered` is believed.
    pub(crate) remembered_until: Option<Instant>,
    /// Whether this directory stays only for what it remembers.
    pub(crate) idle: bool,
    /// Directories in this one that do so.
    pub(crate) idle_below: u64,
    /// This directory's place in the cache's order of eviction, if it has one.
    pub(crate) filled_at: Option<u64>,
    /// When all that was asked of this directory became worthless, because it was moved or more was changed in
    /// it than is noted.
    pub(crate) moved_at: u64,
    /// When a name in or below this directory was last changed in the store.
    pub(super) changed_at: u64,
    /// Epochs at which observations under way began, and how many at each.
    observations: BTreeMap<u64, u32>,
    /// The last change of names that changed while observations were under way.
    changes: HashMap<Utf8Name, u64>,
}

impl Directory {
    pub(crate) fn begin_observation(&mut self, epoch: u64) {
        *self.observations.entry(epoch).or_default() += 1;
    }

    pub(crate) fn end_observation(&mut self, epoch: u64) {
        let Some(count) = self.observations.get_mut(&epoch) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            let was_oldest = self
                .observations
                .first_key_value()
                .map(|(oldest, _)| *oldest);
            self.observations.remove(&epoch);
            if was_oldest == Some(epoch) {
                self.forget_changes();
            }
        }
    }

    /// Notes that `name` changed here at `epoch`, if somebody may hold an older answer.
    pub(crate) fn note_change(&mut self, name: &Utf8Name, epoch: u64) {
        self.absent.remove(name);
        self.outdate(name, epoch);
    }

    /// Makes answers about `name` to questions from before `epoch` worthless.
    pub(super) fn outdate(&mut self, name: &Utf8Name, epoch: u64) {
        if self.observations.is_empty() {
            return;
        }
        if self.changes.len() >= CHANGES_MAX {
            self.changes.clear();
            self.moved_at = epoch;
        }
        self.changes.insert(name.clone(), epoch);
    }

    /// Whether an answer to a question asked at `epoch` still holds for `name`.
    pub(crate) fn is_unchanged_since(&self, name: &Utf8Name, epoch: u64) -> bool {
        let changed = self.changes.get(name);
        epoch >= self.moved_at && changed.is_none_or(|changed| *changed <= epoch)
    }

    /// Notes that a name was forgotten which led somewhere, so that the directory is no longer
    /// known completely.
    pub(crate) fn note_loss(&mut self) {
        self.losses += 1;
        self.complete_until = None;
    }

    /// Counts a name that memory does not know, or believes no longer, and says whether there were so many, lately, that a listing is
    /// cheaper.
    pub(crate) fn wants_listing(&mut self, now: Instant) -> bool {
        let is_lately = |at: Instant| at + LATELY > now;
        if !self.unknown_at.replace(now).is_some_and(is_lately) {
            self.unknown = 0;
            self.describes = 0;
        }
        self.unknown = self.unknown.saturating_add(1);
        let is_too_large = self.unlisted_until.is_some_and(|until| until > now);
        self.unknown > UNKNOWN_MAX && !is_too_large
    }

    /// Of how many files the metadata may be asked for with a listing that is made now.
    pub(crate) fn take_described(&mut self) -> usize {
        let count = self.describes.max(DESCRIBED.0);
        self.describes = (count * 2).min(DESCRIBED.1);
        count
    }

    /// Notes that a listing of this directory for such names came to nothing.
    pub(crate) fn note_unlisted(&mut self, now: Instant) {
        self.unlisted_until = Some(now + UNLISTED_FOR);
    }

    /// Whether `name` is known to be free.
    pub(crate) fn is_absent(&self, name: &Utf8Name, patience: Patience) -> bool {
        let now = clock::now();
        let since = self.absent.get(name);
        let listed = self.complete_until.is_some_and(|until| until > now);
        since.is_some_and(|since| *since + patience.absence > now)
            || (listed && patience.trusts_listings)
    }

    /// Whether memory answers questions about names in here.
    pub(crate) fn has_answers(&self) -> bool {
        let now = clock::now();
        let remembered = self.remembered_until.filter(|_| self.remembered > 0);
        let until = remembered.max(self.complete_until);
        until.is_some_and(|until| until > now)
    }

    /// Whether the directory is known to have no entries at all.
    pub(crate) fn is_known_empty(&self) -> bool {
        self.entries.is_empty()
            && self
                .complete_until
                .is_some_and(|until| until > clock::now())
    }

    /// Takes a name out. Of a table that was large once only a part is kept.
    pub(crate) fn remove(&mut self, name: &Utf8Name) -> Option<Dentry> {
        let removed = self.entries.remove(name);
        self.shrink();
        removed
    }

    /// Gives back most of a table that is nearly empty.
    pub(crate) fn shrink(&mut self) {
        let room = self.entries.capacity();
        if room > SMALL_TABLE && self.entries.len() < room / 8 {
            self.entries.shrink_to(room / 4);
        }
    }

    fn forget_changes(&mut self) {
        match self.observations.first_key_value() {
            None => self.changes = HashMap::new(),
            Some((oldest, _)) => self.changes.retain(|_, changed| *changed > *oldest),
        }
    }
}

/// How much a question takes from memory about names that are free.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For how long after the store said so.
    pub(crate) absence: Duration,
    /// Whether a complete listing answers too.
    pub(crate) trusts_listings: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Utf8Name {
        Utf8Name::new(text).expect("a valid name")
    }

    #[test]
    fn an_answer_older_than_a_change_does_not_hold() {
        let mut directory = Directory::default();
        directory.begin_observation(1);
        directory.note_change(&name("a"), 2);
        assert!(!directory.is_unchanged_since(&name("a"), 1));
        assert!(directory.is_unchanged_since(&name("a"), 2));
        assert!(directory.is_unchanged_since(&name("b"), 1));
    }

    #[test]
    fn an_answer_older_than_more_changes_than_are_noted_does_not_hold() {
        let mut directory = Directory::default();
        directory.begin_observation(1);
        directory.note_change(&name("a"), 2);
        for (count, epoch) in (0..CHANGES_MAX).zip(3..) {
            directory.note_change(&name(&format!("b{count}")), epoch);
        }
        let last = 2 + CHANGES_MAX as u64;
        assert!(!directory.is_unchanged_since(&name("a"), 1));
        assert!(!directory.is_unchanged_since(&name("c"), last - 1));
        assert!(directory.is_unchanged_since(&name("a"), last));
    }

    #[test]
    fn changes_are_forgotten_with_the_last_older_observation() {
        let mut directory = Directory::default();
        directory.begin_observation(1);
        directory.note_change(&name("a"), 2);
        directory.begin_observation(2);
        directory.note_change(&name("b"), 3);
        directory.end_observation(1);
        assert_eq!(directory.changes.len(), 1);
        directory.end_observation(2);
        assert!(directory.changes.is_empty());
        directory.note_change(&name("c"), 4);
        assert!(directory.changes.is_empty());
    }
}
