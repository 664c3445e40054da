//! What a server counts.

use std::{collections::HashMap, sync::Arc, time::Duration};

use penstock_base::{
    clock::Instant,
    metrics::{Counter, Gauge, Registry, table},
};

use crate::{
    callbacks::CallbackError,
    protocol::{
        nfs3,
        nlm4::{self, LockStatus},
        rpc::Reply,
    },
};

/// What is counted of one procedure.
#[derive(Debug)]
struct ProcedureMetrics {
    calls: Arc<Counter>,
    errors: Arc<Counter>,
    microseconds: Arc<Counter>,
    bytes: Arc<Counter>,
}

impl ProcedureMetrics {
    fn new(registry: &Registry, name: &'static str) -> Self {
        let labels = [("procedure", name)];
        Self {
            calls: registry.counter(&table::NFS_CALLS, &labels),
            errors: registry.counter(&table::NFS_ERRORS, &labels),
            microseconds: registry.counter(&table::NFS_CALL_MICROSECONDS, &labels),
            bytes: registry.counter(&table::NFS_CONTENT_BYTES, &labels),
        }
    }

    fn answered(&self, begun: Instant, is_good: bool) {
        self.calls.increment();
        self.errors.add(u64::from(!is_good));
        self.microseconds.add(begun.elapsed().as_micros() as u64);
    }
}

/// What a mount target counts.
#[derive(Debug)]
pub(crate) struct NfsMetrics {
    procedures: Vec<ProcedureMetrics>,
    /// Those of NLM, by their numbers.
    lock_procedures: HashMap<u32, ProcedureMetrics>,
    pub(crate) connections: Arc<Gauge>,
    pub(crate) refused: Arc<Counter>,
    pub(crate) repeated: Arc<Counter>,
    /// Operations at the back end.
    pub(crate) operations: Arc<Counter>,
    throttled: Arc<Counter>,
    throttled_microseconds: Arc<Counter>,
}

/// Where the status of a procedure stands in a reply.
const STATUS: std::ops::Range<usize> = 28..32;

impl NfsMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let of = |name: &'static str| ProcedureMetrics::new(registry, name);
        let lock_procedures = nlm4::PROCEDURES.iter();
        Self {
            procedures: nfs3::PROCEDURES.iter().map(|name| of(name)).collect(),
            lock_procedures: lock_procedures.map(|(id, name)| (*id, of(name))).collect(),
            connections: registry.gauge(&table::NFS_CONNECTIONS, &[]),
            refused: registry.counter(&table::NFS_REFUSED, &[]),
            repeated: registry.counter(&table::NFS_REPEATED, &[]),
            operations: registry.counter(&table::NFS_BACKEND_OPERATIONS, &[]),
            throttled: registry.counter(&table::NFS_THROTTLED, &[]),
            throttled_microseconds: registry.counter(&table::NFS_THROTTLED_MICROSECONDS, &[]),
        }
    }

    /// Counts a call that waited for so long since the target delivers no more.
    pub(crate) fn waited(&self, waited: Duration) {
        let microseconds = waited.as_micros() as u64;
        if microseconds > 0 {
            self.throttled.increment();
            self.throttled_microseconds.add(microseconds);
        }
    }

    /// Counts an answered call of NLM.
    pub(crate) fn lock_answered(&self, procedure: u32, begun: Instant, is_good: bool) {
        if let Some(metrics) = self.lock_procedures.get(&procedure) {
            metrics.answered(begun, is_good);
        }
    }

    /// Counts an answered call that brought or has so many bytes of content.
    pub(crate) fn answered(
        &self,
        procedure: u32,
        begun: Instant,
        (reply, received): (&Reply, u64),
    ) {
        let Some(metrics) = self.procedures.get(procedure as usize) else {
            return;
        };
        let status = reply.head.get(STATUS).unwrap_or_default();
        metrics.answered(begun, status.iter().all(|byte| *byte == 0));
        metrics.bytes.add(received + reply.payload.len() as u64);
    }
}

/// What is counted of the locks of a volume, whichever targets they are asked of.
#[derive(Debug)]
pub(crate) struct LockMetrics {
    /// Locks that clients wait for.
    pub(crate) waiting: Arc<Gauge>,
    callbacks: [Arc<Counter>; 3],
}

impl LockMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            waiting: registry.gauge(&table::NFS_WAITING_LOCKS, &[]),
            callbacks: ["taken", "refused", "failed"].map(|outcome| {
                registry.counter(&table::NFS_GRANTED_CALLS, &[("outcome", outcome)])
            }),
        }
    }

    /// Counts a call of a client that it has a lock.
    pub(crate) fn called_back(&self, called: &Result<LockStatus, CallbackError>) {
        let [taken, refused, failed] = &self.callbacks;
        match called {
            Ok(LockStatus::Granted) => taken.increment(),
            Ok(_) => refused.increment(),
            Err(_) => failed.increment(),
        }
    }
}
