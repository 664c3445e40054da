//! Requests and replies through an io_uring, where the kernel has that switched on.
//!
//! Each possible CPU has a queue of entries. An entry is a pair of buffers, one for headers and
//! one for names and data, that is registered with the kernel once. A completion of the ring is a
//! request in an entry; the reply is put into the same entry, and one command answers it and asks
//! for the next. So a request costs one system call at most, and none while requests keep coming.
//!
//! In exchange the reply must be copied into the entry, and a WRITE's data out of it, so large
//! transfers are faster over `/dev/fuse`: it is small operations that gain. FORGET, INTERRUPT and
//! notifications keep coming over `/dev/fuse` in any case.
//!
//! The kernel binds each request to the queue of its CPU and never moves it to another, nor to
//! `/dev/fuse`: a queue without a thread lets programs wait for ever. So a thread that fails ends the
//! mount (`crate::session`).
//!
//! One thread serves the queues of one ring. Only it touches the ring; a reply from another
//! thread fills the entry and puts its number into a mailbox ([`penstock_base::Mailbox`]), which wakes
//! the ring's thread if it sleeps.

mod entry;
mod layout;
mod thread;

use std::{
    fs,
    io::{self, IoSlice},
    os::fd::BorrowedFd,
    sync::Arc,
};

use penstock_base::{BLOCK_SIZE, BufferPool};
use tracing::info;

use super::{Handler, ReceiveReserve, ReplyError, Ticket, Transport};
use thread::RingThread;

/// Entries of each queue: requests of one CPU that may wait for the volume at the same time.
const DEPTH_MAX: usize = 16;
/// With fewer entries a ring is not worth having.
const DEPTH_MIN: usize = 4;
/// The part of the memory budget that entries may take: one in this many.
const BUDGET_SHARE: u64 = 4;
/// Bits of a ticket's slot that number the entry; those above number the thread.
const ENTRY_BITS: u32 = 16;

/// Requests and replies through io_urings, one per possible CPU.
#[derive(Debug)]
pub(crate) struct RingTransport {
    threads: Vec<RingThread>,
}

impl RingTransport {
    /// Whether the kernel would offer io_uring.
    pub(crate) fn is_offered() -> bool {
        fs::read_to_string("/sys/module/fuse/parameters/enable_uring")
            .is_ok_and(|text| text.starts_with('Y'))
    }

    /// Makes rings and entries for the connection `device`. To be called before INIT is answered:
    /// from then on the kernel holds requests back until every queue has an entry.
    pub(crate) fn new(
        device: BorrowedFd<'_>,
        pool: &Arc<BufferPool>,
        reserve: &Arc<ReceiveReserve>,
    ) -> io::Result<Self> {
        let queues = possible_cpus()?;
        let depth = depth_within(pool.budget().total(), queues)
            .ok_or_else(|| io::Error::other("the memory budget is too small for entries"))?;
        let threads = (0..queues).map(|queue| {
            let queue = u16::try_from(queue).map_err(io::Error::other)?;
            RingThread::new(device, (queue, depth), pool, Arc::clone(reserve))
        });
        let threads = threads.collect::<io::Result<_>>()?;
        info!(queues, depth, "requests may come through io_uring");
        Ok(Self { threads })
    }
}

impl Transport for RingTransport {
    fn threads(&self) -> usize {
        self.threads.len()
    }

    fn serve(&self, thread: usize, handler: &dyn Handler) -> io::Result<()> {
        let slot = u32::try_from(thread).expect("as many as CPUs") << ENTRY_BITS;
        self.threads[thread].serve(slot, handler)
    }

    fn reply(&self, ticket: Ticket, parts: &[IoSlice<'_>]) -> Result<(), ReplyError> {
        let thread = &self.threads[(ticket.slot >> ENTRY_BITS) as usize];
        let entry = ticket.slot & ((1 << ENTRY_BITS) - 1);
        thread.reply(entry, ticket.unique, parts)
    }
}

/// The kernel has a queue for every CPU that could be there, whether it is or not.
fn possible_cpus() -> io::Result<usize> {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit(['-', ',']).next().unwrap_or_default();
    let last: usize = last.parse().map_err(io::Error::other)?;
    Ok(last + 1)
}

fn depth_within(budget: u64, queues: usize) -> Option<usize> {
    let blocks = budget / BUDGET_SHARE / BLOCK_SIZE as u64;
    let depth = usize::try_from(blocks).unwrap_or(usize::MAX) / queues;
    (depth >= DEPTH_MIN).then(|| depth.min(DEPTH_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::{GIB, MIB};

    #[test]
    fn entries_keep_within_their_share_of_the_budget() {
        assert_eq!(depth_within(GIB, 2), Some(16));
        assert_eq!(depth_within(64 * MIB, 2), Some(8));
        assert_eq!(depth_within(64 * MIB, 8), None);
        assert_eq!(depth_within(64 * GIB, 128), Some(16));
    }

    #[test]
    fn this_machine_has_cpus() {
        let present = std::thread::available_parallelism().expect("known").get();
        assert!(possible_cpus().expect("listed") >= present);
    }
}
