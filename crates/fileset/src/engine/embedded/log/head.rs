//! What a segment begins with, and the marks in it.
//!
//! Behind a torn record the reader looks for marks wherever they may begin, and so in the names and values that users chose,
//! which could imitate one. Each segment therefore has a token of its own in its head, which nobody outside this
//! machine knows, and its marks repeat it.

use bytes::{Buf, Bytes};
use penstock_base::random;

use crate::engine::record::{self, Record, Tip};

const MAGIC: &[u8] = b"PENSTKL3";
/// That of the version before, whose marks have no token. Its segments are read, and none is begun.
const MAGIC_2: &[u8] = b"PENSTKL2";
/// Bytes before the first record.
pub(super) const HEAD: usize = 24;
/// Where the history is.
pub(super) const HISTORY: u64 = MAGIC.len() as u64;
/// The number of a mark.
const MARK: u64 = u64::MAX;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// What the first record goes on behind.
    pub(super) before: Tip,
    token: Option<u64>,
}

impl Head {
    /// That of a new segment.
    pub(super) fn new(before: Tip) -> Self {
        Self {
            before,
            token: Some(random::secret()),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let numbers = [self.before.history].into_iter().chain(self.token);
        let numbers = numbers.flat_map(u64::to_le_bytes);
        MAGIC.iter().copied().chain(numbers).collect()
    }

    /// Takes that of the segment off whose first record has the number `first`.
    pub(super) fn take(bytes: &mut Bytes, first: u64) -> Option<Self> {
        let magic = bytes.get(..MAGIC.len())?;
        let has_token = magic == MAGIC;
        if !has_token && magic != MAGIC_2 {
            return None;
        }
        bytes.advance(MAGIC.len());
        let before = Tip {
            sequence: first.checked_sub(1)?,
            history: bytes.try_get_u64_le().ok()?,
        };
        let token = match has_token {
            true => Some(bytes.try_get_u64_le().ok()?),
            false => None,
        };
        Some(Self { before, token })
    }

    /// The mark that says that all up to change `synced` was synced.
    pub(super) fn mark(&self, synced: u64) -> Bytes {
        record::mark(MARK, [synced].into_iter().chain(self.token))
    }

    /// What a record says was synced, if it is a mark.
    pub(super) fn mark_in(&self, record: &Record) -> Option<u64> {
        if record.sequence != MARK {
            return None;
        }
        let synced = record.changes.clone().try_get_u64_le().ok()?;
        (record.whole == self.mark(synced)).then_some(synced)
    }

    /// What the marks behind a torn record say, wherever they begin.
    pub(super) fn marks_in(&self, torn: &Bytes) -> impl Iterator<Item = u64> {
        let mark = self.mark(0);
        let begins = (0..torn.len()).filter(move |start| torn[*start..].starts_with(&mark[..4]));
        begins.filter_map(|start| self.mark_in(&record::take(&mut torn.slice(start..))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_of_another_segment_is_none() {
        let heads = [(); 2].map(|()| Head::new(Tip::default()));
        let mark = record::take(&mut heads[0].mark(7)).expect("it is whole");
        assert_eq!(heads[0].mark_in(&mark), Some(7));
        assert_eq!(heads[1].mark_in(&mark), None);
    }

    #[test]
    fn what_is_written_is_read() {
        let written = Head::new(Tip {
            sequence: 6,
            history: 9,
        });
        let mut bytes = Bytes::from(written.encode());
        assert_eq!(bytes.len(), HEAD);
        let read = Head::take(&mut bytes, 7).expect("it is one");
        assert_eq!((read.before, read.token), (written.before, written.token));
        assert!(bytes.is_empty());
    }
}
