//! Counting operations.

use std::sync::Arc;

use penstock_base::{
    clock::{self, Instant},
    metrics::{Counter, Gauge, Histogram, Registry, table},
};

use super::around::{Around, Call, Layer, Work};
use crate::{ErrorKind, ObjectResult, Operation, Store};

/// Counts operations by outcome, their time and their bytes.
pub type Metered = Layer<Meters>;

/// The counters of [`Metered`].
#[derive(Debug)]
pub struct Meters {
    /// By `Operation as usize`.
    operations: Vec<OperationMeters>,
    in_flight: Arc<Gauge>,
    sent: Arc<Counter>,
    received: Arc<Counter>,
}

#[derive(Debug)]
struct OperationMeters {
    /// By `Outcome as usize`.
    outcomes: [Arc<Counter>; Outcome::ALL.len()],
    microseconds: Arc<Counter>,
    durations: Arc<Histogram>,
}

/// How operations end, as far as somebody who watches cares.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Ok,
    NotFound,
    /// The store refused, and would again.
    Refused,
    Throttled,
    /// The store or the way to it failed.
    Failed,
    /// The caller lost interest.
    Cancelled,
}

impl Outcome {
    const ALL: [(Self, &str); 6] = [
        (Self::Ok, "ok"),
        (Self::NotFound, "not_found"),
        (Self::Refused, "refused"),
        (Self::Throttled, "throttled"),
        (Self::Failed, "failed"),
        (Self::Cancelled, "cancelled"),
    ];

    fn of<T>(result: &ObjectResult<T>) -> Self {
        match result.as_ref().map_err(|error| error.kind) {
            Ok(_) => Self::Ok,
            Err(ErrorKind::NotFound) => Self::NotFound,
            Err(ErrorKind::Throttled) => Self::Throttled,
            Err(ErrorKind::Protocol | ErrorKind::Untrusted) => Self::Failed,
            Err(kind) if kind.is_transient() => Self::Failed,
            Err(_) => Self::Refused,
        }
    }
}

impl Metered {
    /// Counts what is asked of `inner` in `registry`.
    pub fn new(inner: Arc<dyn Store>, registry: &Registry) -> Self {
        Self::of(inner, Meters::new(registry))
    }
}

impl Meters {
    fn new(registry: &Registry) -> Self {
        let operations = Operation::ALL.map(|operation| OperationMeters::new(registry, operation));
        Self {
            operations: operations.into(),
            in_flight: registry.gauge(&table::OBJECT_OPERATIONS_IN_FLIGHT, &[]),
            sent: registry.counter(&table::OBJECT_SENT_BYTES, &[]),
            received: registry.counter(&table::OBJECT_RECEIVED_BYTES, &[]),
        }
    }
}

impl OperationMeters {
    fn new(registry: &Registry, operation: Operation) -> Self {
        let operation = ("operation", operation.name());
        Self {
            outcomes: Outcome::ALL.map(|(_, outcome)| {
                registry.counter(
                    &table::OBJECT_OPERATIONS,
                    &[operation, ("outcome", outcome)],
                )
            }),
            microseconds: registry.counter(&table::OBJECT_OPERATION_MICROSECONDS, &[operation]),
            durations: registry.histogram(&table::OBJECT_OPERATION_DURATION, &[operation]),
        }
    }
}

impl Around for Meters {
    async fn around<T: Send>(&self, call: &Call<'_>, work: Work<'_, T>) -> ObjectResult<T> {
        let mut run = Run::new(self, call);
        let result = work.await;
        run.outcome = Outcome::of(&result);
        result
    }
}

/// An operation under way, counted when it ends, however that is.
struct Run<'a> {
    meters: &'a Meters,
    call: &'a Call<'a>,
    started: Instant,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    fn new(meters: &'a Meters, call: &'a Call<'a>) -> Self {
        meters.in_flight.add(1);
        Self {
            meters,
            call,
            started: clock::now(),
            outcome: Outcome::Cancelled,
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let Meters {
            operations,
            in_flight,
            sent,
            received,
        } = self.meters;
        let operation = &operations[self.call.operation as usize];
        in_flight.subtract(1);
        operation.outcomes[self.outcome as usize].increment();
        let passed = self.started.elapsed().as_micros();
        operation.microseconds.add(passed as u64);
        operation.durations.record(passed as u64);
        received.add(self.call.received());
        let copies = matches!(self.call.operation, Operation::CopyPart);
        if matches!(self.outcome, Outcome::Ok) && !copies {
            sent.add(self.call.sent);
        }
    }
}
