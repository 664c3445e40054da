//! The head of every request.

use penstock_vfs::Inode;

use super::{ParseError, fields::Fields};

/// Bytes in a request's header.
pub const REQUEST_HEADER_SIZE: usize = 40;

/// Which thread asks, and as whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// 0 if it cannot be seen from here.
    pub pid: u32,
}

/// The head of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// Bytes in the whole request.
    pub length: u32,
    /// What is asked for, as a number: see [`super::Opcode`].
    pub opcode: u32,
    /// What the reply must carry.
    pub unique: u64,
    /// The inode that the request is about.
    pub node: Inode,
    /// On whose behalf.
    pub caller: Caller,
    /// Bytes of extensions at the end of the request.
    pub extension_length: usize,
}

impl RequestHeader {
    /// Reads a header off the front of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let head = bytes
            .get(..REQUEST_HEADER_SIZE)
            .ok_or(ParseError::ShortHeader(bytes.len()))?;
        let mut fields = Fields::new(head, 0);
        let length = fields.u32()?;
        let opcode = fields.u32()?;
        let unique = fields.u64()?;
        let node = Inode(fields.u64()?);
        let (uid, gid, pid) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let extension_length = usize::from(fields.u16()?) * 8;
        Ok(Self {
            length,
            opcode,
            unique,
            node,
            caller: Caller { uid, gid, pid },
            extension_length,
        })
    }
}
