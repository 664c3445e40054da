//! Numbers that components own and exporters read.
//!
//! What is counted, under which name and in which unit, is written down once, in [`table`]; docs/metrics.md is
//! made of it. A [`Registry`] belongs to one process; there is no global. A component registers its metrics once,
//! keeps the handles, and updates them with relaxed atomics. An exporter walks [`Registry::samples`] and prints
//! what it finds, as JSON or in the Prometheus text format.
//!
//! A process with several volumes gives each a [`Registry::scope`]: its metrics carry labels that the others
//! lack, and go with it.

mod definition;
mod histogram;
mod registry;
pub mod table;
mod text;

use std::sync::atomic::{AtomicU64, Ordering};

pub use definition::{Definition, Kind, Unit};
pub use histogram::{Bucket, Distribution, Histogram};
pub use registry::{Labels, Registry, Sample};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// The sum so far.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Replaces the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Takes `amount` off.
    pub fn subtract(&self, amount: u64) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }

    /// The value now.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
