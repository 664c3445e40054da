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
    ClaimError, Refusal, Reply, Request, SnapshotItem, SnapshotOrder, SocketDirectory, Status,
    UnsavedItem,
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

/// An order to unmount, with where to report how it goes.
#[derive(Debug)]
pub struct UnmountOrder {
    /// Whether files may be open.
    pub lazy: bool,
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

    /// Carries an order about snapshots out, and tells those that it is about. May block the thread.
    fn snapshots(&self, order: &SnapshotOrder) -> Result<Vec<SnapshotItem>, Refusal>;

    /// Changes what a fileset does by itself, and tells what is so then. May block the thread.
    fn schedule(&self, changes: &BTreeMap<String, u32>) -> Result<BTreeMap<String, u32>, Refusal>;
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
    /// or is about to; one that was unmounted and still saves makes way.
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
    pub fn record(&self, staging: Option<&Path>) -> io::Result<Record> {
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
            match run_blocking(|| duties.daemon.drop_cached(&prefix)) {
                Ok(dropped) => Reply::CacheDropped(dropped),
                Err(refusal) => Reply::Refused(refusal),
            }
        }
        Ok(Request::Snapshots { order }) => {
            match run_blocking(|| duties.daemon.snapshots(&order)) {
                Ok(items) => return tell_snapshots(output, items).await,
                Err(refusal) => Reply::Refused(refusal),
            }
        }
        Ok(Request::Schedule { changes }) => {
            match run_blocking(|| duties.daemon.schedule(&changes)) {
                Ok(keep) => Reply::Schedule { keep },
                Err(refusal) => Reply::Refused(refusal),
            }
        }
        Ok(Request::Unsaved) => return tell_unsaved(output, duties.daemon.unsaved()).await,
        Ok(Request::Unmount { lazy }) => return unmount(output, duties, lazy).await,
        Err(refusal) => Reply::Refused(refusal),
    };
    send(&mut output, &reply).await
}

async fn tell_snapshots(mut output: OwnedWriteHalf, mut left: Vec<SnapshotItem>) -> io::Result<()> {
    loop {
        let rest = left.split_off(SNAPSHOTS_AT_ONCE.min(left.len()));
        let more = !rest.is_empty();
        send(&mut output, &Reply::Snapshots { items: left, more }).await?;
        if !more {
            return Ok(());
        }
        left = rest;
    }
}

async fn tell_unsaved(mut output: OwnedWriteHalf, mut left: Vec<UnsavedItem>) -> io::Result<()> {
    loop {
        let rest = left.split_off(UNSAVED_AT_ONCE.min(left.len()));
        let more = !rest.is_empty();
        send(&mut output, &Reply::Unsaved { items: left, more }).await?;
        if !more {
            return Ok(());
        }
        left = rest;
    }
}

