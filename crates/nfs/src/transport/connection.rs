//! One client's connection.
//!
//! What was received at once is answered at once: replies to calls that were there together go with one system call, which
//! costs more than most calls do. They go before the connection waits for anything, whatever that is.

use std::{
    future::poll_fn,
    io, mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use penstock_base::{BufferPool, Mutex, clock};
use tokio::net::{
    TcpStream,
    tcp::{OwnedReadHalf, OwnedWriteHalf},
};

use super::{
    Load, Share,
    load::Underway,
    outbox::Outbox,
    records::{Admitted, ReceiveError, Record, Records},
};
use crate::{
    limits::{BATCH_BYTES, BATCH_MAX, IDLE_DEADLINE, RECORD_DEADLINE},
    protocol::rpc::{Call, CallError, Reply},
};
use bytes::Bytes;

/// An answer under way; nothing where the call is not answered.
pub(crate) type Answer = Pin<Box<dyn Future<Output = Option<Reply>> + Send>>;

/// What a call becomes.
pub(crate) enum Work {
    /// Answered.
    Done(Reply),
    /// Looks, and may be answered at once.
    Looks(Answer),
    /// Changes something, which goes on whatever becomes of the connection, and may wait for a disk.
    Changes(Answer),
}

/// Who answers the calls of a connection.
pub(crate) trait Answering: Send + Sync + 'static {
    /// Says how a call is answered, and how many bytes of content the answer may have, for which there must be room
    /// before it begins. `data` is the content of a WRITE that was received apart.
    fn begin(&self, call: Call, data: Option<Bytes>) -> (Work, u64);

    /// Whether content that the client brings for the file with a handle may take memory before it is looked at.
    fn admits(&self, file: &[u8]) -> Admitted;

    /// The part of what may be under way that a call belongs to, if it is about one volume.
    fn share(&self, call: &Call) -> Option<Share>;

    /// Takes note of a message that is no call, or of a refused one.
    fn refused(&self);
}

/// Serves a connection until it ends, and says why.
pub(crate) async fn serve(
    stream: TcpStream,
    (load, pool): (Load, Arc<BufferPool>),
    answering: Arc<dyn Answering>,
) -> ReceiveError {
    if let Err(error) = stream.set_nodelay(true) {
        return error.into();
    }
    let (reader, writer) = stream.into_split();
    let connection = Connection {
        outbox: Arc::new(Outbox::new(writer)),
        load,
        answering,
        answered: Mutex::default(),
    };
    let mut records = Records::new(reader, pool);
    let mut receiving = pin!(connection.receive_all(&mut records));
    let receiving = poll_fn(|context| {
        let received = receiving.as_mut().poll(context);
        connection.send();
        received
    });
    tokio::select! {
        error = receiving => error,
        () = connection.outbox.broken() => io::Error::from(io::ErrorKind::TimedOut).into(),
    }
}

struct Connection {
    outbox: Arc<Outbox<OwnedWriteHalf>>,
    load: Load,
    answering: Arc<dyn Answering>,
    answered: Mutex<Answered>,
}

/// Calls whose replies are in the line of the outbox and count as under way.
#[derive(Default)]
struct Answered {
    calls: Vec<(Underway, Option<Underway>)>,
    bytes: u64,
}

impl Connection {
    async fn receive_all(&self, records: &mut Records<OwnedReadHalf>) -> ReceiveError {
        loop {
            let admitted = |file: &[u8]| self.answering.admits(file);
            let received = match self.begun(records).await {
                Ok(()) => {
                    let record = records.next(&self.load, admitted);
                    clock::deadline(RECORD_DEADLINE, record).await
                }
                Err(error) => return error,
            };
            let record = match received {
                Ok(Ok(record)) => record,
                Ok(Err(error)) => {
                    if matches!(error, ReceiveError::Unwanted) {
                        self.answering.refused();
                    }
                    return error;
                }
                Err(_) => return io::Error::from(io::ErrorKind::TimedOut).into(),
            };
            if let Err(error) = self.begin(record).await {
                return error;
            }
        }
    }

    /// Waits until a record begins. A connection that is silent ends, unless something of it is under way.
    async fn begun(&self, records: &mut Records<OwnedReadHalf>) -> Result<(), ReceiveError> {
        loop {
            match clock::deadline(IDLE_DEADLINE, records.begun()).await {
                Ok(begun) => return begun?.then_some(()).ok_or(ReceiveError::Closed),
                Err(_) if self.load.is_idle() => return Err(ReceiveError::Closed),
                Err(_) => {}
            }
        }
    }

    async fn begin(&self, record: Record) -> Result<(), ReceiveError> {
        let turn = self.load.turn().await;
        let (data, content) = record.data.unzip();
        let call = match Call::decode(record.message) {
            Ok(call) => call,
            Err(CallError::Malformed) => {
                self.answering.refused();
                return Err(ReceiveError::Malformed);
            }
            Err(CallError::Refused(refused)) => {
                self.answering.refused();
                let underway = self.load.call(turn, None).await;
                self.answer(Reply::refused(refused), (underway, None));
                return Ok(());
            }
        };
        let share = self.answering.share(&call);
        let underway = self.load.call(turn, share.as_ref()).await;
        let (work, bytes) = self.answering.begin(call, data);
        let content = match bytes {
            0 => content,
            bytes => Some(self.load.content(bytes, share.as_ref()).await),
        };
        self.carry_out(work, (underway, content));
        Ok(())
    }

    fn carry_out(&self, work: Work, underway: (Underway, Option<Underway>)) {
        let answer = match work {
            Work::Done(reply) => return self.answer(reply, underway),
            Work::Changes(answer) => answer,
            Work::Looks(mut answer) => {
                let mut context = Context::from_waker(Waker::noop());
                match answer.as_mut().poll(&mut context) {
                    Poll::Ready(Some(reply)) => return self.answer(reply, underway),
                    Poll::Ready(None) => return,
                    Poll::Pending => answer,
                }
            }
        };
        let outbox = Arc::clone(&self.outbox);
        tokio::spawn(async move {
            if let Some(reply) = answer.await {
                outbox.put(reply);
                outbox.send().await;
            }
            drop(underway);
        });
    }

    /// Leaves a reply to be sent with those of the other calls that are there, unless they are many.
    fn answer(&self, reply: Reply, underway: (Underway, Option<Underway>)) {
        let mut answered = self.answered.lock();
        answered.bytes += reply.payload.len() as u64;
        answered.calls.push(underway);
        self.outbox.put(reply);
        if answered.calls.len() >= BATCH_MAX || answered.bytes >= BATCH_BYTES {
            drop(answered);
            self.send();
        }
    }

    /// Sends what was answered, at once if the socket takes it; else a task does, while the calls count as under way.
    fn send(&self) {
        let answered = mem::take(&mut *self.answered.lock());
        if answered.calls.is_empty() {
            return;
        }
        let outbox = Arc::clone(&self.outbox);
        let mut sending = Box::pin(async move { outbox.send().await });
        let mut context = Context::from_waker(Waker::noop());
        if sending.as_mut().poll(&mut context).is_pending() {
            tokio::spawn(async move {
                sending.await;
                drop(answered);
            });
        }
    }
}
