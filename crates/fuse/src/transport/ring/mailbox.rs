//! Entries whose replies are ready to be committed, and a bell for the ring's thread.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::system;

/// Entries whose replies are ready to be committed.
///
/// The bell is rung only when the ring's thread sleeps or is about to: it says so, looks at the
/// list once more and only then sleeps, so nothing is missed.
#[derive(Debug)]
pub(super) struct Mailbox {
    ready: Mutex<Vec<u32>>,
    asleep: AtomicBool,
    bell: OwnedFd,
}

impl Mailbox {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            ready: Mutex::default(),
            asleep: AtomicBool::new(false),
            bell: system::event_counter()?,
        })
    }

    /// The descriptor that becomes readable when the bell is rung.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Adds an entry.
    pub(super) fn put(&self, entry: u32) {
        self.list().push(entry);
        if self.asleep.swap(false, Ordering::SeqCst) {
            system::ring_bell(self.bell.as_fd());
        }
    }

    /// Takes all entries.
    pub(super) fn take(&self) -> Vec<u32> {
        std::mem::take(&mut *self.list())
    }

    /// The thread wants to sleep: whether it may, because nothing is ready.
    pub(super) fn may_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let empty = self.list().is_empty();
        if !empty {
            self.asleep.store(false, Ordering::SeqCst);
        }
        empty
    }

    /// The thread is awake, so nobody needs to ring.
    pub(super) fn woke(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_sleeps_while_something_is_ready() {
        let mailbox = Mailbox::new().expect("an event counter");
        assert!(mailbox.may_sleep());
        mailbox.put(7);
        assert!(!mailbox.may_sleep());
        assert_eq!(mailbox.take(), [7]);
        assert!(mailbox.may_sleep());
    }
}
