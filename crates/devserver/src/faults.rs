//! Faults on demand: slowness for every request, and rules that make single ones fail.
//!
//! [`Faults`] is what a test or `PUT /-/faults` sets; [`FaultPlan`] holds it in a running
//! server and decides for each request. Chance comes from a generator with a seed, so that a
//! run with one connection repeats exactly.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    lacks::Lack,
    operations::Operation,
    refusal::{Code, Refusal},
    sync,
};

/// Rules at a time; more are refused.
pub const RULES_MAX: usize = 256;

/// One way to fail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Fault {
    /// Answer 500 InternalError.
    InternalError,
    /// Answer 503 SlowDown.
    SlowDown {
        /// Seconds to put into `Retry-After`.
        #[serde(default)]
        retry_after: Option<u64>,
    },
    /// Answer 429.
    TooManyRequests {
        /// Seconds to put into `Retry-After`.
        #[serde(default)]
        retry_after: Option<u64>,
    },
    /// Answer with any status and code.
    Status {
        /// The status.
        status: u16,
        /// The word in the error document.
        code: String,
    },
    /// Reset the connection.
    Reset {
        /// Bytes of body, of the request if it has one, else of the answer, that pass first.
        /// With 0 nothing is answered.
        #[serde(default)]
        after: u64,
    },
    /// Send the answer's head and this much of its body, then close.
    CutBody {
        /// Bytes that are sent.
        after: u64,
    },
    /// Damage one byte of the request's body if it has one, else of the answer's, as a bad
    /// wire would: checksums tell.
    FlipByte {
        /// Which byte.
        at: u64,
    },
    /// Wait before the request is looked at.
    Hang {
        /// How long, in milliseconds.
        duration_ms: u64,
    },
    /// Carry the request out, then reset the connection instead of answering.
    LoseAnswer,
}

/// When to fail, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultRule {
    /// Only these operations; empty for all.
    #[serde(default)]
    pub operations: Vec<Operation>,
    /// Only keys that begin with this.
    #[serde(default)]
    pub key_prefix: String,
    /// The chance of each request that fits, from 0 to 1.
    #[serde(default = "always")]
    pub rate: f64,
    /// Requests that fit and pass unharmed first; counts down.
    #[serde(default)]
    pub skip: u64,
    /// Requests to harm before the rule is spent; counts down. `None` for no end.
    #[serde(default)]
    pub next: Option<u64>,
    /// What happens.
    #[serde(flatten)]
    pub fault: Fault,
}

fn always() -> f64 {
    1.0
}

impl FaultRule {
    /// For every request.
    pub fn new(fault: Fault) -> Self {
        Self {
            operations: Vec::new(),
            key_prefix: String::new(),
            rate: always(),
            skip: 0,
            next: None,
            fault,
        }
    }

    /// Only for these operations.
    #[must_use]
    pub fn on(mut self, operations: &[Operation]) -> Self {
        self.operations = operations.to_vec();
        self
    }

    /// Only for keys that begin with `prefix`.
    #[must_use]
    pub fn below(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.key_prefix);
        self
    }

    /// With this chance.
    #[must_use]
    pub fn rate(mut self, rate: f64) -> Self {
        self.rate = rate;
        self
    }

    /// Only after this many requests that fit.
    #[must_use]
    pub fn skip(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// Only so many times.
    #[must_use]
    pub fn next(mut self, count: u64) -> Self {
        self.next = Some(count);
        self
    }

    fn fits(&self, operation: Operation, key: &str) -> bool {
        (self.operations.is_empty() || self.operations.contains(&operation))
            && key.starts_with(&self.key_prefix)
    }

    fn refuses_one(&self, key: &str) -> bool {
        self.operations.contains(&Operation::DeleteObject)
            && !self.key_prefix.is_empty()
            && key.starts_with(&self.key_prefix)
    }
}

