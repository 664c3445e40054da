//! How many retries a store bears.

use std::time::Duration;

use penstock_base::{
    Mutex,
    clock::{self, Instant},
};

/// Retries that may follow each other at once: enough for every stream of a busy mount to fail
/// in the same moment and go on.
const BURST: f64 = 256.0;

/// Retries per second that a store always bears.
const PER_SECOND: f64 = 16.0;

/// Retries that each success pays for: one in ten requests may be a retry for ever.
const PER_SUCCESS: f64 = 0.1;

/// A token bucket that all operations on one store share. It may go into debt, which those who
/// come wait for, in line.
#[derive(Debug)]
pub(super) struct Budget(Mutex<Account>);

#[derive(Debug)]
struct Account {
    tokens: f64,
    settled: Instant,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Account {
            tokens: BURST,
            settled: clock::now(),
        }))
    }

    /// Pays for a retry and returns how long it must wait for the money.
    pub(super) fn spend(&self) -> Duration {
        self.change(-1.0)
    }

    /// Credits a success.
    pub(super) fn earn(&self) {
        self.change(PER_SUCCESS);
    }

    fn change(&self, amount: f64) -> Duration {
        let mut account = self.0.lock();
        let now = clock::now();
        let passed = now.duration_since(account.settled).as_secs_f64();
        account.settled = now;
        let refilled = account.tokens + passed * PER_SECOND;
        account.tokens = refilled.min(BURST) + amount;
        Duration::from_secs_f64((-account.tokens / PER_SECOND).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_free_and_more_waits_in_line() {
        let budget = Budget::new();
        for _ in 0..BURST as u32 {
            assert_eq!(budget.spend(), Duration::ZERO);
        }
        let waits: Vec<f64> = (0..3).map(|_| budget.spend().as_secs_f64()).collect();
        for (index, wait) in waits.into_iter().enumerate() {
            let expected = (index + 1) as f64 / PER_SECOND;
            assert!(
                (wait - expected).abs() < 1e-6,
                "{wait} instead of {expected}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_and_successes_fill_it_up_to_the_brim() {
        let budget = Budget::new();
        for _ in 0..BURST as u32 + 10 {
            budget.spend();
        }
        for _ in 0..120 {
            budget.earn();
        }
        assert_eq!(budget.spend(), Duration::ZERO);
        clock::sleep(Duration::from_secs(1000)).await;
        for _ in 0..BURST as u32 {
            assert_eq!(budget.spend(), Duration::ZERO);
        }
        assert!(budget.spend() > Duration::ZERO);
    }
}
