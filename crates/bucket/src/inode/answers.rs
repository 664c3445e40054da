//! How the store's answers enter the tree, and what memory answers in their place.

use std::collections::HashMap;

use penstock_base::{
    FsResult, Utf8Name,
    clock::{self, Instant},
};
use penstock_vfs::{FileKind, Inode};

use crate::{
    inode::{Dentry, Known, Patience, Tree},
    open_file::OpenFile,
};

/// What memory says about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recall {
    /// It leads to a file.
    Present,
    /// It is free.
    Absent,
    /// Ask the store.
    Unknown,
}

/// The names that a listing shows, and what it tells of each.
pub(crate) type Told = HashMap<Utf8Name, Option<Known>>;

/// What a listing of a whole directory tells.
#[derive(Debug)]
pub(crate) struct Learned {
    pub(crate) names: Told,
    /// Until when there is nothing else.
    pub(crate) complete_until: Instant,
    /// Whether there are names that were known and whose metadata was not asked for.
    pub(crate) leaves_some: bool,
    /// Whether there is more to know of an object than a listing tells.
    pub(crate) keeps_metadata: bool,
}

/// A question to the store about a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    /// When it was asked.
    pub(crate) epoch: u64,
    /// Whether a handle of the file asks, to go on with what the store has now. Only then may another client's
    /// version take the place of one that nobody has seen: whoever looks for the name finds another inode,
    /// since a door keeps the size of this one.
    pub(crate) for_handle: bool,
}

impl Question {
    /// One of somebody who looks for the name.
    pub(crate) fn of_the_name(epoch: u64) -> Self {
        Self {
            epoch,
            for_handle: false,
        }
    }
}

impl Tree {
    /// What memory says about a name.
    pub(crate) fn recall(
        &self,
        parent: Inode,
        name: &Utf8Name,
        patience: Patience,
    ) -> FsResult<Recall> {
        let directory = self.directory(parent)?;
        let now = clock::now();
        let current = match directory.entries.get(name) {
            Some(Dentry::Held(inode)) => self.node(*inode)?.is_current(now),
            Some(Dentry::Remembered(known)) => known.until > now,
            None if directory.is_absent(name, patience) => return Ok(Recall::Absent),
            None => false,
        };
        Ok(if current {
            Recall::Present
        } else {
            Recall::Unknown
        })
    }

    /// Whether a listing could tell something of a name that memory does not know, or believes no longer: not if one was
    /// made since, and all was described.
    pub(crate) fn may_learn(
        &self,
        directory: Inode,
        name: &Utf8Name,
        believes_absence: bool,
    ) -> FsResult<bool> {
        let Some(entry) = self.entry(directory, name) else {
            return Ok(believes_absence);
        };
        let directory = self.directory(directory)?;
        let until = self.known_of(entry).map(|known| known.until);
        let is_news = |until| directory.listed_at.is_none_or(|at| at < until);
        Ok(until.is_some_and(is_news) || directory.is_undescribed)
    }

    /// What is known of what an entry leads to.
    fn known_of<'tree>(&'tree self, entry: &'tree Dentry) -> Option<&'tree Known> {
        match entry {
            Dentry::Held(inode) => self.nodes.get(inode)?.known.as_ref(),
            Dentry::Remembered(known) => Some(known),
        }
    }

    /// Takes what was listed for all that the store has in a directory, as an answer to a question asked at `epoch`.
    /// Where it does not tell enough of a name, that is asked for when it is used.
    pub(super) fn learn(&mut self, directory: Inode, epoch: u64, learned: Learned) -> bool {
        let Ok(losses) = self.directory(directory).map(|directory| directory.losses) else {
            return false;
        };
        for (name, listed) in learned.names {
            if self.is_unchanged_since((directory, &name), epoch) {
                self.learn_name((directory, &name), epoch, listed, learned.keeps_metadata);
            }
        }
        let Ok(directory) = self.directory_mut(directory) else {
            return false;
        };
        directory.listed_at = Some(clock::now());
        directory.is_undescribed = learned.leaves_some;
        let is_whole = directory.losses == losses && directory.moved_at <= epoch;
        if is_whole {
            let until = Some(learned.complete_until);
            directory.complete_until = directory.complete_until.max(until);
        }
        is_whole
    }

