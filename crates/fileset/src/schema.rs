//! How a file system lies in an engine's keys.
//!
//! A key begins with a byte that says what it is of; numbers in keys are big endian, so that they sort.
//!
//! | key | value |
//! |---|---|
//! | `F` | the file system: version of this format, identity, sizes ([`Format`]) |
//! | `I` inode | a file: owner, mode, access lists, times, size, links of what is no directory ([`Node`]) |
//! | `T` directory | a mark: when its entries changed last, in nanoseconds since 1970 |
//! | `L` directory | a counter: directories in it |
//! | `D` directory, name | an entry: inode and kind ([`Entry`]); a directory's entries so lie in the order of their names |
//! | `S` inode | the target of a symbolic link |
//! | `X` inode, name | the value of an extended attribute |
//! | `C` inode, chunk | which bytes of the chunk lie where ([`Chunk`]); chunks that hold nothing have no key |
//! | `O` inode | the file has no name left, and goes when nobody holds it any more: the session that took the last one away, or nothing if a machine was alone |
//! | `R` inode, session | nothing: a session other than that holds a file without a name |
//! | `A` inode, `w` inode | the locks of a file, with the sessions whose they are ([`FileLocks`]); who may have unsaved writes of it ([`WriteLease`]) |
//! | `M` writer | the session that stores objects of this writer |
//! | `B` object | its length, and how many bytes of files refer to it ([`ObjectUse`]) |
//! | `G` object | nothing: no file refers to it any more, and it is to be deleted from the bucket |
//! | `d` object, offset | bytes of an object that the bucket does not have yet ([`crate::data::Inlined`]) |
//! | `N`, `W` | marks: the last inode that was given out; how often leaked objects were deleted |
//! | `Q` | how often it was brought to another engine: eight bytes, absent for never |
//! | `J`, `c` | what is done by itself, and when last ([`Schedule`]); how what is saved is compressed, if it is ([`Compression`]) |
//! | `Z` | how far keys were brought here from elsewhere, until all are ([`crate::dumps`]) |
//! | `U` `f`, `U` `b`, `U` `c` | counters: files, bytes that they occupy, and those of these that compression spares |
//! | `U` whose, `f` or `b` | the same of those of a user, of a group or of a directory with all below it ([`Subject`]) |
//! | `r` client, number, sum | the call in which a client changed names ([`CarriedOut`]) |
//! | `t` | for how many days removed files stay in the trash, if they come there |
//! | `l` | that something is limited, and which files are counted to their owners ([`Quotas`]) |
//! | `l` whose | what one may use ([`Limits`]) |
//! | `m` directory | what is in it behind this name is to count for the quota that the directory does |
//! | `E`, `K` | the latest snapshot, if there is one ([`Epoch`]); a mark: the last number that a snapshot got |
//! | `V` snapshot | its name and when it was taken ([`SnapshotRecord`]) |
//! | `Y` name | the number of the snapshot of this name |
//! | `P` key, 0, snapshot | what a key of `I` `T` `L` `D` `S` `X` `C` said until after this snapshot: 1 and the value, or 0 |
//! | `H` snapshot, object | nothing: an object lost its last use when this was the latest snapshot, and one needs it |
//!
//! What an entry changes of its directory is in `T` and `L` alone: creates in one directory change the same keys but look
//! at none of them, so engines need not make them wait. Each value begins with the version of its own layout.

mod call;
mod chunk;
mod codec;
mod compression;
mod format;
mod leases;
mod locks;
mod node;
mod quota;
mod schedule;
mod sessions;
mod snapshot;
mod trash;

pub(crate) use call::{CarriedOut, call};
pub(crate) use chunk::{Chunk, Extent, FOLD_FIRST_AT, GRAIN, Share, Stored, UseChange};
pub use compression::Compression;
pub(crate) use compression::{COMPRESSION, Frames};
pub use format::{BLOCK_SIZE, FORMAT_VERSION, Format};
pub(crate) use leases::{WriteLease, write_lease};
pub(crate) use locks::{FileLocks, locks};
pub(crate) use node::{Entry, Node, ObjectUse};
pub(crate) use quota::{
    Counted, Owners, QUOTAS, Quotas, USED_BY_OWNERS, limits, limits_in, used, used_in,
};
pub use quota::{Limit, Limits, Subject};
pub use schedule::Job;
pub(crate) use schedule::{SCHEDULE, Schedule};
pub(crate) use sessions::{
    decode_session, encode_session, holder, holder_in, of_holders, writer, writer_in,
};
pub(crate) use snapshot::{
    EPOCH, Epoch, FILE_MAX, LAST_SNAPSHOT, SNAPSHOT_MAX, SNAPSHOTS, SNAPSHOTS_NAME, SnapshotRecord,
    decode_kept, encode_kept, in_snapshot, is_in_snapshot, is_of_tree, kept, kept_in, of_kept,
    snapshot, snapshot_name, snapshot_of,
};
pub(crate) use trash::{
    Hour, TRASH, TRASH_DAYS, TRASH_NAME, Trashed, decode_days, encode_days, is_of_trash, trash_name,
};

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use penstock_vfs::{Dentry, Inode};

