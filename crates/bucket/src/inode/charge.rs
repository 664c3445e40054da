//! What inodes and remembered names take from the memory budget.

use std::sync::Arc;

use penstock_base::{KIB, MemoryBudget, Reservation};

/// Bytes that are paid for at once: the budget need not be asked for each name.
const STEP: u64 = 256 * KIB;

/// Memory for many small things.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<MemoryBudget>,
    /// One for each step begun.
    reservations: Vec<Reservation>,
}

impl Charge {
    pub(super) fn new(budget: Arc<MemoryBudget>) -> Self {
        Self {
            budget,
            reservations: Vec::new(),
        }
    }

    /// Pays for `bytes` as far as memory is to spare, and gives back what is paid for more.
    /// Returns whether all are paid for.
    pub(super) fn cover(&mut self, bytes: u64) -> bool {
        let steps = usize::try_from(bytes.div_ceil(STEP)).unwrap_or(usize::MAX);
        self.reservations.truncate(steps);
        while self.reservations.len() < steps {
            match self.budget.try_reserve_spare(STEP) {
                Some(reservation) => self.reservations.push(reservation),
                None => return false,
            }
        }
        true
    }
}
