//! The protocol between the process of a mount and programs that ask it or give it orders.
//!
//! Each mount listens on a socket of its own, named after its mount point, in a directory that
//! only its user can enter. A client sends one [`Request`] as a line of JSON, with the version of the
//! protocol, and reads [`Reply`]s, one a line, until the connection ends. Nothing secret passes through it.
//!
//! - [`protocol`]: what is said, and what versions mean.
//! - [`directory`]: where the sockets are.
//! - `claim`: whose the name of a socket is when mounts follow one another.
//! - [`record`]: what a mount writes down for programs that find it dead.
//! - [`server`]: the side of the mount; it answers with what a [`server::Daemon`] knows.
//! - [`client`]: the side that asks.

mod claim;
pub mod client;
pub mod directory;
pub mod protocol;
pub mod record;
pub mod server;
// The only unsafe code here: one system call that rustix cannot make safely.
#[allow(unsafe_code)]
mod system;

pub use claim::ClaimError;
pub use directory::{SocketDirectory, mount_id};
pub use protocol::{
    Configuration, DumpItem, LimitChange, Memory, Metric, Phase, Progress, QuotaChange, QuotaItem,
    QuotaOrder, QuotaPart, QuotaSubject, Refusal, Reply, Request, ServedExport, ServedRule,
    ServedTarget, Sharing, SnapshotItem, SnapshotOrder, Status, TrashAnswer, TrashItem, TrashOrder,
    Unsaved, UnsavedFile, UnsavedItem, UnsavedKind,
};
pub use system::{Process, has_died};
