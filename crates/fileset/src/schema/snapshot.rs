//! Snapshots: which there are, and keys of what they keep.
//!
//! An inode as doors know it has the number of a snapshot in its upper bits, 0 in the live tree. Numbers of snapshots are
//! never used again, so what somebody remembers of one that is gone never leads into another.

use std::time::SystemTime;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use penstock_base::FsResult;
use penstock_vfs::Inode;

use super::{
    codec::{put_time, take_time, take_version},
    damaged, kind,
    trash::HOURS,
};

const VERSION: u8 = 1;
/// Bits of an inode that say which file it is; those above say in which snapshot.
pub(super) const FILE_BITS: u32 = 42;
/// The last number of a file: those behind it are the trash's.
pub(crate) const FILE_MAX: u64 = (1 << FILE_BITS) - 2 - HOURS;
/// Stands for the directory of all snapshots, which is none of them.
const DIRECTORY: u64 = u64::MAX >> FILE_BITS;
/// The last number of a snapshot.
pub(crate) const SNAPSHOT_MAX: u64 = DIRECTORY - 1;
/// The directory of all snapshots.
pub(crate) const SNAPSHOTS: Inode = Inode(DIRECTORY << FILE_BITS | 1);
/// What it is called, in the root directory.
pub(crate) const SNAPSHOTS_NAME: &[u8] = b".snapshot";

/// The key of the mark of the last number that a snapshot got.
pub(crate) const LAST_SNAPSHOT: &[u8] = b"K";
/// The key of [`Epoch`].
pub(crate) const EPOCH: &[u8] = b"E";

/// A file of a snapshot, or of the live tree with 0.
pub(crate) fn in_snapshot(snapshot: u64, file: Inode) -> Inode {
    Inode(snapshot << FILE_BITS | file.0)
}

/// The snapshot that an inode is of, 0 for the live tree, and the file.
pub(crate) fn snapshot_of(inode: Inode) -> (u64, Inode) {
    let file = inode.0 & ((1 << FILE_BITS) - 1);
    (inode.0 >> FILE_BITS, Inode(file))
}

/// Whether this is not of the live tree.
pub(crate) fn is_in_snapshot(inode: Inode) -> bool {
    snapshot_of(inode).0 != 0
}

/// Whether a key is of what a reader of the tree sees: what snapshots keep.
pub(crate) fn is_of_tree(key: &[u8]) -> bool {
    let kind = key.first();
    kind.is_some_and(|kind| {
        matches!(
            *kind,
            kind::NODE
                | kind::TIMES
                | kind::DIRECTORIES
                | kind::ENTRY
                | kind::TARGET
                | kind::XATTR
                | kind::CHUNK
        )
    })
}

/// The latest snapshot, if there is one: what is changed from now on is kept for it first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Epoch {
    /// Its number.
    pub(crate) latest: u64,
    /// The last file that had a number when that was taken.
    pub(crate) last_file: u64,
    /// The last number that a snapshot got: a later one may be gone, and what was kept for it serves.
    pub(crate) given: u64,
}

impl Epoch {
    pub(crate) fn encode(self) -> Bytes {
        let mut bytes = Vec::with_capacity(25);
        bytes.put_u8(VERSION);
        let Self {
            latest,
            last_file,
            given,
        } = self;
        for number in [latest, last_file, given] {
            bytes.put_u64_le(number);
        }
        bytes.into()
    }

    pub(crate) fn decode(mut value: &[u8]) -> FsResult<Self> {
        take_version(&mut value, VERSION, "the epoch")?;
        let mut number = || value.try_get_u64_le().map_err(|_| damaged("the epoch"));
        Ok(Self {
            latest: number()?,
            last_file: number()?,
            given: number()?,
        })
    }
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotRecord {
    pub(crate) name: Bytes,
    pub(crate) taken: SystemTime,
    /// The last file that had a number then: others are not in it.
    pub(crate) last_file: u64,
    /// Nobody sees it any more, and what it kept is being cleared away.
    pub(crate) is_removed: bool,
}

impl SnapshotRecord {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(22 + self.name.len());
        bytes.put_u8(VERSION);
        bytes.put_u8(u8::from(self.is_removed));
        bytes.put_u64_le(self.last_file);
        put_time(&mut bytes, self.taken);
        bytes.put_slice(&self.name);
        bytes.into()
    }

    pub(crate) fn decode(mut value: &[u8]) -> FsResult<Self> {
        take_version(&mut value, VERSION, "a snapshot")?;
        let mut fields = || {
            let is_removed = value.try_get_u8().ok()? != 0;
            let last_file = value.try_get_u64_le().ok()?;
            Some(Self {
                taken: take_time(&mut value)?,
                name: Bytes::copy_from_slice(value),
                last_file,
                is_removed,
            })
        };
        fields().ok_or_else(|| damaged("a snapshot"))
    }
}

