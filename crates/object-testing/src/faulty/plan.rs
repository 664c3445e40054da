//! Which fault comes next.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use penstock_base::Mutex;

use penstock_object::{ErrorKind, Operation};

/// Something that goes wrong with one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails before the store sees it.
    Fail {
        /// How.
        kind: ErrorKind,
        /// What the store asks for.
        retry_after: Option<Duration>,
    },
    /// The store answers with this status and an error of its own that may pass.
    Answer {
        /// The status.
        status: u16,
    },
    /// The store carries it out, but it seems to fail.
    LoseAnswer(ErrorKind),
    /// It begins late.
    Delay(Duration),
    /// It never ends.
    Hang,
    /// Of many that are to be deleted the first is left and reported with this code.
    Spare(ErrorKind),
    /// The body that is read ends with `Interrupted` after so many bytes.
    Cut {
        /// Bytes that arrive.
        after: u64,
    },
    /// One bit of the body that is read or written is wrong, and nobody notices.
    Flip {
        /// The byte in which it is.
        at: u64,
    },
    /// One bit of the body of a put is wrong; the store keeps it so, and its checksum tells.
    Damage {
        /// The byte in which it is.
        at: u64,
    },
}

impl Fault {
    /// A failure before the store sees the request.
    pub fn fail(kind: ErrorKind) -> Self {
        Self::Fail {
            kind,
            retry_after: None,
        }
    }
}

/// Commands the faults of a [`super::Faulty`] store.
#[derive(Debug)]
pub struct Faults(Mutex<Plan>);

#[derive(Debug)]
struct Plan {
    /// State of a xorshift generator, never zero.
    chance: u64,
    queues: HashMap<Operation, VecDeque<Fault>>,
    rates: Vec<Rate>,
    calls: HashMap<Operation, u64>,
    injected: u64,
}

#[derive(Debug)]
struct Rate {
    operation: Option<Operation>,
    probability: f64,
    fault: Fault,
}

impl Faults {
    /// No faults yet; equal seeds give equal chances.
    pub fn new(seed: u64) -> Arc<Self> {
        // Spreads small seeds over all bits.
        let chance = (seed ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9) | 1;
        Arc::new(Self(Mutex::new(Plan {
            chance,
            queues: HashMap::new(),
            rates: Vec::new(),
            calls: HashMap::new(),
            injected: 0,
        })))
    }

    /// Lets the next operations of this kind suffer these faults, one each, after those queued
    /// before.
    pub fn queue(&self, operation: Operation, faults: impl IntoIterator<Item = Fault>) {
        let mut plan = self.0.lock();
        plan.queues.entry(operation).or_default().extend(faults);
    }

    /// Lets operations of this kind, or all, suffer `fault` with a probability from 0 to 1.
    pub fn rate(&self, operation: Option<Operation>, probability: f64, fault: Fault) {
        self.0.lock().rates.push(Rate {
            operation,
            probability,
            fault,
        });
    }

    /// No more faults.
    pub fn clear(&self) {
        let mut plan = self.0.lock();
        plan.queues.clear();
        plan.rates.clear();
    }

    /// How many operations of this kind there were, faults included.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.0.lock().calls.get(&operation).copied().unwrap_or(0)
    }

    /// How many faults there were.
    pub fn injected(&self) -> u64 {
        self.0.lock().injected
    }

    pub(super) fn next(&self, operation: Operation) -> Option<Fault> {
        let mut plan = self.0.lock();
        *plan.calls.entry(operation).or_default() += 1;
        let queued = plan
            .queues
            .get_mut(&operation)
            .and_then(VecDeque::pop_front);
        let fault = queued.or_else(|| plan.by_chance(operation));
        plan.injected += u64::from(fault.is_some());
        fault
    }
}

impl Plan {
    fn by_chance(&mut self, operation: Operation) -> Option<Fault> {
        for index in 0..self.rates.len() {
            let drawn = self.fraction();
            let rate = &self.rates[index];
            let meant = rate.operation.is_none_or(|meant| meant == operation);
            if meant && drawn < rate.probability {
                return Some(rate.fault);
            }
        }
        None
    }

    fn fraction(&mut self) -> f64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance >> 11) as f64 / (1_u64 << 53) as f64
    }
}
