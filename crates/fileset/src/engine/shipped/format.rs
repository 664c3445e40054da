//! What objects of the log and of checkpoints say.
//!
//! ```text
//! kind "PENSTKxN"  crc32c  identity  body      8 + 4 + 8 bytes and the body; the checksum is of all behind it
//! G  group     epoch  number  before  last, records   5 * 8 bytes and the records behind `before`, a
//!                                               [`Tip`](crate::engine::record::Tip), up to operation `last`
//! C  claim     epoch  number  holder  token           the epoch `epoch` ends here: `holder` begins the next one, or,
//!                                               with the token 0, goes on if nobody else does
//! P  part      changes                          as in a record
//! M  manifest  JSON, see `Manifest`
//! ```
//!
//! `identity` is that of the file system: an object of another one is refused. What is read may come from anybody: every
//! length is compared with what is there, checksums come first, and a group must have each record that it names.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use penstock_base::Payload;
use serde::{Deserialize, Serialize};

use super::names::LogName;
use crate::engine::{
    EngineError, EngineResult,
    layers::Changes,
    record::{self, Record, Tip},
};

/// Bytes in the largest object that is read. What was acknowledged must be readable: a group has at most what one that is
/// full lacked a byte of ([`GROUP_MAX`](super::shipping::GROUP_MAX)) and what the embedded engine lets gather before it is
/// written, an operation of the largest among it, together less than half of this.
pub(super) const OBJECT_MAX: u64 = 256 << 20;
/// Bytes before the body.
const HEAD: usize = 20;
/// Bytes in a claim. A group has a record, and is longer.
pub(super) const CLAIM_SIZE: u64 = HEAD as u64 + 32;

/// Kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Group,
    Claim,
    Part,
    Manifest,
}

impl Kind {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Group => b"PENSTKG2",
            Self::Claim => b"PENSTKC1",
            Self::Part => b"PENSTKP1",
            Self::Manifest => b"PENSTKM1",
        }
    }

    /// An object of this kind.
    fn framed(self, identity: u64, body: Vec<Bytes>) -> Payload {
        let identity = identity.to_le_bytes();
        let slices = body.iter().map(|slice| &slice[..]);
        let sum = record::checksum([&identity[..]].into_iter().chain(slices));
        let mut head = BytesMut::with_capacity(HEAD);
        head.put_slice(self.magic());
        head.put_u32_le(sum);
        head.put_slice(&identity);
        let mut payload = Payload::from(head.to_vec());
        body.into_iter().for_each(|slice| payload.push(slice));
        payload
    }

    /// The body of an object of this kind.
    fn unframed(self, identity: u64, mut bytes: Bytes) -> Option<Bytes> {
        if !bytes.starts_with(self.magic()) || bytes.len() < HEAD {
            return None;
        }
        bytes.advance(self.magic().len());
        let sum = bytes.get_u32_le();
        if record::checksum([&bytes[..]]) != sum || bytes.get_u64_le() != identity {
            return None;
        }
        Some(bytes)
    }
}

/// Records that were shipped at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: LogName,
    /// What it goes on behind.
    pub(super) before: Tip,
    /// Its last operation.
    pub(super) last: u64,
    /// Their records, one after the other, in slices.
    pub(super) records: Vec<Bytes>,
}

/// Where an epoch ends, and who begins the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    /// The epoch that ends, and where.
    pub(super) name: LogName,
    /// A number of the directory that the metadata is in.
    pub(super) holder: u64,
    /// Another one each time: no two claims are alike. [`Self::STOP`] in a stop, of which any is as good as another.
    pub(super) token: u64,
}

/// What lies at a place of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LogObject {
    Group(Group),
    Claim(Claim),
}

impl Group {
    pub(super) fn encode(&self, identity: u64) -> Payload {
        let LogName { epoch, number } = self.name;
        let Tip { sequence, history } = self.before;
        let head = numbers([epoch, number, sequence, history, self.last]);
        let body = [head].into_iter().chain(self.records.iter().cloned());
        Kind::Group.framed(identity, body.collect())
    }

    fn decode(mut body: Bytes) -> Option<Self> {
        let [epoch, number, sequence, history, last] = take_numbers(&mut body)?;
        Some(Self {
            name: LogName { epoch, number },
            before: Tip { sequence, history },
            last,
            records: vec![body],
        })
    }

    /// Bytes of its records.
    pub(super) fn bytes(&self) -> usize {
        self.records.iter().map(Bytes::len).sum()
    }

