//! Writing a staged file, at any place.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use penstock_base::{FsError, FsResult};
use penstock_vfs::{WritePlace, Written};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

use crate::{
    core::Core,
    inode::Node,
    open_file::{FileHandle, OpenFile},
    staged::{
        Engagement, StagedFile, content::Content, disk::disk_failure, journal::Record, lock,
        space::Payment,
    },
};

/// How often a write begins anew because somebody else gave the staged content up.
const ATTEMPTS_MAX: usize = 3;

/// The change lock, as a write holds it.
enum Held {
    Shared {
        _lock: OwnedRwLockReadGuard<()>,
    },
    /// Of who appends: nobody else may find the same end of the file.
    Alone {
        _lock: OwnedRwLockWriteGuard<()>,
    },
}

impl Held {
    async fn of(staged: &StagedFile, place: WritePlace) -> Self {
        let change = Arc::clone(&staged.change);
        match place {
            WritePlace::At(_) => Self::Shared {
                _lock: change.read_owned().await,
            },
            WritePlace::End(_) | WritePlace::EndInPieces(_) => Self::Alone {
                _lock: change.write_owned().await,
            },
        }
    }
}

/// The pieces of appends to a file.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Where the last one ended, as its writer believed.
    end: u64,
}

impl Pieces {
    /// Fails for a piece that begins, as its writer believes, at `believed`, if one that belongs behind
    /// it has come already to the file, which has `size` bytes. Who believes in a smaller file than
    /// before, and is right, has heard that it was made smaller.
    fn check(&self, believed: u64, size: u64) -> FsResult<()> {
        if believed < self.end && believed != size {
            let what = "pieces of an append overtook one another";
            return Err(FsError::Io(what.to_owned()));
        }
        Ok(())
    }
}

impl StagedFile {
    /// Writes `bytes` into the staging file, at a place that was found in `engagement`. `then` sees the
    /// content with them.
    fn write(
        &self,
        (engagement, offset): (Engagement, u64),
        bytes: &[u8],
        payment: Payment,
        then: impl FnOnce(&Content),
    ) -> FsResult<()> {
        let range = offset..offset + bytes.len() as u64;
        let written = self.try_write((engagement, range.clone()), bytes, then);
        // Given back when the content has been charged with what it really costs.
        drop(payment);
        if written.is_err()
            && let Some(state) = self.state().as_mut()
        {
            state.content.spoil(range);
            state.payment.settle(&state.content);
        }
        written
    }

    fn try_write(
        &self,
        (engagement, range): (Engagement, Range<u64>),
        bytes: &[u8],
        then: impl FnOnce(&Content),
    ) -> FsResult<()> {
        self.disk()?
            .write(bytes, range.start)
            .map_err(|error| disk_failure(&error))?;
        let record = Record::Dirty(range.clone());
        let change = |content: &mut Content| content.write(range);
        self.change_in(engagement, (&record, change), then)
    }
}

impl Core {
    /// Writes all of `data` where `place` says.
    pub(crate) async fn write_staged(
        self: &Arc<Self>,
        handle: &FileHandle,
        staged: &StagedFile,
        (place, data): (WritePlace, Bytes),
    ) -> FsResult<Written> {
        if !handle.access.writes() {
            return Err(FsError::BadHandle);
        }
        if data.is_empty() {
            return Ok(Written::ACCEPTED);
        }
        let end = place
            .offset()
            .checked_add(data.len() as u64)
            .ok_or(FsError::FileTooLarge)?;
        self.check_size(end)?;
        for attempt in 1..=ATTEMPTS_MAX {
            self.engage(&handle.file, staged).await?;
            let cost = Content::cost_of_write(data.len() as u64);
            let payment = self.pay(&handle.file, staged, cost).await?;
            match self
                .write_paid(handle, staged, (place, data.clone()), payment)
                .await
            {
                Err(FsError::Stale) if attempt < ATTEMPTS_MAX => {}
                // Others have filled the disk: the next attempt makes room.
                Err(FsError::NoSpace) if attempt < ATTEMPTS_MAX => {
                    staged.staging().space().doubt();
                }
                written => return written,
            }
        }
        Err(FsError::Stale)
    }

    async fn write_paid(
        self: &Arc<Self>,
        handle: &FileHandle,
        staged: &StagedFile,
        (place, data): (WritePlace, Bytes),
        payment: Payment,
    ) -> FsResult<Written> {
        let held = Held::of(staged, place).await;
        // Under the lock that the last save of the file takes.
        self.check_not_shut()?;
        if self
            .namespace
            .lock()
            .node(handle.file.inode)?
            .lost_its_name()
        {
            return Err(FsError::Stale);
        }
        let (engagement, size) = staged.engaged_now()?;
        let offset = match place {
            WritePlace::At(offset) => offset,
            WritePlace::End(_) => size,
            WritePlace::EndInPieces(believed) => {
                lock(&staged.pieces).check(believed, size)?;
                size
            }
        };
        let length = data.len() as u64;
        self.check_size(offset + length)?;
        let (core, file) = (Arc::clone(self), Arc::clone(&handle.file));
        let write = move || {
            let _held = held;
            let Some(staged) = &file.staged else {
                return Ok(0);
            };
            let mut dirty = 0;
            staged.write((engagement, offset), &data, payment, |content| {
                dirty = content.extents().dirty();
                file.show_staged(content);
            })?;
            if let WritePlace::EndInPieces(believed) = place {
                lock(&staged.pieces).end = believed + length;
            }
            core.note_written(&file);
            Ok(dirty)
        };
        let quick = staged.notes_quickly();
        let dirty = staged.staging().on_disk(quick, write).await?;
        if dirty > staged.staging().settings().max_dirty {
            self.save_in_background(&handle.file, staged);
        }
        Ok(Written {
            moved_to: (offset != place.offset()).then_some(offset),
            ..Written::ACCEPTED
        })
    }

    /// Forgets times that were set. Blocks.
    pub(super) fn note_written(&self, file: &OpenFile) {
        let changes = self
            .namespace
            .lock()
            .node_mut(file.inode)
            .map(Node::note_written);
        if changes == Ok(true) {
            self.note_description_now(file);
        }
    }
}
