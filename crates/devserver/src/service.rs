//! What all connections of a server share.

use std::{
    io,
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    clock, counters::CounterTable, faults::FaultPlan, rate::Pacer, settings::Settings, store::Data,
    sync,
};

/// Bytes between two looks at the clock where bandwidth is limited.
const PACED_STEP: usize = 64 << 10;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) settings: Settings,
    pub(crate) data: Data,
    pub(crate) counters: CounterTable,
    pub(crate) faults: FaultPlan,
    pub(crate) stop: StopSignal,
    pacer: Pacer,
}

impl Service {
    pub(crate) fn new(data: Data, settings: Settings) -> Self {
        let faults = FaultPlan::default();
        faults.set(settings.faults.clone());
        Self {
            settings,
            data,
            counters: CounterTable::default(),
            faults,
            stop: StopSignal::default(),
            pacer: Pacer::default(),
        }
    }
}

/// The flow of bodies over one connection, held to the bandwidth that is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow<'a> {
    pub(crate) service: &'a Service,
    /// Of this connection.
    pub(crate) pacer: &'a Pacer,
}

impl Flow<'_> {
    /// Whether any limit is set.
    pub(crate) fn is_limited(&self) -> bool {
        self.service.faults.bandwidth() != (None, None)
    }

    /// The most to move at once out of `length`.
    pub(crate) fn step(&self, length: usize) -> usize {
        if self.is_limited() {
            length.min(PACED_STEP)
        } else {
            length
        }
    }

    /// Waits until `bytes` more may pass.
    ///
    /// # Errors
    /// The server stops.
    pub(crate) fn wait(&self, bytes: u64) -> io::Result<()> {
        let (own, total) = self.service.faults.bandwidth();
        let own = own.map(|rate| self.pacer.reserve(bytes, rate));
        let total = total.map(|rate| self.service.pacer.reserve(bytes, rate));
        self.service.stop.pause(own.max(total).unwrap_or_default())
    }
}

/// Tells all waits that the server stops.
#[derive(Debug, Default)]
pub(crate) struct StopSignal {
    stopped: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl StopSignal {
    pub(crate) fn is_set(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self) {
        let guard = sync::lock(&self.lock);
        self.stopped.store(true, Ordering::Release);
        drop(guard);
        self.changed.notify_all();
    }

    /// Waits for `duration`.
    ///
    /// # Errors
    /// The server stops.
    pub(crate) fn pause(&self, duration: Duration) -> io::Result<()> {
        if duration.is_zero() {
            return Ok(());
        }
        let end = clock::now() + duration;
        let mut guard = sync::lock(&self.lock);
        while !self.is_set() {
            let left = end.saturating_duration_since(clock::now());
            if left.is_zero() {
                return Ok(());
            }
            let waited = self.changed.wait_timeout(guard, left);
            guard = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        Err(io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "the server stops",
        ))
    }
}
