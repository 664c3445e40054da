//! The locks of a file that several machines have, as a value.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use penstock_base::FsResult;
use penstock_vfs::{HeldLocks, Inode, Lock, LockFamily, LockMode, LockOwner};

use super::{codec::take_version, damaged, kind::LOCKS, of_inode};

const VERSION: u8 = 1;
/// Bytes of a lock.
const LENGTH: usize = 46;

/// The key of the locks of a file.
pub(crate) fn locks(inode: Inode) -> BytesMut {
    of_inode(LOCKS, inode)
}

/// The locks of a file by the sessions whose they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileLocks {
    record: BTreeMap<u64, HeldLocks>,
    whole: BTreeMap<u64, HeldLocks>,
}

impl FileLocks {
    /// Those of a family.
    pub(crate) fn of(&self, family: LockFamily) -> &BTreeMap<u64, HeldLocks> {
        match family {
            LockFamily::Record => &self.record,
            LockFamily::Whole => &self.whole,
        }
    }

    /// Those of a family that a session holds.
    pub(crate) fn held(&mut self, family: LockFamily, session: u64) -> &mut HeldLocks {
        let held = match family {
            LockFamily::Record => &mut self.record,
            LockFamily::Whole => &mut self.whole,
        };
        held.entry(session).or_default()
    }

    /// Whether an owner of a session holds any.
    pub(crate) fn has(&self, session: u64, owner: LockOwner) -> bool {
        let held = [&self.record, &self.whole].map(|held| held.get(&session));
        let mut all = held.into_iter().flatten().flat_map(HeldLocks::iter);
        all.any(|lock| lock.owner == owner)
    }

    /// Takes all locks of some sessions away, and says whether there were any.
    pub(crate) fn drop_sessions(&mut self, is_dropped: impl Fn(u64) -> bool) -> bool {
        let mut any = false;
        for held in [&mut self.record, &mut self.whole] {
            let before = held.len();
            held.retain(|session, _| !is_dropped(*session));
            any |= held.len() < before;
        }
        any
    }

    /// Those who hold some.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = u64> {
        let all = self.record.keys().chain(self.whole.keys());
        all.copied()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        let all = self.record.values().chain(self.whole.values());
        all.map(HeldLocks::len).sum()
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(1 + LENGTH * self.len());
        bytes.put_u8(VERSION);
        for (family, held) in [(0, &self.record), (1, &self.whole)] {
            for (session, locks) in held {
                for lock in locks.iter() {
                    put_lock(&mut bytes, (family, *session), lock);
                }
            }
        }
        bytes.into()
    }

    pub(crate) fn decode(mut value: &[u8]) -> FsResult<Self> {
        take_version(&mut value, VERSION, "a lock")?;
        let mut locks = Self::default();
        while !value.is_empty() {
            let ((family, session), lock) =
                take_lock(&mut value).ok_or_else(|| damaged("a lock"))?;
            locks.held(family, session).add(lock);
        }
        Ok(locks)
    }
}

fn put_lock(bytes: &mut Vec<u8>, (family, session): (u8, u64), lock: &Lock) {
    bytes.put_u8(family);
    bytes.put_u64_le(session);
    bytes.put_u8(match lock.mode {
        LockMode::Shared => 0,
        LockMode::Exclusive => 1,
    });
    for number in [
        lock.range.start,
        lock.range.end,
        lock.owner.client,
        lock.owner.owner,
    ] {
        bytes.put_u64_le(number);
    }
    bytes.put_u32_le(lock.process);
}

fn take_lock(value: &mut &[u8]) -> Option<((LockFamily, u64), Lock)> {
    let family = match value.try_get_u8().ok()? {
        0 => LockFamily::Record,
        1 => LockFamily::Whole,
        _ => return None,
    };
    let session = value.try_get_u64_le().ok()?;
    let mode = match value.try_get_u8().ok()? {
        0 => LockMode::Shared,
        1 => LockMode::Exclusive,
        _ => return None,
    };
    let mut number = || value.try_get_u64_le().ok();
    let range = number()?..number()?;
    let (client, owner) = (number()?, number()?);
    let lock = Lock {
        mode,
        range,
        owner: LockOwner { client, owner },
        process: value.try_get_u32_le().ok()?,
    };
    Some(((family, session), lock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_what_they_were() {
        let lock = |mode, range| Lock {
            mode,
            range,
            owner: LockOwner {
                client: 3,
                owner: u64::MAX,
            },
            process: 77,
        };
        let mut locks = FileLocks::default();
        locks
            .held(LockFamily::Record, 1)
            .add(lock(LockMode::Shared, 5..9));
        locks
            .held(LockFamily::Record, 2)
            .add(lock(LockMode::Exclusive, 10..u64::MAX));
        locks
            .held(LockFamily::Whole, 1)
            .add(lock(LockMode::Exclusive, 0..u64::MAX));
        let value = locks.encode();
        assert_eq!(value.len(), 1 + 3 * LENGTH);
        assert_eq!(FileLocks::decode(&value).unwrap(), locks);
        assert!(FileLocks::decode(&value[..20]).is_err());
        assert!(FileLocks::decode(&[]).is_err());
    }
}
