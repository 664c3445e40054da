//! The body of a response: where it ends, and receiving it.

use std::{future::poll_fn, task::Poll};

use super::{
    HttpError, ResponseHeaders, chunked::Chunked, connection::Connection, fill::poll_fill,
    stall::StallWatch,
};
use crate::BodySink;

/// How a body's end is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// Bytes left of an announced length.
    Length(u64),
    /// In chunks that tell their sizes.
    Chunked(Chunked),
    /// When the server closes the connection.
    UntilClose,
}

impl Framing {
    /// The rules of RFC 9112, section 6.3, for the answer to `method`.
    pub(super) fn of(
        method: &str,
        status: u16,
        headers: &ResponseHeaders,
    ) -> Result<Self, HttpError> {
        if method == "HEAD" || status == 204 || status == 304 {
            return Ok(Self::Length(0));
        }
        if headers.has_token("transfer-encoding", "chunked") {
            return Ok(Self::Chunked(Chunked::new()));
        }
        Ok(announced_length(headers)?.map_or(Self::UntilClose, Self::Length))
    }

    /// Whether the whole body was received.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunked::End))
    }

    /// Bytes of data that may be taken as they come.
    fn ready_bytes(&self) -> u64 {
        match self {
            Self::Length(left) | Self::Chunked(Chunked::Data(left)) => *left,
            Self::Chunked(_) => 0,
            Self::UntilClose => u64::MAX,
        }
    }

    fn took(&mut self, count: u64) {
        match self {
            Self::Length(left) => *left -= count,
            Self::Chunked(coding) => coding.took(count),
            Self::UntilClose => {}
        }
    }
}

/// The length that the head announces. Two that differ would leave open where the body ends.
fn announced_length(headers: &ResponseHeaders) -> Result<Option<u64>, HttpError> {
    let mut announced = None;
    let fields = headers.iter();
    for (_, text) in fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let length = text.parse().ok().filter(|_| digits);
        let length: u64 =
            length.ok_or_else(|| HttpError::protocol("the content length is not a number"))?;
        if announced.is_some_and(|other| other != length) {
            return Err(HttpError::protocol("the content length has two values"));
        }
        announced = Some(length);
    }
    Ok(announced)
}

/// A body on its way from a connection into memory.
pub(super) struct Transfer<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) framing: &'a mut Framing,
    pub(super) watch: StallWatch,
}

impl Transfer<'_> {
    /// Receives until the body ends, `limit` bytes arrived or the sink is full; returns how many
    /// arrived.
    pub(super) async fn run(
        &mut self,
        sink: &mut dyn BodySink,
        limit: u64,
    ) -> Result<u64, HttpError> {
        let mut received = 0;
        while received < limit {
            let ready = self.next_data().await?.min(limit - received);
            if ready == 0 || sink.unfilled().is_empty() {
                break;
            }
            let count = self.receive(sink, ready).await?;
            if count == 0 {
                break;
            }
            received += count;
        }
        Ok(received)
    }

    /// Bytes of data that come next; 0 at the body's end.
    async fn next_data(&mut self) -> Result<u64, HttpError> {
        while let Framing::Chunked(coding) = self.framing
            && !matches!(coding, Chunked::Data(_) | Chunked::End)
        {
            match coding.step(self.connection.buffer.bytes())? {
                Some(used) => self.connection.buffer.consume(used),
                None => self.read_more().await?,
            }
        }
        Ok(self.framing.ready_bytes())
    }

    async fn receive(&mut self, sink: &mut dyn BodySink, ready: u64) -> Result<u64, HttpError> {
        let surplus = self.connection.buffer.bytes();
        let count = if surplus.is_empty() {
            self.fill(sink, ready).await?
        } else {
            let usable = surplus
                .len()
                .min(usize::try_from(ready).unwrap_or(usize::MAX));
            let copied = sink.copy_from(&surplus[..usable]);
            self.connection.buffer.consume(copied);
            copied
        };
        self.framing.took(count as u64);
        self.end_at_close(count)?;
        Ok(count as u64)
    }

    fn end_at_close(&mut self, count: usize) -> Result<(), HttpError> {
        match self.framing {
            _ if count > 0 => Ok(()),
            Framing::UntilClose => {
                *self.framing = Framing::Length(0);
                self.connection.spoiled = true;
                Ok(())
            }
            Framing::Length(left) => Err(HttpError::cut(format!("{left} bytes are missing"))),
            Framing::Chunked(_) => Err(HttpError::cut("it ended within a chunk")),
        }
    }

    async fn fill(&mut self, sink: &mut dyn BodySink, limit: u64) -> Result<usize, HttpError> {
        let Self {
            connection, watch, ..
        } = self;
        poll_fn(
            |cx| match poll_fill(&mut connection.stream, cx, sink, limit) {
                Poll::Ready(outcome) => {
                    watch.progressed();
                    Poll::Ready(outcome.map_err(HttpError::cut))
                }
                Poll::Pending => watch.poll_stalled(cx).map(|()| Err(stalled())),
            },
        )
        .await
    }

    async fn read_more(&mut self) -> Result<(), HttpError> {
        let Self {
            connection, watch, ..
        } = self;
        let count = poll_fn(|cx| match connection.poll_read_more(cx) {
            Poll::Ready(outcome) => {
                watch.progressed();
                Poll::Ready(outcome)
            }
            Poll::Pending => watch.poll_stalled(cx).map(|()| Err(stalled())),
        })
        .await
        .map_err(|error| HttpError::cut(error.message))?;
        if count == 0 {
            return Err(HttpError::cut("it ended between two chunks"));
        }
        Ok(())
    }
}

fn stalled() -> HttpError {
    HttpError::cut("it made no progress for the stall limit")
}

#[cfg(test)]
mod tests {
    use super::{super::connection::parse_head, *};

    fn framing(fields: &str) -> Result<Framing, HttpError> {
        let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        let (head, _) = parse_head(head.as_bytes())?.expect("a whole head");
        Framing::of("GET", head.status, &head.headers)
    }

    #[test]
    fn a_body_has_one_length() {
        let length = |fields| framing(fields).expect(fields);
        assert_eq!(length("Content-Length: 5\r\n"), Framing::Length(5));
        let twice = "content-length: 5\r\nContent-Length: 5\r\n";
        assert_eq!(length(twice), Framing::Length(5));
        assert_eq!(length(""), Framing::UntilClose);
    }

    #[test]
    fn refuses_lengths_that_leave_the_end_open() {
        for fields in [
            "content-length: 5\r\ncontent-length: 6\r\n",
            "content-length: +5\r\n",
            "content-length: 5, 6\r\n",
            "content-length:\r\n",
        ] {
            assert!(framing(fields).is_err(), "{fields}");
        }
    }
}
