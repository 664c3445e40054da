//! Saves whose outcome is not known.
//!
//! Between the request that makes a save the object and the moment in which the journal says so, the
//! process may die, or the answer may be lost. The store then has a version that is not the base of
//! what is here, and that looks like another client's. So before that request the journal gets the
//! checksums of the bytes that are sent, and the tags that the object may have if the store makes some
//! of it by copying; what is written later is noted apart, as it may not be in them any more. A save
//! that meets an unknown version compares it with these ([`crate::staging::recognize`]). One that is known again
//! becomes the base, and only what was changed since is unsaved.

use std::ops::Range;

use penstock_base::{Checksum, ChecksumKind, Payload};
use penstock_object::ETag;

use crate::staging::touched::Touched;

/// Saves of a file that are remembered while their outcome is not known. Any of them may be the one that
/// is stored, so before there are more the store is asked.
pub(crate) const ATTEMPTS_MAX: usize = 4;
/// Checksums of a save that are remembered: enough to know it again.
pub(super) const SUMS_MAX: usize = 1024;
/// What is made of bytes that are sent without a checksum.
const USUAL_KIND: ChecksumKind = ChecksumKind::Crc64Nvme;

/// The checksum of some bytes that a save sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) range: Range<u64>,
    pub(crate) checksum: Checksum,
}

/// From what the object of a save is known again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Trace {
    /// What was sent.
    pub(crate) sums: Vec<Sum>,
    /// The tags of which it has one, where those of its parts tell that.
    pub(crate) tags: Vec<ETag>,
}

/// A save that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Bytes in the object that it makes.
    pub(crate) size: u64,
    /// `None` while the store cannot have it.
    pub(crate) trace: Option<Trace>,
    /// What was changed since it began.
    pub(crate) touched: Touched,
}

impl Attempt {
    pub(crate) fn new(size: u64) -> Self {
        Self {
            size,
            trace: None,
            touched: Touched::default(),
        }
    }

    /// The checksum of the whole object, where all of it was sent.
    pub(super) fn whole(&self) -> Option<Checksum> {
        let (first, rest) = self.trace.as_ref()?.sums.split_first()?;
        let (mut end, mut whole) = (first.range.end, first.checksum);
        for Sum { range, checksum } in rest {
            if range.start != end {
                return None;
            }
            whole = whole.followed_by(*checksum, range.end - range.start)?;
            end = range.end;
        }
        (first.range.start == 0 && end == self.size).then_some(whole)
    }
}

impl Sum {
    /// The bytes of a part with their checksum, which their sender then need not make.
    pub(super) fn of(
        range: Range<u64>,
        body: Payload,
        kind: Option<ChecksumKind>,
    ) -> (Self, Payload) {
        let checksum = body.checksum(kind.unwrap_or(USUAL_KIND));
        (Self { range, checksum }, body.with_checksum(checksum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(bytes: &'static [u8], at: u64) -> Sum {
        let range = at..at + bytes.len() as u64;
        Sum::of(range, Payload::from(bytes.to_vec()), None).0
    }

    #[test]
    fn the_checksum_of_an_object_is_known_where_all_of_it_was_sent() {
        let attempt = |sums: &[Sum]| Attempt {
            trace: Some(Trace {
                sums: sums.to_vec(),
                tags: Vec::new(),
            }),
            ..Attempt::new(6)
        };
        let whole = sum(b"abcdef", 0).checksum;
        let (first, second) = (sum(b"abc", 0), sum(b"def", 3));
        assert_eq!(attempt(&[sum(b"abcdef", 0)]).whole(), Some(whole));
        assert_eq!(
            attempt(&[first.clone(), second.clone()]).whole(),
            Some(whole)
        );
        for part in [vec![first.clone()], vec![second], vec![]] {
            assert_eq!(attempt(&part).whole(), None);
        }
        assert_eq!(attempt(&[first, sum(b"ef", 4)]).whole(), None);
        assert_eq!(Attempt::new(6).whole(), None);
    }
}
