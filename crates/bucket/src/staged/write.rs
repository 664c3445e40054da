//! Writing a staged file, at any place.

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::{FsError, FsResult};
use penstock_transfer::staging::{ChangeGuard, Content, Payment, StagedFile};
use penstock_vfs::{WritePlace, Written};

use crate::{
    files::Files,
    inode::Node,
    metadata::Metadata,
    open_file::{FileHandle, OpenFile},
    staged::{StagedBody, lock},
};

/// How often a write begins anew because the staged content was given up meanwhile.
const ATTEMPTS_MAX: usize = 3;

/// The change lock, as a write at `place` holds it: an append alone, or another one finds the same end.
async fn guard_for(content: &StagedFile, place: WritePlace) -> ChangeGuard {
    match place {
        WritePlace::At(_) => content.hold_shared().await,
        WritePlace::End(_) | WritePlace::EndInPieces(_) => content.hold_alone().await,
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
    /// it has come already to the file, which has `size` bytes. A writer that believes in a smaller file than
    /// before, and is right, has heard that it was made smaller.
    fn check(&self, believed: u64, size: u64) -> FsResult<()> {
        if believed < self.end && believed != size {
            let what = "pieces of an append overtook one another";
            return Err(FsError::Io(what.to_owned()));
        }
        Ok(())
    }
}

impl Files {
    /// Writes all of `data` where `place` says.
    pub(crate) async fn write_staged(
        self: &Arc<Self>,
        handle: &FileHandle,
        body: &Arc<StagedBody>,
        place: WritePlace,
        data: Bytes,
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
            self.engage(&handle.file, body).await?;
            let cost = Content::cost_of_write(data.len() as u64);
            let payment = self.pay(&handle.file, body, cost).await?;
            let written = self.write_paid(&handle.file, body, place, data.clone(), payment);
            match written.await {
                Err(FsError::Stale) if attempt < ATTEMPTS_MAX => {}
                // Others have filled the disk: the next attempt makes room.
                Err(FsError::NoSpace) if attempt < ATTEMPTS_MAX => {
                    body.staging().space().doubt();
                }
                written => return written,
            }
        }
        Err(FsError::Stale)
    }

    async fn write_paid(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        body: &Arc<StagedBody>,
        place: WritePlace,
        data: Bytes,
        payment: Payment,
    ) -> FsResult<Written> {
        let guard = guard_for(&body.content, place).await;
        // Under the lock that the last save of the file takes.
        self.mount.check_not_shut()?;
        self.mount.check_keeps_name(file.inode)?;
        let (engagement, size) = body.content.engaged_now()?;
        let offset = match place {
            WritePlace::At(offset) => offset,
            WritePlace::End(_) => size,
            WritePlace::EndInPieces(believed) => {
                lock(&body.pieces).check(believed, size)?;
                size
            }
        };
        let length = data.len() as u64;
        self.check_size(offset + length)?;
        let (this, shown, writing) = (Arc::clone(self), Arc::clone(file), Arc::clone(body));
        let write = move || {
            let _held = guard;
            let (mut dirty, content) = (0, &writing.content);
            content.write(engagement, offset, &data, payment, |content| {
                dirty = content.extents().dirty();
                shown.show_staged(content);
            })?;
            if let WritePlace::EndInPieces(believed) = place {
                lock(&writing.pieces).end = believed + length;
            }
            this.metadata.note_written(&shown);
            Ok(dirty)
        };
        let quick = body.content.notes_quickly();
        let dirty = body.staging().on_disk(quick, write).await?;
        if dirty > body.staging().settings().max_dirty {
            self.save_in_background(file, body);
        }
        Ok(Written {
            moved_to: (offset != place.offset()).then_some(offset),
            ..Written::ACCEPTED
        })
    }
}

impl Metadata {
    /// Forgets times that were set. Blocks.
    pub(super) fn note_written(&self, file: &OpenFile) {
        let changes = self
            .mount
            .namespace
            .lock()
            .node_mut(file.inode)
            .map(Node::note_written);
        if changes == Ok(true) {
            self.note_description_now(file);
        }
    }
}
