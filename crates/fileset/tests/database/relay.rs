//! A relay before a server, which cuts connections wherever they are.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use penstock_base::random;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinHandle,
};

/// Bytes one way until a connection is cut, at most: it takes some thousand to begin one.
const LIFE: u64 = 20_000;

pub struct Relay {
    pub port: u16,
    /// Whether connections are cut.
    cuts: Arc<AtomicBool>,
    /// Those that were.
    pub cut: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Relay {
    pub async fn new(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cuts, cut) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let shared = (Arc::clone(&cuts), Arc::clone(&cut));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server, shared.clone()));
            }
        });
        Self {
            port,
            cuts,
            cut,
            task,
        }
    }

    /// From now on no connection is cut.
    pub fn calm(&self) {
        self.cuts.store(false, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(client: TcpStream, server: u16, shared: (Arc<AtomicBool>, Arc<AtomicU64>)) {
    let Ok(server) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], server))).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Whichever way ends first ends the other, wherever that one is: both connections are dropped.
    tokio::select! {
        () = pass(from_client, to_server, &shared) => {}
        () = pass(from_server, to_client, &shared) => {}
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    (cuts, cut): &(Arc<AtomicBool>, Arc<AtomicU64>),
) {
    let mut left = random::number() % LIFE;
    let mut bytes = [0; 512];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if cuts.load(Ordering::SeqCst) && left < count as u64 {
            // A part of a message may come through.
            let _ = to.write_all(&bytes[..left as usize]).await;
            cut.fetch_add(1, Ordering::SeqCst);
            return;
        }
        left = left.saturating_sub(count as u64);
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
