//! What is written, as bytes.
//!
//! ```text
//! PREFIX/IDENTITY/h              the head
//! PREFIX/IDENTITY/f SEQUENCE     a change: whose, the tip before it, its keys
//! PREFIX/IDENTITY/k KEY          a key of the file system
//! PREFIX/IDENTITY/s SESSION      a session
//! ```
//!
//! The identity is 16 hexadecimal digits, numbers in keys are big endian, in values little endian. A value begins with a byte
//! that is 0: TiKV has no empty values. Bytes are preceded by their length.

use std::{collections::BTreeMap, ops::Range};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use penstock_fileset::engine::EngineError;

/// Changes by key; `None` for keys that go.
pub(crate) type Changes = BTreeMap<Bytes, Option<Bytes>>;

/// The version of what is written.
const VERSION: u8 = 1;
const GONE: u32 = u32::MAX;

/// The keys of one file system.
#[derive(Debug, Clone)]
pub(crate) struct Space(Vec<u8>);

impl Space {
    pub(crate) fn new(prefix: &str, identity: u64) -> Self {
        Self(format!("{prefix}/{identity:016x}/").into_bytes())
    }

    fn key(&self, kind: u8, rest: &[u8]) -> Bytes {
        Bytes::from([&self.0[..], &[kind], rest].concat())
    }

    pub(crate) fn head(&self) -> Bytes {
        self.key(b'h', &[])
    }

    pub(crate) fn data(&self, key: &[u8]) -> Bytes {
        self.key(b'k', key)
    }

    pub(crate) fn change(&self, sequence: i64) -> Bytes {
        self.key(b'f', &sequence.to_be_bytes())
    }

    pub(crate) fn session(&self, id: i64) -> Bytes {
        self.key(b's', &id.to_be_bytes())
    }

    pub(crate) fn sessions(&self) -> Range<Bytes> {
        self.key(b's', &[])..self.key(b's' + 1, &[])
    }

    pub(crate) fn all(&self) -> Range<Bytes> {
        self.key(0, &[])..self.key(u8::MAX, &[])
    }

    /// The key of the file system, without what is before it.
    pub(crate) fn inner(&self, key: &Bytes) -> Bytes {
        key.slice((self.0.len() + 1).min(key.len())..)
    }

    /// The number in the key of a change or a session.
    pub(crate) fn number(&self, key: &Bytes) -> Option<i64> {
        self.inner(key)
            .as_ref()
            .try_into()
            .ok()
            .map(i64::from_be_bytes)
    }
}

/// A value as TiKV has it.
pub(crate) fn wrapped(value: &[u8]) -> Vec<u8> {
    [&[0], value].concat()
}

/// A value without what TiKV needs.
pub(crate) fn unwrapped(value: Vec<u8>) -> Bytes {
    let value = Bytes::from(value);
    value.slice(1.min(value.len())..)
}

/// Which state there is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// A random number of the step that wrote it.
    pub(crate) stamp: u64,
    /// Changes that were made, and a random number of the last one.
    pub(crate) sequence: i64,
    pub(crate) tip: i64,
    /// Changes up to this one are not listed.
    pub(crate) floor: i64,
    /// Sessions that began.
    pub(crate) sessions: i64,
    /// The session that has the keys alone; 0 if none has.
    pub(crate) alone: i64,
    /// Somebody waits for the keys.
    pub(crate) is_wanted: bool,
    /// What the last steps changed, above what the keys say.
    pub(crate) pending: Changes,
}

impl Head {
    pub(crate) fn encoded(&self) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        bytes.put_u8(VERSION);
        bytes.put_u64_le(self.stamp);
        for number in [
            self.sequence,
            self.tip,
            self.floor,
            self.sessions,
            self.alone,
        ] {
            bytes.put_i64_le(number);
        }
        bytes.put_u8(self.is_wanted.into());
        for (key, value) in &self.pending {
            put(&mut bytes, key);
            match value {
                Some(value) => put(&mut bytes, value),
                None => bytes.put_u32_le(GONE),
            }
        }
        bytes.to_vec()
    }

    pub(crate) fn decoded(bytes: Vec<u8>) -> Result<Self, EngineError> {
        let version = bytes.first().copied().unwrap_or_default();
        if version != VERSION {
            return Err(EngineError::Database(format!(
                "its keys have version {version}: use the penstock that made them"
            )));
        }
        let mut bytes = Bytes::from(bytes).slice(1..);
        Self::read(&mut bytes).ok_or_else(|| damaged("the head"))
    }

    fn read(bytes: &mut Bytes) -> Option<Self> {
        let mut head = Self {
            stamp: bytes.try_get_u64_le().ok()?,
            sequence: bytes.try_get_i64_le().ok()?,
            tip: bytes.try_get_i64_le().ok()?,
            floor: bytes.try_get_i64_le().ok()?,
            sessions: bytes.try_get_i64_le().ok()?,
            alone: bytes.try_get_i64_le().ok()?,
            is_wanted: bytes.try_get_u8().ok()? != 0,
            pending: Changes::new(),
        };
        while bytes.has_remaining() {
            let key = take(bytes)??;
            head.pending.insert(key, take(bytes)?);
        }
        Some(head)
    }
}

