//! The side that answers, inside the mount's process.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use penstock_base::{clock, run_blocking};
use penstock_transfer::DiskCache;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream, unix::OwnedWriteHalf},
    sync::{Semaphore, mpsc},
    task::JoinHandle,
};
use tracing::{debug, warn};

use super::{Reply, Request, Status};

/// Clients that are served at once; others wait to be accepted.
const CLIENTS_MAX: usize = 16;

/// How long a client may take to send its request and to take each answer.
const CLIENT_DEADLINE: Duration = Duration::from_secs(5);

/// Bytes in the longest request.
const REQUEST_SIZE_MAX: u64 = 4096;

/// Answers that may wait for a slow client.
const REPLIES_WAITING_MAX: usize = 8;

/// An order to unmount, with where to report how it goes.
#[derive(Debug)]
pub(crate) struct UnmountOrder {
    pub lazy: bool,
    pub replies: mpsc::Sender<Reply>,
}

/// What a server knows and whom it tells.
pub(crate) struct Duties {
    /// Asked whenever a client wants to know how the mount is.
    pub status: Box<dyn Fn() -> Status + Send + Sync>,
    /// Takes orders to unmount.
    pub orders: mpsc::Sender<UnmountOrder>,
    /// The cache that things can be dropped from.
    pub cache: Option<Arc<DiskCache>>,
}

/// A listening socket. Dropping it removes the socket, unless another one has its name by now.
#[derive(Debug)]
pub(crate) struct Server {
    socket: PathBuf,
    /// Which file it is.
    inode: Option<u64>,
    accepting: JoinHandle<()>,
}

impl Server {
    /// Listens on `socket`, which nobody can connect to before only its user can. One that a dead
    /// mount left there is replaced.
    pub(crate) fn start(socket: &Path, duties: Duties) -> io::Result<Self> {
        if std::os::unix::net::UnixStream::connect(socket).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let new = socket.with_extension("new");
        let _ = fs::remove_file(&new);
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
        fs::rename(&new, socket)?;
        Ok(Self {
            inode: inode(socket),
            socket: socket.to_owned(),
            accepting: tokio::spawn(accept(listener, Arc::new(duties))),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
        if inode(&self.socket) == self.inode {
            let _ = fs::remove_file(&self.socket);
        }
    }
}

fn inode(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|found| found.ino())
}

async fn accept(listener: UnixListener, duties: Arc<Duties>) {
    let places = Arc::new(Semaphore::new(CLIENTS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let duties = Arc::clone(&duties);
                tokio::spawn(async move {
                    if let Err(error) = serve(stream, &duties).await {
                        debug!(%error, "a control client went away");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                warn!(%error, "cannot accept a control client");
                clock::sleep(CLIENT_DEADLINE).await;
            }
        }
    }
}

async fn serve(stream: UnixStream, duties: &Duties) -> io::Result<()> {
    let (input, mut output) = stream.into_split();
    let mut line = String::new();
    let mut input = BufReader::new(input.take(REQUEST_SIZE_MAX));
    clock::deadline(CLIENT_DEADLINE, input.read_line(&mut line))
        .await
        .map_err(io::Error::other)??;
    match serde_json::from_str(&line)? {
        Request::Status => send(&mut output, &Reply::Status(Box::new((duties.status)()))).await,
        Request::DropCache { prefix } => send(&mut output, &drop_cached(duties, &prefix)).await,
        Request::Unmount { lazy } => {
            let (replies, mut waiting) = mpsc::channel(REPLIES_WAITING_MAX);
            let order = UnmountOrder { lazy, replies };
            duties.orders.send(order).await.map_err(io::Error::other)?;
            while let Some(reply) = waiting.recv().await {
                send(&mut output, &reply).await?;
                // Whoever carries the order out waits until the last word was heard.
                if !matches!(reply, Reply::Progress(_)) {
                    break;
                }
            }
            Ok(())
        }
    }
}

fn drop_cached(duties: &Duties, prefix: &str) -> Reply {
    match &duties.cache {
        None => Reply::Refused {
            cause: "the mount has no disk cache".to_owned(),
            remedy: "mount with --cache-dir".to_owned(),
        },
        Some(cache) => {
            let dropped = run_blocking(|| cache.remove(prefix));
            let (objects, bytes) = (dropped.objects, dropped.bytes);
            Reply::CacheDropped { objects, bytes }
        }
    }
}

async fn send(output: &mut OwnedWriteHalf, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    clock::deadline(CLIENT_DEADLINE, output.write_all(&line))
        .await
        .map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Memory, Progress, client};

    fn status() -> Status {
        Status {
            version: "1".to_owned(),
            pid: 7,
            source: "file:///a".to_owned(),
            mountpoint: "/mnt/x".into(),
            started: 1,
            uptime: 2,
            memory: Memory {
                used: 1,
                peak: 2,
                total: 3,
                resident: 4,
            },
            metrics: Vec::new(),
        }
    }

    fn start(socket: &Path) -> (Server, mpsc::Receiver<UnmountOrder>) {
        let (orders, received) = mpsc::channel(1);
        let duties = Duties {
            status: Box::new(status),
            orders,
            cache: None,
        };
        (Server::start(socket, duties).expect("listens"), received)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn answers_how_the_mount_is() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("a.sock");
        let (server, _orders) = start(&socket);
        let mode = fs::metadata(&socket)
            .expect("it exists")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(client::status(&socket).expect("answered"), status());
        drop(server);
        assert!(!socket.exists());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn replaces_the_socket_of_a_dead_mount_but_not_of_a_living_one() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("a.sock");
        drop(std::os::unix::net::UnixListener::bind(&socket).expect("bound"));
        let (_server, orders) = start(&socket);
        let duties = Duties {
            status: Box::new(status),
            orders: mpsc::channel(1).0,
            cache: None,
        };
        assert!(Server::start(&socket, duties).is_err());
        drop(orders);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn passes_an_order_on_and_its_progress_back() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("a.sock");
        let (_server, mut orders) = start(&socket);
        let asked = tokio::task::spawn_blocking(move || {
            let request = Request::Unmount { lazy: true };
            let mut connection = client::Connection::open(&socket, &request).expect("sent");
            let mut replies = Vec::new();
            while let Some(reply) = connection.next().expect("valid") {
                replies.push(reply);
            }
            replies
        });
        let order = orders.recv().await.expect("an order");
        assert!(order.lazy);
        let progress = Reply::Progress(Progress {
            files: 1,
            left: 9,
            sent: 5,
        });
        let ended = Reply::Ended {
            unsaved: vec![("a".to_owned(), "no space".to_owned())],
        };
        for reply in [&progress, &ended] {
            order.replies.send(reply.clone()).await.expect("taken");
        }
        drop(order);
        assert_eq!(asked.await.expect("no panic"), [progress, ended]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn survives_nonsense() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("a.sock");
        let (_server, _orders) = start(&socket);
        use std::io::{Read, Write};
        for nonsense in [&b"\n"[..], b"{\"request\":\"dance\"}\n", &[0xff; 9000]] {
            let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("connects");
            let _ = stream.write_all(nonsense);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
        assert_eq!(client::status(&socket).expect("answered").pid, 7);
    }
}
