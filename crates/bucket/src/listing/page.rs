//! One LIST page as directory entries.

use std::{iter::Peekable, vec};

use penstock_base::{FsResult, MemoryBudget, Reservation, Utf8Name, clock::Instant};
use penstock_object::{ListPage, ListedObject};
use penstock_vfs::{FileKind, Inode};

use crate::{
    inode::{Known, Observation, OldMarker, Resolved},
    key,
    listing::pages::Start,
    lookup::Lookups,
    metadata::Wanted,
    mount::Mount,
};

/// One LIST page as directory entries, in byte order of their keys.
#[derive(Debug)]
pub(super) struct Page {
    /// The position of the first entry.
    pub(super) first: u64,
    entries: Vec<Entry>,
    /// The prefixes of the directories, in order, whether they can be shown or not.
    directories: Vec<String>,
    /// The last key or prefix; nothing up to it is on a later page.
    pub(super) last_key: String,
    /// Where the next page begins; `None` on the last one.
    pub(super) next: Option<Start>,
    /// Whether the page has the object that marks the directory.
    pub(super) marker: bool,
    observation: Observation,
    /// What pays for the entries.
    memory: Option<Reservation>,
}

/// Bytes that an entry occupies, about.
const ENTRY_COST: u64 = 256;

#[derive(Debug)]
struct Entry {
    name: Utf8Name,
    /// What is known of it; `None` if it was removed since it was listed.
    known: Option<Known>,
    /// Whether it is an object, and not what several keys begin with.
    is_object: bool,
}

impl Page {
    /// Makes entries of a page of the directory `prefix`, counting what cannot be shown. Fails if
    /// the store does not list in order.
    pub(super) fn new(
        mount: &Mount,
        prefix: &str,
        start: &Start,
        (mut page, observation): (ListPage, Observation),
    ) -> FsResult<Self> {
        let after = start.after.as_deref();
        // The directory that the page before ended with may be named again.
        if page.common_prefixes.first().map(String::as_str) == after && after.is_some() {
            page.common_prefixes.remove(0);
        }
        let objects = page.objects.iter().map(|object| object.key.as_str());
        mount.check_order(after, objects)?;
        mount.check_order(after, page.common_prefixes.iter().map(String::as_str))?;
        let last_object = page.objects.last().map(|object| object.key.as_str());
        let last_prefix = page.common_prefixes.last().map(String::as_str);
        let last_key = last_object.max(last_prefix).or(after);
        let last_key = last_key.unwrap_or_default().to_owned();
        let directories = page.common_prefixes.clone();
        if page.hidden > 0 {
            mount.note_untold_names(prefix, page.hidden);
        }
        let mut marker = false;
        let mut entries = Vec::with_capacity(page.objects.len() + directories.len());
        let until = mount.believed_until(observation.begun());
        for (key, object) in in_order(page.objects, page.common_prefixes) {
            let is_object = object.is_some();
            let (key, known) = mount.listed(key, object, until);
            match key::listed_name(prefix, &key) {
                Some(name) => entries.push(Entry {
                    name,
                    known: Some(known),
                    is_object,
                }),
                None if key == prefix => marker = true,
                None => mount.note_hidden_name(&key),
            }
        }
        let next = page.continuation.map(|continuation| Start {
            position: start.position,
            continuation: Some(continuation),
            after: Some(last_key.clone()).filter(|key| !key.is_empty()),
        });
        Ok(Self {
            first: start.position,
            entries,
            directories,
            last_key,
            next,
            marker,
            observation,
            memory: None,
        })
    }

    /// The position after the last entry.
    pub(super) fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Pays for the entries, if there is memory to spare, and says whether there was.
    pub(super) fn pay(&mut self, budget: &MemoryBudget) -> bool {
        self.memory = budget.try_reserve_spare(self.entries.len() as u64 * ENTRY_COST);
        self.memory.is_some()
    }

    /// Puts the page where it belongs.
    pub(super) fn place_at(&mut self, position: u64) {
        self.first = position;
        let end = self.end();
        if let Some(next) = &mut self.next {
            next.position = end;
        }
    }

    /// Leaves out what comes before `after` in the directory `prefix`, and what is listed as that.
    pub(super) fn skip_to(&mut self, prefix: &str, after: &str) {
        let before = |entry: &Entry| entry.key(prefix).as_str() <= after;
        let skipped = self.entries.partition_point(before);
        self.entries.drain(..skipped);
    }

    /// The names of the first and the last entry.
    pub(super) fn extent(&self) -> Option<(&str, &str)> {
        let [first, .., last] = &self.entries[..] else {
            return None;
        };
        Some((first.name.as_str(), last.name.as_str()))
    }

