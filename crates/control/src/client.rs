//! The side that asks.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_base::clock::{self, Instant};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::{
    DumpItem, QuotaItem, QuotaOrder, Refusal, Reply, Request, SnapshotItem, SnapshotOrder,
    SocketDirectory, Status, TrashAnswer, TrashOrder, UnsavedItem, claim, protocol,
    system::{Peer, Process, has_died},
};

/// How long a healthy mount may take to answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// Bytes in the longest answer.
const REPLY_SIZE_MAX: u64 = 4 << 20;

/// How often a listener is tried whose places for those who wait are taken.
const CONNECT_POLL: Duration = Duration::from_millis(20);

/// A conversation with one mount.
#[derive(Debug)]
pub struct Connection {
    lines: BufReader<UnixStream>,
    number: u32,
    process: Option<Process>,
}

impl Connection {
    /// Sends `request` to the mount behind `socket`. Fails with [`io::ErrorKind::ConnectionRefused`] where its
    /// process has died, though the kernel may still hold a thread of it.
    pub fn open(socket: &Path, request: &Request) -> io::Result<Self> {
        let mut stream = connect(socket, ANSWER_DEADLINE)?;
        let number = peer(&stream)?;
        if has_died(number) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        stream.set_read_timeout(Some(ANSWER_DEADLINE))?;
        stream.set_write_timeout(Some(ANSWER_DEADLINE))?;
        stream.write_all(&protocol::encode(request)?)?;
        Ok(Self {
            lines: BufReader::new(stream),
            number,
            process: Process::find(number),
        })
    }

    /// The number of the mount's process; 0 where it cannot be seen from here.
    pub fn process(&self) -> u32 {
        self.number
    }

    /// Whether the mount's process has died, so that no answer will come.
    pub fn has_died(&self) -> bool {
        has_died(self.number)
    }

    /// Waits until the mount's process has ended, at most for `limit`; says whether it did. One that
    /// cannot be seen from here is not waited for.
    pub fn ends_within(&self, limit: Duration) -> bool {
        let process = self.process.as_ref();
        process.is_none_or(|process| process.ends_within(limit))
    }

    /// The next answer; none when the mount has nothing more to say.
    pub fn next_reply(&mut self) -> io::Result<Option<Reply>> {
        let mut line = String::new();
        let read = self
            .lines
            .by_ref()
            .take(REPLY_SIZE_MAX)
            .read_line(&mut line)?;
        if read == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&line)?))
    }

    /// What the next answer has of what is wanted, of a mount that is at work, and may be silent until then.
    fn answer<T>(
        &mut self,
        until: Instant,
        wanted: impl FnOnce(Reply) -> Option<T>,
    ) -> io::Result<Result<T, Refusal>> {
        let reply = loop {
            match self.next_reply() {
                Err(error) if is_silence(&error) && clock::now() < until => {}
                reply => break reply?,
            }
        };
        let wrong = || io::ErrorKind::InvalidData.into();
        match reply {
            Some(Reply::Refused(refusal)) => Ok(Err(refusal)),
            reply => reply.and_then(wanted).map(Ok).ok_or_else(wrong),
        }
    }
}

/// Connects to who listens on `socket`. One who accepts nobody has places for some who wait; once they are
/// taken this fails with [`io::ErrorKind::WouldBlock`] when the limit has passed.
pub(crate) fn connect(socket: &Path, limit: Duration) -> io::Result<UnixStream> {
    let begun = clock::now();
    loop {
        match connect_at_once(socket) {
            Err(error) if is_silence(&error) && begun.elapsed() < limit => {
                clock::pause(CONNECT_POLL);
            }
            connected => return connected,
        }
    }
}

fn connect_at_once(socket: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let made = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&made, &SocketAddrUnix::new(socket)?)?;
    let stream = UnixStream::from(made);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Whether somebody listens on `socket`.
pub fn is_heard(socket: &Path) -> bool {
    match connect(socket, Duration::ZERO) {
        Ok(_) => true,
        Err(error) => is_silence(&error),
    }
}