/// Passes an order on, and how it goes back.
async fn unmount(mut output: OwnedWriteHalf, duties: &Duties, lazy: bool) -> io::Result<()> {
    let (replies, mut waiting) = mpsc::channel(REPLIES_WAITING_MAX);
    let order = UnmountOrder { lazy, replies };
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
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::{Memory, Phase, Progress, UnsavedFile, UnsavedKind, client};

    const MOUNTPOINT: &str = "/mnt/x";

    fn status(pid: u32, phase: Phase) -> Status {
        Status {
            version: "1".to_owned(),
            pid,
            source: "file:///a".to_owned(),
            mountpoint: MOUNTPOINT.into(),
            phase,
            started: 1,
            uptime: 2,
            unsaved: None,
            memory: Memory {
                used: 1,
                peak: 2,
                total: 3,
                resident: 4,
            },
            metrics: Vec::new(),
        }
    }

    /// A mount that always says the same of itself, and has no cache.
    struct Fixed(Status);

    impl Daemon for Fixed {
        fn status(&self) -> Status {
            self.0.clone()
        }

        fn drop_cached(&self, _: &str) -> Result<Dropped, Refusal> {
            Err(Refusal {
                cause: "there is no cache".to_owned(),
                remedy: String::new(),
            })
        }

        fn snapshots(&self, order: &SnapshotOrder) -> Result<Vec<SnapshotItem>, Refusal> {
            let SnapshotOrder::Create { name } = order else {
                return Err(Refusal {
                    cause: "there is no snapshot".to_owned(),
                    remedy: String::new(),
                });
            };
            Ok(vec![SnapshotItem {
                name: name.clone(),
                taken: 1,
                bytes: 2,
                removing: false,
            }])
        }

        fn schedule(
            &self,
            changes: &BTreeMap<String, u32>,
        ) -> Result<BTreeMap<String, u32>, Refusal> {
            match changes.is_empty() {
                true => Err(Refusal {
                    cause: "there is no schedule".to_owned(),
                    remedy: String::new(),
                }),
                false => Ok(changes.clone()),
            }
        }

        fn unsaved(&self) -> Vec<UnsavedItem> {
            let items = (0..UNSAVED_AT_ONCE as u64 + 1).map(|bytes| UnsavedItem {
                path: "a".to_owned(),
                kind: UnsavedKind::File,
                bytes,
                age: None,
                reason: None,
            });
            items.collect()
        }
    }

    /// A directory for sockets.
    struct Bed {
        _directory: tempfile::TempDir,
        place: SocketDirectory,
    }

    impl Bed {
        fn new() -> Self {
            let directory = tempfile::tempdir().expect("a temporary directory");
            Self {
                place: SocketDirectory::at(directory.path()),
                _directory: directory,
            }
        }

        fn socket(&self) -> PathBuf {
            self.place.socket_of(Path::new(MOUNTPOINT))
        }

        /// A server that says of itself what `status` is, with the orders that it gets.
        fn start(
            &self,
            status: Status,
        ) -> Result<(Server, mpsc::Receiver<UnmountOrder>), ClaimError> {
            let (orders, received) = mpsc::channel(1);
            let server = Server::start(
                &self.place,
                Path::new(MOUNTPOINT),
                Arc::new(Fixed(status)),
                orders,
            )?;
            Ok((server, received))
        }

        /// The processes that answer.
        fn answering(&self) -> Vec<u32> {
            let all = client::all(&self.place).into_iter();
            all.map(|found| found.status.pid).collect()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn answers_how_the_mount_is() {
        let bed = Bed::new();
        let (server, _orders) = bed.start(status(7, Phase::Mounted)).expect("listens");
        let socket = bed.socket();
        let mode = fs::metadata(&socket)
            .expect("it exists")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let answer = client::status(&socket).expect("answered");
        assert_eq!(answer, status(7, Phase::Mounted));
        drop(server);
        assert!(!socket.exists());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn replaces_the_socket_of_a_dead_mount_but_not_of_one_that_starts_or_serves() {
        let bed = Bed::new();
        drop(std::os::unix::net::UnixListener::bind(bed.socket()).expect("bound"));
        for living in [Phase::Starting, Phase::Mounted] {
            let (_server, _orders) = bed.start(status(7, living)).expect("nobody listens");
            let refused = bed.start(status(8, Phase::Starting));
            let held = matches!(
                refused,
                Err(ClaimError::Held { process: 7, phase }) if phase == living
            );
            assert!(held);
            assert_eq!(bed.answering(), [7]);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_mount_that_saves_makes_way_and_goes_on_answering() {
        let bed = Bed::new();
        let (first, _orders) = bed.start(status(7, Phase::Saving)).expect("listens");
        let (second, _orders) = bed.start(status(8, Phase::Saving)).expect("it makes way");
        let (third, _orders) = bed.start(status(9, Phase::Mounted)).expect("both do");
        let mut answering = bed.answering();
        answering.sort_unstable();
        assert_eq!(answering, [7, 8, 9]);
        assert_eq!(client::status(&bed.socket()).expect("answered").pid, 9);
        drop(first);
        drop(third);
        assert_eq!(bed.answering(), [8]);
        drop(second);
        assert!(bed.place.sockets().is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn of_many_that_start_at_once_one_gets_the_socket() {
        let bed = Arc::new(Bed::new());
        let start = |process| {
            let bed = Arc::clone(&bed);
            tokio::spawn(async move { bed.start(status(process, Phase::Starting)) })
        };
        let starting: Vec<_> = (1..=8).map(start).collect();
        let mut started = Vec::new();
        for one in starting {
            started.extend(one.await.expect("no panic").ok());
        }
        assert_eq!(started.len(), 1);
        assert_eq!(bed.answering().len(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn passes_an_order_on_and_its_progress_back() {
        let bed = Bed::new();
        let (_server, mut orders) = bed.start(status(7, Phase::Mounted)).expect("listens");
        let socket = bed.socket();
        let asked = tokio::task::spawn_blocking(move || {
            let request = Request::Unmount { lazy: true };
            let mut connection = client::Connection::open(&socket, &request).expect("sent");
            let mut replies = Vec::new();
            while let Some(reply) = connection.next_reply().expect("valid") {
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
            used: false,
        });
        let ended = Reply::Ended {
            unsaved: vec![UnsavedFile {
                path: "a".to_owned(),
                reason: "no space".to_owned(),
            }],
        };
        for reply in [&progress, &ended] {
            order.replies.send(reply.clone()).await.expect("taken");
        }
        drop(order);
        assert_eq!(asked.await.expect("no panic"), [progress, ended]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_cannot_be_done_is_refused_with_the_reason() {
        let bed = Bed::new();
        let (_server, _orders) = bed.start(status(7, Phase::Mounted)).expect("listens");
        let prefix = String::new();
        let mut asking =
            client::Connection::open(&bed.socket(), &Request::DropCache { prefix }).expect("sent");
        let answer = asking.next_reply().expect("answered");
        assert!(
            matches!(answer, Some(Reply::Refused(refusal)) if refusal.cause.contains("no cache"))
        );
        use std::io::{Read, Write};
        let mut stream = std::os::unix::net::UnixStream::connect(bed.socket()).expect("connects");
        stream
            .write_all(b"{\"request\":\"dance\",\"version\":1}\n")
            .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let reply: Reply = serde_json::from_str(&answer).expect("one reply");
        assert!(matches!(reply, Reply::Refused(refusal) if refusal.cause.contains("`dance`")));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn tells_what_is_unsaved_in_several_replies_and_that_they_end() {
        let bed = Bed::new();
        let (_server, _orders) = bed.start(status(7, Phase::Mounted)).expect("listens");
        let items = client::unsaved(&bed.socket()).expect("answered");
        let told: Vec<_> = items.iter().map(|item| item.bytes).collect();
        assert_eq!(told, (0..=UNSAVED_AT_ONCE as u64).collect::<Vec<_>>());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn snapshots_are_ordered_by_name_and_refused_with_the_reason() {
        let bed = Bed::new();
        let (_server, _orders) = bed.start(status(7, Phase::Mounted)).expect("listens");
        let ask = |order| client::snapshots(&bed.socket(), order, CLIENT_DEADLINE);
        let name = "daily".to_owned();
        let taken = ask(SnapshotOrder::Create { name }).expect("answered");
        assert_eq!(taken.expect("it was taken")[0].name, "daily");
        let refused = ask(SnapshotOrder::List).expect("answered");
        assert_eq!(refused.expect_err("none").cause, "there is no snapshot");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_schedule_is_set_and_refused() {
        let bed = Bed::new();
        let (_server, _orders) = bed.start(status(7, Phase::Mounted)).expect("listens");
        let ask = |changes| client::schedule(&bed.socket(), changes, CLIENT_DEADLINE);
        let daily = BTreeMap::from([("daily".to_owned(), 7)]);
        assert_eq!(ask(daily.clone()).expect("answered"), Ok(daily));
        let refused = ask(BTreeMap::new()).expect("answered");
        assert_eq!(refused.expect_err("none").cause, "there is no schedule");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn survives_nonsense() {
        let bed = Bed::new();
        let (_server, _orders) = bed.start(status(7, Phase::Mounted)).expect("listens");
        let socket = bed.socket();
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
