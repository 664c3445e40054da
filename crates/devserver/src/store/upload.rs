//! An unfinished multipart upload.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use super::{content::Content, object::Attributes};
use crate::{
    clock,
    digest::{Algorithm, Value},
    sync,
};

/// A part as it was sent last.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) content: Content,
    /// Without quotes.
    pub(crate) etag: String,
    pub(crate) modified: SystemTime,
    /// Checksums that were sent with it or computed.
    pub(crate) checksums: Vec<Value>,
}

impl Part {
    pub(crate) fn checksum(&self, algorithm: Algorithm) -> Option<&Value> {
        let mut checksums = self.checksums.iter();
        checksums.find(|value| value.algorithm == algorithm)
    }
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) key: String,
    pub(crate) id: String,
    pub(crate) initiated: SystemTime,
    pub(crate) attributes: Attributes,
    /// The checksum that the writer announced, and whether it is over the whole object.
    pub(crate) checksum: Option<(Algorithm, bool)>,
    parts: Mutex<BTreeMap<u32, Part>>,
    /// Whether a request has named it.
    named: AtomicBool,
}

impl Upload {
    pub(crate) fn new(key: &str, id: String, attributes: Attributes) -> Self {
        Self {
            key: key.to_owned(),
            id,
            initiated: clock::wall_time(),
            attributes,
            checksum: None,
            parts: Mutex::default(),
            named: AtomicBool::new(false),
        }
    }

    /// Notes that a request has named it.
    pub(super) fn note_named(&self) {
        self.named.store(true, Ordering::Relaxed);
    }

    /// Whether a client knows of it: the answer to its creation may have been lost.
    pub(super) fn is_named(&self) -> bool {
        self.named.load(Ordering::Relaxed)
    }

    pub(crate) fn put(&self, number: u32, part: Part) {
        let replaced = sync::lock(&self.parts).insert(number, part);
        drop(replaced);
    }

    pub(crate) fn part(&self, number: u32) -> Option<Part> {
        sync::lock(&self.parts).get(&number).cloned()
    }

    /// Up to `limit` parts after number `marker`, and whether there are more.
    pub(crate) fn parts_after(&self, marker: u32, limit: usize) -> (Vec<(u32, Part)>, bool) {
        let parts = sync::lock(&self.parts);
        let mut rest = parts.range(marker.saturating_add(1)..);
        let page = rest
            .by_ref()
            .take(limit)
            .map(|(number, part)| (*number, part.clone()));
        let page = page.collect();
        (page, rest.next().is_some())
    }
}