    /// All names in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Cuts off what comes after `end` in the directory `prefix`. Returns whether the page reaches
    /// that far.
    pub(super) fn cut(&mut self, prefix: &str, end: &str) -> bool {
        if self.last_key.as_str() < end && self.next.is_some() {
            return false;
        }
        let inside = |entry: &Entry| entry.key(prefix).as_str() <= end;
        let kept = self.entries.partition_point(inside);
        let is_last = self.next.is_none() && kept == self.entries.len();
        self.entries.truncate(kept);
        self.next = (!is_last).then(|| Start::guess(end));
        true
    }

    pub(super) fn name(&self, index: usize) -> &Utf8Name {
        &self.entries[index].name
    }

    /// What the entry is sorted by: a directory stands where the keys below it do.
    pub(super) fn sorted_by(&self, index: usize) -> String {
        let entry = &self.entries[index];
        let slash = if entry.is_object { "" } else { "/" };
        format!("{}{slash}", entry.name)
    }

    /// Whether the entry is an object, which a directory of its name hides.
    pub(super) fn is_object(&self, index: usize) -> bool {
        self.entries[index].is_object
    }

    /// Whether the entry is a file, whose hiding is worth mentioning.
    pub(super) fn is_file(&self, index: usize) -> bool {
        let known = self.entries[index].known.as_ref();
        known.is_some_and(|known| known.kind != FileKind::Directory)
    }

    /// Asks for the metadata of all entries.
    pub(super) async fn describe(
        &mut self,
        lookups: &Lookups,
        directory: Inode,
        prefix: &str,
    ) -> FsResult<()> {
        let wanted = self.entries.iter().filter_map(|entry| {
            let listed = entry.known.clone()?;
            Some(Wanted {
                name: &entry.name,
                listed,
            })
        });
        let described = lookups
            .describe_entries((directory, prefix), wanted.collect())
            .await?;
        for (entry, known) in self.entries.iter_mut().zip(described) {
            entry.known = known;
        }
        Ok(())
    }

    /// Whether there is a directory with this prefix, or `None` if a later page tells.
    pub(super) fn has_directory(&self, prefix: &str) -> Option<bool> {
        if self
            .directories
            .binary_search_by(|other| other.as_str().cmp(prefix))
            .is_ok()
        {
            return Some(true);
        }
        (self.next.is_none() || prefix <= self.last_key.as_str()).then_some(false)
    }

    /// What an entry leads to now.
    pub(super) fn resolve(&self, index: usize) -> Resolved {
        let Entry { name, known, .. } = &self.entries[index];
        self.observation.resolve(name, known.clone())
    }
}

impl Entry {
    /// The key, or what several keys begin with, that was listed.
    fn key(&self, prefix: &str) -> String {
        let old_marker = self.known.as_ref().and_then(|known| known.old_marker);
        let ending = match old_marker {
            Some(OldMarker::Folder) => key::OLD_FOLDER,
            _ if self.is_object => "",
            _ => "/",
        };
        format!("{prefix}{}{ending}", self.name)
    }
}

impl Mount {
    /// What a listing tells of a key, and the key that it stands for: some programs mark
    /// directories by objects of other names.
    pub(crate) fn listed(
        &self,
        mut key: String,
        object: Option<ListedObject>,
        until: Instant,
    ) -> (String, Known) {
        let Some(object) = object else {
            return (key, Known::directory(until));
        };
        let old = self.keeps_metadata() && self.settings.metadata.old_directories;
        if let Some(name) = key.strip_suffix(key::OLD_FOLDER).filter(|_| old)
            && !name.is_empty()
            && !name.ends_with('/')
        {
            let known = Known {
                old_marker: Some(OldMarker::Folder),
                ..Known::directory(until)
            };
            key.truncate(name.len());
            return (key, known);
        }
        let known = Known {
            kind: self.kind_of(object.kind),
            object: object.kind,
            size: object.size,
            modified: Some(object.modified),
            stored: Some(object.modified),
            etag: Some(object.etag),
            ..Known::directory(until)
        };
        (key, known)
    }
}

/// Merges objects and prefixes, each in order, into one order.
fn in_order(
    objects: Vec<ListedObject>,
    prefixes: Vec<String>,
) -> impl Iterator<Item = (String, Option<ListedObject>)> {
    let mut objects = objects.into_iter().peekable();
    let mut prefixes = prefixes.into_iter().peekable();
    std::iter::from_fn(move || match (objects.peek(), prefixes.peek()) {
        (Some(object), Some(prefix)) if object.key > *prefix => next_prefix(&mut prefixes),
        (None, _) => next_prefix(&mut prefixes),
        (Some(_), _) => objects
            .next()
            .map(|mut object| (std::mem::take(&mut object.key), Some(object))),
    })
}

fn next_prefix(
    prefixes: &mut Peekable<vec::IntoIter<String>>,
) -> Option<(String, Option<ListedObject>)> {
    prefixes.next().map(|prefix| (prefix, None))
}
