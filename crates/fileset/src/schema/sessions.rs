//! What sessions say of themselves: who removed a file, who holds one without a name, whose objects are whose.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use penstock_base::FsResult;
use penstock_vfs::Inode;

use super::{
    codec::take_version,
    damaged,
    kind::{HOLDER, WRITER},
    number_at, of_inode,
};

const VERSION: u8 = 1;

/// A session as a value.
pub(crate) fn encode_session(session: u64) -> Bytes {
    let mut bytes = Vec::with_capacity(9);
    bytes.put_u8(VERSION);
    bytes.put_u64_le(session);
    bytes.into()
}

/// The session in a value; 0 in an empty one, which is that of a machine that was alone.
pub(crate) fn decode_session(mut value: &[u8]) -> FsResult<u64> {
    if value.is_empty() {
        return Ok(0);
    }
    take_version(&mut value, VERSION, "a session")?;
    value.try_get_u64_le().map_err(|_| damaged("a session"))
}

/// The key that says that a session holds a file without a name.
pub(crate) fn holder(inode: Inode, session: u64) -> BytesMut {
    let mut key = of_holders(inode);
    key.put_u64(session);
    key
}

/// What the keys of a file's holders begin with.
pub(crate) fn of_holders(inode: Inode) -> BytesMut {
    of_inode(HOLDER, inode)
}

/// The session in the key of a holder.
pub(crate) fn holder_in(key: &[u8]) -> FsResult<u64> {
    number_at(key, 9)
}

/// The key that says which session stores objects of a writer.
pub(crate) fn writer(writer: u64) -> BytesMut {
    of_inode(WRITER, Inode(writer))
}

/// The writer in the key of one.
pub(crate) fn writer_in(key: &[u8]) -> FsResult<u64> {
    number_at(key, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_say_which_session() {
        assert_eq!(holder_in(&holder(Inode(3), 7)).unwrap(), 7);
        assert_eq!(writer_in(&writer(5)).unwrap(), 5);
        assert_eq!(decode_session(&encode_session(9)).unwrap(), 9);
        assert_eq!(decode_session(&[]).unwrap(), 0);
        assert!(decode_session(&[9; 9]).is_err());
        assert!(decode_session(&[1, 2]).is_err());
    }
}
