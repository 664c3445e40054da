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

/// A call that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CarriedOut {
    /// The file that was made or got a name; 0 where none did.
    pub(crate) inode: Inode,
    pub(crate) at: SystemTime,
}

impl CarriedOut {
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(21);
        bytes.put_u8(VERSION);
        bytes.put_u64_le(self.inode.0);
        put_time(&mut bytes, self.at);
        bytes.into()
    }

    pub(crate) fn decode(mut value: &[u8]) -> FsResult<Self> {
        let damaged = || damaged("a call");
        take_version(&mut value, VERSION, "a call")?;
        Ok(Self {
            inode: Inode(value.try_get_u64_le().map_err(|_| damaged())?),
            at: take_time(&mut value).ok_or_else(damaged)?,
        })
    }
}

/// The key of a [`CarriedOut`].
pub(crate) fn call(id: &CallId) -> BytesMut {
    let mut key = BytesMut::with_capacity(29);
    key.put_u8(CALL);
    key.put_slice(&id.client);
    key.put_u32(id.number);
    key.put_u64(id.sum);
    key
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_call_is_kept_by_client_number_and_what_it_asks_for() {
        let carried_out = CarriedOut {
            inode: Inode(3),
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_234_567),
        };
        let value = carried_out.encode();
        assert_eq!(CarriedOut::decode(&value).unwrap(), carried_out);
        assert!(CarriedOut::decode(&value[..20]).is_err());
        let key = |client, number, sum| {
            call(&CallId {
                client: [client; 16],
                number,
                sum,
            })
        };
        let keys = [key(1, 1, 1), key(2, 1, 1), key(1, 2, 1), key(1, 1, 2)];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }
}
