//! What the changes that wait take from the memory budget.

use std::sync::Arc;

use penstock_base::{KIB, MIB, MemoryBudget};
use penstock_object::Key;
use penstock_transfer::staging::NameChange;

use crate::inode::Charge;

/// Bytes that a change occupies beside its texts, here and in the log's copy of what is noted: measured with 100,000.
const WAITING_COST: u64 = KIB;
/// The share of the memory budget that all of them may take.
const BUDGET_SHARE: u64 = 16;
/// Bytes that they may take, however large the budget is.
const BYTES_MAX: u64 = 256 * MIB;

/// Bytes that a change occupies, about. The node that waits for it has an account of its own.
pub(super) fn cost(key: &Key, change: &NameChange) -> u64 {
    WAITING_COST + key.as_str().len() as u64 + change.text_bytes()
}

/// The account of what waits.
#[derive(Debug)]
pub(super) struct Account {
    charge: Charge,
    used: u64,
    most: u64,
}

impl Account {
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> Self {
        Self {
            charge: Charge::of_needed(Arc::clone(budget)),
            used: 0,
            most: (budget.total() / BUDGET_SHARE).min(BYTES_MAX),
        }
    }

    /// Pays for something of `new` bytes in place of something of `old`. Returns whether there is room; what is no larger
    /// always has it.
    pub(super) fn has_room(&mut self, old: u64, new: u64) -> bool {
        let used = self.used - old + new;
        new <= old || used <= self.most && self.charge.cover(used)
    }

    /// Notes that something of `new` bytes waits in place of something of `old`.
    pub(super) fn change(&mut self, old: u64, new: u64) {
        self.used = self.used - old + new;
        self.charge.cover(self.used);
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Whether more than half of what may wait does.
    pub(super) fn is_crowded(&self) -> bool {
        self.used >= self.most / 2
    }
}
