//! Going on in the background, without leaving the user in doubt.
//!
//! The process is split before it starts any thread. The parent waits on a pipe for what the
//! child announces: either that the mount is usable, or why it is not. Only then does it return
//! to the shell. A child whose parent went away meanwhile (Ctrl-C) does not stay behind.

use std::{
    io::{self, PipeReader, PipeWriter, Read, Write},
    time::Duration,
};

use penstock_base::{DirectoryLock, clock};
use rustix::process::{Pid, Signal, kill_process, setsid};

use crate::{
    failure::{Exit, Failure, Outcome},
    system::{self, Forked},
};

/// How long the parent of a mount waits for a word. The child's own checks take at most half of
/// that.
pub(crate) const READY_DEADLINE: Duration = Duration::from_secs(30);

/// How often a child looks whether its parent still waits.
const LEFT_ALONE_POLL: Duration = Duration::from_millis(300);

/// The announcement that the mount is usable.
const READY: u8 = 0;

/// Bytes in the longest announcement of a failure.
const MESSAGE_SIZE_MAX: u64 = 8192;

/// Which process this is now.
#[derive(Debug)]
pub(crate) enum Side {
    /// The one that the user started.
    Parent(Waiting),
    /// The one that will serve the mount.
    Child(Announcer),
}

/// The parent's end.
#[derive(Debug)]
pub(crate) struct Waiting {
    reader: PipeReader,
    child: Pid,
}

/// Tells whoever started the mount how that went.
#[derive(Debug)]
pub(crate) enum Announcer {
    /// There is nobody to tell: the user sees this very process. The turn to begin a mount, if it has one, ends when a
    /// parent would be told.
    Foreground(Option<DirectoryLock>),
    /// A parent waits.
    Background(PipeWriter),
}

/// Splits the process.
pub(crate) fn detach() -> Outcome<Side> {
    let cannot = |error: io::Error| {
        Failure::new(
            format!("cannot go to the background: {error}"),
            "stay in the foreground with -f",
        )
    };
    let (reader, writer) = io::pipe().map_err(cannot)?;
    match system::fork().map_err(cannot)? {
        Forked::Parent(child) => Ok(Side::Parent(Waiting { reader, child })),
        Forked::Child => {
            // It fails only for the leader of a group, which a child is not.
            let _ = setsid();
            Ok(Side::Child(Announcer::Background(writer)))
        }
    }
}

impl Waiting {
    /// Returns when the mount is usable, or with the reason why it is not. Waits at most for
    /// `limit`.
    pub(crate) fn until_ready(self, limit: Duration) -> Outcome {
        let Self { reader, child } = self;
        if !system::readable_within(&reader, limit) {
            let _ = kill_process(child, Signal::KILL);
            return Err(Failure::new(
                format!("the mount was not ready within {limit:?}"),
                "mount with -f --log-level debug to see what it waits for",
            ));
        }
        let mut announcement = Vec::new();
        let _ = reader.take(MESSAGE_SIZE_MAX).read_to_end(&mut announcement);
        match announcement.split_first() {
            Some((&READY, _)) => Ok(()),
            Some((code, message)) => Err(Failure::reported(
                &String::from_utf8_lossy(message),
                Exit::from_code(*code),
            )),
            None => Err(Failure::new(
                format!(
                    "the mount's process {} before it was ready",
                    system::ending_of(child).unwrap_or_else(|| "ended".to_owned())
                ),
                "mount with -f to see its last words",
            )),
        }
    }
}

impl Announcer {
    /// Waits until nobody waits for the announcement any more.
    pub(crate) async fn left_alone(&self) {
        let Self::Background(pipe) = self else {
            return std::future::pending().await;
        };
        while !system::is_abandoned(pipe) {
            clock::sleep(LEFT_ALONE_POLL).await;
        }
    }

    /// The mount is usable. Fails when nobody wants it any more.
    pub(crate) fn ready(self) -> Outcome {
        let mut pipe = match self {
            Self::Background(pipe) => pipe,
            Self::Foreground(turn) => {
                drop(turn);
                return Ok(());
            }
        };
        let left_alone = |error: io::Error| {
            Failure::new(
                format!("whoever asked for the mount has gone: {error}"),
                "mount again",
            )
        };
        pipe.write_all(&[READY]).map_err(left_alone)?;
        drop(pipe);
        // What we were started in must not stay busy because of us.
        let _ = std::env::set_current_dir("/");
        system::close_standard_streams().map_err(left_alone)
    }

    /// Somebody else announces: lets go of what the user waits for.
    pub(crate) fn leave_to_another(self) {
        if let Self::Background(pipe) = self {
            drop(pipe);
            let _ = std::env::set_current_dir("/");
            let _ = system::close_standard_streams();
        }
    }

    /// The mount failed.
    pub(crate) fn failed(self, failure: &Failure) {
        if let Self::Background(mut pipe) = self {
            let mut announcement = vec![failure.exit().code().max(1)];
            announcement.extend(
                failure
                    .to_string()
                    .bytes()
                    .take(MESSAGE_SIZE_MAX as usize - 1),
            );
            let _ = pipe.write_all(&announcement);
            let _ = system::close_standard_streams();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> (Waiting, PipeWriter) {
        let (reader, writer) = io::pipe().expect("a pipe");
        // No process has this id, so that there is nothing to reap.
        let child = Pid::from_raw(i32::MAX).expect("positive");
        (Waiting { reader, child }, writer)
    }

    #[test]
    fn the_parent_learns_that_the_mount_is_ready() {
        let (waiting, mut writer) = waiting();
        writer.write_all(&[READY]).expect("written");
        drop(writer);
        assert!(waiting.until_ready(READY_DEADLINE).is_ok());
    }

    #[test]
    fn the_parent_repeats_why_it_failed() {
        let (waiting, mut writer) = waiting();
        writer
            .write_all(b"\x02no such bucket; check the name")
            .expect("written");
        drop(writer);
        let failure = waiting.until_ready(READY_DEADLINE).expect_err("failed");
        assert_eq!(failure.to_string(), "no such bucket; check the name");
        assert_eq!(failure.exit(), Exit::Usage);
    }

    #[test]
    fn a_child_notices_that_nobody_waits() {
        let (waiting, writer) = waiting();
        assert!(!system::is_abandoned(&writer));
        drop(waiting);
        assert!(system::is_abandoned(&writer));
    }

    #[test]
    fn a_child_that_dies_silently_is_a_failure() {
        let (waiting, writer) = waiting();
        drop(writer);
        let failure = waiting
            .until_ready(READY_DEADLINE)
            .expect_err("failed")
            .to_string();
        assert!(failure.contains("before it was ready"), "{failure}");
    }
}