/// The number of the mount's process. What another user pretends to be a mount of this
/// one's is neither believed nor ordered about.
fn peer(stream: &UnixStream) -> io::Result<u32> {
    let Peer { process, user } = Peer::of(stream)?;
    if user == penstock_base::user_id() || user == 0 {
        return Ok(process);
    }
    let text = format!("another user, {user}, listens there");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// The process that listens on `socket` if it has died, though the kernel may still hold a thread of it.
pub fn dead_listener(socket: &Path) -> Option<Process> {
    let stream = connect(socket, Duration::ZERO).ok()?;
    let number = peer(&stream).ok()?;
    has_died(number).then(|| Process::find(number)).flatten()
}

/// Whether [`Connection::next_reply`] failed because the mount gave no answer in time; it may be busy.
pub fn is_silence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Asks one mount how it is.
pub fn status(socket: &Path) -> io::Result<Status> {
    match Connection::open(socket, &Request::Status)?.next_reply()? {
        Some(Reply::Status(status)) => Ok(*status),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Asks one mount what waits to be saved. Fails if it ends before it told everything, or is of a version that
/// cannot tell.
pub fn unsaved(socket: &Path) -> io::Result<Vec<UnsavedItem>> {
    let mut connection = Connection::open(socket, &Request::Unsaved)?;
    let mut all = Vec::new();
    loop {
        match connection.next_reply()? {
            Some(Reply::Unsaved { items, more }) => {
                all.extend(items);
                if !more {
                    return Ok(all);
                }
            }
            Some(Reply::Refused(refusal)) => return Err(io::Error::other(refusal.cause)),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Has a mount carry an order about snapshots of a fileset out, and returns those that it is about.
pub fn snapshots(
    (socket, fileset): (&Path, &str),
    order: SnapshotOrder,
    patience: Duration,
) -> io::Result<Result<Vec<SnapshotItem>, Refusal>> {
    let request = Request::Snapshots {
        fileset: Some(fileset.to_owned()),
        order,
    };
    ordered(socket, &request, patience, |reply| match reply {
        Reply::Snapshots { items, more } => Some((items, more)),
        _ => None,
    })
}

/// Has a mount carry an order about quotas of a fileset out, and returns those that it is about.
pub fn quotas(
    (socket, fileset): (&Path, &str),
    order: QuotaOrder,
    patience: Duration,
) -> io::Result<Result<Vec<QuotaItem>, Refusal>> {
    let request = Request::Quotas {
        fileset: Some(fileset.to_owned()),
        order,
    };
    ordered(socket, &request, patience, |reply| match reply {
        Reply::Quotas { items, more } => Some((items, more)),
        _ => None,
    })
}

/// Has a mount carry an order out. Its replies have `items`, and say whether more of them follow.
fn ordered<T>(
    socket: &Path,
    request: &Request,
    patience: Duration,
    items: impl Fn(Reply) -> Option<(Vec<T>, bool)>,
) -> io::Result<Result<Vec<T>, Refusal>> {
    let mut connection = Connection::open(socket, request)?;
    let (mut all, until) = (Vec::new(), clock::now() + patience);
    loop {
        let (items, more) = match connection.answer(until, &items)? {
            Ok(answer) => answer,
            Err(refusal) => return Ok(Err(refusal)),
        };
        all.extend(items);
        if !more {
            return Ok(Ok(all));
        }
    }
}

/// Has a mount carry an order out that it answers with one reply, which `told` understands.
fn answer<T>(
    socket: &Path,
    request: &Request,
    patience: Duration,
    told: impl Fn(Reply) -> Option<T>,
) -> io::Result<Result<T, Refusal>> {
    Connection::open(socket, request)?.answer(clock::now() + patience, told)
}

/// Has a mount make a dump of its fileset.
pub fn dump(
    (socket, fileset): (&Path, &str),
    keep: u64,
    patience: Duration,
) -> io::Result<Result<DumpItem, Refusal>> {
    let fileset = Some(fileset.to_owned());
    answer(
        socket,
        &Request::Dump { fileset, keep },
        patience,
        |reply| match reply {
            Reply::Dumped(made) => Some(made),
            _ => None,
        },
    )
}

/// Changes what the fileset of a mount does by itself, and returns what is so then.
pub fn schedule(
    (socket, fileset): (&Path, &str),
    changes: BTreeMap<String, u32>,
    patience: Duration,
) -> io::Result<Result<BTreeMap<String, u32>, Refusal>> {
    let fileset = Some(fileset.to_owned());
    answer(
        socket,
        &Request::Schedule { fileset, changes },
        patience,
        |reply| match reply {
            Reply::Schedule { keep } => Some(keep),
            _ => None,
        },
    )
}

/// Has a mount carry an order about the trash of its fileset out.
pub fn trash(
    (socket, fileset): (&Path, &str),
    order: TrashOrder,
    patience: Duration,
) -> io::Result<Result<TrashAnswer, Refusal>> {
    let request = Request::Trash {
        fileset: Some(fileset.to_owned()),
        order,
    };
    answer(socket, &request, patience, |reply| match reply {
        Reply::Trash(answer) => Some(answer),
        _ => None,
    })
}

/// Changes how the fileset of a mount compresses what it saves, if a change is given, and returns what is so then.
pub fn compression(
    (socket, fileset): (&Path, &str),
    change: Option<String>,
    patience: Duration,
) -> io::Result<Result<String, Refusal>> {
    let request = Request::Compression {
        fileset: Some(fileset.to_owned()),
        change,
    };
    answer(socket, &request, patience, |reply| match reply {
        Reply::Compression { setting } => Some(setting),
        _ => None,
    })
}

/// A mount that answered.
#[derive(Debug, Clone)]
pub struct Found {
    /// Where it listens.
    pub socket: PathBuf,
    /// How it is.
    pub status: Status,
}

/// Every mount of `place`, the latest of a mount point last. Sockets that dead mounts left behind are removed.
pub fn all(place: &SocketDirectory) -> Vec<Found> {
    let answer = |socket: PathBuf| match status(&socket) {
        Ok(status) => Some(Found { socket, status }),
        Err(error) => {
            if error.kind() == io::ErrorKind::ConnectionRefused {
                claim::remove_dead(place, &socket);
            }
            None
        }
    };
    let sockets = place.sockets().into_iter();
    let mut answers: Vec<_> = sockets.filter_map(answer).collect();
    answers.sort_by_key(|found| (found.status.mountpoint.clone(), found.status.started));
    answers
}

/// The mount of this process.
pub fn of_process(place: &SocketDirectory, process: u32) -> Option<Found> {
    let mut mounts = all(place).into_iter();
    mounts.find(|mount| mount.status.pid == process)
}

/// Removes the sockets of mounts on `mountpoint` whose processes are gone.
pub fn remove_dead(place: &SocketDirectory, mountpoint: &Path) {
    for socket in place.sockets_at(mountpoint) {
        claim::remove_dead(place, &socket);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn who_accepts_nobody_is_not_waited_for_and_keeps_the_socket() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (place, mountpoint) = (SocketDirectory::at(directory.path()), Path::new("/mnt/x"));
        let socket = place.socket_of(mountpoint);
        let made = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        );
        let listener = made.expect("a socket");
        let address = SocketAddrUnix::new(&socket).expect("short");
        rustix::net::bind(&listener, &address).expect("free");
        rustix::net::listen(&listener, 0).expect("it listens");
        let _waiting = UnixStream::connect(&socket).expect("there is one place");
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let refused = claim::claim(&place, Path::new("/mnt/x")).map(drop);
            remove_dead(&place, Path::new("/mnt/x"));
            tell.send(refused).expect("awaited");
        });
        let refused = told.recv_timeout(ANSWER_DEADLINE * 3).expect("bounded");
        assert!(refused.is_err());
        assert!(socket.exists() && is_heard(&socket));
    }

    #[test]
    fn the_socket_of_a_dead_mount_is_removed_and_that_of_a_living_one_stays() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (place, mountpoint) = (SocketDirectory::at(directory.path()), Path::new("/mnt/x"));
        let socket = place.socket_of(mountpoint);
        let listener = UnixListener::bind(&socket).expect("free");
        remove_dead(&place, mountpoint);
        assert!(socket.exists());
        drop(listener);
        remove_dead(&place, mountpoint);
        assert!(!socket.exists());
        remove_dead(&place, mountpoint);
    }
}
