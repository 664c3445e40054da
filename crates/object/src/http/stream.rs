//! A byte stream, encrypted or not.

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::tls::{RECEIVED_AT_ONCE, SEALS_MAX, TlsStream};

/// What a connection reads from and writes to.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Secure(Box<TlsStream>),
}

impl Stream {
    /// Whether an idle stream is known to be dead: the server closed it, or sent what nobody
    /// asked for.
    pub(super) fn is_dead(&mut self) -> bool {
        match self {
            Self::Plain(stream) => !matches!(
                stream.try_read(&mut [0; 1]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock
            ),
            Self::Secure(stream) => stream.is_dead(),
        }
    }

    /// Receives at most `limit` bytes to the front of `room`, which may be written over behind them. Returns how many
    /// it initialised there; none means that the server closed the stream.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut [MaybeUninit<u8>],
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let limit = limit.min(room.len());
        match self {
            Self::Plain(stream) => {
                let mut buffer = ReadBuf::uninit(&mut room[..limit]);
                ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
                Poll::Ready(Ok(buffer.filled().len()))
            }
            Self::Secure(stream) => {
                let sealed = room.len().min(limit.min(RECEIVED_AT_ONCE) + SEALS_MAX);
                let mut buffer = ReadBuf::uninit(&mut room[..sealed]);
                ready!(stream.poll_open(cx, &mut buffer, limit.min(sealed)))?;
                Poll::Ready(Ok(buffer.filled().len()))
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Secure(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Secure(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Secure(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Secure(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Secure(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
