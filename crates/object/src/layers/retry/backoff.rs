//! When to try again.

use std::time::Duration;

use penstock_base::{
    clock::{self, Instant},
    metrics::Counter,
    random,
};

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

/// Statuses with which something between here and the store, or the store itself, says that it cannot
/// be had right now.
const AWAY_STATUSES: [u16; 4] = [429, 502, 503, 504];

/// What ends the attempts of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Attempts in all.
    pub(super) attempts_max: u32,
    /// How long a store that is away is tried however often that is.
    pub(super) away_max: Duration,
}

/// The attempts of one operation.
pub(super) struct Retries<'a> {
    budget: &'a Budget,
    counter: &'a Counter,
    limits: Limits,
    began: Instant,
    attempts: u32,
    /// Those at which the store was there.
    answered: u32,
    mismatches: u32,
    retried: bool,
}

impl<'a> Retries<'a> {
    pub(super) fn new(budget: &'a Budget, counter: &'a Counter, limits: Limits) -> Self {
        Self {
            budget,
            counter,
            limits,
            began: clock::now(),
            attempts: 0,
            answered: 0,
            mismatches: 0,
            retried: false,
        }
    }

    /// Waits before the next attempt, or returns `error` when there is to be none.
    pub(super) async fn pause(&mut self, error: ObjectError) -> Result<(), ObjectError> {
        self.attempts += 1;
        self.mismatches += u32::from(error.kind == ErrorKind::ChecksumMismatch);
        self.answered += u32::from(!is_away(&error));
        if !error.kind.is_transient() || self.is_enough(&error) {
            return Err(error);
        }
        let delay = self.delay(&error).max(self.budget.spend());
        tracing::debug!(%error, attempt = self.attempts, ?delay, "trying again");
        self.counter.increment();
        self.retried = true;
        clock::sleep(delay).await;
        Ok(())
    }

    fn is_enough(&self, error: &ObjectError) -> bool {
        let Limits {
            attempts_max,
            away_max,
        } = self.limits;
        if self.mismatches >= MISMATCHES_MAX {
            return true;
        }
        match away_max {
            Duration::ZERO => self.attempts >= attempts_max,
            _ if is_away(error) => self.began.elapsed() >= away_max,
            _ => self.answered >= attempts_max,
        }
    }

    /// Part of the work was done, so what follows counts anew.
    pub(super) fn progressed(&mut self) {
        self.attempts = 0;
        self.answered = 0;
        self.began = clock::now();
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

/// Whether the store is not there at the moment, as far as an error tells: nothing was heard from it, or
/// that it cannot be had right now. An error of its own is an answer.
pub(super) fn is_away(error: &ObjectError) -> bool {
    match error.status {
        Some(status) => AWAY_STATUSES.contains(&status),
        None => error.code.is_empty() && error.kind != ErrorKind::ChecksumMismatch,
    }
}
