//! Saving what is pending, and writing to it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use penstock_base::{FsError, FsResult, clock};
use penstock_vfs::{
    Access, Change, Durability, HandleId, Identity, WritePlace, Written, permission,
};

use super::{
    File, Files,
    compact::chunks_of,
    pending::{Paid, Taken},
};
use crate::{
    compression,
    data::Placed,
    engine::{Engine, query},
    operations::{self, Edit, FileChange, SizeChange, Step},
    schema::BLOCK_SIZE,
};

/// Bytes of one file that are pending at most: some blocks, so that a save has several requests under way.
const PENDING_MAX: u64 = 8 * BLOCK_SIZE;
/// The same at most, as a part of the memory.
const PENDING_SHARE: u64 = 4;
/// Files that are saved at once where all are.
pub(super) const SAVES_MAX: usize = 1024;
/// How long a write waits for memory.
const MEMORY_WAIT: Duration = Duration::from_secs(60);
/// Pieces of less are copied: they would keep the whole block that they were received in.
const PINNED_MIN: usize = 256 << 10;

impl Files {
    /// Writes. Waits for memory, and for a save if much is pending.
    pub(crate) async fn write(
        self: &Arc<Self>,
        by: &Identity,
        handle: HandleId,
        (place, data): (WritePlace, Bytes),
    ) -> FsResult<Written> {
        let handle = self.handle(handle)?;
        if handle.access == Access::Read {
            return Err(FsError::BadHandle);
        }
        let file = handle.file;
        let offset = match place {
            WritePlace::At(offset) => offset,
            WritePlace::End(_) | WritePlace::EndInPieces(_) => file.pending.lock().size(),
        };
        let range = offset..offset.saturating_add(data.len() as u64);
        let room = self.room(by, &file, (&range, data.len() as u64)).await?;
        let memory = self.memory(&file, data.len() as u64).await?;
        let has_set_id = by.uid != 0 && self.has_set_id(&file).await?;
        // Elsewhere somebody may set it before this is saved.
        let drops_set_id = has_set_id || by.uid != 0 && self.is_shared;
        let data = match data.len() < PINNED_MIN {
            true => Bytes::copy_from_slice(&data),
            false => data,
        };
        let (offset, is_much) = {
            let mut pending = file.pending.lock();
            let offset = match place {
                WritePlace::At(offset) => offset,
                WritePlace::End(_) | WritePlace::EndInPieces(_) => pending.size(),
            };
            let end = offset.checked_add(data.len() as u64);
            if end.is_none_or(|end| end > i64::MAX as u64) {
                return Err(FsError::FileTooLarge);
            }
            if !data.is_empty() {
                pending.write(offset, data, Paid::new(memory, room), clock::wall_time());
            }
            if drops_set_id {
                pending.drop_set_id();
            }
            (offset, pending.is_much(self.pending_max()))
        };
        if has_set_id || is_much {
            self.save(&file).await?;
        }
        Ok(Written {
            durability: Durability::Accepted,
            moved_to: (offset != place.offset()).then_some(offset),
            file: Change::UNTOLD,
        })
    }

    fn pending_max(&self) -> u64 {
        let budget = self.objects.transfer().pool().budget();
        PENDING_MAX.min(budget.total() / PENDING_SHARE)
    }

    /// Memory for what is written. Where there is none, all that is pending is saved.
    async fn memory(
        self: &Arc<Self>,
        file: &Arc<File>,
        bytes: u64,
    ) -> FsResult<penstock_base::Reservation> {
        let budget = self.objects.transfer().pool().budget();
        if let Some(memory) = budget.try_reserve(bytes) {
            return Ok(memory);
        }
        self.save(file).await?;
        if let Some(memory) = budget.try_reserve(bytes) {
            return Ok(memory);
        }
        // Who wrote what cannot be saved hears of it.
        self.save_all().await;
        let reserved = clock::deadline(MEMORY_WAIT, budget.reserve(bytes)).await;
        reserved.unwrap_or(Err(FsError::OutOfMemory))
    }

    /// Whether a write by somebody who is not root takes bits away.
    pub(super) async fn has_set_id(&self, file: &File) -> FsResult<bool> {
        let node = query(&*self.engine, |reads| operations::node(reads, file.inode)).await?;
        Ok(permission::without_set_id(node.permissions) != node.permissions)
    }

