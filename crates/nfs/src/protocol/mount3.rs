//! MOUNT, version 3 (appendix I of RFC 1813): paths to handles. Of version 1 there is what asks for no handle, as
//! `showmount` and UMNT of old clients do.

use bytes::Bytes;

use super::xdr::{Decoded, Decoder};

/// The number of the program.
pub(crate) const PROGRAM: u32 = 100_005;
/// The version with handles of NFS version 3.
pub(crate) const VERSION: u32 = 3;
/// The version with handles of NFS version 2, of which there are none.
pub(crate) const OLD_VERSION: u32 = 1;
/// The procedure that gives a handle.
const MOUNT: u32 = 1;
/// Bytes in the longest path.
const PATH_MAX: usize = 1024;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Nothing.
    Null,
    /// The handle of a directory.
    Mount(Bytes),
    /// Who has mounted what.
    Dump,
    /// The client lets go of a directory.
    Unmount(Bytes),
    /// The client lets go of all.
    UnmountAll,
    /// What there is to be mounted.
    Exports,
}

/// How a mount went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountStatus {
    Ok = 0,
    NoEntry = 2,
    Io = 5,
    Access = 13,
    NotDirectory = 20,
    Invalid = 22,
    NameTooLong = 63,
}

impl Request {
    /// The arguments of a procedure; nothing where there is no such procedure.
    pub fn decode(
        (version, procedure): (u32, u32),
        arguments: &mut Decoder,
    ) -> Option<Decoded<Self>> {
        let path = Decoder::opaque;
        let request = match procedure {
            0 => Ok(Self::Null),
            MOUNT if version == OLD_VERSION => return None,
            MOUNT => path(arguments, PATH_MAX).map(Self::Mount),
            2 => Ok(Self::Dump),
            3 => path(arguments, PATH_MAX).map(Self::Unmount),
            4 => Ok(Self::UnmountAll),
            5 => Ok(Self::Exports),
            _ => return None,
        };
        Some(request)
    }
}
