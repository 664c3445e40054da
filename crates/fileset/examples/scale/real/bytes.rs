//! A relay before a server, which counts what it carries.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// Bytes to the server and from it.
#[derive(Default)]
pub struct Carried {
    up: AtomicU64,
    down: AtomicU64,
}

impl Carried {
    /// A relay before the server at this port, and its own port.
    pub async fn before(server: u16) -> (Arc<Self>, u16) {
        let carried = Arc::new(Self::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::clone(&carried);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let (up, down) = (Arc::clone(&shared), Arc::clone(&shared));
                tokio::spawn(async move { pass(from_client, to_server, &up.up).await });
                tokio::spawn(async move { pass(from_server, to_client, &down.down).await });
            }
        });
        (carried, port)
    }

    pub fn so_far(&self) -> (u64, u64) {
        let [up, down] = [&self.up, &self.down].map(|count| count.load(Ordering::SeqCst));
        (up, down)
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, count: &AtomicU64) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        count.fetch_add(length as u64, Ordering::SeqCst);
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}
