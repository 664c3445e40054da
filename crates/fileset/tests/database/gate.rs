//! A relay before a server, which holds back what it carries.

#![allow(clippy::disallowed_methods, reason = "it runs in the ambient world")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use penstock_base::random;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::sleep,
};

/// How long it waits until it looks again whether it may go on.
const LOOK: Duration = Duration::from_millis(5);
/// How much later answers come that it delays.
const DELAY: Duration = Duration::from_millis(200);

/// What a gate holds back.
#[derive(Default)]
pub struct Gate {
    /// All answers to the connection that writes.
    pub holds_writer_answers: AtomicBool,
    /// Some of them, for a while.
    pub delays_writer_answers: AtomicBool,
    /// Everything.
    pub is_frozen: AtomicBool,
    /// After so many bytes more of a client it freezes by itself; 0: never.
    pub freeze_after: AtomicU64,
}

impl Gate {
    /// One before the server at this port, and its own port.
    pub async fn new(server: u16) -> (Arc<Self>, u16) {
        let gate = Arc::new(Self::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::clone(&gate);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let gate = Arc::clone(&shared);
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await {
                        gate.carry(client, server).await;
                    }
                });
            }
        });
        (gate, port)
    }

    async fn carry(&self, client: TcpStream, server: TcpStream) {
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let is_writer = AtomicBool::new(false);
        tokio::select! {
            () = self.ask(from_client, to_server, &is_writer) => {}
            () = self.answer(from_server, to_client, &is_writer) => {}
        }
    }

    async fn ask(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_writer: &AtomicBool) {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            if bytes[..count]
                .windows(11)
                .any(|part| part == b"ON CONFLICT")
            {
                is_writer.store(true, Ordering::SeqCst);
            }
            self.count(count as u64);
            while self.is_frozen.load(Ordering::SeqCst) {
                sleep(LOOK).await;
            }
            if to.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    }

    fn count(&self, bytes: u64) {
        let left = self.freeze_after.load(Ordering::SeqCst);
        if left > 0 {
            let rest = left.saturating_sub(bytes);
            self.freeze_after.store(rest, Ordering::SeqCst);
            if rest == 0 {
                self.is_frozen.store(true, Ordering::SeqCst);
            }
        }
    }

    async fn answer(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        is_writer: &AtomicBool,
    ) {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            let writes = || is_writer.load(Ordering::SeqCst);
            let is_held = || writes() && self.holds_writer_answers.load(Ordering::SeqCst);
            while self.is_frozen.load(Ordering::SeqCst) || is_held() {
                sleep(LOOK).await;
            }
            let delays = self.delays_writer_answers.load(Ordering::SeqCst);
            if writes() && delays && random::number().is_multiple_of(5) {
                sleep(DELAY).await;
            }
            if to.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    }
}
