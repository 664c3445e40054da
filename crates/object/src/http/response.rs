//! One response, whose body is still on the connection.

use std::{sync::Arc, time::Duration};

use super::{
    HttpError, ResponseHeaders,
    body::{Framing, Transfer},
    buffer::HEAD_SIZE_MAX,
    connection::{Connection, ResponseHead},
    pool::Pool,
    stall::StallWatch,
};
use crate::BodySink;

/// Bytes of an unwanted rest that are read to keep the connection instead of closing it.
const DRAIN_MAX: u64 = 64 << 10;

/// How a transfer into a sink ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Received {
    /// Bytes that went into the sink.
    pub(crate) bytes: u64,
    /// Whether that was the whole body.
    pub(crate) complete: bool,
}

/// A response. Dropping it before the body was read closes the connection.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: ResponseHeaders,
    /// The request was answered before it was sent to its end.
    pub(crate) early: bool,
    framing: Framing,
    keep_alive: bool,
    connection: Option<Connection>,
    pool: Arc<Pool>,
    stall_timeout: Duration,
}

impl Response {
    pub(super) fn new(
        method: &str,
        head: ResponseHead,
        connection: Connection,
        pool: Arc<Pool>,
        stall_timeout: Duration,
    ) -> Result<Self, HttpError> {
        let framing = Framing::of(method, head.status, &head.headers)?;
        let keep_alive = if head.old_version {
            head.headers.has_token("connection", "keep-alive")
        } else {
            !head.headers.has_token("connection", "close")
        };
        let mut response = Self {
            status: head.status,
            headers: head.headers,
            early: connection.spoiled,
            framing,
            keep_alive,
            connection: Some(connection),
            pool,
            stall_timeout,
        };
        response.release_if_done();
        Ok(response)
    }

    /// Receives the body, at most `limit` bytes of it, into `sink`.
    pub(crate) async fn receive(
        &mut self,
        sink: &mut dyn BodySink,
        limit: u64,
    ) -> Result<Received, HttpError> {
        let bytes = self.transfer(sink, limit).await?;
        let complete = self.is_complete();
        if !complete {
            self.drain_little().await;
        }
        Ok(Received { bytes, complete })
    }

    /// Receives the whole body into memory, at most `limit` bytes.
    pub(crate) async fn collect(mut self, limit: usize) -> Result<Vec<u8>, HttpError> {
        let mut body = Vec::new();
        // One byte more than allowed tells a long body from one that just fits.
        self.transfer(&mut body, limit as u64 + 1).await?;
        if body.len() > limit {
            let message = format!("the answer is longer than {limit} bytes");
            return Err(HttpError::protocol(message));
        }
        Ok(body)
    }

    async fn transfer(&mut self, sink: &mut dyn BodySink, limit: u64) -> Result<u64, HttpError> {
        let Some(connection) = self.connection.as_mut() else {
            return Ok(0);
        };
        let mut transfer = Transfer {
            connection,
            framing: &mut self.framing,
            watch: StallWatch::new(self.stall_timeout),
        };
        let outcome = transfer.run(sink, limit).await;
        match outcome {
            Ok(bytes) => {
                self.release_if_done();
                Ok(bytes)
            }
            Err(error) => {
                self.connection = None;
                Err(error)
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.framing.is_done()
    }

    /// Reads a short rest so that the connection can be used again.
    async fn drain_little(&mut self) {
        if matches!(self.framing, Framing::Length(left) if left <= DRAIN_MAX) {
            // A failure here concerns nobody: the caller has what it wanted.
            let _ = self.transfer(&mut Discard::default(), DRAIN_MAX).await;
        }
        self.connection = None;
    }

    fn release_if_done(&mut self) {
        if !self.framing.is_done() {
            return;
        }
        let Some(connection) = self.connection.take() else {
            return;
        };
        let clean = connection.buffer.bytes().is_empty() && !connection.spoiled;
        if self.keep_alive && clean {
            self.pool.put(connection);
        }
    }
}

/// Takes bytes that nobody wants.
#[derive(Default)]
struct Discard {
    taken: u64,
    memory: Vec<u8>,
}

// SAFETY: `unfilled` is the same memory until it is advanced over.
#[allow(unsafe_code)]
unsafe impl BodySink for Discard {
    fn filled(&self) -> u64 {
        self.taken
    }

    fn unfilled(&mut self) -> &mut [std::mem::MaybeUninit<u8>] {
        self.memory.reserve(HEAD_SIZE_MAX);
        self.memory.spare_capacity_mut()
    }

    unsafe fn advance(&mut self, count: usize) {
        self.taken += count as u64;
    }
}
