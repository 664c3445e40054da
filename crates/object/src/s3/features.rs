//! What the endpoint at hand understands, found out by trying.
//!
//! Checksums and conditional writes are younger than most imitations of S3. Each is tried with
//! the first write that wants it; an endpoint that refuses or ignores it is not asked again, and
//! the log says so once.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::{
    ChecksumKind, Operation,
    rest::{WriteKind, WritePlan},
};

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
    part_checksum: Feature,
    condition: Feature,
    version_condition: Feature,
    original: bool,
    declares_uploads: bool,
}

impl Features {
    /// What is to be expected of an endpoint, S3 itself (`original`) or another.
    ///
    /// S3 wants to be told at the start of an upload which checksum its parts have. Others take
    /// that as a promise which parts that are copied inside the store cannot keep, so they are
    /// told only when the user insists on a checksum.
    pub(super) fn new(choice: ChecksumChoice, original: bool) -> Self {
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
            part_checksum: Feature::new(
                state,
                "CRC-64/NVME checksums of parts",
                "large writes are protected by TCP and TLS only",
            ),
            condition: Feature::new(
                UNKNOWN,
                "conditional writes",
                "whether a key is free is looked up before the write, which is not atomic",
            ),
            version_condition: Feature::new(
                UNKNOWN,
                "writes on condition of a version",
                "whether somebody else replaced an object is looked up before the write, which is \
                 not atomic",
            ),
            original,
            declares_uploads: original || choice != ChecksumChoice::Auto,
        }
    }

    /// The kind of checksum in use, if any.
    pub(super) fn checksum_kind(&self) -> Option<ChecksumKind> {
        self.kind
    }

    /// The kind of checksum that parts are sent with, as far as is known.
    pub(super) fn part_checksum_kind(&self) -> Option<ChecksumKind> {
        self.kind.filter(|_| !self.part_checksum.is_absent())
    }

    /// Whether an upload is told which checksum its parts have.
    pub(super) fn declares_uploads(&self) -> bool {
        self.declares_uploads
    }

    /// Whether a condition is known not to work.
    pub(super) fn lacks_conditions(&self) -> bool {
        self.condition.is_absent()
    }

    /// Whether a write is known to fail when the object is not the version that it insists on.
    pub(super) fn checks_version(&self) -> bool {
        self.original
    }

    pub(super) fn plans(&self, kind: WriteKind) -> Vec<WritePlan> {
        let conditions = self
            .condition_feature(kind)
            .map_or(&[true][..], Feature::ways);
        let checksums = self
            .checksum_feature(kind.operation)
            .map_or(&[true][..], Feature::ways);
        let plans = conditions.iter().flat_map(|&condition| {
            checksums.iter().map(move |&checksum| WritePlan {
                checksum,
                condition,
            })
        });
        plans.collect()
    }

    pub(super) fn settle(&self, kind: WriteKind, plan: WritePlan, echoed: Option<bool>) {
        if let Some(feature) = self.checksum_feature(kind.operation) {
            match echoed {
                _ if !plan.checksum => feature.learn(false),
                Some(echoed) => feature.learn(echoed),
                None => {}
            }
        }
        if let Some(feature) = self.condition_feature(kind) {
            feature.learn(plan.condition);
        }
    }

    fn condition_feature(&self, kind: WriteKind) -> Option<&Feature> {
        match kind {
            WriteKind {
                conditional: true, ..
            } => Some(&self.condition),
            WriteKind {
                versioned: true, ..
            } => Some(&self.version_condition),
            _ => None,
        }
    }

    /// The feature that decides whether a write has a checksum; copies have none to send.
    fn checksum_feature(&self, operation: Operation) -> Option<&Feature> {
        match operation {
            Operation::Put => Some(&self.checksum),
            Operation::UploadPart => Some(&self.part_checksum),
            Operation::CreateUpload | Operation::CompleteUpload if self.declares_uploads => {
                Some(&self.part_checksum)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUT: WriteKind = WriteKind {
        operation: Operation::Put,
        conditional: false,
        versioned: false,
    };
    const PUT_NEW: WriteKind = WriteKind {
        operation: Operation::Put,
        conditional: true,
        versioned: false,
    };
    const PART: WriteKind = WriteKind {
        operation: Operation::UploadPart,
        conditional: false,
        versioned: false,
    };

    fn plan(checksum: bool, condition: bool) -> WritePlan {
        WritePlan {
            checksum,
            condition,
        }
    }

    fn unknown_endpoint() -> Features {
        Features::new(ChecksumChoice::Auto, false)
    }

    #[test]
    fn tries_everything_first_and_gives_up_one_feature_at_a_time() {
        let features = unknown_endpoint();
        let all = [(true, true), (false, true), (true, false), (false, false)];
        assert_eq!(
            features.plans(PUT_NEW),
            all.map(|(checksum, condition)| plan(checksum, condition))
        );
        assert_eq!(features.plans(PUT), [plan(true, true), plan(false, true)]);
    }

    #[test]
    fn remembers_what_worked() {
        let features = unknown_endpoint();
        features.settle(PUT_NEW, plan(true, false), Some(true));
        assert_eq!(features.plans(PUT_NEW), [plan(true, false)]);
        assert!(features.lacks_conditions());
    }

    #[test]
    fn a_checksum_that_is_ignored_is_not_sent_again() {
        let features = unknown_endpoint();
        features.settle(PUT, WritePlan::FULL, Some(false));
        assert_eq!(features.plans(PUT), [plan(false, true)]);
        assert_eq!(features.plans(PART).len(), 2, "parts are another matter");
    }

    #[test]
    fn a_chosen_checksum_is_never_given_up() {
        let features = Features::new(ChecksumChoice::Crc32c, false);
        features.settle(PUT, WritePlan::FULL, Some(false));
        assert_eq!(features.plans(PUT), [plan(true, true)]);
        assert!(features.declares_uploads());
    }

    #[test]
    fn only_the_original_is_told_about_uploads() {
        assert!(!unknown_endpoint().declares_uploads());
        assert!(Features::new(ChecksumChoice::Auto, true).declares_uploads());
    }
}
