//! Concerns that cut across every store, one wrapper each.
//!
//! A layer is a [`Store`] around a `Store`; what it does not care about it passes on. Each can be
//! tested alone around a store in memory. [`standard`] stacks those that a store across a network
//! needs:
//!
//! - [`Metered`] counts what callers ask for, whatever that takes below;
//! - [`Deadline`] bounds how long a caller waits, retries and queues included;
//! - [`Retry`] repeats what failed in passing and resumes bodies that were cut;
//! - [`LastFailure`] keeps the last error, also of an attempt that is repeated;
//! - [`ConcurrencyLimit`] bounds the requests under way; a wait between retries holds no place.
//!
//! [`Split`] stands below them where objects are read from an endpoint of their own; [`Prefixed`]
//! goes around all of them.

mod around;
mod concurrency;
mod deadline;
mod last_failure;
mod metered;
mod prefixed;
mod retry;
mod split;

use std::sync::Arc;

use penstock_base::metrics::Registry;

pub use around::{Around, Call, Layer, Work};
pub use concurrency::{ConcurrencyLimit, Places};
pub use deadline::{BODY_RATE_MIN, Deadline, LONG_FACTOR, Patience};
pub use last_failure::LastFailure;
pub use metered::{Metered, Meters};
pub use prefixed::Prefixed;
pub use retry::{BACKOFF_BASE, RETRY_AFTER_MAX, Retry};
pub use split::{REST, Split};

use crate::{RetrySettings, Store};

/// The layers that a store across a network needs, around `store`.
pub fn standard(
    store: Arc<dyn Store>,
    concurrency_max: usize,
    retry: &RetrySettings,
    metrics: &Registry,
) -> Arc<dyn Store> {
    let store = Arc::new(ConcurrencyLimit::new(store, concurrency_max));
    let store = Arc::new(Layer::of(store, LastFailure::default()));
    let layer = Retry::new(store, retry.attempts_max, metrics);
    let store = Arc::new(match retry.ride_out {
        true => layer.riding_out(retry.total),
        false => layer.within(retry.total),
    });
    let store = Arc::new(Deadline::new(store, retry.total));
    Arc::new(Metered::new(store, metrics))
}
