//! Whose the socket of a mount point is.
//!
//! `ID.sock` belongs to the process that mounts there, from its first step to its end. One that was
//! unmounted and still saves makes way for the next: its socket becomes `ID.PID.sock`, where whoever
//! asks about the mount point goes on finding it. One that has left this mount point and is at another
//! gets the name of that. No socket of a living process is ever removed or
//! replaced. Who looks at a socket and acts upon it has its turn at the directory meanwhile, so that
//! nobody else does so in between.

use std::{
    fmt, fs, io,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{Phase, SocketDirectory, client, system::Peer};

/// How often a process looks again whose socket somebody else was quicker with.
const ATTEMPTS_MAX: usize = 8;

/// How long a process that listens may take to have a place for one more.
const ACCEPT_PATIENCE: Duration = Duration::from_secs(5);

/// Why a process cannot have the socket of a mount point.
#[derive(Debug)]
pub enum ClaimError {
    /// Another process has it, and goes on serving there or is about to.
    Held {
        /// Its number.
        process: u32,
        /// Where its mount is.
        phase: Phase,
    },
    /// The directory of the sockets cannot be used.
    Io(io::Error),
}

impl From<io::Error> for ClaimError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { process, .. } => write!(f, "process {process} has it"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

/// The name under which a process listens. Dropping it removes the socket, whatever it is called by
/// then.
#[derive(Debug)]
pub(crate) struct Name {
    place: SocketDirectory,
    /// Which file the socket is.
    inode: u64,
}

impl Drop for Name {
    fn drop(&mut self) {
        // Whoever has the directory for so long leaves a socket on which nobody listens.
        let Ok(_turn) = self.place.turn() else {
            return;
        };
        let sockets = self.place.sockets();
        let ours = sockets.iter().find(|path| inode(path) == Some(self.inode));
        if let Some(socket) = ours {
            let _ = fs::remove_file(socket);
        }
    }
}

/// Listens for the mount point, where only this user can connect. A socket on which nobody listens is
/// replaced, that of a mount which is gone from there is renamed. Blocks, for seconds where a process
/// does not answer.
pub(crate) fn claim(
    place: &SocketDirectory,
    mountpoint: &Path,
) -> Result<(Name, UnixListener), ClaimError> {
    place.prepare()?;
    let socket = place.socket_of(mountpoint);
    for _ in 0..ATTEMPTS_MAX {
        let found = Listening::at(&socket, ACCEPT_PATIENCE)?;
        let aside = match &found {
            Some(listening) => Some(listening.aside(place, mountpoint)?),
            None => None,
        };
        let _turn = place.turn()?;
        if Listening::at(&socket, Duration::ZERO)? != found {
            continue;
        }
        if let Some(aside) = aside {
            make_way(&socket, &aside)?;
        }
        return listen(place, &socket);
    }
    Err(io::Error::from(io::ErrorKind::AddrInUse).into())
}

/// Removes a socket on which nobody listens.
pub(crate) fn remove_dead(place: &SocketDirectory, socket: &Path) {
    if let Ok(_turn) = place.turn()
        && is_dead(socket)
    {
        let _ = fs::remove_file(socket);
    }
}

fn is_dead(socket: &Path) -> bool {
    client::connect(socket, Duration::ZERO)
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Who listens on a socket, as far as it can be told without a question.
#[derive(Debug, PartialEq, Eq)]
struct Listening {
    inode: Option<u64>,
    process: u32,
}

impl Listening {
    /// Fails when somebody listens and accepts nobody within the limit.
    fn at(socket: &Path, limit: Duration) -> io::Result<Option<Self>> {
        let stream = match client::connect(socket, limit) {
            Ok(stream) => stream,
            Err(error) if client::is_silence(&error) => return Err(stopped(socket)),
            Err(_) => return Ok(None),
        };
        let process = Peer::of(&stream).map_or(0, |peer| peer.process);
        Ok(Some(Self {
            inode: inode(socket),
            process,
        }))
    }

    /// The other name of the socket, if its process makes way. One that does not answer is found under that, too.
    fn aside(&self, place: &SocketDirectory, mountpoint: &Path) -> Result<PathBuf, ClaimError> {
        let earlier = |process| place.socket_of_earlier(mountpoint, process);
        let Ok(status) = client::status(&place.socket_of(mountpoint)) else {
            return Ok(earlier(self.process));
        };
        let process = status.pid;
        match status.phase {
            Phase::Saving => Ok(earlier(process)),
            Phase::Mounted if status.mountpoint != mountpoint => {
                Ok(place.socket_of(&status.mountpoint))
            }
            phase => Err(ClaimError::Held { process, phase }),
        }
    }
}

fn stopped(socket: &Path) -> io::Error {
    let text = format!(
        "the process that listens at {} answers nobody; it may be stopped",
        socket.display()
    );
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// Gives the socket of a mount that is gone from there its other name.
fn make_way(socket: &Path, aside: &Path) -> io::Result<()> {
    if aside.exists() && !is_dead(aside) {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    fs::rename(socket, aside)
}

fn listen(place: &SocketDirectory, socket: &Path) -> Result<(Name, UnixListener), ClaimError> {
    let new = socket.with_extension("new");
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
    let name = Name {
        place: place.clone(),
        inode: fs::symlink_metadata(&new)?.ino(),
    };
    fs::rename(&new, socket)?;
    Ok((name, listener))
}

fn inode(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|found| found.ino())
}
