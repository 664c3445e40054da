//! What the endpoint at hand understands, found out by trying.
//!
//! Checksums and conditional writes are younger than most imitations of S3. Each is tried with
//! the first write that wants it; an endpoint that refuses or ignores it is not asked again, and
//! the log says so once. A condition that is taken may still be passed over: see [`Proof`].

use crate::{
    Ability, ChecksumKind, Known, Operation,
    rest::{Feature, Proof, WriteKind, WritePlan},
};

/// What the lack of either condition is called, and what it means.
const CREATION: [&str; 2] = [
    "conditional creation (If-None-Match)",
    "whether a key is free is looked up before the write: of two machines that create one file in the \
     same moment, one may lose its version",
];
const REPLACEMENT: [&str; 2] = [
    "conditional replacement (If-Match)",
    "whether somebody else replaced an object is looked up before the write: of two machines that save \
     one file in the same moment, one may lose its version",
];

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

/// What is known about the endpoint.
#[derive(Debug)]
pub(super) struct Features {
    kind: Option<ChecksumKind>,
    checksum: Feature,
    part_checksum: Feature,
    read_checksum: Feature,
    condition: Feature,
    version_condition: Feature,
    creation: Proof,
    /// What holds for objects need not hold for uploads.
    creation_by_upload: Proof,
    replacement: Proof,
    original: bool,
    /// Whether conditions are believed that nobody has seen at work.
    trusted: bool,
    declares_uploads: bool,
}

impl Features {
    /// What is to be expected of an endpoint, S3 itself (`original`) or another.
    ///
    /// S3 wants to be told at the start of an upload which checksum its parts have. Others take
    /// that as a promise which parts that are copied inside the store cannot keep, so they are
    /// told only when the user insists on a checksum.
    pub(super) fn new(choice: ChecksumChoice, original: bool) -> Self {
        let (kind, known) = match choice {
            ChecksumChoice::Auto => (Some(ChecksumKind::Crc64Nvme), Known::Unknown),
            ChecksumChoice::Crc64Nvme => (Some(ChecksumKind::Crc64Nvme), Known::Present),
            ChecksumChoice::Crc32c => (Some(ChecksumKind::Crc32c), Known::Present),
            ChecksumChoice::Off => (None, Known::Absent),
        };
        Self {
            kind,
            checksum: Feature::new(
                "checksums of what is written (CRC-64/NVME)",
                "writes are protected by TCP and TLS only",
            )
            .known(known),
            part_checksum: Feature::new(
                "checksums of parts (CRC-64/NVME)",
                "large writes are protected by TCP and TLS only",
            )
            .known(known),
            read_checksum: Feature::new(
                "reads that ask for a checksum (x-amz-checksum-mode)",
                "reads are protected by TCP and TLS only",
            )
            .known(match known {
                Known::Unknown if original => Known::Present,
                known => known,
            }),
            condition: Feature::new(CREATION[0], CREATION[1]),
            version_condition: Feature::new(REPLACEMENT[0], REPLACEMENT[1]),
            creation: Proof::new(CREATION[0], CREATION[1]).trusted(original),
            creation_by_upload: Proof::new(CREATION[0], CREATION[1]).trusted(original),
            replacement: Proof::new(REPLACEMENT[0], REPLACEMENT[1]).trusted(original),
            trusted: original,
            original,
            declares_uploads: original || choice != ChecksumChoice::Auto,
        }
    }

    /// The same, believing that a store which takes a condition respects it.
    #[must_use]
    pub(super) fn believing(self) -> Self {
        Self {
            creation: self.creation.trusted(true),
            creation_by_upload: self.creation_by_upload.trusted(true),
            replacement: self.replacement.trusted(true),
            trusted: true,
            ..self
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

    /// Whether the store is S3 itself.
    pub(super) fn is_original(&self) -> bool {
        self.original
    }

    /// Whether a write is known to fail when the key is taken; copies are not known to do that anywhere.
    pub(super) fn checks_absence(&self, operation: Operation) -> bool {
        let proof = self.proof(WriteKind {
            operation,
            conditional: true,
            versioned: false,
        });
        proof.is_some_and(Proof::holds) && !self.condition.is_absent()
    }

    /// Whether a write is known to fail when the object is not the version that it insists on.
    pub(super) fn checks_version(&self, operation: Operation) -> bool {
        match operation {
            Operation::Put => self.replacement.holds(),
            _ => self.trusted,
        }
    }

    /// What is known of the condition of a write.
    pub(super) fn proof(&self, kind: WriteKind) -> Option<&Proof> {
        match kind.operation {
            Operation::Put if kind.conditional => Some(&self.creation),
            Operation::Put if kind.versioned => Some(&self.replacement),
            Operation::CompleteUpload if kind.conditional => Some(&self.creation_by_upload),
            _ => None,
        }
    }

    /// How reads may ask for a checksum.
    pub(super) fn ways_to_read(&self) -> &'static [bool] {
        self.read_checksum.ways()
    }

    pub(super) fn settle_read(&self, asked: bool) {
        self.read_checksum.learn(asked);
    }

    /// For those who ask what the store can do. That it takes a condition says nothing, so there is
    /// nothing to tell of those.
    pub(super) fn abilities(&self) -> Vec<Ability> {
        let checksums = [&self.checksum, &self.part_checksum, &self.read_checksum];
        checksums.map(Feature::ability).into()
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
        assert!(!features.checks_absence(Operation::Put));
    }

    #[test]
    fn a_condition_is_believed_once_it_was_seen_at_work() {
        let features = unknown_endpoint();
        features.settle(PUT_NEW, WritePlan::FULL, Some(true));
        assert!(
            !features.checks_absence(Operation::Put),
            "a success tells nothing"
        );
        features
            .proof(PUT_NEW)
            .expect("it has a condition")
            .saw_refusal();
        assert!(features.checks_absence(Operation::Put));
        assert!(!features.checks_absence(Operation::CompleteUpload));
        let original = Features::new(ChecksumChoice::Auto, true);
        assert!(original.checks_absence(Operation::CompleteUpload));
        assert!(!original.checks_absence(Operation::Copy));
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
