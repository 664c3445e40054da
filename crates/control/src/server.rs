//! The side that answers, inside the mount's process.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use penstock_base::{clock, run_blocking};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream, unix::OwnedWriteHalf},
    sync::{Semaphore, mpsc},
    task::JoinHandle,
};
use tracing::{debug, warn};

use crate::{
    ClaimError, DumpItem, QuotaItem, QuotaOrder, Refusal, Reply, Request, SnapshotItem,
    SnapshotOrder, SocketDirectory, Status, TrashAnswer, TrashOrder, UnsavedItem,
    claim::{self, Name},
    protocol::{self, Dropped},
    record::Record,
};

/// Clients that are served at once; others wait to be accepted.
const CLIENTS_MAX: usize = 16;

/// How long a client may take to send its request and to take each answer.
const CLIENT_DEADLINE: Duration = Duration::from_secs(5);

/// Bytes in the longest request.
const REQUEST_SIZE_MAX: u64 = 4096;

/// How long a client that connected before the socket had lost its name may wait to be accepted.
const ACCEPTING_GRACE: Duration = Duration::from_millis(20);

/// Answers that may wait for a slow client.
const REPLIES_WAITING_MAX: usize = 8;

/// What one reply tells of what waits to be saved: paths are of a kilobyte at most.
const UNSAVED_AT_ONCE: usize = 256;

/// The same of snapshots: names are of 255 bytes at most.
const SNAPSHOTS_AT_ONCE: usize = 1024;
/// The same of quotas, each of which takes less.
const QUOTAS_AT_ONCE: usize = 1024;

/// An order to unmount, with where to report how it goes.
#[derive(Debug)]
pub struct UnmountOrder {
    /// Whether files may be open.
    pub lazy: bool,
    /// The mount point that is meant; the whole mount where it is not said.
    pub mountpoint: Option<PathBuf>,
    /// Takes [`Reply::Progress`] and then one that is final.
    pub replies: mpsc::Sender<Reply>,
}

/// What the process of a mount can say, and do at once.
pub trait Daemon: Send + Sync + 'static {
    /// How the mount is now.
    fn status(&self) -> Status;

    /// Drops from the disk cache what it has of keys with this prefix. May block the thread.
    fn drop_cached(&self, prefix: &str) -> Result<Dropped, Refusal>;

    /// What waits to be saved, what waits longest first.
    fn unsaved(&self) -> Vec<UnsavedItem>;

    /// Carries an order about snapshots of a fileset, or of the only one, out, and tells those that it is about. May block the thread.
    fn snapshots(
        &self,
        fileset: Option<&str>,
        order: &SnapshotOrder,
    ) -> Result<Vec<SnapshotItem>, Refusal>;

    /// The same of quotas.
    fn quotas(&self, fileset: Option<&str>, order: &QuotaOrder) -> Result<Vec<QuotaItem>, Refusal>;

    /// Changes what a fileset does by itself, and tells what is so then. May block the thread.
    fn schedule(
        &self,
        fileset: Option<&str>,
        changes: &BTreeMap<String, u32>,
    ) -> Result<BTreeMap<String, u32>, Refusal>;

    /// Carries an order about the trash of a fileset out. May block the thread.
    fn trash(&self, fileset: Option<&str>, order: &TrashOrder) -> Result<TrashAnswer, Refusal>;

    /// Changes how a fileset compresses what it saves, if a change is given, and tells what is so then. May block the
    /// thread.
    fn compression(&self, fileset: Option<&str>, change: Option<&str>) -> Result<String, Refusal>;

    /// Makes a dump of a fileset, of which so many are kept then. Blocks the thread for as long as that takes.
    fn dump(&self, fileset: Option<&str>, keep: u64) -> Result<DumpItem, Refusal>;
}

/// Who answers and who obeys.
struct Duties {
    daemon: Arc<dyn Daemon>,
    orders: mpsc::Sender<UnmountOrder>,
}

/// A listening socket. Dropping it removes the socket.
#[derive(Debug)]
pub struct Server {
    accepting: JoinHandle<()>,
    place: SocketDirectory,
    mountpoint: PathBuf,
    name: Option<Name>,
}

impl Server {
    /// Listens for the mount point: `daemon` answers, and `orders` takes what comes to unmount. Fails with [`ClaimError::Held`] when another process mounts there,
    /// or is about to; one that was unmounted and still saves makes way, and one that is at another mount point by now.
    pub fn start(
        place: &SocketDirectory,
        mountpoint: &Path,
        daemon: Arc<dyn Daemon>,
        orders: mpsc::Sender<UnmountOrder>,
    ) -> Result<Self, ClaimError> {
        let duties = Duties { daemon, orders };
        let (name, listener) = run_blocking(|| claim::claim(place, mountpoint))?;
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        Ok(Self {
            accepting: tokio::spawn(accept(listener, Arc::new(duties))),
            place: place.clone(),
            mountpoint: mountpoint.to_owned(),
            name: Some(name),
        })
    }

