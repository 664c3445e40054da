//! What was handed out and is not done: names that others must wait for, and bytes that are held.

use std::{
    collections::HashSet,
    sync::{Condvar, PoisonError},
    time::Duration,
};

use penstock_base::Mutex;

use crate::Stop;

/// How often who waits looks whether the work is to end.
const INTERVAL: Duration = Duration::from_millis(100);

/// Paths that somebody is writing.
#[derive(Debug, Default)]
pub(super) struct Started {
    paths: Mutex<HashSet<Vec<u8>>>,
    changed: Condvar,
}

/// A path that somebody is writing until this is dropped, whatever becomes of it.
#[derive(Debug)]
pub(super) struct Begun<'a> {
    started: &'a Started,
    path: Vec<u8>,
}

impl Started {
    /// Waits until nobody writes `path`. Says whether that is so: not when the work is to end.
    pub(super) fn wait_for(&self, path: &[u8], stop: &Stop) -> bool {
        let mut paths = self.paths.lock();
        while paths.contains(path) {
            if stop.is_set() {
                return false;
            }
            let waited = self.changed.wait_timeout(paths, INTERVAL);
            paths = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Somebody writes `path` from now on.
    pub(super) fn begin(&self, path: Vec<u8>) -> Begun<'_> {
        self.paths.lock().insert(path.clone());
        Begun {
            started: self,
            path,
        }
    }
}

impl Begun<'_> {
    /// The path.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.started.paths.lock().remove(&self.path);
        self.started.changed.notify_all();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_file_ends_when_the_work_is_to_end() {
        let (started, stop) = (Started::default(), Stop::default());
        let _begun = started.begin(b"a".to_vec());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| started.wait_for(b"a", &stop));
            stop.set();
            assert!(!waiting.join().unwrap_or(true));
        });
    }

    #[test]
    fn what_is_dropped_on_its_way_is_waited_for_no_longer() {
        let (started, stop) = (Started::default(), Stop::default());
        let begun = started.begin(b"a".to_vec());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| started.wait_for(b"a", &stop));
            drop(begun);
            assert!(waiting.join().unwrap_or(false));
        });
    }
}