use crate::data::ObjectId;
use penstock_base::{FsError, FsResult};

/// The key of [`Format`].
pub(crate) const FORMAT: &[u8] = b"F";
/// The key of the last inode.
pub(crate) const LAST_INODE: &[u8] = b"N";
/// The key of the mark that each deletion of leaked objects moves.
pub(crate) const LAST_SWEEP: &[u8] = b"W";
/// The key that says how far keys were brought here from elsewhere.
pub(crate) const LOADING: &[u8] = b"Z";
/// The key that says how often the file system was brought to another engine, as its label does.
pub(crate) const GENERATION: &[u8] = b"Q";
/// The counter of files.
pub(crate) const FILES: &[u8] = b"Uf";
/// The counter of bytes that files occupy.
pub(crate) const BYTES: &[u8] = b"Ub";
/// The counter of bytes that compression spares.
pub(crate) const SPARED: &[u8] = b"Uc";

/// The first bytes of keys by what they are of.
pub(crate) mod kind {
    pub(crate) const CONTENT: u8 = b'd';
    pub(crate) const NODE: u8 = b'I';
    pub(crate) const TIMES: u8 = b'T';
    pub(crate) const DIRECTORIES: u8 = b'L';
    pub(crate) const ENTRY: u8 = b'D';
    pub(crate) const TARGET: u8 = b'S';
    pub(crate) const XATTR: u8 = b'X';
    pub(crate) const CHUNK: u8 = b'C';
    pub(crate) const ORPHAN: u8 = b'O';
    pub(crate) const HOLDER: u8 = b'R';
    pub(crate) const LOCKS: u8 = b'A';
    pub(crate) const WRITE_LEASE: u8 = b'w';
    pub(crate) const WRITER: u8 = b'M';
    pub(crate) const OBJECT: u8 = b'B';
    pub(crate) const GARBAGE: u8 = b'G';
    pub(crate) const SNAPSHOT: u8 = b'V';
    pub(crate) const SNAPSHOT_NAME: u8 = b'Y';
    pub(crate) const KEPT: u8 = b'P';
    pub(crate) const HELD: u8 = b'H';
    pub(crate) const USED: u8 = b'U';
    pub(crate) const QUOTA: u8 = b'l';
    pub(crate) const MARKING: u8 = b'm';
    pub(crate) const CALL: u8 = b'r';
}

/// A key of an inode.
fn of_inode(kind: u8, inode: Inode) -> BytesMut {
    let mut key = BytesMut::with_capacity(64);
    key.put_u8(kind);
    key.put_u64(inode.0);
    key
}

/// The key of a [`Node`].
pub(crate) fn node(inode: Inode) -> BytesMut {
    of_inode(kind::NODE, inode)
}

/// The mark of a directory's last change.
pub(crate) fn times(directory: Inode) -> BytesMut {
    of_inode(kind::TIMES, directory)
}

/// The counter of a directory's directories.
pub(crate) fn directories(directory: Inode) -> BytesMut {
    of_inode(kind::DIRECTORIES, directory)
}

/// The key of an entry.
pub(crate) fn entry(dentry: Dentry<'_>) -> BytesMut {
    let mut key = of_inode(kind::ENTRY, dentry.parent);
    key.put_slice(dentry.name.as_bytes());
    key
}

/// What the keys of a directory's entries begin with.
pub(crate) fn of_directory(directory: Inode) -> BytesMut {
    of_inode(kind::ENTRY, directory)
}

/// What the keys of a file's extended attributes begin with.
pub(crate) fn of_xattrs(inode: Inode) -> BytesMut {
    of_inode(kind::XATTR, inode)
}

/// What the keys of a file's chunks begin with.
pub(crate) fn of_chunks(inode: Inode) -> BytesMut {
    of_inode(kind::CHUNK, inode)
}

/// The key of a symbolic link's target.
pub(crate) fn target(inode: Inode) -> BytesMut {
    of_inode(kind::TARGET, inode)
}

