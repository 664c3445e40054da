//! The NFS door: [`penstock_vfs::Volume`]s behind NFSv3 mount targets.
//!
//! From the wire inwards:
//!
//! - `listening`, `transport`: records on connections, and datagrams, with bounds on what is under way; replies from any
//!   task, in slices.
//! - [`protocol`]: bytes to calls, results to bytes: RPC, portmap, MOUNT, NFS and NLM. Nothing there knows a volume or a
//!   socket.
//! - `port_mapper`: which of these listens where.
//! - `target`, `client`: who asks, of which export (`exports`), by which rule (`export`), and whether it is a repeat
//!   (`duplicates`). `audience`: the same over all targets, for what a client keeps.
//! - `service`: a call as calls of a `Volume`: about which file (`handles`, `nodes`), and one file per family of
//!   procedures. It is one for each volume, whichever targets export that.
//! - `pace`, `target_type`: what a mount target of a type delivers at most, shared fairly among its clients.
//! - `lockers`, `waiters`: who holds which locks, and who waits for which; `monitored`: who is told when the server was
//!   started again, to reclaim his.
//! - `callbacks`: calls of programs of clients.
//! - `open_files`, `places`: what a volume wants to know that a stateless client does not tell.
//!
//! A byte that is read is copied once, by the kernel, from where the volume has it into the socket. A byte that is
//! written is copied once, by the kernel, from the socket into a block of the buffer pool, which the volume then owns.
//!
//! The door checks permissions by the attributes that a volume shows, for every volume: a bucket does not check, and a
//! fileset checks once more.

mod audience;
mod callbacks;
mod client;
mod duplicates;
mod export;
mod exports;
mod handles;
mod limits;
mod listening;
mod lockers;
mod metrics;
mod monitored;
mod mounted;
mod nodes;
mod open_files;
mod pace;
mod places;
mod port_mapper;
pub mod protocol;
mod server;
mod service;
mod settings;
mod target;
mod target_type;
mod transport;
mod waiters;

pub use export::{Authentication, Export, NOBODY, Network, ParseNetworkError, Rule, Squash};
pub use exports::ExportError;
pub use handles::HandleKey;
pub use server::{NfsServer, StartError, TargetStatus, Unsaved};
pub use settings::{NfsSettings, ServedVolume, TargetSettings};
pub use target_type::{TargetType, UnknownTargetType};
pub use transport::whole_record;