    /// All records with what each goes on behind, if it has those that it says, each whole.
    pub(super) fn records(&self) -> Option<Vec<(Tip, Record)>> {
        let mut found = Vec::new();
        let mut tip = self.before;
        for slice in &self.records {
            let mut slice = slice.clone();
            while !slice.is_empty() {
                let record = record::take(&mut slice)?;
                let before = tip;
                tip = tip.behind(&record)?;
                found.push((before, record));
            }
        }
        (tip.sequence == self.last && !found.is_empty()).then_some(found)
    }

    /// Behind its last record.
    pub(super) fn tip(&self) -> Option<Tip> {
        let records = self.records()?;
        let (before, record) = records.last()?;
        before.behind(record)
    }
}

impl Claim {
    pub(super) const STOP: u64 = 0;

    pub(super) fn is_stop(&self) -> bool {
        self.token == Self::STOP
    }

    pub(super) fn encode(&self, identity: u64) -> Payload {
        let LogName { epoch, number } = self.name;
        let body = numbers([epoch, number, self.holder, self.token]);
        Kind::Claim.framed(identity, vec![body])
    }

    fn decode(mut body: Bytes) -> Option<Self> {
        let [epoch, number, holder, token] = take_numbers(&mut body)?;
        body.is_empty().then_some(Self {
            name: LogName { epoch, number },
            holder,
            token,
        })
    }
}

impl LogObject {
    /// What an object of the log of `identity` says, which lies at `name`.
    pub(super) fn decode(bytes: &Bytes, identity: u64, name: LogName) -> EngineResult<Self> {
        let group = Kind::Group.unframed(identity, bytes.clone());
        let claim = || Kind::Claim.unframed(identity, bytes.clone());
        let object = match group {
            Some(body) => Group::decode(body).map(Self::Group),
            None => claim().and_then(Claim::decode).map(Self::Claim),
        };
        let is_here = |object: &Self| match object {
            Self::Group(group) => group.name == name,
            Self::Claim(claim) => claim.name == name,
        };
        object.filter(is_here).ok_or_else(|| damaged(name))
    }
}

/// A checkpoint: parts that lead from nothing to all keys as they were after an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) version: u32,
    /// The last operation of which it has the changes, and the history that led there.
    pub(super) sequence: u64,
    pub(super) history: u64,
    /// Where the log goes on: an epoch and a number.
    pub(super) log: (u64, u64),
    /// So many parts, the first, have all keys as they were once; the others what was changed since, in order.
    pub(super) full: usize,
    pub(super) parts: Vec<Part>,
}

/// A part of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) key: String,
    pub(super) bytes: u64,
}

impl Manifest {
    /// The version that is written, and understood.
    pub(super) const VERSION: u32 = 2;

    pub(super) fn encode(&self, identity: u64) -> Payload {
        let text = serde_json::to_vec(self).unwrap_or_default();
        Kind::Manifest.framed(identity, vec![text.into()])
    }

    pub(super) fn decode(bytes: Bytes, identity: u64, key: &str) -> EngineResult<Self> {
        let body = Kind::Manifest.unframed(identity, bytes);
        let manifest = body.and_then(|body| serde_json::from_slice::<Self>(&body).ok());
        let manifest = manifest.ok_or_else(|| damaged(key))?;
        if manifest.version != Self::VERSION {
            let text = format!("{key} has version {}", manifest.version);
            return Err(EngineError::Corrupt(text));
        }
        match manifest.full <= manifest.parts.len() {
            true => Ok(manifest),
            false => Err(damaged(key)),
        }
    }

    /// Behind the last operation of which it has the changes.
    pub(super) fn tip(&self) -> Tip {
        Tip {
            sequence: self.sequence,
            history: self.history,
        }
    }

    /// Where the log goes on.
    pub(super) fn place(&self) -> LogName {
        let (epoch, number) = self.log;
        LogName { epoch, number }
    }

    /// Bytes of its parts: those that have all keys, and those behind them.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let sum = |parts: &[Part]| {
            let bytes = parts.iter().map(|part| part.bytes);
            bytes.fold(0, u64::saturating_add)
        };
        let (full, since) = self.parts.split_at(self.full);
        (sum(full), sum(since))
    }
}

/// A part with these changes, encoded as in a record.
pub(super) fn encode_part(identity: u64, changes: Bytes) -> Payload {
    Kind::Part.framed(identity, vec![changes])
}

