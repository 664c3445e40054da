//! What the endpoint at hand turned out to do, and what not.
//!
//! Imitations of S3 leave out what they do not need. The first request that wants a [`Feature`] finds
//! out; where it is missing the log says so once, with what that means, nobody asks for it again, and
//! the request is carried out another way. [`Features`] are those that have nothing to do with how a
//! dialect spells requests; the others are the dialect's own.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::{Ability, Known, Operation};

const UNKNOWN: u8 = 0;
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

/// What [`crate::Store::abilities`] call deleting many objects at once.
pub const BULK_DELETES: &str = "deleting many objects at once (DeleteObjects)";

/// Whether the endpoint has a feature.
#[derive(Debug)]
pub(crate) struct Feature {
    state: AtomicU8,
    name: &'static str,
    consequence: &'static str,
}

impl Feature {
    /// A feature of which nothing is known. `consequence` says what its lack means.
    pub(crate) fn new(name: &'static str, consequence: &'static str) -> Self {
        Self {
            state: AtomicU8::new(UNKNOWN),
            name,
            consequence,
        }
    }

    /// The same, of which this is known.
    #[must_use]
    pub(crate) fn known(self, known: Known) -> Self {
        let state = match known {
            Known::Unknown => UNKNOWN,
            Known::Absent => ABSENT,
            Known::Present => PRESENT,
        };
        self.state.store(state, Ordering::Relaxed);
        self
    }

    /// What is known.
    pub(crate) fn state(&self) -> Known {
        match self.state.load(Ordering::Relaxed) {
            UNKNOWN => Known::Unknown,
            ABSENT => Known::Absent,
            _ => Known::Present,
        }
    }

    /// The ways to try: with the feature, without it, or first one and then the other.
    pub(crate) fn ways(&self) -> &'static [bool] {
        match self.state() {
            Known::Unknown => &[true, false],
            Known::Absent => &[false],
            Known::Present => &[true],
        }
    }

    pub(crate) fn is_absent(&self) -> bool {
        self.state() == Known::Absent
    }

    /// The first answer stands.
    pub(crate) fn learn(&self, present: bool) {
        // Reads ask each time: once it is known they only look.
        if self.state() != Known::Unknown {
            return;
        }
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

    /// For those who ask what the store can do.
    pub(crate) fn ability(&self) -> Ability {
        Ability {
            name: self.name,
            known: self.state(),
            without: self.consequence,
        }
    }
}

/// What every dialect has, and imitations may lack.
#[derive(Debug)]
pub(crate) struct Features {
    /// The answer to a completed upload tells the tag that the object then has.
    pub(crate) upload_tags: Feature,
    /// The answer to a copy tells the copy's tag.
    pub(crate) copy_answers: Feature,
    /// Objects whose keys end with a slash can be copied.
    pub(crate) marker_copies: Feature,
    /// Parts can be made from what the store has.
    pub(crate) part_copies: Feature,
    /// Many objects can be deleted at once.
    pub(crate) bulk_deletes: Feature,
    /// Names in listings are encoded when asked for.
    pub(crate) encoded_names: Feature,
    /// Whether a copy, and a copy of a part, was seen to fail because its source was another version.
    checks_sources: [AtomicBool; 2],
}

impl Features {
    /// Nothing is known of an imitation, and nothing missing in the original.
    pub(crate) fn new(original: bool) -> Self {
        let known = match original {
            true => Known::Present,
            false => Known::Unknown,
        };
        let feature = |name, consequence| Feature::new(name, consequence).known(known);
        Self {
            upload_tags: feature(
                "the ETag of a completed upload",
                "it tells another than the object has, so each large file is looked up once it is \
                 written",
            ),
            copy_answers: feature(
                "answers to copies",
                "each copy is looked up once it is made, to learn its ETag",
            ),
            marker_copies: feature(
                "copies of directory markers",
                "they are written anew with their metadata when a directory is renamed",
            ),
            part_copies: feature(
                "copies of parts (UploadPartCopy)",
                "what is unchanged in a large file is fetched and sent again, and objects that are \
                 too large for one copy cannot be renamed",
            ),
            bulk_deletes: feature(BULK_DELETES, "they are deleted one by one"),
            encoded_names: feature(
                "encoded names in listings (encoding-type)",
                "names with control characters are hidden, and those with the sign for them \
                 (U+FFFD) are looked up each time they are listed",
            ),
            checks_sources: [original, original].map(AtomicBool::new),
        }
    }

    /// Whether a copy is known to fail where its source is not the version that it insists on. Some
    /// imitations copy whatever is there, so this shows only when one fails.
    pub(crate) fn checks_sources(&self, operation: Operation) -> bool {
        self.source_check(operation).load(Ordering::Relaxed)
    }

    /// Learns that the store refused a copy because of its source's version.
    pub(crate) fn saw_source_refused(&self, operation: Operation) {
        self.source_check(operation).store(true, Ordering::Relaxed);
    }

    fn source_check(&self, operation: Operation) -> &AtomicBool {
        let of_part = operation == Operation::CopyPart;
        &self.checks_sources[usize::from(of_part)]
    }

    /// For those who ask what the store can do.
    pub(crate) fn abilities(&self) -> Vec<Ability> {
        let all = [
            &self.part_copies,
            &self.upload_tags,
            &self.copy_answers,
            &self.marker_copies,
            &self.bulk_deletes,
            &self.encoded_names,
        ];
        all.map(Feature::ability).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answer_stands() {
        let feature = Feature::new("this", "that");
        assert_eq!(feature.ways(), [true, false]);
        feature.learn(false);
        feature.learn(true);
        assert_eq!(feature.ways(), [false]);
        assert_eq!(feature.ability().known, Known::Absent);
    }

    #[test]
    fn nothing_is_missing_in_the_original() {
        let abilities = Features::new(true).abilities();
        let present = |ability: &Ability| ability.known == Known::Present;
        assert!(abilities.iter().all(present), "{abilities:?}");
    }
}
