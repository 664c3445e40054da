//! Quotas: whose use is limited, to what, and where it is counted.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use penstock_base::FsResult;
use penstock_vfs::Inode;

use super::{
    BYTES, FILES,
    codec::{put_time, take_time, take_version},
    damaged, kind,
};

const VERSION: u8 = 1;

/// The key of [`Quotas`].
pub(crate) const QUOTAS: &[u8] = b"l";

/// Whose use can be limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// All files.
    FileSystem,
    /// The files of a user.
    User(u32),
    /// The files of a group.
    Group(u32),
    /// A directory with all that is below it.
    Directory(Inode),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileSystem => f.write_str("the file system"),
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Group(gid) => write!(f, "group {gid}"),
            Self::Directory(inode) => write!(f, "directory {}", inode.0),
        }
    }
}

impl Subject {
    fn put(self, key: &mut BytesMut) {
        match self {
            Self::FileSystem => key.put_u8(b's'),
            Self::User(uid) => {
                key.put_u8(b'u');
                key.put_u32(uid);
            }
            Self::Group(gid) => {
                key.put_u8(b'g');
                key.put_u32(gid);
            }
            Self::Directory(inode) => {
                key.put_u8(b'd');
                key.put_u64(inode.0);
            }
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (first, number) = bytes.split_first()?;
        let short = || Some(u32::from_be_bytes(number.try_into().ok()?));
        Some(match first {
            b's' if number.is_empty() => Self::FileSystem,
            b'u' => Self::User(short()?),
            b'g' => Self::Group(short()?),
            b'd' => Self::Directory(Inode(u64::from_be_bytes(number.try_into().ok()?))),
            _ => return None,
        })
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Counted {
    Bytes,
    Files,
}

impl Counted {
    pub(crate) const ALL: [Self; 2] = [Self::Bytes, Self::Files];

    fn letter(self) -> u8 {
        match self {
            Self::Bytes => b'b',
            Self::Files => b'f',
        }
    }
}

/// The key of the counter of what somebody uses.
pub(crate) fn used(subject: Subject, counted: Counted) -> BytesMut {
    match (subject, counted) {
        (Subject::FileSystem, Counted::Bytes) => BYTES.into(),
        (Subject::FileSystem, Counted::Files) => FILES.into(),
        _ => {
            let mut key = BytesMut::with_capacity(16);
            key.put_u8(kind::USED);
            subject.put(&mut key);
            key.put_u8(counted.letter());
            key
        }
    }
}

/// What the keys of the counters of users and of groups begin with.
pub(crate) const USED_BY_OWNERS: [[u8; 2]; 2] = [[kind::USED, b'g'], [kind::USED, b'u']];

/// Whose counter a key is, of those that are not the file system's own.
pub(crate) fn used_in(key: &[u8]) -> FsResult<(Subject, Counted)> {
    let found = key.get(1..).and_then(|rest| {
        let (letter, subject) = rest.split_last()?;
        let counted = Counted::ALL
            .into_iter()
            .find(|counted| counted.letter() == *letter)?;
        Some((Subject::decode(subject)?, counted))
    });
    found.ok_or_else(|| damaged("the key of a counter"))
}

/// The key of [`Limits`].
pub(crate) fn limits(subject: Subject) -> BytesMut {
    let mut key = BytesMut::with_capacity(16);
    key.put_u8(kind::QUOTA);
    subject.put(&mut key);
    key
}

/// Whose limits a key is of.
pub(crate) fn limits_in(key: &[u8]) -> FsResult<Subject> {
    let subject = key.get(1..).and_then(Subject::decode);
    subject.ok_or_else(|| damaged("the key of a quota"))
}

/// Which files are counted to their users and groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owners {
    /// None, and what counters say means nothing.
    Uncounted,
    /// None yet: what counters said before goes.
    Clearing,
    /// Those with smaller numbers than this.
    CountedBelow(u64),
}

impl Owners {
    /// Each.
    pub(crate) const COUNTED: Self = Self::CountedBelow(u64::MAX);

    pub(crate) fn has(self, inode: Inode) -> bool {
        matches!(self, Self::CountedBelow(end) if inode.0 < end)
    }
}

/// What all quotas have in common. There is none as long as nothing is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quotas {
    pub(crate) owners: Owners,
}

impl Quotas {
    pub(crate) fn encode(self) -> Bytes {
        let mut bytes = Vec::with_capacity(10);
        bytes.put_u8(VERSION);
        let (tag, end) = match self.owners {
            Owners::Uncounted => (0, 0),
            Owners::Clearing => (1, 0),
            Owners::CountedBelow(end) => (2, end),
        };
        bytes.put_u8(tag);
        bytes.put_u64_le(end);
        bytes.into()
    }

