//! Block devices that this process serves through io_uring, with the kernel's driver ublk.
//!
//! ```text
//! driver (kernel) <== a ring for each queue, one thread each (`queue`) ==> reads, tasks (`requests`)
//!   |   ^                                                                     |
//!   |   +---- pwritev: the bytes, from where they are to the reader's pages <-+
//!   +-- control ring: add, start, stop, remove, recover (`control`)
//! ```
//!
//! - **One copy.** With `UBLK_F_USER_COPY` (Linux 6.5) a read's bytes are written to the device's
//!   character node and land in the pages that the reader waits for. No buffer is set aside for
//!   requests, and any task may do it; only commands belong to the queue's thread.
//! - **In flight.** A device has a queue for each processor, [`QUEUES_MAX`] at most, with
//!   [`DEPTH`] requests each. The driver never gives a request up, so a slow store is just slow.
//! - **Readers outlive the program** where another process keeps what the next one needs. The
//!   driver then keeps the device and everything that is asked for, also what the dead program had
//!   taken, until another one recovers the device. Nothing ends that wait but who recovers the
//!   device or removes it, so without a keeper it is not asked for: reads then fail at once.
//! - **The device goes with its last user**, but not by itself: the driver has no word for that. A
//!   file system claims its devices for itself, so we try now and then to do the same. When that
//!   works nobody has it mounted, wherever and however it was unmounted.
//! - **Whose it is** stands in the number that the driver keeps for its server (`owner`).

mod answers;
mod control;
mod descriptors;
mod driver;
mod layout;
mod owner;
mod queue;
mod requests;
mod served;
#[cfg(test)]
mod served_tests;
mod transport;

use std::time::Duration;

pub(crate) use driver::{carried_tag, is_ours, look_for_driver, names, release};
pub(crate) use transport::UblkTransport;

/// Queues of a device, of which each has a thread.
const QUEUES_MAX: usize = 4;

/// Requests that a queue has in flight.
const DEPTH: u16 = 128;

/// Bytes in the longest read.
const READ_MAX: u32 = 1 << 20;

/// How often it is tried whether nobody uses a device any more.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// How long the driver may take to let go of a dead process: before Linux 6.7 it looks for one every
/// five seconds.
const LET_GO_DEADLINE: Duration = Duration::from_secs(30);

/// How often that is tried.
const LET_GO_PAUSE: Duration = Duration::from_millis(50);

/// How long a command to the driver may take. Starting a device reads its first block.
const COMMAND_DEADLINE: Duration = Duration::from_secs(600);

/// How long those who have a device open are waited for where the driver knows no other way.
const REMOVE_DEADLINE: Duration = Duration::from_secs(5);
