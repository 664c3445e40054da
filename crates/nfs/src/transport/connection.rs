//! One client's connection.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use penstock_base::{BufferPool, clock};
use tokio::net::{
    TcpStream,
    tcp::{OwnedReadHalf, OwnedWriteHalf},
};

use super::{
    Load,
    load::Underway,
    outbox::Outbox,
    records::{ReceiveError, Record, Records},
};
use crate::{
    limits::{IDLE_DEADLINE, RECORD_DEADLINE},
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
    };
    let mut records = Records::new(reader, pool);
    tokio::select! {
        error = connection.receive_all(&mut records) => error,
        () = connection.outbox.broken() => io::Error::from(io::ErrorKind::TimedOut).into(),
    }
}

struct Connection {
    outbox: Arc<Outbox<OwnedWriteHalf>>,
    load: Load,
    answering: Arc<dyn Answering>,
}

impl Connection {
    async fn receive_all(&self, records: &mut Records<OwnedReadHalf>) -> ReceiveError {
        loop {
            let received = match self.begun(records).await {
                Ok(()) => clock::deadline(RECORD_DEADLINE, records.next(&self.load)).await,
                Err(error) => return error,
            };
            let record = match received {
                Ok(Ok(record)) => record,
                Ok(Err(error)) => return error,
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
        let underway = self.load.call().await;
        let (data, content) = record.data.unzip();
        let call = match Call::decode(record.message) {
            Ok(call) => call,
            Err(CallError::Malformed) => {
                self.answering.refused();
                return Err(ReceiveError::Malformed);
            }
            Err(CallError::Refused(refused)) => {
                self.answering.refused();
                self.send(Reply::refused(refused), underway);
                return Ok(());
            }
        };
        let (work, bytes) = self.answering.begin(call, data);
        let content = match bytes {
            0 => content,
            bytes => Some(self.load.content(bytes).await),
        };
        self.carry_out(work, (underway, content));
        Ok(())
    }

    fn carry_out(&self, work: Work, underway: (Underway, Option<Underway>)) {
        let answer = match work {
            Work::Done(reply) => return self.send(reply, underway),
            Work::Changes(answer) => answer,
            Work::Looks(mut answer) => {
                let mut context = Context::from_waker(Waker::noop());
                match answer.as_mut().poll(&mut context) {
                    Poll::Ready(Some(reply)) => return self.send(reply, underway),
                    Poll::Ready(None) => return,
                    Poll::Pending => answer,
                }
            }
        };
        let outbox = Arc::clone(&self.outbox);
        tokio::spawn(async move {
            if let Some(reply) = answer.await {
                outbox.send(reply).await;
            }
            drop(underway);
        });
    }

    /// Sends a reply, at once if the socket takes it; else a task does, while the call counts as under way.
    fn send(&self, reply: Reply, underway: impl Send + 'static) {
        let outbox = Arc::clone(&self.outbox);
        let mut sending = Box::pin(async move { outbox.send(reply).await });
        let mut context = Context::from_waker(Waker::noop());
        if sending.as_mut().poll(&mut context).is_pending() {
            tokio::spawn(async move {
                sending.await;
                drop(underway);
            });
        }
    }
}
