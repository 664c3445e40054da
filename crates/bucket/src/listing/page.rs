//! One LIST page as directory entries.

use std::{iter::Peekable, time::SystemTime, vec};

use penstock_base::{FileName, FsResult};
use penstock_object::{ETag, ListPage, ListedObject, ObjectKind};
use penstock_vfs::FileKind;

use crate::{
    core::Core,
    inode::{Known, Observation, Reference, Resolved},
    key,
    listing::pages::Start,
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
    /// Where the next page begins.
    pub(super) continuation: Option<String>,
    /// Whether the page has the object that marks the directory.
    pub(super) marker: bool,
    observation: Observation,
}

#[derive(Debug)]
struct Entry {
    name: FileName,
    /// `None` for a directory.
    object: Option<Facts>,
}

/// What a listing tells of an object.
#[derive(Debug)]
struct Facts {
    size: u64,
    etag: ETag,
    modified: SystemTime,
    kind: ObjectKind,
}

impl Page {
    /// Makes entries of a page of the directory `prefix`, counting what cannot be shown. Fails if
    /// the store does not list in order.
    pub(super) fn new(
        core: &Core,
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
        core.check_order(after, objects)?;
        core.check_order(after, page.common_prefixes.iter().map(String::as_str))?;
        let last_object = page.objects.last().map(|object| object.key.as_str());
        let last_prefix = page.common_prefixes.last().map(String::as_str);
        let last_key = last_object.max(last_prefix).or(after);
        let last_key = last_key.unwrap_or_default().to_owned();
        let directories = page.common_prefixes.clone();
        let mut marker = false;
        let mut entries = Vec::with_capacity(page.objects.len() + directories.len());
        for (key, object) in in_order(page.objects, page.common_prefixes) {
            match key::listed_name(prefix, &key) {
                Some(name) => entries.push(Entry { name, object }),
                None if key == prefix => marker = true,
                None => core.note_hidden_name(&key),
            }
        }
        let continuation = page.continuation;
        Ok(Self {
            first: start.position,
            entries,
            directories,
            last_key,
            continuation,
            marker,
            observation,
        })
    }

    /// The position after the last entry.
    pub(super) fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    pub(super) fn name(&self, index: usize) -> &FileName {
        &self.entries[index].name
    }

    pub(super) fn is_file(&self, index: usize) -> bool {
        self.entries[index].object.is_some()
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
        (self.continuation.is_none() || prefix <= self.last_key.as_str()).then_some(false)
    }

    /// The node of an entry as it is now, unless it was removed here since the page was asked for.
    pub(super) fn resolve(&self, index: usize, core: &Core) -> Option<Reference> {
        let Entry { name, object } = &self.entries[index];
        let until = core.believed_until(self.observation.begun());
        let known = match object {
            None => Known::directory(until),
            Some(facts) => facts.known(core.kind_of(facts.kind), until),
        };
        match self.observation.resolve(name, Some(known)) {
            Resolved::Found(found) => Some(found),
            Resolved::Absent | Resolved::Outdated => None,
        }
    }
}

impl Facts {
    fn known(&self, kind: FileKind, until: penstock_base::clock::Instant) -> Known {
        Known {
            kind,
            object: self.kind,
            size: self.size,
            modified: Some(self.modified),
            etag: Some(self.etag.clone()),
            until,
        }
    }
}

/// Merges objects and prefixes, each in order, into one order.
fn in_order(
    objects: Vec<ListedObject>,
    prefixes: Vec<String>,
) -> impl Iterator<Item = (String, Option<Facts>)> {
    let mut objects = objects.into_iter().peekable();
    let mut prefixes = prefixes.into_iter().peekable();
    std::iter::from_fn(move || match (objects.peek(), prefixes.peek()) {
        (Some(object), Some(prefix)) if object.key > *prefix => next_prefix(&mut prefixes),
        (None, _) => next_prefix(&mut prefixes),
        (Some(_), _) => objects.next().map(|object| {
            let ListedObject {
                key,
                size,
                etag,
                modified,
                kind,
                ..
            } = object;
            (
                key,
                Some(Facts {
                    size,
                    etag,
                    modified,
                    kind,
                }),
            )
        }),
    })
}

fn next_prefix(prefixes: &mut Peekable<vec::IntoIter<String>>) -> Option<(String, Option<Facts>)> {
    prefixes.next().map(|prefix| (prefix, None))
}
