//! What an open file has in the mode of its volume, and whose turn it is to save it.
//!
//! [`Mode`] is of the volume, [`Body`] of an open file, and [`Turn`] of the one task that saves, removes, renames
//! or describes a file at a time. Each is an enum of the two modes; what differs between the modes is
//! matched here or where an operation on an open file begins, and nowhere below.

use std::sync::Arc;

use penstock_object::Key;
use penstock_transfer::{
    ObjectVersion,
    staging::{Left, Reopened, on_worker},
};
use penstock_vfs::{HandleId, Inode, Opened};
use tokio::sync::MutexGuard;

use crate::{
    open_file::{OpenFile, stream::WriteStream, streamed::StreamedBody},
    staged::{StagedBody, StagedMode},
};

/// How the files of a volume are written.
#[derive(Debug, Clone)]
pub(crate) enum Mode {
    /// From front to end, into uploads.
    Streaming,
    /// Anywhere, into a staging directory.
    Staged(Arc<StagedMode>),
}

/// What an open file has in the mode of its volume.
#[derive(Debug)]
pub(crate) enum Body {
    /// It is written from front to end.
    Streamed(StreamedBody),
    /// It is written anywhere.
    Staged(Arc<StagedBody>),
}

/// The right to save a file, remove or rename it, or to describe its object: one at a time.
#[derive(Debug)]
pub(crate) enum Turn<'file> {
    /// With the stream of writes, which nobody else moves on.
    Streamed(MutexGuard<'file, WriteStream>),
    /// Writes may go on.
    Staged {
        body: &'file StagedBody,
        _turn: MutexGuard<'file, ()>,
    },
}

impl Mode {
    /// What a file has of which nothing is written yet.
    pub(crate) fn body(&self) -> Body {
        match self {
            Self::Streaming => Body::Streamed(StreamedBody::new()),
            Self::Staged(mode) => Body::Staged(Arc::new(StagedBody::new(mode))),
        }
    }

    /// The staged mode, where the volume has that.
    pub(crate) fn staged(&self) -> Option<&Arc<StagedMode>> {
        match self {
            Self::Streaming => None,
            Self::Staged(mode) => Some(mode),
        }
    }

    /// Whether a file that no handle has open left something of exactly this version.
    pub(crate) fn has_left(&self, version: &ObjectVersion) -> bool {
        let mode = self.staged();
        mode.is_some_and(|mode| mode.staging().closed().has(version))
    }

    /// What a closed file left of exactly this version; what it left of another one goes.
    pub(crate) fn take_left(&self, version: &ObjectVersion) -> Option<Left> {
        self.staged()?.staging().closed().take(version)
    }

    /// Opens what a closed file left.
    pub(crate) async fn reopen(&self, left: Left) -> Option<Reopened> {
        let staging = self.staged()?.staging();
        on_worker(|| staging.reopen(left)).await
    }

    /// The object of this key is removed: what a closed file left of it goes.
    pub(crate) fn forget_left(&self, key: &Key) {
        if let Self::Staged(mode) = self {
            mode.staging().closed().forget(key);
        }
    }

    /// The store has a version of an object as `moved` now: so has what a closed file left of it.
    pub(crate) fn follow_left(&self, original: &ObjectVersion, moved: &ObjectVersion) {
        if let Self::Staged(mode) = self {
            let closed = mode.staging().closed();
            closed.follow(&original.key, &original.etag, moved);
        }
    }
}

impl Body {
    /// The staged half, where there is one.
    pub(crate) fn staged(&self) -> Option<&Arc<StagedBody>> {
        match self {
            Self::Streamed(_) => None,
            Self::Staged(body) => Some(body),
        }
    }

    /// Whether what was written is here, and is to be read from here.
    pub(crate) fn is_engaged(&self) -> bool {
        let body = self.staged();
        body.is_some_and(|body| body.content.is_engaged())
    }

    /// How a door treats a handle that writes: closing has something to report. Of a stream nothing is
    /// kept. A staged file can be mapped; of a new one the door has nothing yet.
    pub(crate) fn opened_for_writing(&self, handle: HandleId) -> Opened {
        let is_staged = self.staged().is_some();
        Opened {
            passes_once: !is_staged,
            is_unchanged: is_staged,
            closes_silently: false,
            ..Opened::new(handle)
        }
    }
}

impl Turn<'_> {
    /// Whether something of a file may be in the store though it was never saved. Waits for what is under way.
    pub(crate) async fn may_be_stored(&mut self) -> bool {
        match self {
            Self::Streamed(stream) => stream.may_be_stored().await,
            Self::Staged { body, .. } => body.content.may_be_stored(),
        }
    }

    /// Ends a stream that has nothing to save: it would go on after a version that is replaced now.
    pub(crate) async fn discard_untouched(&mut self) {
        if let Self::Streamed(stream) = self {
            stream.discard_untouched().await;
        }
    }
}

impl OpenFile {
    /// The turn to save the file, once nobody else has it.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        match &self.body {
            Body::Streamed(body) => Turn::Streamed(body.stream().await),
            Body::Staged(body) => Turn::Staged {
                body,
                _turn: body.turn.lock().await,
            },
        }
    }

    /// Drops what was written to a file that is removed. Reads of what the store had may go on.
    pub(crate) async fn discard(&self, turn: &mut Turn<'_>) {
        match turn {
            Turn::Streamed(stream) => self.discard_stream(stream).await,
            Turn::Staged { body, .. } => {
                on_worker(|| body.content.abandon()).await;
                let mut view = self.view();
                view.removed = true;
                view.ours = false;
            }
        }
    }
}

/// The turns of two files, of which that with the lower inode waits first.
pub(crate) async fn turns_of_both<'file>(
    one: Option<&'file OpenFile>,
    other: Option<&'file OpenFile>,
) -> (Option<Turn<'file>>, Option<Turn<'file>>) {
    let inode = |file: Option<&OpenFile>| file.map_or(Inode(u64::MAX), |file| file.inode);
    if inode(one) <= inode(other) {
        let first = turn_of(one).await;
        (first, turn_of(other).await)
    } else {
        let first = turn_of(other).await;
        (turn_of(one).await, first)
    }
}

/// The turn of a file, if it is open.
pub(crate) async fn turn_of(file: Option<&OpenFile>) -> Option<Turn<'_>> {
    match file {
        Some(file) => Some(file.turn().await),
        None => None,
    }
}
