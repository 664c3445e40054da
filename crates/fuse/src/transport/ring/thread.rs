//! One ring with its entries, and the loop of its thread.

#![allow(unsafe_code)]

use std::{
    fmt,
    io::{self, IoSlice},
    os::fd::{AsRawFd, BorrowedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use io_uring::{IoUring, cqueue, opcode, squeue::Entry128, types::Fixed};
use penstock_base::{BLOCK_SIZE, BufferPool, Mailbox};
use tracing::warn;

use super::{
    entry::Entry,
    layout::{command, command_bytes},
};
use crate::{
    protocol::{ParseError, RequestHeader},
    transport::{Handler, Incoming, ReceiveReserve, ReplyError, Ticket, WriteData},
};

/// Registered descriptors of the ring: the FUSE connection and the mailbox' bell.
const DEVICE: Fixed = Fixed(0);
const BELL: Fixed = Fixed(1);
/// Marks the completion of a look at the bell; entries are marked with their numbers.
const BELL_RANG: u64 = u64::MAX;

type Ring = IoUring<Entry128, cqueue::Entry>;

/// One ring with its entries.
pub(super) struct RingThread {
    queue: u16,
    entries: Vec<Mutex<Entry>>,
    /// Entries whose replies are ready to be committed.
    mailbox: Mailbox<u32>,
    reserve: Arc<ReceiveReserve>,
    /// The mount is gone: replies lead nowhere.
    closed: AtomicBool,
    /// The thread takes it when it begins.
    ring: Mutex<Option<Ring>>,
}

/// What a completion was.
enum Completion {
    Request(u32),
    /// The command is to be sent again.
    Again(u32),
    Bell,
    /// The mount is gone.
    Gone,
    /// The kernel does not want the entry.
    Lost(io::Error),
}

impl RingThread {
    pub(super) fn new(
        device: BorrowedFd<'_>,
        (queue, depth): (u16, usize),
        pool: &Arc<BufferPool>,
        reserve: Arc<ReceiveReserve>,
    ) -> io::Result<Self> {
        let mailbox = Mailbox::new()?;
        let commands = u32::try_from(depth + 1).map_err(io::Error::other)?;
        let ring: Ring = IoUring::builder()
            .setup_cqsize(2 * commands.next_power_of_two())
            .build(commands)?;
        let descriptors = [device.as_raw_fd(), mailbox.bell().as_raw_fd()];
        ring.submitter().register_files(&descriptors)?;
        let blocks = (0..depth).map(|_| pool.try_take(BLOCK_SIZE));
        let entries = blocks
            .map(|block| block.map(|block| Mutex::new(Entry::new(block))))
            .collect::<Option<_>>()
            .ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            queue,
            entries,
            mailbox,
            reserve,
            closed: AtomicBool::new(false),
            ring: Mutex::new(Some(ring)),
        })
    }

    /// Puts a reply into its entry and has it committed.
    pub(super) fn reply(
        &self,
        entry: u32,
        unique: u64,
        parts: &[IoSlice<'_>],
    ) -> Result<(), ReplyError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(ReplyError::GivenUp);
        }
        self.entry(entry).put_reply(unique, parts)?;
        self.mailbox.put(entry);
        Ok(())
    }

    /// Serves requests until the mount is gone. `slot` is added to the numbers of entries.
    pub(super) fn serve(&self, slot: u32, handler: &dyn Handler) -> io::Result<()> {
        let ring = self
            .ring
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let mut ring = ring.ok_or_else(|| io::Error::other("the ring is served already"))?;
        let mut bell = Box::new([0; 8]);
        let served = self.run(&mut ring, &mut bell, (slot, handler));
        self.closed.store(true, Ordering::SeqCst);
        // The ring goes first, then what it may still write to.
        drop(ring);
        drop(bell);
        served
    }

    fn run(
        &self,
        ring: &mut Ring,
        bell: &mut [u8; 8],
        (slot, handler): (u32, &dyn Handler),
    ) -> io::Result<()> {
        for entry in 0..self.entries.len() as u32 {
            self.push(ring, &self.register(entry))?;
        }
        self.push(ring, &listen(bell))?;
        let (mut message, mut entries_left) = (Vec::new(), self.entries.len());
        while entries_left > 0 {
            let completions = self.wait(ring)?;
            for completion in &completions {
                match classify(completion) {
                    Completion::Request(entry) => {
                        self.receive(entry, slot, &mut message, handler);
                    }
                    Completion::Again(entry) => self.push_again(ring, entry)?,
                    Completion::Bell => self.push(ring, &listen(bell))?,
                    Completion::Gone => return Ok(()),
                    Completion::Lost(error) => {
                        warn!(queue = self.queue, %error, "the kernel does not want an entry");
                        entries_left -= 1;
                    }
                }
            }
            for entry in self.mailbox.take() {
                self.push(ring, &self.commit(entry))?;
            }
        }
        Err(io::Error::other("the kernel wants none of the entries"))
    }

    /// Submits what was pushed and waits for completions, unless replies wait to be pushed.
    fn wait(&self, ring: &mut Ring) -> io::Result<Vec<cqueue::Entry>> {
        let wanted = usize::from(self.mailbox.may_sleep());
        let submitted = ring.submit_and_wait(wanted);
        self.mailbox.woke();
        match submitted {
            Err(error) if error.raw_os_error() != Some(libc::EINTR) => Err(error),
            _ => Ok(ring.completion().collect()),
        }
    }

    fn receive(&self, number: u32, slot: u32, message: &mut Vec<u8>, handler: &dyn Handler) {
        let slot = slot | number;
        let data = self.entry(number).take_request(message, &self.reserve);
        match data.and_then(|data| incoming(message, data, slot)) {
            Ok(incoming) => handler.handle(incoming),
            Err(reason) => {
                let unique = self.entry(number).waiting();
                handler.refuse(unique.map(|unique| Ticket { unique, slot }), &reason);
            }
        }
    }

    /// Sends the command of an entry once more: a commit if it holds a reply, else REGISTER.
    fn push_again(&self, ring: &mut Ring, entry: u32) -> io::Result<()> {
        let again = match self.entry(entry).commit_id() {
            0 => self.register(entry),
            _ => self.commit(entry),
        };
        self.push(ring, &again)
    }

    fn register(&self, number: u32) -> Entry128 {
        let places = self.entry(number).places();
        let command = opcode::UringCmd80::new(DEVICE, command::REGISTER)
            .cmd(command_bytes(0, self.queue))
            .addr(Some(places as u64))
            .build()
            .user_data(u64::from(number));
        with_length(command, 2)
    }

    fn commit(&self, number: u32) -> Entry128 {
        let commit_id = self.entry(number).commit_id();
        opcode::UringCmd80::new(DEVICE, command::COMMIT_AND_FETCH)
            .cmd(command_bytes(commit_id, self.queue))
            .build()
            .user_data(u64::from(number))
    }

    /// Queues a command; there is room for one per entry and the bell.
    fn push(&self, ring: &mut Ring, command: &Entry128) -> io::Result<()> {
        // SAFETY: what the command points to are an entry's buffers, which live as long as this
        // `RingThread`, or the bell's, which outlive the ring.
        while unsafe { ring.submission().push(command) }.is_err() {
            ring.submit()?;
        }
        Ok(())
    }

    fn entry(&self, number: u32) -> MutexGuard<'_, Entry> {
        let entry = &self.entries[number as usize];
        entry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn classify(completion: &cqueue::Entry) -> Completion {
    if completion.user_data() == BELL_RANG {
        return Completion::Bell;
    }
    let entry = completion.user_data() as u32;
    match -completion.result() {
        0 => Completion::Request(entry),
        libc::EAGAIN | libc::EINTR => Completion::Again(entry),
        libc::ENOTCONN => Completion::Gone,
        errno => Completion::Lost(io::Error::from_raw_os_error(errno)),
    }
}

impl fmt::Debug for RingThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingThread")
            .field("queue", &self.queue)
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

/// Listens for the bell.
fn listen(bell: &mut [u8; 8]) -> Entry128 {
    let read = opcode::Read::new(BELL, bell.as_mut_ptr(), 8).build();
    Entry128::from(read.user_data(BELL_RANG))
}

/// Sets the length of a command, which the crate has no word for. It is the u32 at byte 24 of
/// `struct io_uring_sqe` in the kernel's interface.
fn with_length(command: Entry128, length: u32) -> Entry128 {
    const LENGTH: usize = 24;
    // SAFETY: an `Entry128` is the plain 128-byte structure of the kernel's interface.
    unsafe {
        let mut bytes: [u8; 128] = std::mem::transmute(command);
        bytes[LENGTH..LENGTH + 4].copy_from_slice(&length.to_ne_bytes());
        std::mem::transmute(bytes)
    }
}

/// The request in `message`, whose length speaks of the data of a WRITE too.
fn incoming(message: &[u8], data: WriteData, slot: u32) -> Result<Incoming<'_>, ParseError> {
    let length = RequestHeader::parse(message)?.length as usize;
    let detached = length.saturating_sub(message.len());
    Incoming::parse(message, (detached, data), slot)
}