/// The key of a [`SnapshotRecord`].
pub(crate) fn snapshot(number: u64) -> BytesMut {
    let mut key = BytesMut::with_capacity(9);
    key.put_u8(kind::SNAPSHOT);
    key.put_u64(number);
    key
}

/// The key of the number of the snapshot of this name.
pub(crate) fn snapshot_name(name: &[u8]) -> BytesMut {
    let mut key = BytesMut::with_capacity(1 + name.len());
    key.put_u8(kind::SNAPSHOT_NAME);
    key.put_slice(name);
    key
}

/// The key of what `key` said when a snapshot was taken, and perhaps others before it. Keys so lie in the order of those
/// that they are of: no name has a byte of 0, and all other keys of a kind are of one length.
pub(crate) fn kept(key: &[u8], snapshot: u64) -> BytesMut {
    let mut kept = of_kept(key);
    kept.put_u64(snapshot);
    kept
}

/// What the keys begin with of what `key` said at times.
pub(crate) fn of_kept(key: &[u8]) -> BytesMut {
    let mut kept = BytesMut::with_capacity(key.len() + 10);
    kept.put_u8(kind::KEPT);
    kept.put_slice(key);
    kept.put_u8(0);
    kept
}

/// The key that a kept one is of, and the snapshot.
pub(crate) fn kept_in(key: &[u8]) -> FsResult<(&[u8], u64)> {
    let parts = key.split_last_chunk::<8>();
    let parts = parts.and_then(|(rest, number)| {
        let (end, rest) = rest.split_last()?;
        let (kind, original) = rest.split_first()?;
        let is_one = *kind == kind::KEPT && *end == 0 && original.len() >= 9;
        is_one.then(|| (original, u64::from_be_bytes(*number)))
    });
    parts.ok_or_else(|| damaged("a key of a snapshot"))
}

/// What a key said, or that it was not there, as it is kept.
pub(crate) fn encode_kept(value: Option<&Bytes>) -> Bytes {
    let mut bytes = Vec::with_capacity(1 + value.map_or(0, Bytes::len));
    bytes.put_u8(u8::from(value.is_some()));
    bytes.put_slice(value.map_or(&[], |value| value));
    bytes.into()
}

/// The same back.
pub(crate) fn decode_kept(value: &Bytes) -> FsResult<Option<Bytes>> {
    match value.first() {
        Some(0) => Ok(None),
        Some(1) => Ok(Some(value.slice(1..))),
        _ => Err(damaged("what a snapshot keeps")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    #[test]
    fn inodes_of_snapshots_are_never_those_of_files() {
        for snapshot in [1, 77, SNAPSHOT_MAX] {
            for file in [1, 5, FILE_MAX] {
                let inode = in_snapshot(snapshot, Inode(file));
                assert_eq!(snapshot_of(inode), (snapshot, Inode(file)));
                assert!(inode.0 > FILE_MAX && inode != SNAPSHOTS);
            }
        }
        assert_eq!(snapshot_of(Inode::ROOT), (0, Inode::ROOT));
    }

    #[test]
    fn the_longest_key_can_be_kept() {
        let longest = schema::xattr(Inode(u64::MAX), &[b'a'; 255]);
        assert!(kept(&longest, u64::MAX).len() <= crate::engine::KEY_LENGTH_MAX);
    }

    #[test]
    fn kept_keys_lead_back_and_lie_in_the_order_of_keys() {
        let names: [&[u8]; 4] = [b"a", b"a\x01", b"aa", b"b"];
        let keys = names.map(|name| schema::xattr(Inode(7), name));
        let kept: Vec<_> = keys.iter().map(|key| kept(key, 3)).collect();
        assert!(kept.is_sorted());
        for (key, kept) in keys.iter().zip(&kept) {
            assert_eq!(kept_in(kept).unwrap(), (&key[..], 3));
        }
    }

    #[test]
    fn a_snapshot_is_what_it_was() {
        let record = SnapshotRecord {
            name: Bytes::from_static(b"daily"),
            taken: SystemTime::UNIX_EPOCH,
            last_file: 9,
            is_removed: true,
        };
        assert_eq!(SnapshotRecord::decode(&record.encode()).unwrap(), record);
        let epoch = Epoch {
            latest: 3,
            last_file: 2000,
            given: 4,
        };
        assert_eq!(Epoch::decode(&epoch.encode()).unwrap(), epoch);
    }
}
