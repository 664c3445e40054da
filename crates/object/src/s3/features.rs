//! What the endpoint at hand understands, found out by trying.
//!
//! Checksums and conditional writes are younger than most imitations of S3. Each is tried with
//! the first write that wants it; an endpoint that refuses or ignores it is not asked again, and
//! the log says so once.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::{rest::ChecksumKind, rest::WritePlan};

/// Which checksum is sent with bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChecksumChoice {
    /// CRC-64/NVME where the endpoint knows it, else none.
    #[default]
    Auto,
    /// CRC-64/NVME; an endpoint that does not know it fails.
    Crc64Nvme,
    /// CRC-32C; an endpoint that does not know it fails.
    Crc32c,
    /// None, and what is read is not verified either.
    Off,
}

const UNKNOWN: u8 = 0;
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

/// Whether the endpoint has a feature.
#[derive(Debug)]
struct Feature {
    state: AtomicU8,
    name: &'static str,
    consequence: &'static str,
}

impl Feature {
    fn new(state: u8, name: &'static str, consequence: &'static str) -> Self {
        Self {
            state: AtomicU8::new(state),
            name,
            consequence,
        }
    }

    /// The ways to try: with the feature, without it, or first one and then the other.
    fn ways(&self) -> &'static [bool] {
        match self.state.load(Ordering::Relaxed) {
            UNKNOWN => &[true, false],
            ABSENT => &[false],
            _ => &[true],
        }
    }

    fn is_absent(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ABSENT
    }

    /// The first answer stands.
    fn learn(&self, present: bool) {
        let state = if present { PRESENT } else { ABSENT };
        let first = self
            .state
            .compare_exchange(UNKNOWN, state, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if first && !present {
            let (name, consequence) = (self.name, self.consequence);
            tracing::warn!("the endpoint does not know {name}: {consequence}");
        }
    }
}

/// What is known about the endpoint.
#[derive(Debug)]
pub(super) struct Features {
    kind: Option<ChecksumKind>,
    checksum: Feature,
    condition: Feature,
}

impl Features {
    pub(super) fn new(choice: ChecksumChoice) -> Self {
        let (kind, state) = match choice {
            ChecksumChoice::Auto => (Some(ChecksumKind::Crc64Nvme), UNKNOWN),
            ChecksumChoice::Crc64Nvme => (Some(ChecksumKind::Crc64Nvme), PRESENT),
            ChecksumChoice::Crc32c => (Some(ChecksumKind::Crc32c), PRESENT),
            ChecksumChoice::Off => (None, ABSENT),
        };
        Self {
            kind,
            checksum: Feature::new(
                state,
                "CRC-64/NVME checksums",
                "writes are protected by TCP and TLS only",
            ),
            condition: Feature::new(
                UNKNOWN,
                "conditional writes",
                "whether a key is free is looked up before the write, which is not atomic",
            ),
        }
    }

    /// The kind of checksum in use, if any.
    pub(super) fn checksum_kind(&self) -> Option<ChecksumKind> {
        self.kind
    }

    /// Whether a condition is known not to work.
    pub(super) fn lacks_conditions(&self) -> bool {
        self.condition.is_absent()
    }

    pub(super) fn plans(&self, conditional: bool) -> Vec<WritePlan> {
        let conditions = if conditional {
            self.condition.ways()
        } else {
            &[true]
        };
        let plans = conditions.iter().flat_map(|&condition| {
            self.checksum.ways().iter().map(move |&checksum| WritePlan {
                checksum,
                condition,
            })
        });
        plans.collect()
    }

    pub(super) fn settle(&self, plan: WritePlan, conditional: bool, echoed: Option<bool>) {
        if !plan.checksum {
            self.checksum.learn(false);
        } else if let Some(echoed) = echoed {
            self.checksum.learn(echoed);
        }
        if conditional {
            self.condition.learn(plan.condition);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(checksum: bool, condition: bool) -> WritePlan {
        WritePlan {
            checksum,
            condition,
        }
    }

    #[test]
    fn tries_everything_first_and_gives_up_one_feature_at_a_time() {
        let features = Features::new(ChecksumChoice::Auto);
        assert_eq!(
            features.plans(true),
            [
                plan(true, true),
                plan(false, true),
                plan(true, false),
                plan(false, false)
            ]
        );
        assert_eq!(features.plans(false), [plan(true, true), plan(false, true)]);
    }

    #[test]
    fn remembers_what_worked() {
        let features = Features::new(ChecksumChoice::Auto);
        features.settle(plan(true, false), true, Some(true));
        assert_eq!(features.plans(true), [plan(true, false)]);
        assert!(features.lacks_conditions());
    }

    #[test]
    fn a_checksum_that_is_ignored_is_not_sent_again() {
        let features = Features::new(ChecksumChoice::Auto);
        features.settle(WritePlan::FULL, false, Some(false));
        assert_eq!(features.plans(false), [plan(false, true)]);
    }

    #[test]
    fn a_chosen_checksum_is_never_given_up() {
        let features = Features::new(ChecksumChoice::Crc32c);
        features.settle(WritePlan::FULL, false, Some(false));
        assert_eq!(features.plans(false), [plan(true, true)]);
    }
}
