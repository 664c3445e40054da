//! Reading an object straight into the sink's memory.

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{OFlags, fstat},
    io::{Errno, pread},
};

use super::{
    attributes::Attributes,
    name::Location,
    problem::{Attempt, Problem},
    tree::Tree,
    version::Version,
};
use crate::{BodySink, ETag, ErrorKind, Got, ObjectInfo};

/// Bytes that are read before other tasks get their turn and a cancelled read stops.
const TURN: u64 = 8 << 20;

/// An object that is being read. All of it, tag, metadata and bytes, is of the one file that was
/// opened, whatever the key leads to by now.
pub(super) struct Reading {
    file: OwnedFd,
    version: Version,
    position: u64,
    end: u64,
}

impl Reading {
    /// Opens the object and checks its version.
    pub(super) fn open(
        tree: &Tree,
        location: &Location,
        if_match: Option<&ETag>,
    ) -> Attempt<(Self, ObjectInfo)> {
        let (file, version) = tree.object(location, OFlags::RDONLY)?;
        let info = version.info(Attributes::read(file.as_fd())?);
        check_tag(&info, if_match)?;
        let reading = Self {
            file,
            version,
            position: 0,
            end: version.size,
        };
        Ok((reading, info))
    }

    /// Announces the read to the sink.
    pub(super) fn begin(&mut self, got: &Got, sink: &mut dyn BodySink) {
        (self.position, self.end) = (got.range.start, got.range.end);
        sink.begin(got);
    }

    /// Reads until the sink is full, the range ends or it is time for others. Says whether there
    /// is more to do.
    pub(super) fn turn(&mut self, sink: &mut dyn BodySink) -> Attempt<bool> {
        let pause = self.end.min(self.position + TURN);
        while self.position < pause {
            let room = sink.unfilled();
            let wanted = room.len().min((pause - self.position) as usize);
            if wanted == 0 {
                break;
            }
            let count = match pread(&self.file, &mut room[..wanted], self.position) {
                Ok((read, _)) => read.len(),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if count == 0 {
                return Err(changed("the file was truncated while it was read"));
            }
            // SAFETY: pread wrote the first `count` bytes of what `unfilled` returned.
            unsafe { sink.advance(count) };
            self.position += count as u64;
        }
        Ok(self.position < self.end && self.position == pause)
    }

    /// Where the read stopped, after a check that nobody wrote to the file meanwhile. Appends
    /// change nothing of what was there.
    pub(super) fn finish(self, tree: &Tree) -> Attempt<u64> {
        if !self.version.appendable {
            let now = tree.observe(|| fstat(&self.file))?;
            if now.etag() != self.version.etag() {
                return Err(changed(
                    "another program wrote to the file while it was read",
                ));
            }
        }
        Ok(self.position)
    }
}

pub(super) fn check_tag(info: &ObjectInfo, if_match: Option<&ETag>) -> Attempt<()> {
    if if_match.is_some_and(|tag| *tag != info.etag) {
        let message = "the object was replaced by another version";
        return Err(Problem::new(ErrorKind::PreconditionFailed, message));
    }
    Ok(())
}

/// What was read may mix two versions, so going on would not help.
fn changed(message: &str) -> Problem {
    Problem::new(ErrorKind::PreconditionFailed, message)
}
