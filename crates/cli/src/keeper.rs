//! A process that starts the one that serves again when it was killed.
//!
//! ```text
//! penstock stream -+- keeper: holds the connection to the kernel, waits
//!                  +- server: reads the store, answers the kernel
//! ```
//!
//! The keeper is split off before there are threads, does nothing but wait, and holds what the
//! server sends it when it has mounted: the connection on which the kernel asks for blocks, the
//! volume's journal with its lock, and which index it is. When the server is killed, by whomever,
//! readers wait; the keeper splits off another server with what it holds, and that one goes on
//! with what the dead one had begun. When the server ends by itself the keeper ends with it. Who
//! kills both gets what killing one gave without a keeper: errors, and leftovers that the next
//! start removes.

use std::{
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    time::Duration,
};

use penstock_base::clock;
use penstock_block::Keepsake;
use tracing::{error, warn};

use crate::{
    daemon::Announcer,
    descriptors,
    failure::{Exit, Failure, Outcome},
    system::{self, Forked},
};

/// Servers that may be killed in a row, each within [`SOON`], before the keeper gives up.
const RESTARTS_MAX: u32 = 5;

/// A server that lived for longer was not killed by what it does at its start.
const SOON: Duration = Duration::from_secs(60);

/// What a server needs to go on with what another one began.
#[derive(Debug)]
pub(crate) struct Inherited {
    keepsake: Keepsake,
    /// Which index it is.
    pub note: String,
}

impl Inherited {
    /// The descriptors once more.
    pub(crate) fn keepsake(&self) -> io::Result<Keepsake> {
        Ok(Keepsake {
            connection: self.keepsake.connection.try_clone()?,
            journal: self.keepsake.journal.try_clone()?,
        })
    }
}

/// The server's end.
#[derive(Debug)]
pub(crate) struct Line {
    socket: UnixStream,
    pub inherited: Option<Inherited>,
}

impl Line {
    /// Gives the keeper what the next server will need.
    pub(crate) fn leave(&self, keepsake: &Keepsake, note: &str) -> io::Result<()> {
        let descriptors = [keepsake.connection.as_fd(), keepsake.journal.as_fd()];
        descriptors::send(&self.socket, &descriptors, note.as_bytes())
    }
}

/// Serves in a process of its own, again and again if it is killed. Must be called before there
/// are threads. Returns in the keeper when the server ended, and in each server.
pub(crate) fn keep(
    announcer: Announcer,
    mut serve: impl FnMut(Line, Announcer) -> Outcome,
) -> Outcome {
    let mut announcer = Some(announcer);
    let mut inherited = None;
    let mut restarts = 0;
    loop {
        let begun = clock::now();
        let (ours, theirs) = UnixStream::pair().map_err(|error| cannot(&error))?;
        let child = match system::fork().map_err(|error| cannot(&error))? {
            Forked::Child => {
                drop(ours);
                let line = Line {
                    socket: theirs,
                    inherited,
                };
                return serve(line, announcer.unwrap_or(Announcer::Foreground(None)));
            }
            Forked::Parent(child) => child,
        };
        drop(theirs);
        if let Some(announcer) = announcer.take() {
            announcer.leave_to_another();
        }
        inherited = receive_until_end(&ours).or(inherited);
        let Some(ending) = system::ending(child) else {
            return Ok(());
        };
        let Some(signal) = ending.terminating_signal() else {
            return ended(ending.exit_status().unwrap_or(0));
        };
        restarts = if begun.elapsed() > SOON {
            1
        } else {
            restarts + 1
        };
        if inherited.is_none() || restarts > RESTARTS_MAX {
            error!(
                signal,
                "the process of the volume was killed, and is not started again"
            );
            return Err(Failure::new(
                "the volume's process was killed",
                "mount again",
            ));
        }
        warn!(
            signal,
            "the process of the volume was killed; another one goes on with it"
        );
    }
}

/// How the server ended is how the keeper ends; what there was to say was said.
fn ended(status: i32) -> Outcome {
    match u8::try_from(status) {
        Ok(0) => Ok(()),
        Ok(code) => Err(Failure::reported("the volume ended", Exit::from_code(code))),
        Err(_) => Err(Failure::reported("the volume ended", Exit::Failed)),
    }
}

fn cannot(error: &io::Error) -> Failure {
    Failure::new(
        format!("no process can be started: {error}"),
        "raise the limit of processes, or stay in the foreground with -f",
    )
}

/// Waits until the other end is closed; returns the last thing that came.
fn receive_until_end(socket: &UnixStream) -> Option<Inherited> {
    let mut last = None;
    loop {
        match receive(socket) {
            Ok(Some(inherited)) => last = Some(inherited),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(None) | Err(_) => return last,
        }
    }
}

fn receive(socket: &UnixStream) -> io::Result<Option<Inherited>> {
    let Some(received) = descriptors::receive(socket)? else {
        return Ok(None);
    };
    let mut descriptors = received.descriptors.into_iter();
    let (Some(connection), Some(journal)) = (descriptors.next(), descriptors.next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let keepsake = Keepsake {
        connection,
        journal,
    };
    let note = String::from_utf8_lossy(&received.note).into_owned();
    Ok(Some(Inherited { keepsake, note }))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Read, Seek, Write},
    };

    use super::*;

    #[test]
    fn what_a_server_leaves_arrives_with_its_descriptors() {
        let mut journal = tempfile::tempfile().expect("a file");
        journal.write_all(b"a line").expect("written");
        let keepsake = Keepsake {
            connection: File::open("/dev/null").expect("there").into(),
            journal: journal.into(),
        };
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let line = Line {
            socket: theirs,
            inherited: None,
        };
        line.leave(&keepsake, "/index/of/it").expect("sent");
        drop((line, keepsake));
        let inherited = receive_until_end(&ours).expect("arrived");
        assert_eq!(inherited.note, "/index/of/it");
        let mut journal = File::from(inherited.keepsake().expect("once more").journal);
        let mut text = String::new();
        journal.rewind().expect("a file");
        journal.read_to_string(&mut text).expect("read");
        assert_eq!(text, "a line");
    }

    #[test]
    fn a_server_that_leaves_nothing_is_noticed() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        drop(theirs);
        assert!(receive_until_end(&ours).is_none());
    }
}
