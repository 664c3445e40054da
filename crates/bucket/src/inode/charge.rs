//! What inodes and remembered names take from the memory budget.

use std::sync::Arc;

use penstock_base::{MemoryBudget, Reservation};

/// Things that are paid for at once: the budget need not be asked for each of them.
const STEP: usize = 1024;

/// Memory for a number of things of about the same size.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<MemoryBudget>,
    /// Bytes that each takes, about.
    cost: u64,
    /// One for each step begun.
    reservations: Vec<Reservation>,
}

impl Charge {
    pub(super) fn new(budget: Arc<MemoryBudget>, cost: u64) -> Self {
        Self {
            budget,
            cost,
            reservations: Vec::new(),
        }
    }

    /// Pays for `count` things as far as memory is free, and gives back what is paid for more.
    /// Returns whether all are paid for.
    pub(super) fn cover(&mut self, count: usize) -> bool {
        let steps = count.div_ceil(STEP);
        self.reservations.truncate(steps);
        while self.reservations.len() < steps {
            match self.budget.try_reserve(STEP as u64 * self.cost) {
                Some(reservation) => self.reservations.push(reservation),
                None => return false,
            }
        }
        true
    }
}
