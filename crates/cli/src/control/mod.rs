//! The socket through which a mount in the background answers questions and takes orders.
//!
//! Each mount listens on a socket of its own, named after its mount point, in a directory that
//! only its user can enter. [`claim`] says whose the name is when mounts follow one another. A client sends one [`Request`] as a line of JSON and reads
//! [`Reply`]s, one a line, until the connection ends. Nothing secret passes through it.

mod claim;
pub(crate) mod client;
mod place;
pub(crate) mod protocol;
pub(crate) mod record;
pub(crate) mod server;

pub(crate) use claim::ClaimError;
pub(crate) use place::{Place, mount_id};
pub(crate) use protocol::{Memory, Metric, Phase, Progress, Reply, Request, Status};
