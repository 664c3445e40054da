//! The network block device, over sockets within this machine.
//!
//! ```text
//! driver (kernel) <== several socket pairs ==> `protocol` -> `under_way` -> disk
//!        ^
//!        +-- netlink: connect, reconnect, disconnect (`driver`, messages in `netlink`)
//! ```
//!
//! - **Several connections.** Each has 128 requests in flight; the kernel uses as many as it has
//!   processors.
//! - **A connection that dies is made again**, whoever ended it: the driver gives one up when an
//!   answer takes longer than [`REQUEST_TIMEOUT`], and asks again on another. The read itself goes
//!   on meanwhile, and who asks again gets its answer, so a slow store is not asked twice and an
//!   outage ends as it does elsewhere.
//! - **Readers outlive the program.** While nobody is connected they wait, for
//!   [`NOBODY_TIMEOUT`]. A program that goes on gives the driver new connections; reads that the
//!   dead one had begun are asked for again when their time is over.
//! - **The device goes with its last user**, as a loop device does, and it carries the volume's
//!   tag, so that what a killed program left can be told apart.

mod driver;
mod netlink;
mod protocol;
mod transport;
mod under_way;

use std::time::Duration;

pub(crate) use driver::{look_for_driver, release};
pub(crate) use transport::NbdTransport;

/// How long an answer may take before the driver gives up its connection and asks again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// How long readers wait while nobody is connected; then they get errors, for good.
const NOBODY_TIMEOUT: Duration = Duration::from_secs(60);
