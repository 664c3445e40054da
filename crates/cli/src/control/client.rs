//! The side that asks.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use penstock_base::clock;

use super::{Place, Reply, Request, Status};
use crate::system::{self, Process};

/// How long a healthy mount may take to answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// How old a socket is on which somebody should listen by now.
const STALE_AGE: Duration = Duration::from_secs(60);

/// Bytes in the longest answer.
const REPLY_SIZE_MAX: u64 = 4 << 20;

/// A conversation with one mount.
#[derive(Debug)]
pub(crate) struct Connection {
    lines: BufReader<UnixStream>,
    process: Option<Process>,
}

impl Connection {
    /// Sends `request` to the mount behind `socket`.
    pub(crate) fn open(socket: &Path, request: &Request) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        let process = peer(&stream)?;
        stream.set_read_timeout(Some(ANSWER_DEADLINE))?;
        stream.set_write_timeout(Some(ANSWER_DEADLINE))?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        Ok(Self {
            lines: BufReader::new(stream),
            process,
        })
    }

    /// Waits until the mount's process has ended, at most for `limit`; says whether it did. One that
    /// cannot be seen from here is not waited for.
    pub(crate) fn ends_within(&self, limit: Duration) -> bool {
        let process = self.process.as_ref();
        process.is_none_or(|process| process.ends_within(limit))
    }

    /// The next answer; none when the mount has nothing more to say.
    pub(crate) fn next(&mut self) -> io::Result<Option<Reply>> {
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
}

/// The mount's process, if it can be seen from here. What another user pretends to be a mount of this
/// one's is neither believed nor ordered about.
fn peer(stream: &UnixStream) -> io::Result<Option<Process>> {
    let (process, user) = system::peer(stream)?;
    if user == system::user_id() || user == 0 {
        return Ok(Process::find(process));
    }
    let text = format!("another user, {user}, listens there");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Whether [`Connection::next`] failed because the mount gave no answer in time; it may be busy.
pub(crate) fn is_silence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Asks one mount how it is.
pub(crate) fn status(socket: &Path) -> io::Result<Status> {
    match Connection::open(socket, &Request::Status)?.next()? {
        Some(Reply::Status(status)) => Ok(*status),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// How every mount of `place` is. Sockets that dead mounts left behind are removed.
pub(crate) fn all(place: &Place) -> Vec<Status> {
    let answer = |socket: &PathBuf| match status(socket) {
        Ok(status) => Some(status),
        Err(error) => {
            if error.kind() == io::ErrorKind::ConnectionRefused {
                remove_if_old(socket);
            }
            None
        }
    };
    let sockets = place.sockets();
    let mut statuses: Vec<_> = sockets.iter().filter_map(answer).collect();
    statuses.sort_by(|one, other| one.mountpoint.cmp(&other.mountpoint));
    statuses
}

/// Removes the socket of a mount whose process is known to be gone, unless another one has its place
/// by now.
pub(crate) fn remove_dead(socket: &Path) {
    let connected = UnixStream::connect(socket);
    if connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        let _ = fs::remove_file(socket);
    }
}

/// Removes a socket on which nobody listens, unless it is so young that somebody may be about to.
fn remove_if_old(socket: &Path) {
    let modified = fs::metadata(socket).and_then(|metadata| metadata.modified());
    let age = modified.map(|modified| clock::wall_time().duration_since(modified));
    if matches!(age, Ok(Ok(age)) if age > STALE_AGE) {
        let _ = fs::remove_file(socket);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_socket_of_a_dead_mount_is_removed_and_that_of_a_living_one_stays() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("a.sock");
        let listener = UnixListener::bind(&socket).expect("free");
        remove_dead(&socket);
        assert!(socket.exists());
        drop(listener);
        remove_dead(&socket);
        assert!(!socket.exists());
        remove_dead(&socket);
    }
}