/// All that is made slow or made to fail.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Faults {
    /// Where chance begins.
    pub seed: u64,
    /// Milliseconds until the first byte of every answer.
    pub latency_ms: u64,
    /// Microseconds on top of `latency_ms`, for networks that are near.
    pub latency_us: u64,
    /// Bytes per second of bodies on each connection, both ways; `None` for no limit.
    pub bandwidth: Option<u64>,
    /// Bytes per second of bodies on all connections together.
    pub bandwidth_total: Option<u64>,
    /// What the server does not do at all.
    pub lacks: Vec<Lack>,
    /// Looked at in order; the first that strikes decides.
    pub rules: Vec<FaultRule>,
}

impl Faults {
    /// Only latency.
    pub fn latency(latency: Duration) -> Self {
        let latency_ms = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
        Self {
            latency_ms,
            latency_us: u64::from(latency.subsec_micros() % 1000),
            ..Self::default()
        }
    }

    /// Only these lacks.
    pub fn lacking(lacks: &[Lack]) -> Self {
        Self {
            lacks: lacks.to_vec(),
            ..Self::default()
        }
    }

    /// Only one rule.
    pub fn rule(rule: FaultRule) -> Self {
        Self {
            rules: vec![rule],
            ..Self::default()
        }
    }
}

/// The faults of a running server. They may change at any time; requests that are under way
/// keep what was decided for them.
#[derive(Debug, Default)]
pub struct FaultPlan {
    state: Mutex<State>,
    /// Whether there is anything in it; spares the lock where there is not.
    active: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    random: u64,
}

/// What happens to one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Decision {
    pub(crate) latency: Duration,
    pub(crate) fault: Option<Fault>,
}

impl FaultPlan {
    /// Replaces everything, and begins chance anew.
    pub fn set(&self, mut faults: Faults) {
        faults.rules.truncate(RULES_MAX);
        let active = faults != Faults::default();
        *sync::lock(&self.state) = State {
            random: faults.seed,
            faults,
        };
        self.active.store(active, Ordering::Release);
    }

    /// No more faults.
    pub fn clear(&self) {
        self.set(Faults::default());
    }

    /// Adds a rule behind those that are there.
    pub fn add(&self, rule: FaultRule) {
        let mut faults = self.get();
        faults.rules.push(rule);
        self.set(faults);
    }

    /// Changes the latency only.
    pub fn set_latency(&self, latency: Duration) {
        let Faults {
            latency_ms,
            latency_us,
            ..
        } = Faults::latency(latency);
        self.set(Faults {
            latency_ms,
            latency_us,
            ..self.get()
        });
    }

    /// What is set, with counts as they are now.
    pub fn get(&self) -> Faults {
        sync::lock(&self.state).faults.clone()
    }

    /// Whether the server lacks this.
    pub(crate) fn lacks(&self, lack: Lack) -> bool {
        self.active.load(Ordering::Acquire) && sync::lock(&self.state).faults.lacks.contains(&lack)
    }

    pub(crate) fn decide(&self, operation: Operation, key: &str) -> Decision {
        if !self.active.load(Ordering::Acquire) {
            return Decision::default();
        }
        let mut state = sync::lock(&self.state);
        let latency = Duration::from_millis(state.faults.latency_ms)
            + Duration::from_micros(state.faults.latency_us);
        Decision {
            latency,
            fault: state.strike(operation, key),
        }
    }

    /// What a rule for DeleteObject says of `key` among those that one request deletes: a code, if it refuses keys that
    /// begin as it does.
    pub(crate) fn refusal_of(&self, key: &str) -> Option<String> {
        if !self.active.load(Ordering::Acquire) {
            return None;
        }
        let state = sync::lock(&self.state);
        state
            .faults
            .rules
            .iter()
            .find_map(|rule| match &rule.fault {
                Fault::Status { code, .. } if rule.refuses_one(key) => Some(code.clone()),
                _ => None,
            })
    }

    /// Bytes per second of one connection and of all.
    pub(crate) fn bandwidth(&self) -> (Option<u64>, Option<u64>) {
        if !self.active.load(Ordering::Acquire) {
            return (None, None);
        }
        let state = sync::lock(&self.state);
        (state.faults.bandwidth, state.faults.bandwidth_total)
    }
}

