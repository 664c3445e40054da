//! What is remembered of a call in which names were changed.

use std::time::SystemTime;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use penstock_base::FsResult;
use penstock_vfs::{CallId, Inode};

use super::{
    codec::{put_time, take_time, take_version},
    damaged,
    kind::CALL,
};

const VERSION: u8 = 1;
/// Bytes of a key.
const KEY: usize = 21;

/// A call that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CarriedOut {
    /// [`CallId::sum`]: a later call may have its number.
    pub(crate) sum: u64,
    /// The file that was made; 0 where none was.
    pub(crate) inode: Inode,
    pub(crate) at: SystemTime,
}

impl CarriedOut {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(29);
        bytes.put_u8(VERSION);
        bytes.put_u64_le(self.sum);
        bytes.put_u64_le(self.inode.0);
        put_time(&mut bytes, self.at);
        bytes.into()
    }

    pub(crate) fn decode(mut value: &[u8]) -> FsResult<Self> {
        let damaged = || damaged("a call");
        take_version(&mut value, VERSION, "a call")?;
        Ok(Self {
            sum: value.try_get_u64_le().map_err(|_| damaged())?,
            inode: Inode(value.try_get_u64_le().map_err(|_| damaged())?),
            at: take_time(&mut value).ok_or_else(damaged)?,
        })
    }
}

/// The key of a [`CarriedOut`].
pub(crate) fn call(id: &CallId) -> BytesMut {
    let mut key = BytesMut::with_capacity(KEY);
    key.put_u8(CALL);
    key.put_slice(&id.client);
    key.put_u32(id.number);
    key
}

/// Fails unless a key is that of a call.
pub(crate) fn check_call(key: &[u8]) -> FsResult<()> {
    match key.len() {
        KEY => Ok(()),
        _ => Err(damaged("the key of a call")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_call_is_kept_by_client_and_number() {
        let carried_out = CarriedOut {
            sum: 9,
            inode: Inode(3),
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_234_567),
        };
        let value = carried_out.encode();
        assert_eq!(CarriedOut::decode(&value).unwrap(), carried_out);
        assert!(CarriedOut::decode(&value[..20]).is_err());
        let id = |number, sum| CallId {
            client: [1; 16],
            number,
            sum,
        };
        assert_eq!(call(&id(1, 2)), call(&id(1, 3)));
        assert_ne!(call(&id(1, 2)), call(&id(2, 2)));
        check_call(&call(&id(1, 2))).unwrap();
        assert!(check_call(b"r").is_err());
    }
}