/// The key of an extended attribute.
pub(crate) fn xattr(inode: Inode, name: &[u8]) -> BytesMut {
    let mut key = of_inode(kind::XATTR, inode);
    key.put_slice(name);
    key
}

/// The key of a [`Chunk`].
pub(crate) fn chunk(inode: Inode, index: u64) -> BytesMut {
    let mut key = of_inode(kind::CHUNK, inode);
    key.put_u64(index);
    key
}

/// The key that says that a file has no name left.
pub(crate) fn orphan(inode: Inode) -> BytesMut {
    of_inode(kind::ORPHAN, inode)
}

/// The key that says that entries of a directory are to count for its quota.
pub(crate) fn marking(directory: Inode) -> BytesMut {
    of_inode(kind::MARKING, directory)
}

/// The key of an [`ObjectUse`].
pub(crate) fn object(id: ObjectId) -> BytesMut {
    of_object(kind::OBJECT, id)
}

/// The key that says that an object is garbage.
pub(crate) fn garbage(id: ObjectId) -> BytesMut {
    of_object(kind::GARBAGE, id)
}

fn of_object(kind: u8, id: ObjectId) -> BytesMut {
    let mut key = BytesMut::with_capacity(21);
    key.put_u8(kind);
    key.put_u64(id.writer);
    key.put_u64(id.number);
    key
}

/// The key of bytes of an object, which begin at `offset` of it.
pub(crate) fn content(id: ObjectId, offset: u32) -> BytesMut {
    let mut key = of_content(id);
    key.put_u32(offset);
    key
}

/// What the keys of an object's bytes begin with.
pub(crate) fn of_content(id: ObjectId) -> BytesMut {
    of_object(kind::CONTENT, id)
}

/// The object in the key of some of its `bytes`, and which of them these are. Fails if no object has so many.
pub(crate) fn content_in(key: &[u8], bytes: &[u8]) -> FsResult<(ObjectId, Range<u32>)> {
    let offset = key.get(17..).and_then(|bytes| bytes.try_into().ok());
    let offset = offset.map(u32::from_be_bytes);
    let range = offset.and_then(|offset| {
        let end = u64::from(offset) + bytes.len() as u64;
        (end <= BLOCK_SIZE).then_some(offset..end as u32)
    });
    Ok((object_in(key)?, range.ok_or_else(|| damaged("a key"))?))
}

/// The key that says that an object without a use is held for snapshots: `snapshot` was the latest when it lost it.
pub(crate) fn held(snapshot: u64, object: ObjectId) -> BytesMut {
    let mut key = BytesMut::with_capacity(25);
    key.put_u8(kind::HELD);
    key.put_u64(snapshot);
    key.put_u64(object.writer);
    key.put_u64(object.number);
    key
}

/// The snapshot and the object in the key of one that is held.
pub(crate) fn held_in(key: &[u8]) -> FsResult<(u64, ObjectId)> {
    let object = ObjectId {
        writer: number_at(key, 9)?,
        number: number_at(key, 17)?,
    };
    Ok((number_at(key, 1)?, object))
}

/// The first key behind all that begin with `prefix`, which does not end with the largest byte.
pub(crate) fn behind(prefix: &[u8]) -> BytesMut {
    let mut key = BytesMut::from(prefix);
    for at in (0..key.len()).rev() {
        if key[at] < u8::MAX {
            key[at] += 1;
            key.truncate(at + 1);
            break;
        }
    }
    key
}

/// The inode in a key that has one behind its first byte.
pub(crate) fn inode_in(key: &[u8]) -> FsResult<Inode> {
    Ok(Inode(number_at(key, 1)?))
}

/// The chunk in the key of one.
pub(crate) fn chunk_in(key: &[u8]) -> FsResult<u64> {
    number_at(key, 9)
}

/// The object in a key of one.
pub(crate) fn object_in(key: &[u8]) -> FsResult<ObjectId> {
    Ok(ObjectId {
        writer: number_at(key, 1)?,
        number: number_at(key, 9)?,
    })
}

/// What stands behind the inode in a key: a name.
pub(crate) fn name_in(key: &[u8]) -> &[u8] {
    key.get(9..).unwrap_or_default()
}

fn number_at(key: &[u8], at: usize) -> FsResult<u64> {
    let bytes = key.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes
        .map(u64::from_be_bytes)
        .ok_or_else(|| damaged("a key"))
}

/// What a value is that says something else than it can.
pub(crate) fn damaged(what: &str) -> FsError {
    FsError::Corrupt(format!(
        "{what} of the metadata is damaged: run `penstock fileset check`"
    ))
}

/// An empty value: the key says all.
pub(crate) fn nothing() -> Bytes {
    Bytes::new()
}
