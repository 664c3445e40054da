//! Knowing an object again by what was sent of it.
//!
//! Where the store made parts by copying, and neither a checksum nor the tag of the object tells what they
//! make together, there is still what was sent: its checksums are known, and its place.

use std::ops::Range;

use penstock_base::{Checksum, MIB, Summing};

use super::Retry;
use crate::{ETag, ErrorKind, GetOptions, Key, ObjectInfo, ObjectResult, Part, Store};

/// Bytes that are enough to know an object again. Those at its end are the ones that an append sent.
const ENOUGH: u64 = 32 * MIB;

/// Bytes that are fetched at once.
const PIECE: u64 = MIB;

impl Retry {
    /// Whether an object of the size of `parts` has those of them that were sent, from the end on as many
    /// as are enough. `false` where none was sent with a checksum.
    pub(super) async fn has_sent(
        &self,
        (key, info): (&Key, &ObjectInfo),
        parts: &[Part],
    ) -> ObjectResult<bool> {
        let (mut end, mut compared) = (info.size, 0);
        for part in parts.iter().rev() {
            let start = end.saturating_sub(part.size);
            if let Some(expected) = part.checksum
                && compared < ENOUGH
            {
                if self
                    .checksum_of((key, &info.etag), start..end, expected)
                    .await?
                    != Some(expected)
                {
                    return Ok(false);
                }
                compared += part.size;
            }
            end = start;
        }
        Ok(compared > 0)
    }

    /// The checksum, of the kind of `expected`, of a range of a version. `None` if that is gone.
    async fn checksum_of(
        &self,
        (key, tag): (&Key, &ETag),
        Range { mut start, end }: Range<u64>,
        expected: Checksum,
    ) -> ObjectResult<Option<Checksum>> {
        let mut sum = Summing::new(expected.kind());
        while start < end {
            let next = end.min(start + PIECE);
            let options = GetOptions {
                range: Some(start..next),
                if_match: Some(tag.clone()),
                fresh: true,
                ..GetOptions::default()
            };
            let mut piece = Vec::with_capacity((next - start) as usize);
            match self.get(key, options, &mut piece).await {
                Ok(_) => sum.add(&piece),
                Err(error) if error.kind == ErrorKind::PreconditionFailed => return Ok(None),
                Err(error) => return Err(error),
            }
            start = next;
        }
        Ok(Some(sum.checksum()))
    }
}
