//! How much is remembered about files that nobody holds.
//!
//! Whole directories are forgotten at once, the one first filled first: forgetting a single name
//! would make the directory's complete listing worthless anyway. A directory that alone exceeds
//! the limit is remembered as far as it fits and then no further. A directory that stays only for
//! what it remembers ([`crate::inode`]'s `idle`) counts as some names, so that all of this together
//! keeps within one limit.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use penstock_base::{MemoryBudget, Utf8Name};
use penstock_vfs::Inode;

use crate::inode::charge::Charge;

/// Bytes that a remembered name occupies, about.
pub(crate) const ENTRY_COST: u64 = 256;
/// Names that a directory counts for which stays for what it remembers.
const IDLE_DIRECTORY_NAMES: usize = 2;
/// Names that are known to be free, at most; the oldest are forgotten first.
pub(crate) const ABSENT_NAMES_MAX: usize = 10_000;
/// The share of the memory budget that remembered names may take. Nothing else bounds them.
const BUDGET_SHARE: u64 = 8;

/// The account of remembered names.
#[derive(Debug)]
pub(crate) struct Cache {
    charge: Charge,
    limit: usize,
    remembered: usize,
    /// Directories that nobody holds and that stay for what they remember.
    idle: usize,
    /// Directories with remembered names in the order in which they were first filled.
    filled: BTreeMap<u64, Inode>,
    next_filled: u64,
    /// Names that are known to be free in the order in which they were found so.
    absent: VecDeque<(Inode, Utf8Name)>,
}

impl Cache {
    pub(crate) fn new(budget: Arc<MemoryBudget>, entries: usize) -> Self {
        let affordable = budget.total() / BUDGET_SHARE / ENTRY_COST;
        Self {
            limit: entries.min(usize::try_from(affordable).unwrap_or(usize::MAX)),
            charge: Charge::new(budget),
            remembered: 0,
            idle: 0,
            filled: BTreeMap::new(),
            next_filled: 0,
            absent: VecDeque::new(),
        }
    }

    /// Accounts for one more name, if there is room.
    pub(crate) fn take(&mut self) -> bool {
        let covered = self.has_room(1);
        self.remembered += usize::from(covered);
        covered
    }

    /// Gives back the account of `count` names.
    pub(crate) fn give_back(&mut self, count: usize) {
        self.remembered -= count;
        self.cover();
    }

    /// Accounts for one more idle directory, if there is room.
    pub(crate) fn take_directory(&mut self) -> bool {
        let covered = self.has_room(IDLE_DIRECTORY_NAMES);
        self.idle += usize::from(covered);
        covered
    }

    /// Gives back the account of an idle directory.
    pub(crate) fn give_back_directory(&mut self) {
        self.idle -= 1;
        self.cover();
    }

    /// Accounts for a name instead of an idle directory, for which there always is room.
    pub(crate) fn exchange_directory(&mut self) {
        self.idle -= 1;
        self.remembered += 1;
        self.cover();
    }

    /// Everything that is accounted for, in names.
    fn used(&self) -> usize {
        self.remembered + self.idle * IDLE_DIRECTORY_NAMES
    }

    fn has_room(&mut self, names: usize) -> bool {
        let used = self.used() + names;
        used <= self.limit && self.charge.cover(used as u64 * ENTRY_COST)
    }

    fn cover(&mut self) {
        self.charge.cover(self.used() as u64 * ENTRY_COST);
    }

    /// Puts a directory at the end of the order of eviction and returns its place there.
    pub(crate) fn enqueue(&mut self, directory: Inode) -> u64 {
        self.next_filled += 1;
        self.filled.insert(self.next_filled, directory);
        self.next_filled
    }

    /// Takes a directory out of the order of eviction.
    pub(crate) fn dequeue(&mut self, place: u64) {
        self.filled.remove(&place);
    }

    /// The directory to forget first, other than `spared`.
    pub(crate) fn victim(&self, spared: Inode) -> Option<Inode> {
        self.filled
            .values()
            .copied()
            .find(|directory| *directory != spared)
    }

    /// Notes that a name was found to be free, and returns one to forget in exchange when there
    /// are too many.
    pub(crate) fn note_absence(
        &mut self,
        directory: Inode,
        name: &Utf8Name,
    ) -> Option<(Inode, Utf8Name)> {
        self.absent.push_back((directory, name.clone()));
        (self.absent.len() > ABSENT_NAMES_MAX)
            .then(|| self.absent.pop_front())
            .flatten()
    }

    /// Names remembered now.
    pub(crate) fn remembered(&self) -> usize {
        self.remembered
    }

    /// Directories that stay for what they remember.
    pub(crate) fn idle(&self) -> usize {
        self.idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::MIB;

    #[test]
    fn never_takes_more_than_its_share_of_the_budget() {
        let budget = MemoryBudget::new(16 * MIB);
        let mut cache = Cache::new(Arc::clone(&budget), usize::MAX);
        let taken = std::iter::repeat_with(|| cache.take())
            .take_while(|taken| *taken)
            .count();
        assert_eq!(taken as u64, 2 * MIB / ENTRY_COST);
        assert_eq!(budget.used(), 2 * MIB);
        cache.give_back(taken);
        assert_eq!((cache.remembered(), budget.used()), (0, 0));
    }

    #[test]
    fn takes_nothing_while_memory_is_short() {
        let budget = MemoryBudget::new(16 * MIB);
        let mut cache = Cache::new(Arc::clone(&budget), 10);
        let held = budget.try_reserve(16 * MIB);
        assert!(!cache.take());
        drop(held);
        assert!(cache.take());
    }
}
