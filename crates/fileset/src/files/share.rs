//! Copies by reference: each call is one operation, [`operations::share`].
//!
//! What is pending of the source is saved first, so that it can be referred to, and what is pending of the target, so that it
//! is not saved over the copy. What is written to either of them meanwhile comes before the copy or after it.

use std::{collections::BTreeSet, sync::Arc};

use penstock_base::{FsError, FsResult, clock};
use penstock_vfs::{Access, Identity, Position};

use super::{File, Files};
use crate::{
    engine::transact,
    operations::{self, Shared, Sharing},
    quotas::Room,
    schema::BLOCK_SIZE,
    snapshots,
};

/// How often room is asked for again since the source has got more meanwhile than there was room for.
const ATTEMPTS: usize = 10;

impl Files {
    /// Copies a range of an open file to a place of another one, or of the same. Returns how many bytes one operation
    /// copied: all, or fewer of a range of very many extents and at the end of the source. Goes on if it is dropped.
    pub(crate) async fn copy_range(
        self: &Arc<Self>,
        by: &Identity,
        (source, target): (Position, Position),
        length: u64,
    ) -> FsResult<u64> {
        let (from, to) = (self.handle(source.handle)?, self.handle(target.handle)?);
        if from.access == Access::Write || to.access == Access::Read {
            return Err(FsError::BadHandle);
        }
        let left = (i64::MAX as u64).checked_sub(target.offset);
        let left = left.filter(|left| *left > 0 || length == 0);
        let sharing = Sharing {
            source: (from.file.inode, source.offset),
            target: (to.file.inode, target.offset),
            length: length.min(left.ok_or(FsError::FileTooLarge)?),
            room: u64::MAX,
            now: clock::wall_time(),
            drops_set_id: by.uid != 0,
        };
        self.save(&from.file).await?;
        let (files, by) = (Arc::clone(self), by.clone());
        let copied = tokio::spawn(async move {
            let copied = files.share(&by, &to.file, sharing).await;
            files.forget_idle(to.file.inode);
            copied
        });
        copied
            .await
            .unwrap_or_else(|_| Err(FsError::Io("a copy ended unexpectedly".to_owned())))
    }

    async fn share(
        self: &Arc<Self>,
        by: &Identity,
        target: &File,
        mut sharing: Sharing,
    ) -> FsResult<u64> {
        // Before the turn: where room is short all is saved that counts for the same limits.
        for _ in 0..ATTEMPTS {
            let room = self.room_to_share(by, target, &mut sharing).await?;
            let shared = self.share_in_turn(target, &sharing).await?;
            drop(room);
            if let Some(shared) = shared {
                self.fold_behind(target.inode, &shared.crowded);
                return Ok(shared.length);
            }
        }
        Err(FsError::QuotaExceeded)
    }

    /// Room for what one operation copies, to which the range is cut where something limits the target.
    async fn room_to_share(
        self: &Arc<Self>,
        by: &Identity,
        target: &File,
        sharing: &mut Sharing,
    ) -> FsResult<Option<Room>> {
        if !self.engine.may_have_quotas() {
            return Ok(None);
        }
        let look = |reads: &dyn crate::engine::Reads| operations::next_share(reads, sharing);
        let (length, bytes) = snapshots::look(&*self.engine, look).await?;
        sharing.length = length;
        if length == 0 {
            return Ok(None);
        }
        let start = sharing.target.1;
        let range = start..start + length;
        let room = self.room(by, target, (&range, bytes)).await?;
        sharing.room = room.as_ref().map_or(u64::MAX, |_| bytes);
        Ok(room)
    }

    /// One operation. `None` if there is not the room that it takes by now.
    async fn share_in_turn(
        self: &Arc<Self>,
        target: &File,
        sharing: &Sharing,
    ) -> FsResult<Option<Shared>> {
        let _turn = target.turn.lock().await;
        self.save_in_turn(target).await?;
        let end = sharing.target.1.saturating_add(sharing.length);
        let ends = [sharing.target.1, end].map(|place| place / BLOCK_SIZE);
        self.fold_first(target.inode, BTreeSet::from(ends)).await;
        let step = Sharing {
            // Behind what was just saved.
            now: clock::wall_time(),
            ..sharing.clone()
        };
        let now = step.now;
        let shared = transact(&*self.engine, move |transaction| {
            operations::share(transaction, &step)
        })
        .await;
        {
            let mut pending = target.pending.lock();
            if let Ok(Some(shared)) = &shared
                && shared.length > 0
            {
                pending.grow(sharing.target.1 + shared.length, now);
            }
            pending.moved();
        }
        self.learn_size_behind(target).await;
        shared
    }
}