    /// Puts what is pending of a file into the bucket and then into the metadata. Goes on if it is dropped.
    pub(crate) async fn save(self: &Arc<Self>, file: &Arc<File>) -> FsResult<()> {
        if !file.pending.lock().is_unsaved() {
            return Ok(());
        }
        let (files, file) = (Arc::clone(self), Arc::clone(file));
        let saved = tokio::spawn(async move {
            let saved = {
                let _turn = file.turn.lock().await;
                files.save_in_turn(&file).await
            };
            // It may have been closed meanwhile.
            files.forget_idle(file.inode);
            saved
        });
        saved
            .await
            .unwrap_or_else(|_| Err(FsError::Io("a save ended unexpectedly".to_owned())))
    }

    /// The same for who has the turn.
    pub(super) async fn save_in_turn(self: &Arc<Self>, file: &File) -> FsResult<()> {
        let Some(taken) = file.pending.lock().take() else {
            return Ok(());
        };
        match self.store(file, &taken).await {
            Ok(()) => {
                file.pending.lock().saved();
                self.learn_size_behind(file).await;
                Ok(())
            }
            Err(error) => {
                tracing::warn!(inode = file.inode.0, %error, "a file could not be saved");
                // One that was removed on another machine needs no save.
                if !matches!(error, FsError::Stale) {
                    self.failures.saves.increment();
                }
                file.pending.lock().give_back(&taken);
                Err(error)
            }
        }
    }

    async fn store(self: &Arc<Self>, file: &File, taken: &Taken) -> FsResult<()> {
        // Where nothing can refer to it any more, nothing is stored: nobody would ever delete it.
        self.engine.ready().await?;
        self.fold_first(file.inode, chunks_of(&taken.pieces)).await;
        let compression = compression::get(&*self.engine).await?;
        // Held until the metadata refers to all that was stored.
        let pieces = taken.pieces.clone();
        let placed = self.packer.store_or_inline(pieces, compression).await?;
        let mut edits: Vec<_> = placed.iter().map(inserted).collect();
        edits.sort_by_key(Edit::chunk);
        // Size and times come with the first step: a crash behind it leaves a hole where the others are missing.
        let change = FileChange {
            size: Some(SizeChange::AtLeast(taken.reach)),
            modified: taken.modified,
            changed: taken.modified,
            drops_set_id: taken.drops_set_id,
        };
        let change = move |step: &Step| match step.is_first {
            true => change.clone(),
            false => FileChange::default(),
        };
        let saved = |step: &Step| {
            let end = (step.chunk + 1).saturating_mul(BLOCK_SIZE);
            file.pending.lock().saved_before(end);
        };
        self.edit((file.inode, edits), change, saved).await
    }

    /// Saves a file; what is in the metadata is durable then.
    pub(crate) async fn sync(self: &Arc<Self>, file: &Arc<File>) -> FsResult<()> {
        self.save(file).await?;
        let (changes, others) = (file.pending.lock().changes(), self.table.lock().undurable);
        self.engine.sync().await?;
        file.pending.lock().made_durable(changes);
        let mut table = self.table.lock();
        table.durable = table.durable.max(others);
        Ok(())
    }

    /// The same for who closes it: one of which nothing was changed asks for no sync.
    pub(crate) async fn settle(self: &Arc<Self>, file: &Arc<File>) -> FsResult<()> {
        self.save(file).await?;
        let is_durable = file.pending.lock().is_durable();
        match is_durable {
            true => Ok(()),
            false => self.sync(file).await,
        }
    }

    /// Saves a file; what is in the metadata survives the end of this process then.
    pub(crate) async fn hand_over(self: &Arc<Self>, file: &Arc<File>) -> FsResult<()> {
        self.save(file).await?;
        Ok(self.engine.hand_over().await?)
    }

    /// Saves all files, many at once, so that they share objects. Returns those that could not be, with the reason.
    pub(crate) async fn save_all(self: &Arc<Self>) -> Vec<(Arc<File>, FsError)> {
        let saves = self.unsaved_files().into_iter().map(|file| async {
            let saved = self.save(&file).await;
            match saved {
                Ok(()) => {}
                // It was removed elsewhere, and nobody here can reach it any more.
                Err(FsError::Stale) if self.is_unpinned(file.inode) => self.discard(file.inode),
                Err(error) => return Some((file, error)),
            }
            None
        });
        let saves = stream::iter(saves).buffer_unordered(SAVES_MAX);
        saves.filter_map(|failed| async { failed }).collect().await
    }
}

fn inserted(placed: &Placed) -> Edit {
    Edit::Insert(placed.chunk, placed.extent.clone(), placed.content.clone())
}
