//! Writing a staged file, at any place.

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::{FsError, FsResult};
use penstock_vfs::WritePlace;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

use crate::{
    core::Core,
    open_file::{FileHandle, OpenFile},
    staged::{StagedFile, content::Content, disk::disk_failure, journal::Record, space::Payment},
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
            WritePlace::End(_) => Self::Alone {
                _lock: change.write_owned().await,
            },
        }
    }
}

impl StagedFile {
    /// Writes `bytes` into the staging file. `then` sees the content with them.
    fn write(
        &self,
        offset: u64,
        bytes: &[u8],
        payment: Payment,
        then: impl FnOnce(&Content),
    ) -> FsResult<()> {
        let range = offset..offset + bytes.len() as u64;
        let disk = self.disk()?;
        disk.write(bytes, offset)
            .map_err(|error| disk_failure(&error))?;
        let change = |content: &mut Content| content.write(range.clone());
        // Given back when the content has been charged with what it really costs.
        let _payment = payment;
        self.change(&Record::Dirty(range.clone()), change, then)
    }
}

impl Core {
    /// Writes all of `data` where `place` says.
    pub(crate) async fn write_staged(
        self: &Arc<Self>,
        handle: &FileHandle,
        staged: &StagedFile,
        (place, data): (WritePlace, Bytes),
    ) -> FsResult<()> {
        if !handle.access.writes() {
            return Err(FsError::BadHandle);
        }
        if data.is_empty() {
            return Ok(());
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
                Err(FsError::Stale) if !staged.is_engaged() => {}
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
    ) -> FsResult<()> {
        let held = Held::of(staged, place).await;
        // Under the lock that the last save of the file takes.
        self.check_not_shut()?;
        let offset = match place {
            WritePlace::At(offset) => offset,
            WritePlace::End(_) => staged.look(Content::size)?,
        };
        let (core, file) = (Arc::clone(self), Arc::clone(&handle.file));
        let write = move || {
            let _held = held;
            let Some(staged) = &file.staged else {
                return Ok(0);
            };
            let mut dirty = 0;
            staged.write(offset, &data, payment, |content| {
                dirty = content.extents().dirty();
                file.show_staged(content);
            })?;
            core.note_written(&file);
            Ok(dirty)
        };
        let quick = staged.notes_quickly();
        let dirty = staged.staging().on_disk(quick, write).await?;
        if dirty > staged.staging().settings().max_dirty {
            self.save_in_background(&handle.file, staged);
        }
        Ok(())
    }

    /// Forgets times that were set, and what the kernel may keep of older content. Blocks.
    pub(super) fn note_written(&self, file: &OpenFile) {
        let changes = self.namespace.lock().node_mut(file.inode).map(|node| {
            node.last_open = None;
            node.note_written()
        });
        if changes == Ok(true) {
            self.note_description_now(file);
        }
    }
}
