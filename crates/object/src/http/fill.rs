//! Receiving straight into the caller's memory.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};

use super::stream::Stream;
use crate::BodySink;

/// Receives at most `limit` bytes into the sink's next piece of memory, which must not be empty.
/// Returns how many arrived; none means that the server closed the stream.
pub(super) fn poll_fill(
    stream: &mut Stream,
    cx: &mut Context<'_>,
    sink: &mut dyn BodySink,
    limit: u64,
) -> Poll<io::Result<usize>> {
    let room = sink.unfilled();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let length = room.len().min(limit).min(stream.received_at_once());
    let mut buffer = ReadBuf::uninit(&mut room[..length]);
    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
    let count = buffer.filled().len();
    // SAFETY: `ReadBuf` counts as filled only what a reader initialised, from the front of
    // `unfilled`.
    unsafe { sink.advance(count) };
    Poll::Ready(Ok(count))
}