/// Bytes that changes take in a head.
pub(crate) fn size(changes: &Changes) -> usize {
    let size = |(key, value): (&Bytes, &Option<Bytes>)| {
        8 + key.len() + value.as_ref().map_or(0, Bytes::len)
    };
    changes.iter().map(size).sum()
}

/// A session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) machine: i64,
    pub(crate) token: i64,
    /// Milliseconds since 1970 by the cluster's clock.
    pub(crate) begun: i64,
    pub(crate) heard: i64,
    /// How often it was heard of.
    pub(crate) beat: i64,
    pub(crate) took_in: i64,
    /// Its last batch, and the number of that among all changes.
    pub(crate) batch: i64,
    pub(crate) at: i64,
    pub(crate) name: String,
}

impl Session {
    pub(crate) fn encoded(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        for number in [
            self.machine,
            self.token,
            self.begun,
            self.heard,
            self.beat,
            self.took_in,
            self.batch,
            self.at,
        ] {
            bytes.put_i64_le(number);
        }
        bytes.put_slice(self.name.as_bytes());
        bytes.freeze()
    }

    pub(crate) fn decoded(mut bytes: Bytes) -> Result<Self, EngineError> {
        let mut numbers = [0; 8];
        for number in &mut numbers {
            *number = bytes.try_get_i64_le().map_err(|_| damaged("a session"))?;
        }
        let [machine, token, begun, heard, beat, took_in, batch, at] = numbers;
        Ok(Self {
            machine,
            token,
            begun,
            heard,
            beat,
            took_in,
            batch,
            at,
            name: String::from_utf8_lossy(&bytes).into_owned(),
        })
    }
}

/// A change as it is listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) session: i64,
    /// The tip that it found.
    pub(crate) before: i64,
    pub(crate) keys: Vec<Bytes>,
}

impl Listed {
    pub(crate) fn encoded(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_i64_le(self.session);
        bytes.put_i64_le(self.before);
        self.keys.iter().for_each(|key| put(&mut bytes, key));
        bytes.freeze()
    }

    pub(crate) fn decoded(mut bytes: Bytes) -> Result<Self, EngineError> {
        Self::read(&mut bytes).ok_or_else(|| damaged("a change"))
    }

    fn read(bytes: &mut Bytes) -> Option<Self> {
        let mut listed = Self {
            session: bytes.try_get_i64_le().ok()?,
            before: bytes.try_get_i64_le().ok()?,
            keys: Vec::new(),
        };
        while bytes.has_remaining() {
            listed.keys.push(take(bytes)??);
        }
        Some(listed)
    }
}

fn put(bytes: &mut BytesMut, what: &[u8]) {
    bytes.put_u32_le(what.len() as u32);
    bytes.put_slice(what);
}

/// Bytes, or what stands for none; the outer `None` if neither is there.
#[expect(clippy::option_option, reason = "neither is the other")]
fn take(bytes: &mut Bytes) -> Option<Option<Bytes>> {
    let length = bytes.try_get_u32_le().ok()?;
    if length == GONE {
        return Some(None);
    }
    let length = length as usize;
    (bytes.remaining() >= length).then(|| Some(bytes.split_to(length)))
}

fn damaged(what: &str) -> EngineError {
    EngineError::Corrupt(format!("{what} in TiKV cannot be read"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            numbers in any::<[i64; 8]>(),
            pairs in prop::collection::btree_map("[a-z]{0,9}", prop::option::of("[a-z]{0,9}"), 0..9),
        ) {
            let [machine, token, begun, heard, beat, took_in, batch, at] = numbers;
            let pending = pairs.iter().map(|(key, value)| {
                (Bytes::from(key.clone()), value.clone().map(Bytes::from))
            });
            let head = Head {
                stamp: machine.cast_unsigned(),
                sequence: token,
                tip: begun,
                floor: heard,
                sessions: beat,
                alone: took_in,
                is_wanted: batch > 0,
                pending: pending.collect(),
            };
            prop_assert_eq!(Head::decoded(head.encoded()).unwrap(), head);
            let name = "me".to_owned();
            let session =
                Session { machine, token, begun, heard, beat, took_in, batch, at, name };
            prop_assert_eq!(Session::decoded(session.encoded()).unwrap(), session);
            let keys = pairs.keys().cloned().map(Bytes::from).collect();
            let listed = Listed { session: at, before: batch, keys };
            prop_assert_eq!(Listed::decoded(listed.encoded()).unwrap(), listed);
        }

        #[test]
        fn what_is_damaged_is_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Head::decoded([&[VERSION], &bytes[..]].concat());
            let _ = Session::decoded(Bytes::from(bytes.clone()));
            let _ = Listed::decoded(Bytes::from(bytes));
        }
    }
}
