//! Small objects that arrived damaged.
//!
//! Stores tell a checksum for a whole object and none for a piece of it. When a whole small object arrives
//! damaged in direct mode, its reader gets an error, which kernels answer with reads of single
//! pages. Those would be believed whatever arrives. So the object is remembered here and fetched whole
//! from then on.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
};

use penstock_base::Mutex;

/// Objects that are remembered. When there are more the network is beyond help, and the one with
/// the lowest number is forgotten.
const OBJECTS_MAX: usize = 4096;

/// See [the module](self).
#[derive(Debug, Default)]
pub(super) struct Damaged {
    numbers: Mutex<BTreeSet<u32>>,
    /// Spares those who read the lock as long as all is well.
    any: AtomicBool,
}

impl Damaged {
    pub(super) fn note(&self, number: u32) {
        let mut numbers = self.numbers.lock();
        numbers.insert(number);
        if numbers.len() > OBJECTS_MAX {
            numbers.pop_first();
        }
        self.any.store(true, Ordering::Release);
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.any.load(Ordering::Acquire) && self.numbers.lock().contains(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_remembered_and_no_more() {
        let damaged = Damaged::default();
        assert!(!damaged.has(7));
        let last = OBJECTS_MAX as u32;
        (0..=last).for_each(|number| damaged.note(number));
        assert!(damaged.has(1) && damaged.has(last) && !damaged.has(0));
    }
}
