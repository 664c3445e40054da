//! Room for what is about to be written, where something limits the file.

use std::{ops::Range, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use penstock_base::{FsResult, clock};
use penstock_vfs::{Identity, Inode};

use super::{File, Files, save::SAVES_MAX};
use crate::{
    engine::{query, transact},
    operations,
    quotas::{self, Room, Subject, Writing},
};

/// How long a write that is short of room waits until what was written before is saved, and for its turn to do that.
const SAVE_WAIT: Duration = Duration::from_secs(30);

impl Files {
    /// Room for `bytes` that `by` is about to write to a range of a file; none is needed where nothing limits it. Fails
    /// where a limit is in the way.
    ///
    /// What is written over is counted twice until it is saved. So where room is short all is saved that counts for the same
    /// limits, and then just what the range has not yet is needed. What was removed counts until it is collected, so that is
    /// waited for, too.
    pub(super) async fn room(
        self: &Arc<Self>,
        by: &Identity,
        file: &File,
        (range, bytes): (&Range<u64>, u64),
    ) -> FsResult<Option<Room>> {
        if !self.engine.may_have_quotas() {
            return Ok(None);
        }
        let limiting = query(&*self.engine, |reads| quotas::limiting(reads, file.inode)).await?;
        if limiting.is_empty() {
            return Ok(None);
        }
        let find = || self.find_room((file.inode, by.uid), &limiting, (range, bytes));
        self.held.with_room(find).await.map(Some)
    }

    async fn find_room(
        self: &Arc<Self>,
        writer: (Inode, u32),
        limiting: &[Subject],
        (range, bytes): (&Range<u64>, u64),
    ) -> FsResult<Room> {
        if let Ok(room) = self.try_room(writer, limiting, bytes).await {
            return Ok(room);
        }
        let saved = async {
            let turn = self.accepted.turn.lock().await;
            self.save_those_of(limiting).await;
            turn
        };
        // Else what waits for a slow store would hold up all who are short of room, the last one for each before it.
        let _turn = clock::deadline(SAVE_WAIT, saved).await;
        let written = query(&*self.engine, |reads| {
            operations::written_in(reads, writer.0, range)
        });
        let needed = bytes.saturating_sub(written.await?);
        self.try_room(writer, limiting, needed).await
    }

    async fn try_room(
        &self,
        (inode, uid): (Inode, u32),
        limiting: &[Subject],
        bytes: u64,
    ) -> FsResult<Room> {
        // What a save brings into the metadata meanwhile is counted twice rather than never.
        let (room, accepted) = self.accepted.take(limiting, bytes);
        let writing = Writing {
            inode,
            uid,
            now: clock::wall_time(),
            bytes,
            accepted: &accepted,
        };
        let passed = query(&*self.engine, |reads| quotas::admit_write(reads, &writing)).await?;
        let now = writing.now;
        for subject in passed {
            transact(&*self.engine, move |transaction| {
                quotas::note_passed(transaction, subject, now)
            })
            .await?;
        }
        Ok(room)
    }

    /// Saves all files of which something counts for one of these. What cannot be saved goes on counting.
    async fn save_those_of(self: &Arc<Self>, subjects: &[Subject]) {
        let mut files = self.unsaved_files();
        files.retain(|file| file.pending.lock().counts_for(subjects));
        let saves = files.into_iter().map(|file| async move {
            // What cannot be saved is told by who syncs it.
            let _ = self.save(&file).await;
        });
        let saves = stream::iter(saves).buffer_unordered(SAVES_MAX);
        saves.collect::<()>().await;
    }
}