    /// Writes down where the mount stages, if it does, for those who find it dead.
    pub fn record(&self, staging: &[&Path]) -> io::Result<Record> {
        Record::write(&self.place, &self.mountpoint, staging)
    }

    /// Gives the name of the socket up. Every client that came before is served; their orders end
    /// when all of them have gone.
    pub async fn close(mut self) {
        drop(self.name.take());
        clock::sleep(ACCEPTING_GRACE).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
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
    let reply = match protocol::decode(&line) {
        Ok(Request::Status) => Reply::Status(Box::new(duties.daemon.status())),
        Ok(Request::DropCache { prefix }) => {
            let dropped = run_blocking(|| duties.daemon.drop_cached(&prefix));
            dropped.map_or_else(Reply::Refused, Reply::CacheDropped)
        }
        Ok(Request::Snapshots { fileset, order }) => {
            match run_blocking(|| duties.daemon.snapshots(fileset.as_deref(), &order)) {
                Ok(items) => {
                    let reply = |items, more| Reply::Snapshots { items, more };
                    return tell(output, items, SNAPSHOTS_AT_ONCE, reply).await;
                }
                Err(refusal) => Reply::Refused(refusal),
            }
        }
        Ok(Request::Quotas { fileset, order }) => {
            match run_blocking(|| duties.daemon.quotas(fileset.as_deref(), &order)) {
                Ok(items) => {
                    let reply = |items, more| Reply::Quotas { items, more };
                    return tell(output, items, QUOTAS_AT_ONCE, reply).await;
                }
                Err(refusal) => Reply::Refused(refusal),
            }
        }
        Ok(Request::Schedule { fileset, changes }) => {
            let keep = run_blocking(|| duties.daemon.schedule(fileset.as_deref(), &changes));
            keep.map_or_else(Reply::Refused, |keep| Reply::Schedule { keep })
        }
        Ok(Request::Compression { fileset, change }) => {
            let (fileset, change) = (fileset.as_deref(), change.as_deref());
            let setting = run_blocking(|| duties.daemon.compression(fileset, change));
            setting.map_or_else(Reply::Refused, |setting| Reply::Compression { setting })
        }
        Ok(Request::Trash { fileset, order }) => {
            let answer = run_blocking(|| duties.daemon.trash(fileset.as_deref(), &order));
            answer.map_or_else(Reply::Refused, Reply::Trash)
        }
        Ok(Request::Dump { fileset, keep }) => {
            let made = run_blocking(|| duties.daemon.dump(fileset.as_deref(), keep));
            made.map_or_else(Reply::Refused, Reply::Dumped)
        }
        Ok(Request::Unsaved) => {
            let reply = |items, more| Reply::Unsaved { items, more };
            return tell(output, duties.daemon.unsaved(), UNSAVED_AT_ONCE, reply).await;
        }
        Ok(Request::Unmount { lazy, mountpoint }) => {
            return unmount(output, duties, (lazy, mountpoint)).await;
        }
        Err(refusal) => Reply::Refused(refusal),
    };
    send(&mut output, &reply).await
}

/// Tells items, so many with each reply.
async fn tell<T>(
    mut output: OwnedWriteHalf,
    mut left: Vec<T>,
    at_once: usize,
    reply: impl Fn(Vec<T>, bool) -> Reply,
) -> io::Result<()> {
    loop {
        let rest = left.split_off(at_once.min(left.len()));
        let more = !rest.is_empty();
        send(&mut output, &reply(left, more)).await?;
        if !more {
            return Ok(());
        }
        left = rest;
    }
}

/// Passes an order on, and how it goes back.
async fn unmount(
    mut output: OwnedWriteHalf,
    duties: &Duties,
    (lazy, mountpoint): (bool, Option<PathBuf>),
) -> io::Result<()> {
    let (replies, mut waiting) = mpsc::channel(REPLIES_WAITING_MAX);
    let order = UnmountOrder {
        lazy,
        mountpoint,
        replies,
    };
    duties.orders.send(order).await.map_err(io::Error::other)?;
    while let Some(reply) = waiting.recv().await {
        send(&mut output, &reply).await?;
        if !matches!(reply, Reply::Progress(_)) {
            break;
        }
    }
    Ok(())
}

async fn send(output: &mut OwnedWriteHalf, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    clock::deadline(CLIENT_DEADLINE, output.write_all(&line))
        .await
        .map_err(io::Error::other)?
}

#[cfg(test)]
mod tests;
