//! Receiving straight into the caller's memory, or into a pipe of the caller's past all memory.

use std::{
    io,
    os::fd::AsFd,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, Interest, ReadBuf},
    net::TcpStream,
};

use super::stream::Stream;
use crate::{BodySink, Moved};

/// Whether the sink takes more of what `stream` brings.
pub(super) fn takes_more(stream: &Stream, sink: &mut dyn BodySink) -> bool {
    wants_pipe(stream, sink) || !sink.unfilled().is_empty()
}

/// Copies `bytes`, which `stream` has brought already, in; returns how many fitted.
pub(super) fn copy(stream: &Stream, sink: &mut dyn BodySink, bytes: &[u8]) -> usize {
    while wants_pipe(stream, sink)
        && let Some((pipe, room)) = sink.pipe()
    {
        match pipe.write(&bytes[..bytes.len().min(room)]) {
            Ok(count) => {
                sink.piped(Moved::Bytes(count));
                return count;
            }
            Err(_) => sink.piped(Moved::Nothing),
        }
    }
    sink.copy_from(bytes)
}

/// Receives at most `limit` bytes into the sink's next pipe or piece of memory; it must take more.
/// Returns how many arrived; none means that the server closed the stream.
pub(super) fn poll_fill(
    stream: &mut Stream,
    cx: &mut Context<'_>,
    sink: &mut dyn BodySink,
    limit: u64,
) -> Poll<io::Result<usize>> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if let Stream::Plain(socket) = stream {
        while sink.pipe().is_some() {
            match ready!(poll_pipe(socket, cx, sink, limit))? {
                Moved::Bytes(count) => return Poll::Ready(Ok(count)),
                Moved::Nothing => {}
            }
        }
    }
    let room = sink.unfilled();
    let length = room.len().min(limit);
    let mut buffer = ReadBuf::uninit(&mut room[..length]);
    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
    let count = buffer.filled().len();
    // SAFETY: `ReadBuf` counts as filled only what a reader initialised, from the front of
    // `unfilled`.
    unsafe { sink.advance(count) };
    Poll::Ready(Ok(count))
}

fn wants_pipe(stream: &Stream, sink: &mut dyn BodySink) -> bool {
    matches!(stream, Stream::Plain(_)) && sink.pipe().is_some()
}

/// Moves what has arrived into the sink's pipe, and tells the sink.
fn poll_pipe(
    socket: &TcpStream,
    cx: &mut Context<'_>,
    sink: &mut dyn BodySink,
    limit: usize,
) -> Poll<io::Result<Moved>> {
    let Some((pipe, room)) = sink.pipe() else {
        return Poll::Ready(Ok(Moved::Nothing));
    };
    let moved = loop {
        ready!(socket.poll_read_ready(cx))?;
        let fill = || pipe.fill(socket.as_fd(), room.min(limit));
        match socket.try_io(Interest::READABLE, fill) {
            Ok(count) => break Moved::Bytes(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if is_of_the_pipe(&error) => break Moved::Nothing,
            Err(error) => return Poll::Ready(Err(error)),
        }
    };
    sink.piped(moved);
    Poll::Ready(Ok(moved))
}

/// Whether receiving into memory may succeed: the pipe is full, or `splice` is not allowed here.
fn is_of_the_pipe(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, OutOfMemory, PermissionDenied, StorageFull, Unsupported};
    let kinds = [
        InvalidInput,
        OutOfMemory,
        PermissionDenied,
        StorageFull,
        Unsupported,
    ];
    kinds.contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, mem::MaybeUninit};

    use penstock_base::{Pipe, Pipes};
    use tokio::{io::AsyncWriteExt, net::TcpListener};

    use super::*;

    /// Takes the first bytes in a pipe and the rest in memory.
    struct Piping {
        pipe: Pipe,
        /// Bytes that the pipe may still take.
        room: usize,
        piped: u64,
        memory: Vec<u8>,
    }

    impl Piping {
        fn new(room: usize) -> Self {
            let pipes = Pipes::new(1).expect("pipes of one mebibyte");
            let pipe = pipes.take().expect("one");
            Self {
                pipe,
                room,
                piped: 0,
                memory: Vec::new(),
            }
        }

        /// With nothing but zeros in its pipe, which has no room.
        fn full() -> Self {
            let sink = Self::new(usize::MAX);
            while sink.pipe.write(&[0; 4 << 10]).is_ok() {}
            sink
        }
    }

    // SAFETY: `unfilled` is the same memory until it is advanced over.
    #[allow(unsafe_code)]
    unsafe impl BodySink for Piping {
        fn filled(&self) -> u64 {
            self.piped + self.memory.len() as u64
        }

        fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
            BodySink::unfilled(&mut self.memory)
        }

        unsafe fn advance(&mut self, count: usize) {
            // SAFETY: passed on.
            unsafe { BodySink::advance(&mut self.memory, count) }
        }

        fn pipe(&mut self) -> Option<(&Pipe, usize)> {
            (self.room > 0).then_some((&self.pipe, self.room))
        }

        fn piped(&mut self, outcome: Moved) {
            match outcome {
                Moved::Bytes(count) => {
                    self.room -= count;
                    self.piped += count as u64;
                }
                Moved::Nothing => self.room = 0,
            }
        }
    }

    fn counting(length: usize) -> Vec<u8> {
        (0..length).map(|index| (index / 251) as u8).collect()
    }

    /// Lets `sink` receive `bytes`, the first of them from a buffer.
    async fn receive(bytes: &[u8], mut sink: Piping) -> Piping {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).await;
        let (mut far, _) = listener.accept().await.expect("a connection");
        let (early, late) = bytes.split_at(3);
        let (early, late, length) = (early.to_vec(), late.to_vec(), bytes.len());
        let sent = tokio::spawn(async move { far.write_all(&late).await });
        let mut stream = Stream::Plain(near.expect("connected"));
        let mut left = early.as_slice();
        while !left.is_empty() {
            let count = copy(&stream, &mut sink, left);
            left = &left[count..];
        }
        while sink.filled() < length as u64 {
            let limit = length as u64 - sink.filled();
            let count = poll_fn(|cx| poll_fill(&mut stream, cx, &mut sink, limit)).await;
            assert_ne!(count.expect("received"), 0);
        }
        let end = poll_fn(|cx| poll_fill(&mut stream, cx, &mut sink, 1)).await;
        sent.await.expect("no panic").expect("sent");
        assert_eq!(end.expect("the end"), 0);
        sink
    }

    #[tokio::test]
    async fn bytes_go_into_the_pipe_as_far_as_the_sink_wants_and_then_into_memory() {
        let bytes = counting(300_000);
        let sink = receive(&bytes, Piping::new(100_000)).await;
        let piped = sink.pipe.read(100_000).expect("it is there");
        assert!(piped == bytes[..100_000] && sink.memory == bytes[100_000..]);
        assert!(sink.pipe.is_empty());
    }

    #[tokio::test]
    async fn when_the_pipe_is_full_bytes_go_into_memory() {
        let bytes = counting(300_000);
        let sink = receive(&bytes, Piping::full()).await;
        assert!(sink.memory == bytes);
    }
}
