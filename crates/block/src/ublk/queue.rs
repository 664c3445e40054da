//! A queue of a device: its ring, and the thread that alone may speak with the driver about it.
//!
//! Each place of the queue is with the driver (a command that waits for a request), with a task
//! that reads, or on its way back (an answer). Answers of a queue that was given up count no more:
//! the thread has answered in their stead.

#![allow(unsafe_code)]

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
};

use io_uring::{IoUring, cqueue, opcode, squeue, types::Fixed};
use penstock_vfs::Disk;
use tokio::{runtime::Handle, task::AbortHandle};
use tracing::{error, warn};

use super::{
    answers::{Answer, Answers, Owed},
    descriptors::Descriptors,
    layout::{Request, io as command, io_command},
    requests::Source,
};
use crate::reading::Place;

/// Registered descriptors of the ring: the device's character node and the bell.
const DEVICE: Fixed = Fixed(0);
const BELL: Fixed = Fixed(1);

/// Marks the completion of a look at the bell; the others are marked with their places.
const BELL_RANG: u64 = u64::MAX;

/// What the thread is to do.
const SERVE: u8 = 0;
const GIVE_UP: u8 = 1;
const END: u8 = 2;

/// Which queue it is, and how many places it has.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueShape {
    pub(super) number: u16,
    pub(super) depth: u16,
}

/// A queue that is served.
#[derive(Debug)]
pub(super) struct Queue {
    orders: Arc<Orders>,
    thread: JoinHandle<()>,
}

/// What the thread shares with others.
#[derive(Debug)]
struct Orders {
    what: AtomicU8,
    answers: Arc<Answers>,
}

impl Orders {
    fn give(&self, what: u8) {
        self.what.fetch_max(what, Ordering::SeqCst);
        self.answers.ring();
    }

    fn are(&self, what: u8) -> bool {
        self.what.load(Ordering::SeqCst) >= what
    }
}

impl Queue {
    /// Begins to serve a queue of the device with the character node `node`; the reads run on
    /// `runtime`. Returns when the driver has all of the queue's places.
    pub(super) fn start(
        node: &Arc<File>,
        shape: QueueShape,
        disk: Arc<dyn Disk>,
        runtime: Handle,
    ) -> io::Result<Self> {
        let orders = Arc::new(Orders {
            what: AtomicU8::new(SERVE),
            answers: Arc::new(Answers::new()?),
        });
        let source = Arc::new(Source {
            node: Arc::clone(node),
            queue: shape.number,
            disk,
        });
        let (ready, begun) = mpsc::sync_channel(1);
        let theirs = Arc::clone(&orders);
        let thread = thread::Builder::new().name(format!("ublk-{}", shape.number));
        let thread = thread.spawn(move || {
            let server = Server::begin(shape, source, theirs, runtime);
            let (server, outcome) = match server {
                Ok(server) => (Some(server), Ok(())),
                Err(error) => (None, Err(error)),
            };
            let _ = ready.send(outcome);
            if let Some(error) = server.and_then(|server| server.run().err()) {
                error!(queue = shape.number, %error, "a queue is not served any more");
            }
        })?;
        begun.recv().map_err(io::Error::other)??;
        Ok(Self { orders, thread })
    }

    /// Has every request fail from now on, also those that are under way.
    pub(super) fn give_up(&self) {
        self.orders.give(GIVE_UP);
    }

    /// Whether the thread has ended: the device is gone, or the thread failed.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Has the thread end as if it had failed.
    #[cfg(test)]
    pub(super) fn fail(&self) {
        self.orders.give(END);
    }

    /// Ends the thread, and with it the driver's hold of the queue.
    pub(super) fn end(self) {
        self.orders.give(END);
        if self.thread.join().is_err() {
            error!("the thread of a queue panicked");
        }
    }
}

/// A request that a task answers.
struct UnderWay {
    number: u64,
    task: AbortHandle,
}

/// What the thread has.
struct Server {
    // Goes first, since the kernel writes to others of these until it is gone.
    ring: IoUring,
    bell: Box<[u8; 8]>,
    descriptors: Descriptors,
    shape: QueueShape,
    source: Arc<Source>,
    orders: Arc<Orders>,
    runtime: Handle,
    under_way: Vec<Option<UnderWay>>,
    /// Requests so far.
    requests: u64,
    /// Places that the driver has not given back for good.
    places: u16,
}

