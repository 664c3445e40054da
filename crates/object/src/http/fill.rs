//! Receiving straight into the caller's memory.

use std::{
    io,
    task::{Context, Poll, ready},
};

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
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let count = ready!(stream.poll_receive(cx, sink.unfilled(), limit))?;
    // SAFETY: `poll_receive` has initialised so many bytes, from the front of `unfilled`.
    unsafe { sink.advance(count) };
    Poll::Ready(Ok(count))
}
