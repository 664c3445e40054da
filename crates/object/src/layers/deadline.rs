//! Bounding how long an operation may take.

use std::{sync::Arc, time::Duration};

use penstock_base::{MIB, clock};

use super::around::{Around, Call, Layer, Work};
use crate::{ErrorKind, ObjectError, ObjectResult, Operation, Store};

/// Bytes per second below which a body counts as stuck: an operation may take this much longer
/// for its body.
pub const BODY_RATE_MIN: u64 = MIB;

/// How many times longer than others the operations may take in which the store moves bytes of
/// its own, as many as it holds.
pub const LONG_FACTOR: u32 = 5;

/// Fails operations with `Timeout` that take too long, everything below included: queues,
/// retries, the body. Where the store fails and does not hang, [`Retry`](super::Retry) ends in time itself, with
/// what the store said.
pub type Deadline = Layer<Patience>;

/// How long [`Deadline`] waits.
#[derive(Debug)]
pub struct Patience {
    total: Duration,
}

impl Deadline {
    /// Operations on `inner` may take `total`, and longer for bodies: see [`BODY_RATE_MIN`] and
    /// [`LONG_FACTOR`].
    pub fn new(inner: Arc<dyn Store>, total: Duration) -> Self {
        Self::of(inner, Patience { total })
    }
}

impl Patience {
    /// How long `call` may take, as far as is known by now.
    fn allowance(&self, call: &Call<'_>) -> Duration {
        let bytes = call.sent.saturating_add(call.expected());
        time_of(call.operation, self.total).saturating_add(time_for(bytes))
    }
}

/// How long an operation may take without its body, where most may take `total`.
pub(super) fn time_of(operation: Operation, total: Duration) -> Duration {
    match operation {
        Operation::Copy | Operation::CopyPart | Operation::CompleteUpload => {
            total.saturating_mul(LONG_FACTOR)
        }
        _ => total,
    }
}

/// How much longer it may take for a body.
pub(super) fn time_for(bytes: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / BODY_RATE_MIN as f64)
}

impl Around for Patience {
    async fn around<T: Send>(&self, call: &Call<'_>, mut work: Work<'_, T>) -> ObjectResult<T> {
        let started = clock::now();
        loop {
            let allowance = self.allowance(call);
            let left = allowance.saturating_sub(started.elapsed());
            if let Ok(result) = clock::deadline(left, work.as_mut()).await {
                return result;
            }
            // A read learns its length only when the answer arrives.
            if self.allowance(call) <= started.elapsed() {
                return Err(passed(call, allowance));
            }
        }
    }
}

fn passed(call: &Call<'_>, allowance: Duration) -> ObjectError {
    let message = format!(
        "not done within {} s, retries included: the store is unreachable or too slow",
        allowance.as_secs()
    );
    let error = ObjectError::new(ErrorKind::Timeout, call.operation, message);
    match call.key {
        Some(key) => error.about(key),
        None => error,
    }
}
