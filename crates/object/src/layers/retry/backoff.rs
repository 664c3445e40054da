//! When to try again.

use std::time::Duration;

use penstock_base::{clock, metrics::Counter, random};

use super::budget::Budget;
use crate::{ErrorKind, ObjectError};

/// The first pause is drawn from zero to this.
pub const BACKOFF_BASE: Duration = Duration::from_millis(100);

/// No pause is drawn from a longer span than this.
pub const BACKOFF_CAP: Duration = Duration::from_secs(10);

/// Stores that ask for a longer pause get this one.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Attempts at something whose checksum did not match: a second mismatch is no accident.
const MISMATCHES_MAX: u32 = 2;

/// The attempts of one operation.
pub(super) struct Retries<'a> {
    budget: &'a Budget,
    counter: &'a Counter,
    attempts_max: u32,
    attempts: u32,
    mismatches: u32,
    retried: bool,
}

impl<'a> Retries<'a> {
    pub(super) fn new(budget: &'a Budget, counter: &'a Counter, attempts_max: u32) -> Self {
        Self {
            budget,
            counter,
            attempts_max,
            attempts: 0,
            mismatches: 0,
            retried: false,
        }
    }

    /// Waits before the next attempt, or returns `error` when there is to be none.
    pub(super) async fn pause(&mut self, error: ObjectError) -> Result<(), ObjectError> {
        self.attempts += 1;
        self.mismatches += u32::from(error.kind == ErrorKind::ChecksumMismatch);
        let enough = self.attempts >= self.attempts_max || self.mismatches >= MISMATCHES_MAX;
        if enough || !error.kind.is_transient() {
            return Err(error);
        }
        let delay = self.delay(&error).max(self.budget.spend());
        tracing::debug!(%error, attempt = self.attempts, ?delay, "trying again");
        self.counter.increment();
        self.retried = true;
        clock::sleep(delay).await;
        Ok(())
    }

    /// Part of the work was done, so what follows counts anew.
    pub(super) fn progressed(&mut self) {
        self.attempts = 0;
    }

    pub(super) fn succeeded(&self) {
        if !self.retried {
            self.budget.earn();
        }
    }

    fn delay(&self, error: &ObjectError) -> Duration {
        let doublings = self.attempts.saturating_sub(1).min(u32::BITS - 1);
        let span = BACKOFF_BASE.saturating_mul(1 << doublings).min(BACKOFF_CAP);
        let drawn = span.mul_f64(random::fraction());
        match error.retry_after {
            Some(asked) => asked.min(RETRY_AFTER_MAX).saturating_add(drawn),
            None => drawn,
        }
    }
}
