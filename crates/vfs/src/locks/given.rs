//! A lock whose owner has not heard of it yet.

use std::fmt;

/// A lock that was given, and whose owner has still to hear of it. Who drops it instead of keeping it gives it back: of the
/// range its owner has what it had before, and what the owner asks for next comes after that.
#[must_use = "a lock that is not kept is given back"]
pub struct Given(Option<Settle>);

type Settle = Box<dyn FnOnce(Settled) + Send>;

/// What becomes of a lock that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Its owner has it.
    Kept,
    /// Nobody has heard of it.
    GivenBack,
}

impl Given {
    /// A lock; `settle` hears what becomes of it.
    pub fn new(settle: impl FnOnce(Settled) + Send + 'static) -> Self {
        Self(Some(Box::new(settle)))
    }

    /// Its owner has heard of it.
    pub fn keep(mut self) {
        self.settle(Settled::Kept);
    }

    fn settle(&mut self, settled: Settled) {
        if let Some(settle) = self.0.take() {
            settle(settled);
        }
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.settle(Settled::GivenBack);
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given").finish_non_exhaustive()
    }
}
