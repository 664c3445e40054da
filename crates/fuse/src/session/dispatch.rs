//! One request from its arrival to its reply or to its task.

use std::{
    fmt,
    io::IoSlice,
    panic::AssertUnwindSafe,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use penstock_base::{FsError, clock, metrics::Registry};
use tokio::runtime::Handle;
use tracing::{debug, warn};

use super::{
    call::Call,
    guarded::{self, Guarded},
    metrics::SessionMetrics,
    pending::{Pending, Place, Purpose},
};
use crate::{
    InterruptPolicy,
    adapter::{Adapter, Failure},
    errno::Errno,
    protocol::{Opcode, Request, encode, parse_detached},
    signals,
    transport::{DevFuse, Handler, Incoming, ReplyError, SharedDevFuse, Ticket},
};

/// How long an INTERRUPT waits before the kernel sends it again, because the request that it is
/// about is being begun on another thread.
const INTERRUPT_RETRY: Duration = Duration::from_millis(1);
/// How often an INTERRUPT is tried again that the kernel does not send again, because its request
/// came another way.
const INTERRUPT_RETRIES: usize = 50;

/// What all threads and tasks of a mount share.
pub(super) struct Shared {
    pub(super) adapter: Adapter,
    pub(super) pending: Pending,
    pub(super) metrics: SessionMetrics,
    pub(super) runtime: Handle,
    interrupts: InterruptPolicy,
}

impl Shared {
    pub(super) fn new(
        adapter: Adapter,
        metrics: &Registry,
        runtime: Handle,
        interrupts: InterruptPolicy,
    ) -> Arc<Self> {
        Arc::new(Self {
            adapter,
            pending: Pending::new(metrics),
            metrics: SessionMetrics::new(metrics),
            runtime,
            interrupts,
        })
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Takes the requests of a mount.
pub(super) struct Dispatcher {
    shared: Arc<Shared>,
    device: SharedDevFuse,
}

impl Dispatcher {
    pub(super) fn new(shared: Arc<Shared>, device: SharedDevFuse) -> Self {
        Self { shared, device }
    }

    fn execute(&self, incoming: Incoming<'_>) {
        let (header, ticket) = (&incoming.message.header, incoming.ticket);
        let call = Call::new(&self.shared, &self.device, ticket, header);
        let purpose = Purpose::of(&incoming.message.request);
        let adapter = &self.shared.adapter;
        if !self.shared.pending.has_place(purpose) && adapter.serves(&incoming.message.request) {
            return self.queue(call, incoming, purpose);
        }
        let (message, data) = (incoming.message, incoming.data);
        let started = guarded::catch(AssertUnwindSafe(|| {
            adapter.start(&message, adapter.arrive(&message), data)
        }));
        match started {
            Ok(Ok(operation)) => self.run(call, Guarded::new(operation), purpose),
            Ok(Err(errno)) => call.finish(Err(errno.into())),
            Err(panic) => call.finish(Err(panic)),
        }
    }

    /// Polls once. The waker may be a dummy, because a task polls again as soon as it is spawned.
    fn run(&self, call: Call, mut operation: Guarded, purpose: Purpose) {
        let mut context = Context::from_waker(Waker::noop());
        match operation.poll_once(&mut context) {
            Poll::Ready(outcome) => call.finish(outcome),
            Poll::Pending => {
                let place = self.shared.pending.take_place(purpose);
                self.defer((call, purpose), operation, place);
            }
        }
    }

    /// Begins a request when there is a place for it.
    fn queue(&self, call: Call, incoming: Incoming<'_>, purpose: Purpose) {
        let pending = &self.shared.pending;
        if pending.is_full() {
            warn!("too many requests wait for the volume, one more was refused");
            return call.finish(Err(Errno(libc::ENOMEM).into()));
        }
        let place = pending.stand_in_line(purpose);
        let adapter = self.shared.adapter.clone();
        let arrived = adapter.arrive(&incoming.message);
        let detached = incoming.message.header.length as usize - incoming.bytes.len();
        let (bytes, data) = (incoming.bytes.to_vec(), incoming.data);
        let operation = async move {
            let _place = place.await;
            let begun = {
                let message = parse_detached(&bytes, detached).expect("it was parsed before");
                adapter.start(&message, arrived, data)?
            };
            begun.await
        };
        self.defer((call, purpose), Guarded::new(Box::pin(operation)), None);
    }

    fn defer(&self, (call, purpose): (Call, Purpose), operation: Guarded, place: Option<Place>) {
        let pending = &self.shared.pending;
        let call = Arc::new(call);
        let task = {
            let (shared, call) = (Arc::clone(&self.shared), Arc::clone(&call));
            async move {
                let outcome = operation.await;
                drop(place);
                if shared.pending.take(call.unique()).is_some() {
                    call.finish(outcome);
                } else {
                    call.undo(outcome);
                }
            }
        };
        pending.spawn(&self.shared.runtime, (call, purpose), task);
    }

    fn forget(&self, request: &Request<'_>, call_node: penstock_vfs::Inode) {
        let volume = self.shared.adapter.volume();
        let forgotten = guarded::catch(AssertUnwindSafe(|| match request {
            Request::Forget { count } => volume.forget(call_node, *count),
            Request::BatchForget(forgotten) => volume.forget_all(&mut forgotten.iter()),
            _ => {}
        }));
        if let Err(failure) = forgotten {
            failure.log("forget", call_node);
        }
    }

    /// The victim may still be on its way into the table: being begun on another thread. Then the
    /// kernel is asked to send the INTERRUPT again, which it does unless the victim has
    /// its answer.
    fn interrupt(&self, ticket: Ticket, victim: u64) {
        self.shared.metrics.interrupts.increment();
        if let Some(process) = self.shared.pending.process_of(victim) {
            return interrupt_task(&self.shared, victim, process);
        }
        let (shared, device) = (Arc::clone(&self.shared), Arc::clone(&self.device));
        self.shared.runtime.spawn(async move {
            for _ in 0..INTERRUPT_RETRIES {
                clock::sleep(INTERRUPT_RETRY).await;
                if let Some(process) = shared.pending.process_of(victim) {
                    return interrupt_task(&shared, victim, process);
                }
                if send_errno(&device, ticket, libc::EAGAIN).is_ok() {
                    return;
                }
            }
        });
    }
}

fn send_errno(device: &DevFuse, ticket: Ticket, errno: i32) -> Result<(), ReplyError> {
    let header = encode::reply_header(ticket.unique, -errno, 0);
    device.reply(ticket, &[IoSlice::new(&header)])
}

/// Ends the task of `victim` if its process is to stop waiting. The kernel tells of a request's
/// first signal only, so if that one does not count, later ones are looked out for.
fn interrupt_task(shared: &Arc<Shared>, victim: u64, process: u32) {
    let always =
        shared.interrupts == InterruptPolicy::Always || shared.pending.waits_for_lock(victim);
    if always || signals::wants_out(process) {
        return cut(shared, victim);
    }
    let shared = Arc::clone(shared);
    let watch = async move {
        tokio::select! {
            () = signals::until_out(process) => cut(&shared, victim),
            () = shared.pending.until_gone(victim) => {}
        }
    };
    tokio::spawn(watch);
}

/// Ends a task; its request is answered with `EINTR` unless it has an answer already.
fn cut(shared: &Shared, victim: u64) {
    if let Some(entry) = shared.pending.take(victim) {
        entry.task.abort();
        debug!(victim, "interrupted");
        entry
            .call
            .finish(Err(Failure::Volume(FsError::Interrupted)));
    }
}

impl Handler for Dispatcher {
    fn handle(&self, incoming: Incoming<'_>) {
        let header = &incoming.message.header;
        match &incoming.message.request {
            request @ (Request::Forget { .. } | Request::BatchForget(_)) => {
                self.forget(request, header.node);
            }
            Request::Interrupt { victim } => self.interrupt(incoming.ticket, *victim),
            // The kernel expects no answer to this one.
            Request::Other if header.opcode == Opcode::NotifyReply as u32 => {}
            _ => self.execute(incoming),
        }
    }

    fn refuse(&self, ticket: Option<Ticket>, reason: &dyn fmt::Display) {
        warn!(%reason, "a request makes no sense");
        if let Some(ticket) = ticket {
            // If nobody waits any more, that is as good.
            let _ = send_errno(&self.device, ticket, libc::EIO);
        }
    }
}