    fn learn_name(
        &mut self,
        (directory, name): (Inode, &Utf8Name),
        epoch: u64,
        listed: Option<Known>,
        keeps_metadata: bool,
    ) {
        let entry = self.entry(directory, name);
        let is_new = entry.is_none();
        let known = entry.and_then(|entry| self.known_of(entry));
        let tells_all = |listed: &Known| {
            !keeps_metadata
                || listed.kept.is_some()
                || known.is_some_and(|known| known.still_describes(listed))
        };
        match listed.filter(tells_all) {
            Some(listed) => {
                let question = Question::of_the_name(epoch);
                self.settle((directory, name), question, Some(listed));
            }
            None if is_new => drop(self.remember(directory, name, Known::doubted(clock::now()))),
            None => {}
        }
    }

    /// Those of the names that a listing shows of which memory knows something that is believed no longer, and of whose
    /// metadata the listing does not say that it is the same. In order.
    pub(crate) fn to_describe(&self, directory: Inode, told: &Told) -> Vec<Utf8Name> {
        let now = clock::now();
        let is_outdated = |(name, listed): &(&Utf8Name, &Option<Known>)| {
            let entry = self.entry(directory, name);
            let known = entry.and_then(|entry| self.known_of(entry));
            let (Some(known), Some(listed)) = (known, listed) else {
                return false;
            };
            known.kept.is_some() && known.until <= now && !known.still_describes(listed)
        };
        let outdated = told.iter().filter(is_outdated);
        let mut names: Vec<_> = outdated.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// The names in a directory, in order, if memory knows all of them, no more than `max`, and believes what it knows
    /// of each.
    pub(crate) fn names_known(
        &self,
        directory: Inode,
        max: usize,
    ) -> FsResult<Option<Vec<Utf8Name>>> {
        let directory = self.directory(directory)?;
        let now = clock::now();
        let is_complete = directory.complete_until.is_some_and(|until| until > now);
        let is_current = |entry: &Dentry| match entry {
            Dentry::Held(inode) => self
                .nodes
                .get(inode)
                .is_some_and(|node| node.is_current(now)),
            Dentry::Remembered(known) => known.until > now,
        };
        let entries = &directory.entries;
        if !is_complete || entries.len() > max || !entries.values().all(is_current) {
            return Ok(None);
        }
        let mut names: Vec<_> = entries.keys().cloned().collect();
        names.sort_unstable();
        Ok(Some(names))
    }

    /// Begins a question to the store about names in `directory` and returns its epoch.
    pub(super) fn begin_observation(&mut self, directory: Inode) -> FsResult<u64> {
        let epoch = self.epoch;
        self.directory_mut(directory)?.begin_observation(epoch);
        Ok(epoch)
    }

    pub(super) fn end_observation(&mut self, directory: Inode, epoch: u64) {
        if let Ok(directory) = self.directory_mut(directory) {
            directory.end_observation(epoch);
        }
    }

    /// Whether an answer about a name to a question asked at `epoch` still holds.
    pub(super) fn is_unchanged_since(
        &self,
        (parent, name): (Inode, &Utf8Name),
        epoch: u64,
    ) -> bool {
        let directory = self.directory(parent);
        directory.is_ok_and(|directory| directory.is_unchanged_since(name, epoch))
    }

    /// Applies what the store said about a name in answer to a question, unless the name was changed here since it
    /// was asked.
    pub(crate) fn settle(
        &mut self,
        (parent, name): (Inode, &Utf8Name),
        question: Question,
        answer: Option<Known>,
    ) {
        match self.unsettled((parent, name), question, answer) {
            Some(Some(known)) => drop(self.remember(parent, name, known)),
            Some(None) => self.note_absence(parent, name),
            None => {}
        }
    }

    /// Applies an answer like [`Tree::settle`] and returns the node that the name then leads to,
    /// with one more reference.
    pub(crate) fn settle_and_hold(
        &mut self,
        (parent, name): (Inode, &Utf8Name),
        epoch: u64,
        answer: Option<Known>,
    ) -> Option<Inode> {
        match self.unsettled((parent, name), Question::of_the_name(epoch), answer) {
            Some(Some(known)) => {
                self.forget_entry(parent, name);
                let inode = self.insert(parent, name, known.kind, Some(known));
                self.node_mut(inode).ok()?.lookups = 1;
                return Some(inode);
            }
            Some(None) => self.note_absence(parent, name),
            None => {}
        }
        self.hold(parent, name)
    }

    /// Applies an answer to the node that a name leads to, and returns the answer if there is
    /// none or it was replaced.
    pub(super) fn unsettled(
        &mut self,
        (parent, name): (Inode, &Utf8Name),
        question: Question,
        answer: Option<Known>,
    ) -> Option<Option<Known>> {
        if !self.is_believable((parent, name), question.epoch, answer.as_ref()) {
            return None;
        }
        let directory = self.directory(parent).ok()?;
        let entry = directory.entries.get(name);
        let held = entry.and_then(Dentry::held);
        let known = match entry {
            Some(Dentry::Remembered(known)) => Some(&**known),
            _ => held.and_then(|inode| self.nodes.get(&inode)?.known.as_ref()),
        };
        let answer = answer.map(|answer| answer.completed_by(known));
        match held {
            Some(inode) if self.settle_held(inode, question, answer.as_ref()) => {
                self.show_to_handles(inode);
                None
            }
            _ => Some(answer),
        }
    }

    /// Lets the handles of a file read the version that the store has, if they have seen nothing yet: what
    /// they read and the size that is shown are of one version.
    fn show_to_handles(&self, inode: Inode) {
        let file = self.nodes.get(&inode).and_then(|node| node.file.as_ref());
        let is_engaged = |file: &OpenFile| file.body.is_engaged();
        if let Some(file) = file.filter(|file| !is_engaged(file)) {
            // What was seen and is another version left its name just now.
            if file.take_version(self.version(inode)) == Ok(true) {
                self.tell_content_changed(inode);
            }
        }
    }

    /// Applies an answer to a node. Returns whether the name still leads to it: another version of another
    /// client is another node, unless a handle asks that has the file open and nothing of it was seen. The size
    /// and the pages that a door keeps, also of a file that nobody has open, are of one version so.
    fn settle_held(&mut self, inode: Inode, question: Question, answer: Option<&Known>) -> bool {
        let Some(node) = self.nodes.get_mut(&inode) else {
            return false;
        };
        if node.is_unsaved() {
            return true;
        }
        let etag = node.known.as_ref().map(|known| known.etag.clone());
        let is_other = |known: &Known| etag.as_ref().is_some_and(|etag| *etag != known.etag);
        let may_take = question.for_handle && node.may_take();
        let replaces = node.kind == FileKind::Regular && (self.replaces || !may_take);
        match answer {
            Some(known) if known.kind == node.kind && !(is_other(known) && replaces) => {
                if is_other(known) {
                    node.clear_times();
                }
                node.known = Some(known.clone());
                true
            }
            // What is unsaved below could be saved nowhere else.
            _ if self.holds_unsaved(inode) => true,
            _ => {
                self.orphan(inode);
                false
            }
        }
    }

    /// Whether something below a directory is not in the store yet.
    fn holds_unsaved(&self, inode: Inode) -> bool {
        let is_directory = self.directory(inode).is_ok();
        let below = is_directory.then(|| self.nodes_below(inode));
        let nodes = below.into_iter().flatten();
        let mut nodes = nodes.filter_map(|inode| self.nodes.get(&inode));
        nodes.any(|node| node.is_unsaved())
    }
}
