//! What many small things take from the memory budget: inodes, remembered names, names that wait to be stored.

use std::sync::Arc;

use penstock_base::{KIB, MemoryBudget, Reservation};

/// Bytes that are paid for at once: the budget need not be asked for each name.
const STEP: u64 = 256 * KIB;

/// Memory for many small things.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<MemoryBudget>,
    /// Whether the part of the budget that is kept free is for others.
    takes_spare: bool,
    /// One for each step begun.
    reservations: Vec<Reservation>,
}

impl Charge {
    /// For things that are kept because they may be asked for again: they take what is to spare.
    pub(crate) fn new(budget: Arc<MemoryBudget>) -> Self {
        Self {
            budget,
            takes_spare: true,
            reservations: Vec::new(),
        }
    }

    /// For things that must be kept, of which there are few enough for what is free.
    pub(crate) fn of_needed(budget: Arc<MemoryBudget>) -> Self {
        Self {
            takes_spare: false,
            ..Self::new(budget)
        }
    }

    fn reserve(&self) -> Option<Reservation> {
        match self.takes_spare {
            true => self.budget.try_reserve_spare(STEP),
            false => self.budget.try_reserve(STEP),
        }
    }

    /// Pays for `bytes` as far as there is memory, and gives back what is paid for more.
    /// Returns whether all are paid for.
    pub(crate) fn cover(&mut self, bytes: u64) -> bool {
        let steps = usize::try_from(bytes.div_ceil(STEP)).unwrap_or(usize::MAX);
        self.reservations.truncate(steps);
        while self.reservations.len() < steps {
            match self.reserve() {
                Some(reservation) => self.reservations.push(reservation),
                None => return false,
            }
        }
        true
    }
}
