//! The lock of a value that is whole at any moment.

use std::sync::{MutexGuard, PoisonError};

/// A lock whose holders never leave half a change behind when they panic, so that it is as good afterwards.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until no other thread holds it. Not for waits that are long: the thread sleeps.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
