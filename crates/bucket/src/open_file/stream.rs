//! The one stream of writes into a file.

use penstock_base::{FsError, FsResult};
use penstock_vfs::{HandleId, WritePlace};

use crate::open_file::sink::Sink;

/// The one stream of writes into a file.
#[derive(Debug, Default)]
pub(crate) struct WriteStream {
    phase: Phase,
}

#[derive(Debug, Default)]
enum Phase {
    /// The store has everything.
    #[default]
    Clean,
    /// A handle writes.
    Open(Box<OpenStream>),
    /// What a handle wrote is lost; it hears so at every later use.
    Failed {
        owner: HandleId,
        error: FsError,
        /// A close was told.
        told: bool,
    },
}

/// A stream that a handle writes.
#[derive(Debug)]
pub(super) struct OpenStream {
    pub(super) owner: HandleId,
    pub(super) sink: Sink,
    /// Bytes accepted: where the next write must begin.
    pub(super) end: u64,
    /// What to add to the offsets of an appending writer that believes in another length.
    pub(super) shift: i64,
    /// Whether there is anything to save: a creation, a truncation or a write since the last
    /// time.
    pub(super) touched: bool,
    /// Where the stream would end after a write that was under way when its caller left.
    pub(super) taking: Option<u64>,
}

/// Where a write falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// It is the next one.
    End,
    /// It would overwrite.
    Below,
    /// Something is missing in front of it.
    Ahead,
}

impl OpenStream {
    /// A stream that goes on at `end` and has nothing to save yet.
    pub(super) fn untouched(owner: HandleId, sink: Sink, end: u64) -> Self {
        Self {
            owner,
            sink,
            end,
            shift: 0,
            touched: false,
            taking: None,
        }
    }

    /// Where a write falls. One that appends is never below the end.
    pub(super) fn position_of(&self, place: WritePlace) -> Position {
        let position = i128::from(place.offset()) + i128::from(self.shift);
        match position.cmp(&i128::from(self.end)) {
            std::cmp::Ordering::Less => match place {
                WritePlace::At(_) => Position::Below,
                WritePlace::End(_) | WritePlace::EndInPieces(_) => Position::End,
            },
            std::cmp::Ordering::Equal => Position::End,
            std::cmp::Ordering::Greater => Position::Ahead,
        }
    }

    /// Finds out what became of a write whose caller left while it was under way.
    fn settle(&mut self) -> FsResult<()> {
        let Some(target) = self.taking.take() else {
            return Ok(());
        };
        let size = self.sink.size();
        if size == target {
            self.end = target;
            self.touched = true;
        } else if size != self.end {
            return Err(FsError::Io(
                "an interrupted write was taken in part".to_owned(),
            ));
        }
        Ok(())
    }
}

impl WriteStream {
    /// Opens a stream of new content, which is worth saving even if nothing is written.
    pub(crate) fn begin(&mut self, owner: HandleId, sink: Sink) {
        self.open(OpenStream {
            owner,
            end: 0,
            sink,
            shift: 0,
            touched: true,
            taking: None,
        });
    }

    pub(super) fn open(&mut self, stream: OpenStream) {
        self.phase = Phase::Open(Box::new(stream));
    }

    /// The stream if `handle` writes it, `None` if nobody does. Fails with `Busy` if another
    /// handle does, and with what happened if the handle's stream failed.
    pub(super) fn of(&mut self, handle: HandleId) -> FsResult<Option<&mut OpenStream>> {
        if let Phase::Open(stream) = &mut self.phase
            && let Err(error) = stream.settle()
        {
            let owner = stream.owner;
            self.fail(owner, error);
        }
        // What another handle began or saved and did not write to is free to take.
        if let Phase::Open(stream) = &self.phase
            && stream.owner != handle
            && !stream.touched
        {
            self.clear();
        }
        match &mut self.phase {
            Phase::Clean => Ok(None),
            Phase::Open(stream) if stream.owner == handle => Ok(Some(stream)),
            Phase::Failed { owner, error, .. } if *owner == handle => Err(error.clone()),
            Phase::Open(_) | Phase::Failed { .. } => Err(FsError::Busy(
                "another handle is writing this file; close it first",
            )),
        }
    }

    /// Whether something of a file may be in the store though it was never saved: pieces that were
    /// appended, or all of it, if the answer to a save was lost. Waits for what is under way.
    pub(crate) async fn may_be_stored(&mut self) -> bool {
        match &mut self.phase {
            Phase::Clean => false,
            Phase::Open(stream) => stream.sink.may_be_stored().await,
            Phase::Failed { .. } => true,
        }
    }

    /// Who writes, or wrote in vain.
    pub(crate) fn owner(&self) -> Option<HandleId> {
        match &self.phase {
            Phase::Clean => None,
            Phase::Open(stream) => Some(stream.owner),
            Phase::Failed { owner, .. } => Some(*owner),
        }
    }

    /// Declares the stream of `owner` as failed.
    pub(super) fn fail(&mut self, owner: HandleId, error: FsError) {
        self.phase = Phase::Failed {
            owner,
            error,
            told: false,
        };
    }

    /// Notes that a close of `owner` is told what its stream failed with, and returns that.
    pub(super) fn tell(&mut self, handle: HandleId) -> Option<FsError> {
        match &mut self.phase {
            Phase::Failed { owner, error, told } if *owner == handle => {
                *told = true;
                Some(error.clone())
            }
            _ => None,
        }
    }

    /// Whether another handle than this one failed and was told when it was closed: it is in nobody's way.
    pub(super) fn is_left_by_other(&self, handle: HandleId) -> bool {
        matches!(&self.phase, Phase::Failed { owner, told: true, .. } if *owner != handle)
    }

    /// Takes an open stream out; until its end is known the file counts as failed.
    pub(super) fn take(&mut self) -> Option<OpenStream> {
        let owner = self.owner()?;
        let interrupted = FsError::Io("the upload broke off".to_owned());
        let failed = Phase::Failed {
            owner,
            error: interrupted,
            told: false,
        };
        match std::mem::replace(&mut self.phase, failed) {
            Phase::Open(stream) => Some(*stream),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Drops what is not saved.
    pub(super) async fn discard(&mut self) {
        let open = self.take();
        self.clear();
        if let Some(open) = open {
            open.sink.abort().await;
        }
    }

    /// Ends a stream that has nothing to save.
    pub(crate) async fn discard_untouched(&mut self) {
        if matches!(&self.phase, Phase::Open(stream) if !stream.touched && stream.taking.is_none())
        {
            self.discard().await;
        }
    }

    /// Declares that the store has everything, or that nothing more is to be saved.
    pub(crate) fn clear(&mut self) {
        self.phase = Phase::Clean;
    }
}
