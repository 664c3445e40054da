//! When to try again.

use std::time::Duration;

use penstock_base::{
    clock::{self, Instant},
    metrics::Counter,
    random,
};

use super::budget::Budget;
use crate::{
    ErrorKind, ObjectError,
    layers::deadline::{time_for, time_of},
};

/// The first pause is drawn from zero to this.
pub const BACKOFF_BASE: Duration = Duration::from_millis(100);

/// No pause is drawn from a longer span than this.
const BACKOFF_CAP: Duration = Duration::from_secs(10);

/// Stores that ask for a longer pause get this one.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// No attempt is begun that has less time.
const ATTEMPT_MIN: Duration = Duration::from_millis(50);

/// Attempts at something whose checksum did not match: a second mismatch is no accident.
const MISMATCHES_MAX: u32 = 2;

/// Statuses with which something between here and the store, or the store itself, says that it cannot
/// be had right now.
const AWAY_STATUSES: [u16; 4] = [429, 502, 503, 504];

/// What ends the attempts of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Attempts in all, or those that the store answered where it is waited for.
    pub(super) attempts_max: u32,
    /// How long the operation may take, more for what takes the store long.
    pub(super) total: Duration,
    /// Whether a store that is away is tried however often that is.
    pub(super) rides_out: bool,
}

/// The attempts of one operation.
pub(super) struct Retries<'a> {
    budget: &'a Budget,
    counter: &'a Counter,
    limits: Limits,
    /// How much longer than others it may take for the body that it sends.
    body: Duration,
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
            body: Duration::ZERO,
            began: clock::now(),
            attempts: 0,
            answered: 0,
            mismatches: 0,
            retried: false,
        }
    }

    /// The same, of an operation that sends so many bytes.
    pub(super) fn sending(mut self, bytes: usize) -> Self {
        self.body = time_for(bytes as u64);
        self
    }

    /// Waits before the next attempt, or returns `error` when there is to be none, or no time for one:
    /// whoever waits for the store is told what the store said.
    pub(super) async fn pause(&mut self, error: ObjectError) -> Result<(), ObjectError> {
        self.attempts += 1;
        self.mismatches += u32::from(error.kind == ErrorKind::ChecksumMismatch);
        self.answered += u32::from(!is_away(&error));
        if !error.kind.is_transient() || self.is_enough(&error) {
            return Err(error);
        }
        let delay = self.delay(&error).max(self.budget.spend());
        let Some(delay) = self.fitted(delay, &error) else {
            return Err(error);
        };
        tracing::debug!(%error, attempt = self.attempts, ?delay, "trying again");
        self.counter.increment();
        self.retried = true;
        clock::sleep(delay).await;
        Ok(())
    }

    fn is_enough(&self, error: &ObjectError) -> bool {
        let counted = match self.limits.rides_out {
            true => self.answered,
            false => self.attempts,
        };
        let is_spent = counted >= self.limits.attempts_max && !self.is_ridden_out(error);
        is_spent || self.mismatches >= MISMATCHES_MAX
    }

    fn is_ridden_out(&self, error: &ObjectError) -> bool {
        self.limits.rides_out && is_away(error)
    }

    /// A pause of `delay`, or a shorter one where the operation would end in the middle of it: a store that is
    /// away is tried until the time is up. `None` if no attempt has time after it, or the store asked for more.
    fn fitted(&self, delay: Duration, error: &ObjectError) -> Option<Duration> {
        let left = self.time_left(error);
        if delay.saturating_add(ATTEMPT_MIN) < left {
            return Some(delay);
        }
        let shorter = left / 4 * 3;
        let is_long_enough = error.retry_after.is_none_or(|asked| asked <= shorter);
        let has_time = left - shorter > ATTEMPT_MIN;
        (self.is_ridden_out(error) && is_long_enough && has_time).then_some(shorter)
    }

    /// Until the operation must have ended. Nobody waits longer than usual for a store that is away.
    fn time_left(&self, error: &ObjectError) -> Duration {
        let total = self.limits.total;
        let time = match self.is_ridden_out(error) {
            true => total,
            false => time_of(error.operation, total),
        };
        time.saturating_add(self.body)
            .saturating_sub(self.began.elapsed())
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
