//! The write lease of a file as a value.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use penstock_base::FsResult;
use penstock_vfs::Inode;

use super::{codec::take_version, damaged, kind::WRITE_LEASE, of_inode};

const VERSION: u8 = 1;
/// Bytes of a value.
const LENGTH: usize = 18;

/// The key of the write lease of a file.
pub(crate) fn write_lease(inode: Inode) -> BytesMut {
    of_inode(WRITE_LEASE, inode)
}

/// One grant of the write lease of a file: no other grant has the same session and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteLease {
    /// The session that may have writes of the file that are not saved.
    pub(crate) session: u64,
    /// Which grant of that session.
    pub(crate) number: u64,
    /// Another session waits for what was written.
    pub(crate) is_wanted: bool,
}

impl WriteLease {
    /// Whether both are the same grant.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.session, self.number) == (other.session, other.number)
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.put_u8(VERSION);
        bytes.put_u64_le(self.session);
        bytes.put_u64_le(self.number);
        bytes.put_u8(u8::from(self.is_wanted));
        bytes.into()
    }

    pub(crate) fn decode(mut value: &[u8]) -> FsResult<Self> {
        take_version(&mut value, VERSION, "a write lease")?;
        let mut number = || value.try_get_u64_le().map_err(|_| damaged("a write lease"));
        let (session, number) = (number()?, number()?);
        match value {
            [wanted @ (0 | 1)] => Ok(Self {
                session,
                number,
                is_wanted: *wanted == 1,
            }),
            _ => Err(damaged("a write lease")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_lease_is_what_it_was() {
        let lease = WriteLease {
            session: 3,
            number: u64::MAX,
            is_wanted: true,
        };
        let value = lease.encode();
        assert_eq!(value.len(), LENGTH);
        assert_eq!(WriteLease::decode(&value), Ok(lease));
        for length in 0..LENGTH {
            assert!(WriteLease::decode(&value[..length]).is_err(), "{length}");
        }
        assert!(WriteLease::decode(&[&value[..], &[0]].concat()).is_err());
    }

    #[test]
    fn grants_differ_by_session_or_number() {
        let lease = |session, number| WriteLease {
            session,
            number,
            is_wanted: number == 1,
        };
        let wanted = WriteLease {
            is_wanted: true,
            ..lease(2, 2)
        };
        assert!(lease(2, 2).is(&wanted));
        assert!(!lease(2, 2).is(&lease(1, 2)) && !lease(2, 2).is(&lease(2, 1)));
    }
}
