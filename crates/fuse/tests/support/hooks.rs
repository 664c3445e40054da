//! Ways for a test to make the volume misbehave or wait.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use penstock_base::{FsError, FsResult, clock};
use tokio::sync::Notify;

/// What stops an operation on a name or on the file of that name.
#[derive(Debug, Clone)]
pub enum Stop {
    /// Lookups fail.
    Error(FsError),
    /// Lookups panic before they wait for anything.
    Panic,
    /// Lookups panic after they waited.
    LatePanic,
    /// Reads and writes wait until [`Hooks::open_gate`].
    Gate,
}

#[derive(Debug, Default)]
pub struct Hooks {
    stops: Mutex<HashMap<String, Stop>>,
    gate_open: AtomicBool,
    gate: Notify,
    /// Reads and writes that wait or have waited at the gate.
    pub waited_at_gate: AtomicU64,
    /// Reads and writes that were dropped at the gate.
    pub dropped_at_gate: AtomicU64,
    /// Every operation waits this long first, so that it becomes a task.
    pub latency: Mutex<Option<Duration>>,
}

impl Hooks {
    pub fn stop(&self, name: &str, stop: Stop) {
        self.stops.lock().unwrap().insert(name.into(), stop);
    }

    pub fn open_gate(&self) {
        self.gate_open.store(true, Ordering::SeqCst);
        self.gate.notify_waiters();
    }

    pub fn set_latency(&self, latency: Duration) {
        *self.latency.lock().unwrap() = Some(latency);
    }

    pub async fn delay(&self) {
        let latency = *self.latency.lock().unwrap();
        if let Some(latency) = latency {
            clock::sleep(latency).await;
        }
    }

    pub async fn at_lookup(&self, name: &str) -> FsResult<()> {
        let stop = self.stops.lock().unwrap().get(name).cloned();
        match stop {
            Some(Stop::Error(error)) => Err(error),
            Some(Stop::Panic) => panic!("told to panic"),
            Some(Stop::LatePanic) => {
                clock::sleep(Duration::from_millis(5)).await;
                panic!("told to panic late")
            }
            Some(Stop::Gate) | None => Ok(()),
        }
    }

    pub async fn at_gate(&self, name: &str) {
        let gated = matches!(self.stops.lock().unwrap().get(name), Some(Stop::Gate));
        if !gated {
            return;
        }
        self.waited_at_gate.fetch_add(1, Ordering::SeqCst);
        let mut dropped = CountDrop(Some(&self.dropped_at_gate));
        loop {
            let opened = self.gate.notified();
            if self.gate_open.load(Ordering::SeqCst) {
                break;
            }
            opened.await;
        }
        dropped.0 = None;
    }
}

struct CountDrop<'a>(Option<&'a AtomicU64>);

impl Drop for CountDrop<'_> {
    fn drop(&mut self) {
        if let Some(counter) = self.0 {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    }
}
