//! Files that wait to be saved, by when each of them is to be looked at.
//!
//! Whether a program writes a file, or saved it, the queue is not told. So a time here is the first at which the file
//! may be due; then the file is looked at, and either it is due or it has a later time from then on. A look at the queue
//! costs as much as there is due, however many files wait.

use std::collections::{BTreeSet, HashMap, hash_map};

use penstock_base::clock::{self, Instant};
use penstock_vfs::Inode;

use super::{HASTE_QUIET, Waiting};
use crate::SaveBehind;

#[derive(Debug)]
pub(super) struct Queue {
    settings: SaveBehind,
    files: HashMap<Inode, Waiting>,
    /// All of them.
    by_time: BTreeSet<(Instant, Inode)>,
    /// Since when those are unsaved that are saved at once in haste: no save of them failed, and nobody wrote them at the
    /// last look.
    by_age: BTreeSet<(Instant, Inode)>,
}

impl Queue {
    pub(super) fn new(settings: SaveBehind) -> Self {
        Self {
            settings,
            files: HashMap::new(),
            by_time: BTreeSet::new(),
            by_age: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Inode, &Waiting)> {
        self.files.iter().map(|(inode, waiting)| (*inode, waiting))
    }

    /// Lets a file wait. Returns what is not needed where the file waits already; [`Queue::note_closed`] is to follow when
    /// its handle is gone.
    pub(super) fn add(&mut self, waiting: Waiting) -> Option<Waiting> {
        let inode = waiting.handle.file.inode;
        let surplus = match self.files.entry(inode) {
            hash_map::Entry::Occupied(mut there) => {
                let there = there.get_mut();
                self.by_age.remove(&(there.since, inode));
                there.closed = waiting.closed;
                there.since = there.since.min(waiting.since);
                there.failed = there.failed.or(waiting.failed);
                Some(waiting)
            }
            hash_map::Entry::Vacant(place) => {
                place.insert(waiting);
                None
            }
        };
        self.note_closed(inode);
        surplus
    }

    /// A handle of a file is gone, so that it may be due earlier than a look at it showed.
    pub(super) fn note_closed(&mut self, inode: Inode) {
        let Some(waiting) = self.files.get(&inode) else {
            return;
        };
        let (at, since) = (waiting.earliest(&self.settings), waiting.since);
        if waiting.failed.is_none() {
            self.by_age.insert((since, inode));
        }
        self.look_at(inode, at);
    }

    /// Nothing of a file is unsaved any more: it is let go of with the next look.
    pub(super) fn note_saved(&mut self, inode: Inode) -> bool {
        let waits = self.files.contains_key(&inode);
        if waits {
            self.look_at(inode, clock::now());
        }
        waits
    }

    fn look_at(&mut self, inode: Inode, at: Instant) {
        let Some(waiting) = self.files.get_mut(&inode) else {
            return;
        };
        self.by_time.remove(&(waiting.look, inode));
        waiting.look = at;
        self.by_time.insert((at, inode));
    }

    pub(super) fn remove(&mut self, inode: Inode) -> Option<Waiting> {
        let waiting = self.files.remove(&inode)?;
        self.by_time.remove(&(waiting.look, inode));
        self.by_age.remove(&(waiting.since, inode));
        Some(waiting)
    }

    /// All of them, taken out.
    pub(super) fn take(&mut self) -> HashMap<Inode, Waiting> {
        self.by_time.clear();
        self.by_age.clear();
        std::mem::take(&mut self.files)
    }

    /// The file that is due first; in haste the one that is unsaved longest, once it was left alone for a moment.
    pub(super) fn first_due(&mut self, now: Instant, in_haste: bool) -> Option<Inode> {
        loop {
            let oldest = self
                .oldest(in_haste)
                .filter(|(since, _)| *since + HASTE_QUIET <= now);
            let first = oldest.or_else(|| self.by_time.first().filter(|(at, _)| *at <= now));
            let (_, inode) = *first?;
            let waiting = self.files.get(&inode)?;
            let (due, since) = (waiting.due(&self.settings, in_haste), waiting.since);
            if due <= now {
                return Some(inode);
            }
            self.by_age.remove(&(since, inode));
            self.look_at(inode, due);
        }
    }

    fn oldest(&self, in_haste: bool) -> Option<&(Instant, Inode)> {
        self.by_age.first().filter(|_| in_haste)
    }

    /// When the next file is to be looked at after `now`.
    pub(super) fn next(&self, now: Instant, in_haste: bool) -> Option<Instant> {
        let later = self.by_time.range((now, Inode(u64::MAX))..).next();
        let later = later.map(|(at, _)| *at);
        let oldest = self.oldest(in_haste).map(|(since, _)| *since + HASTE_QUIET);
        let times = [later, oldest.filter(|at| *at > now)];
        times.into_iter().flatten().min()
    }
}