/// The changes of a part.
pub(super) fn decode_part(bytes: Bytes, identity: u64, key: &str) -> EngineResult<Changes> {
    let mut changes = Changes::new();
    let body = Kind::Part.unframed(identity, bytes);
    let redone = body.and_then(|body| record::redo(body, &mut changes));
    redone.map(|()| changes).ok_or_else(|| damaged(key))
}

/// See [`super::try_to_read`].
#[cfg(feature = "testing")]
pub(super) fn try_to_read(bytes: &[u8]) {
    let body = || vec![Bytes::copy_from_slice(bytes)];
    let sealed = |kind: Kind| Bytes::from(kind.framed(1, body()).to_vec());
    let name = LogName {
        epoch: 0,
        number: 0,
    };
    let _ = LogObject::decode(&Bytes::copy_from_slice(bytes), 1, name);
    for kind in [Kind::Group, Kind::Claim] {
        let read = kind.unframed(1, sealed(kind));
        let group = read.and_then(Group::decode);
        if let Some(records) = group.and_then(|group| group.records()) {
            let mut changes = Changes::new();
            for (_, record) in records {
                let _ = record::redo(record.changes, &mut changes);
            }
        }
        let _ = kind.unframed(1, sealed(kind)).and_then(Claim::decode);
    }
    let _ = decode_part(sealed(Kind::Part), 1, "a part");
    if let Ok(manifest) = Manifest::decode(sealed(Kind::Manifest), 1, "a manifest") {
        let _ = (manifest.bytes(), manifest.place());
    }
}

/// An object that is not what it was written as.
pub(super) fn damaged(key: impl std::fmt::Display) -> EngineError {
    EngineError::Corrupt(format!("{key} in the bucket is damaged"))
}

fn numbers<const N: usize>(numbers: [u64; N]) -> Bytes {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    bytes.collect()
}

fn take_numbers<const N: usize>(bytes: &mut Bytes) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = bytes.try_get_u64_le().ok()?;
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAME: LogName = LogName {
        epoch: 3,
        number: 2,
    };

    fn group() -> Group {
        let mut records = BytesMut::new();
        let before = Tip {
            sequence: 6,
            history: 1,
        };
        let mut tip = before;
        for number in 7..10_u64 {
            let key = Bytes::copy_from_slice(&number.to_be_bytes());
            let value = (number != 8).then(|| Bytes::from_static(b"value"));
            record::append(&mut records, &mut tip, &Changes::from([(key, value)]));
        }
        Group {
            name: NAME,
            before,
            last: 9,
            records: vec![records.freeze()],
        }
    }

    fn decode(bytes: Vec<u8>) -> EngineResult<LogObject> {
        LogObject::decode(&bytes.into(), 5, NAME)
    }

    #[test]
    fn what_is_written_is_read() {
        let written = group();
        let bytes = written.encode(5).to_vec();
        assert_eq!(decode(bytes), Ok(LogObject::Group(written.clone())));
        assert_eq!(written.records().map(|records| records.len()), Some(3));
        let claim = Claim {
            name: NAME,
            holder: 9,
            token: 11,
        };
        let bytes = claim.encode(5).to_vec();
        assert_eq!(bytes.len() as u64, CLAIM_SIZE);
        assert_eq!(decode(bytes), Ok(LogObject::Claim(claim)));
    }

    #[test]
    fn an_object_of_another_file_system_or_place_is_refused() {
        let bytes: Bytes = group().encode(5).to_vec().into();
        assert!(LogObject::decode(&bytes, 6, NAME).is_err());
        assert!(LogObject::decode(&bytes, 5, NAME.next()).is_err());
    }

    #[test]
    fn a_group_without_one_of_its_records_is_refused() {
        let whole = group();
        for (sequence, last) in [(5, 9), (6, 8), (6, 10), (7, 9)] {
            let before = Tip {
                sequence,
                ..whole.before
            };
            let other = Group {
                before,
                last,
                ..whole.clone()
            };
            assert_eq!(other.records(), None, "behind {sequence} to {last}");
        }
    }

    proptest! {
        #[test]
        fn a_changed_byte_is_noticed(at in 0_usize..120, by in 1_u8..) {
            let mut bytes = group().encode(5).to_vec();
            let at = at % bytes.len();
            bytes[at] ^= by;
            prop_assert!(decode(bytes).is_err());
        }

        #[test]
        fn made_up_bytes_are_refused_and_nothing_else_happens(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode(bytes.clone()).is_err());
            prop_assert!(decode_part(bytes.clone().into(), 5, "a part").is_err());
            prop_assert!(Manifest::decode(bytes.into(), 5, "a manifest").is_err());
        }
    }
}
