//! A record: the changes of one operation, as the log has them, on the disk and in the bucket.
//!
//! ```text
//! length  crc32c  sequence  changes      4 + 4 + 8 bytes and the changes; the length is that of what is behind the sum
//! changes: ( key length u16, value length u32 or ALL ONES for a key that goes, key, value ) ...
//! ```
//!
//! Numbers are little endian; the checksum is of all behind it. Whoever reads takes the bytes for those of somebody
//! hostile: a length is compared with what is there before anything is done with it.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use penstock_base::{ChecksumKind, Summing};

use super::{KEY_LENGTH_MAX, layers::Changes};

/// Length and checksum.
const FRAME: usize = 8;
/// What stands for the length of the value of a key that goes.
const GONE: u32 = u32::MAX;

/// A place in the history of a file system. Two that are the same have the same operations before them, whoever
/// wrote those: so a disk and a bucket, or a log and a tree, are told to be of one history where both go that far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tip {
    /// The number of the last operation; 0 before the first.
    pub(super) sequence: u64,
    /// A number that the checksums of all records up to it lead to.
    pub(super) history: u64,
}

impl Tip {
    /// The place behind `record`, which must be the next one.
    pub(super) fn behind(self, record: &Record) -> Option<Self> {
        (record.sequence == self.sequence + 1).then(|| self.behind_sum(record.sum()))
    }

    fn behind_sum(self, sum: u32) -> Self {
        // 2^64 divided by the golden ratio: odd, so two histories stay two when they go on alike.
        const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
        let history = self.history ^ u64::from(sum);
        Self {
            sequence: self.sequence + 1,
            history: history.wrapping_mul(MIX).rotate_left(32),
        }
    }
}

/// A record whose checksum holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) sequence: u64,
    /// Its changes, encoded.
    pub(super) changes: Bytes,
    /// All of it.
    pub(super) whole: Bytes,
}

impl Record {
    fn sum(&self) -> u32 {
        let sum = self.whole.get(4..FRAME).unwrap_or_default();
        sum.try_into().map_or(0, u32::from_le_bytes)
    }

    /// The keys that it puts, with their values.
    pub(super) fn puts(&self) -> Vec<(Bytes, Bytes)> {
        let mut puts = Vec::new();
        // What is no change is found by who makes them.
        let _ = each(self.changes.clone(), |key, value| {
            puts.extend(value.map(|value| (key, value)));
        });
        puts
    }
}

/// Adds the record of the next operation to `bytes`, and goes on to behind it.
pub(super) fn append(bytes: &mut BytesMut, tip: &mut Tip, changes: &Changes) {
    let start = bytes.len();
    bytes.put_bytes(0, FRAME);
    bytes.put_u64_le(tip.sequence + 1);
    for (key, value) in changes {
        append_change(bytes, key, value.as_deref());
    }
    let length = (bytes.len() - start - FRAME) as u32;
    let sum = checksum([&bytes[start + FRAME..]]);
    bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
    bytes[start + 4..start + FRAME].copy_from_slice(&sum.to_le_bytes());
    *tip = tip.behind_sum(sum);
}

/// A record that says numbers in the place of changes.
pub(super) fn mark(sequence: u64, numbers: impl IntoIterator<Item = u64>) -> Bytes {
    let all = [sequence].into_iter().chain(numbers);
    let body: Vec<u8> = all.flat_map(u64::to_le_bytes).collect();
    let mut bytes = BytesMut::with_capacity(FRAME + body.len());
    bytes.put_u32_le(body.len() as u32);
    bytes.put_u32_le(checksum([&body[..]]));
    bytes.put_slice(&body);
    bytes.freeze()
}

/// Adds one change to `bytes`.
pub(super) fn append_change(bytes: &mut BytesMut, key: &[u8], value: Option<&[u8]>) {
    bytes.put_u16_le(key.len() as u16);
    bytes.put_u32_le(value.map_or(GONE, |value| value.len() as u32));
    bytes.put_slice(key);
    bytes.put_slice(value.unwrap_or_default());
}

/// The checksum of slices that follow each other.
pub(super) fn checksum<'a>(slices: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut summing = Summing::new(ChecksumKind::Crc32c);
    slices.into_iter().for_each(|slice| summing.add(slice));
    summing.take().value() as u32
}

/// Takes the next record off `bytes`; nothing if it is cut or torn.
pub(super) fn take(bytes: &mut Bytes) -> Option<Record> {
    let mut frame = bytes.get(..FRAME)?;
    let (length, sum) = (frame.get_u32_le() as usize, frame.get_u32_le());
    let body = bytes.get(FRAME..FRAME.checked_add(length)?)?;
    if length < 8 || checksum([body]) != sum {
        return None;
    }
    let whole = bytes.split_to(FRAME + length);
    let mut changes = whole.slice(FRAME..);
    Some(Record {
        sequence: changes.get_u64_le(),
        changes,
        whole,
    })
}

/// Makes changes that were encoded. Nothing if they are not such.
pub(super) fn redo(encoded: Bytes, changes: &mut Changes) -> Option<()> {
    each(encoded, |key, value| {
        // Copies: a slice would keep the whole segment in memory.
        let copy = |bytes: Bytes| Bytes::copy_from_slice(&bytes);
        changes.insert(copy(key), value.map(copy));
    })
}

/// Visits changes that were encoded: keys with their new values. Nothing if they are not such.
pub(super) fn each(mut encoded: Bytes, mut visit: impl FnMut(Bytes, Option<Bytes>)) -> Option<()> {
    while encoded.has_remaining() {
        let key_length = usize::from(encoded.try_get_u16_le().ok()?);
        let value_length = encoded.try_get_u32_le().ok()?;
        let value_bytes = if value_length == GONE {
            0
        } else {
            value_length as usize
        };
        if key_length > KEY_LENGTH_MAX
            || encoded.remaining() < key_length.checked_add(value_bytes)?
        {
            return None;
        }
        let key = encoded.split_to(key_length);
        let value = encoded.split_to(value_bytes);
        visit(key, (value_length != GONE).then_some(value));
    }
    Some(())
}
