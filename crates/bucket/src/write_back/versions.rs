//! Removing objects only as the versions that they were when they were removed here.
//!
//! A store deletes whatever it has. So what it has is looked at just before: of several names in one directory by a
//! listing, else one by one.

use std::collections::HashMap;

use futures_util::{StreamExt, stream};
use penstock_object::{
    ETag, ErrorKind, HeadOptions, Key, ListOptions, ObjectError, ObjectResult, Operation,
};
use penstock_transfer::staging::NameChange;

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

/// What the store has of some keys; `None` for nothing.
type Found = HashMap<Key, ObjectResult<Option<ETag>>>;

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
        let checked: Vec<&Key> = tasks
            .iter()
            .filter(|task| matches!(*task.change, NameChange::Remove(Some(_))))
            .map(|task| &task.key)
            .collect();
        for keys in checked.chunk_by(|one, other| directory(one) == directory(other)) {
            if keys.len() >= LISTED_MIN {
                self.list_versions(keys, &mut found).await;
            }
            let left = keys.iter().filter(|key| !found.contains_key(key.as_str()));
            alone.extend(left.map(|key| Key::clone(key)));
        }
        let looks = alone.into_iter().map(async |key| {
            let there = self.store().head(&key, HeadOptions::default()).await;
            (key, etag_of(there.map(|info| info.etag)))
        });
        let looks: Vec<_> = stream::iter(looks)
            .buffer_unordered(LOOKS_AT_ONCE)
            .collect()
            .await;
        found.extend(looks);
        found
    }

    /// Adds what a listing tells of keys in one directory. What it does not reach is left out.
    async fn list_versions(&self, keys: &[&Key], found: &mut Found) {
        let [first, .., last] = keys else { return };
        let mut before = first.as_str().to_owned();
        before.pop();
        let mut options = ListOptions {
            prefix: directory(first).to_owned(),
            delimited: true,
            start_after: Some(before),
            ..ListOptions::default()
        };
        for _ in 0..PAGES_MAX + keys.len() / NAMES_PER_PAGE {
            let Ok(page) = self.store().list(options.clone()).await else {
                return;
            };
            let prefixes = page.common_prefixes.last().map(String::as_str);
            let objects = page.objects.last().map(|object| object.key.as_str());
            let reached = objects.max(prefixes).unwrap_or_default().to_owned();
            let tags: HashMap<String, ETag> = page
                .objects
                .into_iter()
                .map(|object| (object.key, object.etag))
                .collect();
            let is_last = page.continuation.is_none();
            for key in keys {
                let is_told = is_last || key.as_str() <= reached.as_str();
                if is_told && page.hidden == 0 && !found.contains_key(key.as_str()) {
                    found.insert((*key).clone(), Ok(tags.get(key.as_str()).cloned()));
                }
            }
            if is_last || reached.as_str() >= last.as_str() {
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
fn judge(task: &Task, found: Option<&ObjectResult<Option<ETag>>>) -> Option<Removed> {
    let NameChange::Remove(Some(version)) = &*task.change else {
        return None;
    };
    let Some(found) = found else {
        let text = "what the store has of it is not known";
        let error = ObjectError::new(ErrorKind::Unavailable, Operation::Delete, text);
        return Some(Removed::Failed(error));
    };
    match found {
        Ok(Some(there)) if there == version => None,
        Ok(Some(_)) => Some(Removed::Changed),
        Ok(None) => Some(Removed::Gone),
        Err(error) => Some(Removed::Failed(error.clone())),
    }
}

fn etag_of(there: ObjectResult<ETag>) -> ObjectResult<Option<ETag>> {
    match there {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        there => there.map(Some),
    }
}

/// The prefix of the directory that a key is in.
fn directory(key: &Key) -> &str {
    let key = key.as_str();
    &key[..key.trim_end_matches('/').rfind('/').map_or(0, |at| at + 1)]
}
