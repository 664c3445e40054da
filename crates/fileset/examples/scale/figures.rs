//! Latencies, and what of them is told.

use std::time::Duration;

/// How long operations of one kind took, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    pub fn add(&mut self, took: Duration) {
        self.0.push(took.as_nanos() as u64);
    }

    pub fn extend(&mut self, more: &mut Self) {
        self.0.append(&mut more.0);
    }

    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// In milliseconds; `share` of 0.5 is the median.
    pub fn quantile(&mut self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let place = (last as f64 * share).round() as usize;
        match self.0.is_empty() {
            true => f64::NAN,
            false => *self.0.select_nth_unstable(place).1 as f64 / 1e6,
        }
    }
}

/// The one in the middle.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}
