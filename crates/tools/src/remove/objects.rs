//! `rm -r` in a bucket, without a mount: what a flat listing shows is deleted, a page in one request.
//!
//! A path `a` is the object `a`, and with what is below it everything whose key begins with `a/`: the marker of the
//! directory among it, and never `ab`. A path `a/` is what is below alone. What is written meanwhile may stay, and so
//! do unfinished uploads and, where the bucket keeps them, earlier versions.
//!
//! A listing is a chain of pages, so the keys are cut into ranges while they are listed ([`ranges`]). Keys at hand are
//! bounded: a page for each thread and one for each range.

mod job;
mod ranges;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use penstock_base::Mutex;
use penstock_object::{
    BULK_DELETES, FlatPage, Key, Known, ListOptions, ObjectError, ObjectResult, Store,
};
use tokio::runtime::Handle;

use self::{
    job::{Removal, Task},
    ranges::Ranges,
};
use super::Refused;
use crate::{
    Report, Stop, Threads,
    work::{Crew, Order},
};

/// The scheme of buckets that are directories of this machine.
const LOCAL_SCHEME: &str = "file";

/// Says of an error of the bucket with this URL what a user can do about it.
pub type Explain = fn(&str, &ObjectError) -> String;

/// A bucket from which objects are removed.
pub struct Bucket {
    /// As messages name it, without a slash at its end.
    pub url: String,
    /// The whole bucket, with the layers that repeat what fails in passing.
    pub store: Arc<dyn Store>,
    /// Where requests run: a runtime with threads of its own, of which the caller is none.
    pub runtime: Handle,
    /// What is said of errors.
    pub explain: Explain,
}

/// A path in a bucket.
#[derive(Debug, Clone)]
pub struct ObjectPath {
    /// Where it is.
    pub bucket: Arc<Bucket>,
    /// The key: empty for the whole bucket, with a slash at its end for what is below alone.
    pub key: String,
}

/// What may be removed, and how.
#[derive(Debug, Clone, Copy)]
pub struct ObjectSettings {
    /// Also what is below.
    pub recursive: bool,
    /// A path that is not there is no failure.
    pub force: bool,
    /// Also a whole bucket.
    pub root: bool,
    /// How many threads.
    pub threads: Threads,
}

/// What one page shows of what is below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Survey {
    /// Objects on the page.
    pub objects: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Whether there are others.
    pub is_cut: bool,
}

/// Removes what `paths` name. What could not be removed stands in `report`.
pub fn remove(paths: &[ObjectPath], settings: ObjectSettings, report: &Report, stop: &Stop) {
    let job = Removal::new(settings, report, stop);
    Crew::run(&job, settings.threads, Order::Newest, stop, |crew| {
        for path in paths {
            match refusal(path, settings) {
                None => drop(crew.submit(Task::Look(Target::new(path)))),
                Some(refusal) => report.fail(refusal),
            }
        }
    });
}

/// A first look at what `path` names with all that is below it: one page, and one request for the object itself.
pub fn survey(path: &ObjectPath) -> ObjectResult<Survey> {
    let target = Target::new(path);
    let page = target.page(ListOptions::default())?;
    let own = target.own()?.map(|own| own.size);
    let sizes = || page.objects().map(|object| object.size).chain(own);
    Ok(Survey {
        objects: sizes().count() as u64,
        bytes: sizes().sum(),
        is_cut: page.continuation.is_some(),
    })
}

fn refusal(path: &ObjectPath, settings: ObjectSettings) -> Option<Refused> {
    let is_root = path.key.trim_matches('/').is_empty();
    (is_root && settings.recursive && !settings.root).then(|| Refused::whole(path))
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("url", &self.url).finish()
    }
}

impl fmt::Display for ObjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bucket.url, self.key)
    }
}

impl Bucket {
    fn wait<T>(&self, answer: impl Future<Output = T>) -> T {
        self.runtime.block_on(answer)
    }

    /// Whether one request deletes many, as far as is known.
    fn deletes_many(&self) -> Known {
        if self.store.capabilities().scheme == LOCAL_SCHEME {
            return Known::Absent;
        }
        let abilities = self.store.abilities();
        let told = abilities.iter().find(|told| told.name == BULK_DELETES);
        told.map_or(Known::Present, |told| told.known)
    }
}

/// A path that is being removed.
#[derive(Debug)]
struct Target {
    path: ObjectPath,
    /// What keys below it begin with.
    prefix: String,
    ranges: Mutex<Ranges>,
    /// The bucket refused or did not answer: nothing else is asked of it for this path.
    is_over: AtomicBool,
}

/// An object that a path itself names.
struct Own {
    key: Key,
    size: u64,
}

impl Target {
    fn new(path: &ObjectPath) -> Arc<Self> {
        let prefix = match path.key.as_str() {
            "" => String::new(),
            key if key.ends_with('/') => key.to_owned(),
            key => format!("{key}/"),
        };
        Arc::new(Self {
            path: path.clone(),
            prefix,
            ranges: Mutex::new(Ranges::default()),
            is_over: AtomicBool::new(false),
        })
    }

    /// The object that the path itself names, if it is there.
    fn own(&self) -> ObjectResult<Option<Own>> {
        let key = match Key::new(&self.path.key) {
            Ok(key) if !key.as_str().ends_with('/') => key,
            _ => return Ok(None),
        };
        // No other key that begins with it is before it. The right to list is all that this takes.
        let page = self.page_of(ListOptions {
            prefix: key.to_string(),
            max_keys: Some(1),
            ..ListOptions::default()
        })?;
        let first = page.objects().next();
        let own = first.filter(|object| object.key == key.as_str());
        Ok(own.map(|object| Own {
            key,
            size: object.size,
        }))
    }

    /// A page of what is below.
    fn page(&self, options: ListOptions) -> ObjectResult<FlatPage> {
        self.page_of(ListOptions {
            prefix: self.prefix.clone(),
            ..options
        })
    }

    fn page_of(&self, options: ListOptions) -> ObjectResult<FlatPage> {
        let bucket = &self.path.bucket;
        bucket.wait(bucket.store.list_flat(options))
    }

    /// `key` as messages name it.
    fn shown(&self, key: &str) -> String {
        format!("{}/{key}", self.path.bucket.url)
    }

    /// Ends the work on this path, and says why.
    fn give_up(&self, error: &ObjectError) -> String {
        self.is_over.store(true, Ordering::Relaxed);
        let bucket = &self.path.bucket;
        (bucket.explain)(&bucket.url, error)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
