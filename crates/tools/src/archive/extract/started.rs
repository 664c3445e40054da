//! What was handed out and is not done: names that others must wait for, and bytes that are held.

use std::{
    collections::HashMap,
    sync::{Condvar, PoisonError},
    time::Duration,
};

use penstock_base::Mutex;

use crate::Stop;

/// How often who waits looks whether the work is to end.
const INTERVAL: Duration = Duration::from_millis(100);

/// Paths that somebody writes or reads.
#[derive(Debug, Default)]
pub(super) struct Started {
    paths: Mutex<HashMap<Vec<u8>, Users>>,
    changed: Condvar,
}

/// Who has to do with a path.
#[derive(Debug, Default)]
struct Users {
    is_written: bool,
    /// Links that are being made of it.
    readers: usize,
}

/// A path that somebody writes or reads until this is dropped, whatever becomes of it.
#[derive(Debug)]
pub(super) struct Begun<'a> {
    started: &'a Started,
    path: Vec<u8>,
    reads: bool,
}

impl Started {
    /// Waits until nobody writes or reads `path`. Says whether that is so: not when the work is to end.
    pub(super) fn wait_for(&self, path: &[u8], stop: &Stop) -> bool {
        self.wait_while(path, stop, |_| true)
    }

    /// Waits likewise until nobody writes `path`.
    pub(super) fn wait_for_writer(&self, path: &[u8], stop: &Stop) -> bool {
        self.wait_while(path, stop, |users| users.is_written)
    }

    fn wait_while(&self, path: &[u8], stop: &Stop, hinders: impl Fn(&Users) -> bool) -> bool {
        let mut paths = self.paths.lock();
        while paths.get(path).is_some_and(&hinders) {
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
        self.users(&path, |users| users.is_written = true);
        Begun {
            started: self,
            path,
            reads: false,
        }
    }

    /// Somebody reads `path` from now on, as others may.
    pub(super) fn begin_reading(&self, path: Vec<u8>) -> Begun<'_> {
        self.users(&path, |users| users.readers += 1);
        Begun {
            started: self,
            path,
            reads: true,
        }
    }

    fn users(&self, path: &[u8], change: impl FnOnce(&mut Users)) {
        let mut paths = self.paths.lock();
        let users = paths.entry(path.to_vec()).or_default();
        change(users);
        if !users.is_written && users.readers == 0 {
            paths.remove(path);
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
        let reads = self.reads;
        self.started.users(&self.path, |users| match reads {
            true => users.readers -= 1,
            false => users.is_written = false,
        });
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
    fn links_of_one_file_do_not_wait_for_each_other_and_who_writes_it_waits_for_all() {
        let (started, stop) = (Started::default(), Stop::default());
        let links = [(); 2].map(|()| started.begin_reading(b"a".to_vec()));
        assert!(started.wait_for_writer(b"a", &stop));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| started.wait_for(b"a", &stop));
            let [first, second] = links;
            drop(first);
            assert!(!waiting.is_finished());
            drop(second);
            assert!(waiting.join().unwrap_or(false));
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
