//! Bytes to calls, results to bytes. Nothing here knows a volume or a socket.

pub mod mount3;
pub mod nfs3;
pub mod nlm4;
pub mod nsm;
pub mod outgoing;
pub mod portmap;
pub mod rpc;
pub mod xdr;
