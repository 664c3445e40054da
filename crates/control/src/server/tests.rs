//! What mounts answer those who ask.

use std::{fs, os::unix::fs::PermissionsExt};

use super::*;
use crate::{
    LimitChange, Memory, Phase, Progress, QuotaChange, QuotaPart, QuotaSubject, UnsavedFile,
    UnsavedKind, client,
};

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
        sharing: None,
        targets: Vec::new(),
        configuration: None,
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

    fn snapshots(
        &self,
        _: Option<&str>,
        order: &SnapshotOrder,
    ) -> Result<Vec<SnapshotItem>, Refusal> {
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
        _: Option<&str>,
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

    fn compression(&self, _: Option<&str>, change: Option<&str>) -> Result<String, Refusal> {
        match change {
            Some("gzip") => Err(Refusal {
                cause: "there is no such compression".to_owned(),
                remedy: String::new(),
            }),
            change => Ok(change.unwrap_or("none").to_owned()),
        }
    }

    fn trash(&self, _: Option<&str>, order: &TrashOrder) -> Result<TrashAnswer, Refusal> {
        match order {
            TrashOrder::Restore { entry, target } => Ok(TrashAnswer::Restored {
                path: target.clone().unwrap_or_else(|| entry.clone()),
            }),
            _ => Err(Refusal {
                cause: "there is no trash".to_owned(),
                remedy: String::new(),
            }),
        }
    }

    fn dump(&self, _: Option<&str>, keep: u64) -> Result<DumpItem, Refusal> {
        match keep {
            0 => Err(Refusal {
                cause: "there is no dump".to_owned(),
                remedy: String::new(),
            }),
            keep => Ok(DumpItem {
                name: "now".to_owned(),
                bytes: 1,
                keys: keep,
                removed: vec!["old".to_owned()],
            }),
        }
    }

    fn quotas(&self, _: Option<&str>, order: &QuotaOrder) -> Result<Vec<QuotaItem>, Refusal> {
        let QuotaOrder::Set { subject, change } = order else {
            return Err(Refusal {
                cause: "there is no quota".to_owned(),
                remedy: String::new(),
            });
        };
        let part = |limit: LimitChange| QuotaPart {
            used: 1,
            soft: limit.soft.unwrap_or_default(),
            hard: limit.hard.unwrap_or_default(),
            until: None,
        };
        Ok(vec![QuotaItem {
            subject: subject.clone(),
            bytes: part(change.bytes),
            files: part(change.files),
            grace: 5,
            counting: true,
        }])
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
    fn start(&self, status: Status) -> Result<(Server, mpsc::Receiver<UnmountOrder>), ClaimError> {
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
        let request = Request::Unmount {
            lazy: true,
            mountpoint: Some(MOUNTPOINT.into()),
        };
        let mut connection = client::Connection::open(&socket, &request).expect("sent");
        let mut replies = Vec::new();
        while let Some(reply) = connection.next_reply().expect("valid") {
            replies.push(reply);
        }
        replies
    });
    let order = orders.recv().await.expect("an order");
    assert!(order.lazy);
    assert_eq!(order.mountpoint.as_deref(), Some(Path::new(MOUNTPOINT)));
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
        cause: Some("the store is full".to_owned()),
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
    assert!(matches!(answer, Some(Reply::Refused(refusal)) if refusal.cause.contains("no cache")));
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
async fn quotas_are_ordered_by_whose_they_are_and_refused_with_the_reason() {
    let bed = Bed::new();
    let (_server, _orders) = bed.start(status(7, Phase::Mounted)).expect("listens");
    let ask = |order| client::quotas((&bed.socket(), "home"), order, CLIENT_DEADLINE);
    let subject = QuotaSubject::User { number: 7 };
    let bytes = LimitChange {
        soft: Some(1),
        hard: None,
    };
    let change = QuotaChange {
        bytes,
        ..QuotaChange::default()
    };
    let order = QuotaOrder::Set {
        subject: subject.clone(),
        change,
    };
    let set = ask(order).expect("answered").expect("set");
    assert_eq!((&set[0].subject, set[0].bytes.soft), (&subject, 1));
    let refused = ask(QuotaOrder::List).expect("answered");
    assert_eq!(refused.expect_err("none").cause, "there is no quota");
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_ordered_by_name_and_refused_with_the_reason() {
    let bed = Bed::new();
    let (_server, _orders) = bed.start(status(7, Phase::Mounted)).expect("listens");
    let ask = |order| client::snapshots((&bed.socket(), "home"), order, CLIENT_DEADLINE);
    let name = "daily".to_owned();
    let taken = ask(SnapshotOrder::Create { name }).expect("answered");
    assert_eq!(taken.expect("it was taken")[0].name, "daily");
    let refused = ask(SnapshotOrder::List).expect("answered");
    assert_eq!(refused.expect_err("none").cause, "there is no snapshot");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_is_made_and_refused() {
    let bed = Bed::new();
    let (_server, _orders) = bed.start(status(7, Phase::Mounted)).expect("listens");
    let ask =
        |keep| client::dump((&bed.socket(), "home"), keep, CLIENT_DEADLINE).expect("answered");
    assert_eq!(ask(3).expect("it was made").keys, 3);
    assert_eq!(ask(0).expect_err("none").cause, "there is no dump");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trash_is_asked_and_refused() {
    let bed = Bed::new();
    let (_server, _orders) = bed.start(status(7, Phase::Mounted)).expect("listens");
    let ask =
        |order| client::trash((&bed.socket(), "home"), order, CLIENT_DEADLINE).expect("answered");
    let order = TrashOrder::Restore {
        entry: "1-2-a".to_owned(),
        target: Some("/b".to_owned()),
    };
    let path = "/b".to_owned();
    assert_eq!(ask(order), Ok(TrashAnswer::Restored { path }));
    let refused = ask(TrashOrder::Purge { older: Some(5) });
    assert_eq!(refused.expect_err("none").cause, "there is no trash");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_is_set_and_refused() {
    let bed = Bed::new();
    let (_server, _orders) = bed.start(status(7, Phase::Mounted)).expect("listens");
    let ask = |changes| client::schedule((&bed.socket(), "home"), changes, CLIENT_DEADLINE);
    let daily = BTreeMap::from([("daily".to_owned(), 7)]);
    assert_eq!(ask(daily.clone()).expect("answered"), Ok(daily));
    let refused = ask(BTreeMap::new()).expect("answered");
    assert_eq!(refused.expect_err("none").cause, "there is no schedule");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_is_elsewhere_by_now_gives_the_name_up_and_keeps_its_socket() {
    let bed = Bed::new();
    let elsewhere = Path::new("/mnt/y");
    let moved = Status {
        mountpoint: elsewhere.into(),
        ..status(7, Phase::Mounted)
    };
    let (first, _orders) = bed.start(moved).expect("listens");
    let (second, _orders) = bed.start(status(8, Phase::Mounted)).expect("it gives way");
    let at = |place: &Path| client::status(&bed.place.socket_of(place)).map(|found| found.pid);
    assert_eq!(at(Path::new(MOUNTPOINT)).expect("answered"), 8);
    assert_eq!(at(elsewhere).expect("answered"), 7);
    drop(first);
    assert_eq!(bed.answering(), [8]);
    drop(second);
    assert!(bed.place.sockets().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn compression_is_asked_for_set_and_refused() {
    let bed = Bed::new();
    let (_server, _orders) = bed.start(status(7, Phase::Mounted)).expect("listens");
    let ask = |change: Option<&str>| {
        let change = change.map(str::to_owned);
        client::compression((&bed.socket(), "home"), change, CLIENT_DEADLINE).expect("answered")
    };
    assert_eq!(ask(None), Ok("none".to_owned()));
    assert_eq!(ask(Some("zstd:5")), Ok("zstd:5".to_owned()));
    let refused = ask(Some("gzip")).expect_err("none");
    assert_eq!(refused.cause, "there is no such compression");
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
