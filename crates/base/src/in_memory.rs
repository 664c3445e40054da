//! Locks under which no thread waits for a disk.
//!
//! What every operation needs, a tree of names or the content of an open file, must not stand still with a
//! disk. So its locks are held for work in memory alone; debug builds, and with them all tests, check that at
//! every disk call.

use std::{
    cell::Cell,
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard, PoisonError},
};

thread_local! {
    /// Locks of this kind that the thread holds.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// A guard of such a lock.
#[derive(Debug)]
pub struct InMemory<'lock, T>(MutexGuard<'lock, T>);

impl<'lock, T> InMemory<'lock, T> {
    /// Locks `mutex`.
    pub fn lock(mutex: &'lock Mutex<T>) -> Self {
        let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        if cfg!(debug_assertions) {
            HELD.set(HELD.get() + 1);
        }
        Self(guard)
    }
}

impl<T> Drop for InMemory<'_, T> {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            HELD.set(HELD.get() - 1);
        }
    }
}

impl<T> Deref for InMemory<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for InMemory<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Says that a disk call follows.
#[track_caller]
pub fn disk_call() {
    debug_assert_eq!(
        HELD.get(),
        0,
        "a disk call while others need what is locked"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a disk call while others need")]
    fn a_disk_call_under_a_lock_that_others_need_is_noticed() {
        let mutex = Mutex::new(());
        drop(InMemory::lock(&mutex));
        disk_call();
        let _held = InMemory::lock(&mutex);
        disk_call();
    }
}