    pub(crate) fn decode(mut value: &[u8]) -> FsResult<Self> {
        take_version(&mut value, VERSION, "the quotas")?;
        let (tag, end) = (value.try_get_u8().ok(), value.try_get_u64_le().ok());
        let owners = match tag.zip(end) {
            Some((0, _)) => Owners::Uncounted,
            Some((1, _)) => Owners::Clearing,
            Some((2, end)) => Owners::CountedBelow(end),
            _ => return Err(damaged("the quotas")),
        };
        Ok(Self { owners })
    }
}

/// A limit of bytes or of files. 0 stands for none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limit {
    /// What may be exceeded for the grace time.
    pub soft: u64,
    /// What may not be exceeded.
    pub hard: u64,
    /// When the soft one was exceeded; means nothing while it is not.
    pub exceeded: Option<SystemTime>,
}

/// What somebody may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of files that are written, holes apart.
    pub bytes: Limit,
    /// Files of all kinds.
    pub files: Limit,
    /// How long a soft limit may be exceeded, to the second.
    pub grace: Duration,
}

impl Limits {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(67);
        bytes.put_u8(VERSION);
        bytes.put_u64_le(self.grace.as_secs());
        for limit in [self.bytes, self.files] {
            bytes.put_u64_le(limit.soft);
            bytes.put_u64_le(limit.hard);
            bytes.put_u8(u8::from(limit.exceeded.is_some()));
            put_time(&mut bytes, limit.exceeded.unwrap_or(SystemTime::UNIX_EPOCH));
        }
        bytes.into()
    }

    pub(crate) fn decode(mut value: &[u8]) -> FsResult<Self> {
        take_version(&mut value, VERSION, "a quota")?;
        let mut fields = || {
            Some(Self {
                grace: Duration::from_secs(value.try_get_u64_le().ok()?),
                bytes: take_limit(&mut value)?,
                files: take_limit(&mut value)?,
            })
        };
        fields().ok_or_else(|| damaged("a quota"))
    }
}

fn take_limit(value: &mut &[u8]) -> Option<Limit> {
    let (soft, hard) = (value.try_get_u64_le().ok()?, value.try_get_u64_le().ok()?);
    let is_exceeded = value.try_get_u8().ok()? != 0;
    let time = take_time(value)?;
    Some(Limit {
        soft,
        hard,
        exceeded: is_exceeded.then_some(time),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBJECTS: [Subject; 4] = [
        Subject::FileSystem,
        Subject::User(7),
        Subject::Group(u32::MAX),
        Subject::Directory(Inode(1 << 40)),
    ];

    #[test]
    fn keys_say_whose_they_are() {
        for subject in SUBJECTS {
            assert_eq!(limits_in(&limits(subject)), Ok(subject));
            for counted in Counted::ALL {
                let key = used(subject, counted);
                if subject != Subject::FileSystem {
                    assert_eq!(used_in(&key), Ok((subject, counted)));
                }
            }
        }
        for key in [&b"U"[..], b"Uu", b"Uu123b", b"Ux1234b", b"Uu1234x"] {
            assert!(used_in(key).is_err(), "{key:?}");
        }
    }

    #[test]
    fn values_are_what_they_were() {
        let limits = Limits {
            bytes: Limit {
                soft: 1,
                hard: u64::MAX,
                exceeded: Some(SystemTime::UNIX_EPOCH + Duration::from_nanos(77)),
            },
            files: Limit::default(),
            grace: Duration::from_secs(3),
        };
        let encoded = limits.encode();
        assert_eq!(Limits::decode(&encoded), Ok(limits));
        assert!((0..encoded.len()).all(|end| Limits::decode(&encoded[..end]).is_err()));
        for owners in [Owners::Uncounted, Owners::Clearing, Owners::CountedBelow(9)] {
            let quotas = Quotas { owners };
            assert_eq!(Quotas::decode(&quotas.encode()), Ok(quotas));
        }
        assert!(Quotas::decode(&[VERSION, 3, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
