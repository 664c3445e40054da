//! Replies on their way.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, IoSlice},
};

use bytes::Bytes;
use penstock_base::{Mutex, clock};
use smallvec::SmallVec;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::watch,
};

use crate::{
    limits::{BATCH_MAX, REPLY_DEADLINE},
    protocol::rpc::Reply,
};

/// Slices that are sent with one system call.
const SLICES_MAX: usize = 64;

/// Where the replies of one connection go, from whatever task has them. Who comes while another one sends leaves its
/// reply in the line, and so many replies go with one system call.
pub(crate) struct Outbox<S> {
    line: Mutex<VecDeque<Reply>>,
    socket: tokio::sync::Mutex<S>,
    is_broken: watch::Sender<bool>,
}

impl<S: AsyncWrite + Unpin> Outbox<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self {
            line: Mutex::default(),
            socket: tokio::sync::Mutex::new(socket),
            is_broken: watch::Sender::new(false),
        }
    }

    /// Leaves `reply` in the line, where it waits for the next [`Outbox::send`].
    pub(crate) fn put(&self, reply: Reply) {
        self.line.lock().push_back(reply);
    }

    /// Returns when what is in the line is with the kernel, or will never be.
    pub(crate) async fn send(&self) {
        // Whoever has the turn before may send it with his own.
        let mut socket = self.socket.lock().await;
        while !*self.is_broken.borrow() {
            let batch = self.batch();
            if batch.is_empty() {
                return;
            }
            let sent = clock::deadline(REPLY_DEADLINE, send_all(&mut *socket, &batch)).await;
            if !matches!(sent, Ok(Ok(()))) {
                self.is_broken.send_replace(true);
            }
        }
        self.line.lock().clear();
    }

    fn batch(&self) -> SmallVec<[Reply; 2]> {
        let mut line = self.line.lock();
        let count = line.len().min(BATCH_MAX);
        line.drain(..count).collect()
    }

    /// Returns when no more replies can be sent.
    pub(crate) async fn broken(&self) {
        // The sender is in `self`, so waiting cannot fail.
        let _ = self
            .is_broken
            .subscribe()
            .wait_for(|is_broken| *is_broken)
            .await;
    }
}

async fn send_all<S: AsyncWrite + Unpin>(socket: &mut S, batch: &[Reply]) -> io::Result<()> {
    let slices = batch.iter().flat_map(|reply| {
        let payload = reply.payload.slices().iter();
        std::iter::once(&reply.head).chain(payload)
    });
    let slices: SmallVec<[&Bytes; 8]> = slices.collect();
    let (mut first, mut begun) = (0, 0);
    while first < slices.len() {
        let some: SmallVec<[IoSlice<'_>; 8]> = slices[first..]
            .iter()
            .take(SLICES_MAX)
            .enumerate()
            .map(|(index, slice)| IoSlice::new(&slice[if index == 0 { begun } else { 0 }..]))
            .collect();
        let mut sent = socket.write_vectored(&some).await?;
        if sent == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        while first < slices.len() && sent >= slices[first].len() - begun {
            sent -= slices[first].len() - begun;
            (first, begun) = (first + 1, 0);
        }
        begun += sent;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use penstock_base::Payload;
    use tokio::io::AsyncReadExt;

    use super::*;

    fn reply(byte: u8, length: usize) -> Reply {
        let half = vec![byte; length / 2];
        let mut payload = Payload::from(half.clone());
        payload.append(Payload::from(half));
        Reply {
            head: Bytes::from(vec![byte; 4]),
            payload,
        }
    }

    #[tokio::test]
    async fn replies_are_sent_whole_whatever_the_socket_takes_at_once() {
        let (ours, mut theirs) = tokio::io::duplex(7);
        let outbox = Arc::new(Outbox::new(ours));
        let sends: Vec<_> = (0..20)
            .map(|byte| {
                let outbox = Arc::clone(&outbox);
                outbox.put(reply(byte, 100));
                tokio::spawn(async move { outbox.send().await })
            })
            .collect();
        let mut received = vec![0; 20 * 104];
        theirs.read_exact(&mut received).await.unwrap();
        for send in sends {
            send.await.unwrap();
        }
        for one in received.chunks(104) {
            assert!(one.iter().all(|byte| *byte == one[0]), "{one:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_given_up() {
        let (ours, _theirs) = tokio::io::duplex(64);
        let outbox = Arc::new(Outbox::new(ours));
        let (first, second) = (Arc::clone(&outbox), Arc::clone(&outbox));
        outbox.put(reply(1, 1000));
        let first = tokio::spawn(async move { first.send().await });
        outbox.put(reply(2, 1000));
        let second = tokio::spawn(async move { second.send().await });
        let begun = clock::now();
        outbox.broken().await;
        assert_eq!(begun.elapsed(), REPLY_DEADLINE);
        first.await.unwrap();
        second.await.unwrap();
        assert!(outbox.line.lock().is_empty());
    }
}