impl State {
    fn strike(&mut self, operation: Operation, key: &str) -> Option<Fault> {
        for rule in self
            .faults
            .rules
            .iter_mut()
            .filter(|rule| rule.fits(operation, key))
        {
            if rule.next == Some(0) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            if rule.rate < 1.0 && fraction(&mut self.random) >= rule.rate {
                continue;
            }
            if let Some(next) = &mut rule.next {
                *next -= 1;
            }
            return Some(rule.fault.clone());
        }
        None
    }
}

/// The next pseudo-random fraction: a counter, well mixed.
fn fraction(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ bits >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits = (bits ^ bits >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^= bits >> 32;
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

impl Fault {
    /// The error answer, for faults that are one.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        let (code, retry_after) = match self {
            Self::InternalError => (Code::InternalError, &None),
            Self::SlowDown { retry_after } => (Code::SlowDown, retry_after),
            Self::TooManyRequests { retry_after } => (Code::TooManyRequests, retry_after),
            Self::Status { status, code } => {
                let refusal = Refusal::because(Code::InternalError, "As a fault rule wants it.");
                return Some(Refusal {
                    status: *status,
                    name: Some(code.clone()),
                    ..refusal
                });
            }
            _ => return None,
        };
        let refusal = Refusal::from(code);
        Some(match retry_after {
            Some(seconds) => refusal.header("Retry-After", seconds.to_string()),
            None => refusal,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_count_down() {
        let plan = FaultPlan::default();
        plan.set(Faults::rule(
            FaultRule::new(Fault::InternalError)
                .on(&[Operation::GetObject])
                .below("a")
                .skip(1)
                .next(2),
        ));
        let strikes = |operation, key| plan.decide(operation, key).fault.is_some();
        assert!(!strikes(Operation::PutObject, "a"));
        assert!(!strikes(Operation::GetObject, "b"));
        let outcomes: Vec<_> = (0..4).map(|_| strikes(Operation::GetObject, "a")).collect();
        assert_eq!(outcomes, [false, true, true, false]);
        assert_eq!(plan.get().rules[0].next, Some(0));
    }

    #[test]
    fn chance_repeats_and_keeps_its_rate() {
        let run = |seed| -> Vec<bool> {
            let plan = FaultPlan::default();
            plan.set(Faults {
                seed,
                ..Faults::rule(FaultRule::new(Fault::InternalError).rate(0.25))
            });
            (0..1000)
                .map(|_| plan.decide(Operation::GetObject, "").fault.is_some())
                .collect()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        let count = run(3).iter().filter(|strikes| **strikes).count();
        assert!((200..300).contains(&count), "{count}");
    }

    #[test]
    fn latency_may_be_a_fraction_of_a_millisecond() {
        let plan = FaultPlan::default();
        for latency in [Duration::from_micros(200), Duration::from_micros(30_500)] {
            plan.set_latency(latency);
            let decision = plan.decide(Operation::GetObject, "");
            assert_eq!(decision.latency, latency);
        }
    }

    #[test]
    fn rules_read_like_the_documentation() {
        let text = r#"{"latency_ms": 30, "rules": [
            {"operations": ["get_object"], "fault": "slow_down", "retry_after": 1, "next": 3},
            {"fault": "cut_body", "after": 1000, "rate": 0.5},
            {"fault": "reset"}, {"fault": "lose_answer"}, {"fault": "hang", "duration_ms": 5}]}"#;
        let faults: Faults = serde_json::from_str(text).expect("well formed");
        assert_eq!(faults.latency_ms, 30);
        assert_eq!(
            faults.rules[0].fault,
            Fault::SlowDown {
                retry_after: Some(1)
            }
        );
        assert_eq!(faults.rules[2].fault, Fault::Reset { after: 0 });
        let again = serde_json::to_string(&faults).expect("plain data");
        assert_eq!(
            serde_json::from_str::<Faults>(&again).expect("well formed"),
            faults
        );
    }
}
