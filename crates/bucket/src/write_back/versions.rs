//! Removing objects only as the versions that they were when they were removed here.
//!
//! A store deletes whatever it has. So what it has is looked at just before: of several names in one directory by a
//! listing, else one by one.

use std::{collections::HashMap, time::SystemTime};

use futures_util::{StreamExt, stream};
use penstock_object::{
    ETag, ErrorKind, HeadOptions, Key, ListOptions, ObjectError, ObjectInfo, ObjectResult,
    Operation,
};
use penstock_transfer::staging::{NameChange, Removal};

use crate::{mount::Mount, write_back::pending::Task};

/// Names in one directory from which on it is listed.
const LISTED_MIN: usize = 4;
/// Pages that are listed for the names of one directory, beyond one for each five hundred: others may lie between
/// them.
const PAGES_MAX: usize = 2;
/// Names for which a further page is worth it.
const NAMES_PER_PAGE: usize = 500;
/// Objects that are looked at at the same time.
const LOOKS_AT_ONCE: usize = 16;

/// What became of an object that was to be removed.
#[derive(Debug)]
pub(super) enum Removed {
    /// It is not there, or not any more.
    Gone,
    /// Another client's version is there.
    Changed,
    /// Not known: it is tried again.
    Failed(ObjectError),
}

/// What became of the objects of some keys.
pub(super) type RemovedByKey = HashMap<Key, Removed>;

/// A version as the store tells it.
#[derive(Debug, Clone)]
struct There {
    etag: ETag,
    modified: SystemTime,
}

/// What the store has of some keys; `None` for nothing.
type Found = HashMap<Key, ObjectResult<Option<There>>>;

impl There {
    fn is(&self, removal: &Removal) -> bool {
        let since = self.modified.duration_since(SystemTime::UNIX_EPOCH);
        let since = since.map_or(0, |since| since.as_secs());
        removal.etag.as_ref().is_none_or(|etag| *etag == self.etag)
            && removal.stored.is_none_or(|stored| stored == since)
    }
}

impl Task {
    /// What is to be removed, if not whatever there is.
    fn removal(&self) -> Option<&Removal> {
        match &*self.change {
            NameChange::Remove(removal) if *removal != Removal::default() => Some(removal),
            _ => None,
        }
    }
}

impl Mount {
    /// Removes the objects that still are the versions that were to be removed.
    pub(super) async fn remove_versions(&self, tasks: &[Task]) -> RemovedByKey {
        let found = self.versions_of(tasks).await;
        let mut removed = RemovedByKey::new();
        let mut keys = Vec::new();
        for task in tasks {
            match judge(task, found.get(&task.key)) {
                Some(judged) => drop(removed.insert(task.key.clone(), judged)),
                None => keys.push(task.key.clone()),
            }
        }
        removed.extend(self.delete_objects(&keys).await);
        removed
    }

    async fn versions_of(&self, tasks: &[Task]) -> Found {
        let mut found = Found::new();
        let mut alone: Vec<Key> = Vec::new();
        let checked: Vec<&Task> = tasks
            .iter()
            .filter(|task| task.removal().is_some())
            .collect();
        let is_together = |one: &&Task, other: &&Task| directory(&one.key) == directory(&other.key);
        for tasks in checked.chunk_by(is_together) {
            if tasks.len() >= LISTED_MIN {
                self.list_versions(tasks, &mut found).await;
            }
            let left = tasks.iter().filter(|task| !found.contains_key(&task.key));
            alone.extend(left.map(|task| task.key.clone()));
        }
        let looks = alone.into_iter().map(async |key| {
            let there = self.store().head(&key, HeadOptions::default()).await;
            (key, there_of(there))
        });
        let looks: Vec<_> = stream::iter(looks)
            .buffer_unordered(LOOKS_AT_ONCE)
            .collect()
            .await;
        found.extend(looks);
        found
    }

    /// Adds those in one directory that a listing shows as the versions that are to be removed. Of the others a listing
    /// says too little: it may be late, and some stores tell other tags in it.
    async fn list_versions(&self, tasks: &[&Task], found: &mut Found) {
        let [first, .., last] = tasks else { return };
        let mut before = first.key.as_str().to_owned();
        before.pop();
        let mut options = ListOptions {
            prefix: directory(&first.key).to_owned(),
            delimited: true,
            start_after: Some(before),
            ..ListOptions::default()
        };
        let wanted = tasks.iter().map(|task| (task.key.as_str(), task));
        let wanted: HashMap<&str, &&Task> = wanted.collect();
        for _ in 0..PAGES_MAX + tasks.len() / NAMES_PER_PAGE {
            let Ok(page) = self.store().list(options.clone()).await else {
                return;
            };
            let reached = page.objects.last().map(|object| object.key.clone());
            for object in page.objects {
                let Some(task) = wanted.get(object.key.as_str()) else {
                    continue;
                };
                let there = There {
                    etag: object.etag,
                    modified: object.modified,
                };
                if task.removal().is_some_and(|removal| there.is(removal)) {
                    found.insert(task.key.clone(), Ok(Some(there)));
                }
            }
            if page.continuation.is_none() || reached.as_deref() >= Some(last.key.as_str()) {
                return;
            }
            options.start_after = None;
            options.continuation = page.continuation;
        }
    }

    async fn delete_objects(&self, keys: &[Key]) -> RemovedByKey {
        let deleted = match keys {
            [] => return RemovedByKey::new(),
            [key] => self.store().delete(key).await.map(|()| Vec::new()),
            keys => self.store().delete_many(keys).await,
        };
        let failures = match deleted {
            Ok(failures) => failures,
            Err(error) => {
                let failed = |key: &Key| (key.clone(), Removed::Failed(error.clone()));
                return keys.iter().map(failed).collect();
            }
        };
        let gone = keys.iter().map(|key| (key.clone(), Removed::Gone));
        let mut removed: RemovedByKey = gone.collect();
        let failed = failures.into_iter().map(|failure| {
            let key = failure.key.clone();
            let text = format!("{} {}", failure.code, failure.message);
            let error = ObjectError::new(failure.kind, Operation::DeleteMany, text);
            (key, Removed::Failed(error))
        });
        removed.extend(failed);
        removed
    }
}

/// What is known of a removal before the object is removed; `None` if it is to be.
fn judge(task: &Task, found: Option<&ObjectResult<Option<There>>>) -> Option<Removed> {
    let removal = task.removal()?;
    let Some(found) = found else {
        let text = "what the store has of it is not known";
        let error = ObjectError::new(ErrorKind::Unavailable, Operation::Delete, text);
        return Some(Removed::Failed(error));
    };
    match found {
        Ok(Some(there)) if there.is(removal) => None,
        Ok(Some(_)) => Some(Removed::Changed),
        Ok(None) => Some(Removed::Gone),
        Err(error) => Some(Removed::Failed(error.clone())),
    }
}

fn there_of(there: ObjectResult<ObjectInfo>) -> ObjectResult<Option<There>> {
    match there {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        there => there.map(|info| {
            Some(There {
                etag: info.etag,
                modified: info.modified,
            })
        }),
    }
}

/// The prefix of the directory that a key is in.
fn directory(key: &Key) -> &str {
    let key = key.as_str();
    &key[..key.trim_end_matches('/').rfind('/').map_or(0, |at| at + 1)]
}