impl Server {
    /// Gives the driver all places.
    fn begin(
        shape: QueueShape,
        source: Arc<Source>,
        orders: Arc<Orders>,
        runtime: Handle,
    ) -> io::Result<Self> {
        let commands = u32::from(shape.depth) + 1;
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .setup_single_issuer()
            .setup_cqsize(2 * commands.next_power_of_two())
            .build(commands)?;
        let descriptors = [source.node.as_raw_fd(), orders.answers.bell().as_raw_fd()];
        ring.submitter().register_files(&descriptors)?;
        let mut server = Self {
            ring,
            bell: Box::new([0; 8]),
            descriptors: Descriptors::map(&source.node, shape.number, shape.depth)?,
            shape,
            source,
            orders,
            runtime,
            under_way: (0..shape.depth).map(|_| None).collect(),
            requests: 0,
            places: shape.depth,
        };
        for tag in 0..shape.depth {
            server.push_command(command::FETCH, tag, 0)?;
        }
        server.listen()?;
        server.ring.submit()?;
        // What the driver does not take comes back at once.
        let refused = server.take_completions()?;
        refused.map_or(Ok(server), Err)
    }

    /// Serves until the device is gone or that is ordered.
    fn run(mut self) -> io::Result<()> {
        while self.places > 0 && !self.orders.are(END) {
            self.wait()?;
            if let Some(error) = self.take_completions()? {
                warn!(queue = self.shape.number, %error, "the driver does not take a place");
            }
            if self.orders.are(GIVE_UP) {
                self.give_up()?;
            }
            for answer in self.orders.answers.take() {
                self.take_answer(answer)?;
            }
        }
        Ok(())
    }

    /// Submits what was pushed and waits for completions, unless answers wait to be pushed.
    fn wait(&mut self) -> io::Result<()> {
        let wanted = usize::from(self.orders.answers.may_sleep());
        let submitted = self.ring.submit_and_wait(wanted);
        self.orders.answers.woke();
        match submitted.map_err(|error| (error.raw_os_error(), error)) {
            // Interrupted, or completions are to be taken first.
            Ok(_) | Err((Some(libc::EINTR | libc::EAGAIN | libc::EBUSY), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Returns why the driver did not take a place, if there is one that it did not.
    fn take_completions(&mut self) -> io::Result<Option<io::Error>> {
        let completions: Vec<cqueue::Entry> = self.ring.completion().collect();
        let mut refused = None;
        for completion in completions {
            if completion.user_data() == BELL_RANG {
                self.listen()?;
                continue;
            }
            let tag = completion.user_data() as u16;
            match -completion.result() {
                0 => self.receive(tag)?,
                // The device is going.
                libc::ENODEV => self.places -= 1,
                errno => {
                    self.places -= 1;
                    refused = Some(io::Error::from_raw_os_error(errno));
                }
            }
        }
        Ok(refused)
    }

    fn receive(&mut self, tag: u16) -> io::Result<()> {
        match self.descriptors.request(tag) {
            Request::Read(_) if self.orders.are(GIVE_UP) => self.commit(tag, -libc::EIO),
            Request::Read(place) => {
                self.read(tag, place);
                Ok(())
            }
            Request::Flush => self.commit(tag, 0),
            Request::Change => self.commit(tag, -libc::EROFS),
            Request::Unknown => self.commit(tag, -libc::EIO),
        }
    }

    fn read(&mut self, tag: u16, place: Place) {
        self.requests += 1;
        let owed = Owed::new(&self.orders.answers, tag, self.requests);
        let source = Arc::clone(&self.source);
        let task = self.runtime.spawn(async move {
            let result = source.answer(tag, place).await;
            owed.give(result);
        });
        self.under_way[usize::from(tag)] = Some(UnderWay {
            number: self.requests,
            task: task.abort_handle(),
        });
    }

    fn take_answer(&mut self, answer: Answer) -> io::Result<()> {
        let place = &mut self.under_way[usize::from(answer.tag)];
        if place.take_if(|it| it.number == answer.number).is_none() {
            return Ok(());
        }
        self.commit(answer.tag, answer.result)
    }

    /// Answers whatever is under way.
    fn give_up(&mut self) -> io::Result<()> {
        for tag in 0..self.shape.depth {
            if let Some(under_way) = self.under_way[usize::from(tag)].take() {
                under_way.task.abort();
                self.commit(tag, -libc::EIO)?;
            }
        }
        Ok(())
    }

    fn commit(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.push_command(command::COMMIT_AND_FETCH, tag, result)
    }

    fn push_command(&mut self, number: u32, tag: u16, result: i32) -> io::Result<()> {
        let command = opcode::UringCmd16::new(DEVICE, number)
            .cmd(io_command(self.shape.number, tag, result))
            .build();
        self.push(&command.user_data(u64::from(tag)))
    }

    fn listen(&mut self) -> io::Result<()> {
        let read = opcode::Read::new(BELL, self.bell.as_mut_ptr(), 8).build();
        self.push(&read.user_data(BELL_RANG))
    }

    /// Queues a command; there is room for one for each place and the bell.
    fn push(&mut self, command: &squeue::Entry) -> io::Result<()> {
        // SAFETY: what a command points to is the bell's number, which goes after the ring.
        while unsafe { self.ring.submission().push(command) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }
}
