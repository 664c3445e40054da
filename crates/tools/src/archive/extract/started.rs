//! What was handed out and is not done: names that others must wait for, and bytes that are held.

use std::{
    collections::HashSet,
    sync::{Condvar, PoisonError},
};

use penstock_base::Mutex;

/// Paths that somebody is writing.
#[derive(Debug, Default)]
pub(super) struct Started {
    paths: Mutex<HashSet<Vec<u8>>>,
    changed: Condvar,
}

impl Started {
    /// Waits until nobody writes `path`.
    pub(super) fn wait_for(&self, path: &[u8]) {
        let mut paths = self.paths.lock();
        while paths.contains(path) {
            let waited = self.changed.wait(paths);
            paths = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Somebody writes `path` from now on.
    pub(super) fn begin(&self, path: &[u8]) {
        self.paths.lock().insert(path.to_vec());
    }

    /// It is over.
    pub(super) fn end(&self, path: &[u8]) {
        if self.paths.lock().remove(path) {
            self.changed.notify_all();
        }
    }
}

/// Bytes that may be held at once.
#[derive(Debug)]
pub(super) struct Budget {
    left: Mutex<u64>,
    total: u64,
    given_back: Condvar,
}

/// A part of the budget, given back when dropped.
#[derive(Debug)]
pub(super) struct Permit<'a>(&'a Budget, u64);

impl Budget {
    pub(super) fn new(total: u64) -> Self {
        Self {
            left: Mutex::new(total),
            total,
            given_back: Condvar::new(),
        }
    }

    /// Waits until so many bytes are free. What is more than all is given when all are.
    pub(super) fn take(&self, bytes: u64) -> Permit<'_> {
        let bytes = bytes.min(self.total);
        let mut left = self.left.lock();
        while *left < bytes {
            let waited = self.given_back.wait(left);
            left = waited.unwrap_or_else(PoisonError::into_inner);
        }
        *left -= bytes;
        Permit(self, bytes)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.left.lock() += self.1;
        self.0.given_back.notify_all();
    }
}
