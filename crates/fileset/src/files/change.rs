//! Cutting, growing and punching files.

use std::{ops::Range, sync::Arc};

use penstock_base::{FsError, FsResult, clock};
use penstock_vfs::{Allocation, Inode, Position, Seek};

use super::{File, Files};
use crate::{
    engine::{query, transact},
    operations::{self, Edit, FileChange, SizeChange, Step},
    schema::BLOCK_SIZE,
    snapshots,
};

/// What size a file is to get.
#[derive(Debug, Clone, Copy)]
enum NewSize {
    Exactly(u64),
    /// This unless it is longer by then.
    AtLeast(u64),
}

impl Files {
    /// Gives a file another size. A long one is cut from its end in steps, each of which leaves a file that is
    /// shorter than before. `drops_set_id` as for a write. Goes on if it is dropped.
    pub(crate) async fn resize(
        self: &Arc<Self>,
        inode: Inode,
        size: u64,
        drops_set_id: bool,
    ) -> FsResult<()> {
        self.change_size(inode, NewSize::Exactly(size), drops_set_id)
            .await
    }

    async fn change_size(
        self: &Arc<Self>,
        inode: Inode,
        new: NewSize,
        drops_set_id: bool,
    ) -> FsResult<()> {
        let (NewSize::Exactly(size) | NewSize::AtLeast(size)) = new;
        if size > i64::MAX as u64 {
            return Err(FsError::FileTooLarge);
        }
        let file = self.pin(inode).await?;
        let files = Arc::clone(self);
        let resized = tokio::spawn(async move {
            let outcome = files.resize_pinned(&file, new, drops_set_id).await;
            files.unpin(inode);
            outcome
        });
        resized.await.unwrap_or_else(|_| {
            Err(FsError::Io(
                "a change of size ended unexpectedly".to_owned(),
            ))
        })
    }

    async fn resize_pinned(
        self: &Arc<Self>,
        file: &File,
        new: NewSize,
        drops_set_id: bool,
    ) -> FsResult<()> {
        let _turn = file.turn.lock().await;
        let now = clock::wall_time();
        let (size, before) = {
            let mut pending = file.pending.lock();
            let size = match new {
                NewSize::AtLeast(size) if size <= pending.size() => return Ok(()),
                NewSize::Exactly(size) | NewSize::AtLeast(size) => size,
            };
            (size, pending.resize(size, now))
        };
        let change = FileChange {
            // What is pending brings the size along when it is saved.
            size: Some(match before.is_dirty {
                true => SizeChange::AtMost(size),
                false => SizeChange::To(size),
            }),
            modified: Some(now),
            changed: Some(now),
            drops_set_id,
        };
        let outcome = self.cut(file.inode, size, change).await;
        if outcome.is_err() {
            let saved = self.size(file.inode).await.unwrap_or(before.size);
            file.pending.lock().undo_resize(before, saved);
        }
        // Whoever looked at the metadata meanwhile may have seen what is cut now.
        file.pending.lock().moved();
        outcome
    }

    async fn cut(self: &Arc<Self>, inode: Inode, size: u64, change: FileChange) -> FsResult<()> {
        let beyond = size..u64::MAX;
        let look = |reads: &dyn crate::engine::Reads| {
            operations::clearing(reads, inode, &beyond, usize::MAX)
        };
        let mut edits = query(&*self.engine, look).await?;
        edits.reverse();
        let change = move |step: &Step| match step.is_last {
            true => change.clone(),
            false => FileChange {
                size: Some(SizeChange::AtMost(size.max(step.chunk * BLOCK_SIZE))),
                ..FileChange::default()
            },
        };
        self.edit((inode, edits), change, |_| ()).await
    }

    /// Makes edits in their order, in as many operations as they need. `change` says what else changes with each step;
    /// `after` is told of each that was made.
    pub(super) async fn edit(
        self: &Arc<Self>,
        (inode, edits): (Inode, Vec<Edit>),
        change: impl Fn(&Step) -> FileChange + Clone + Send + 'static,
        after: impl Fn(&Step),
    ) -> FsResult<()> {
        let (edits, mut made) = (Arc::new(edits), 0);
        loop {
            let (edits, change) = (Arc::clone(&edits), change.clone());
            let step = transact(&*self.engine, move |transaction| {
                operations::edit(transaction, inode, (&edits, made), &change)
            });
            let step = step.await?;
            self.fold_behind(inode, &step.crowded);
            after(&step);
            if step.is_last {
                return Ok(());
            }
            made += step.edits;
        }
    }

    /// Changes what is allocated of an open file. Nothing is reserved: a bucket has room or says so when it is
    /// written to. Goes on if it is dropped.
    pub(crate) async fn allocate(
        self: &Arc<Self>,
        file: Arc<File>,
        range: Range<u64>,
        allocation: Allocation,
    ) -> FsResult<()> {
        if range.end > i64::MAX as u64 {
            return Err(FsError::FileTooLarge);
        }
        let (clears, keeps_size) = match allocation {
            Allocation::Reserve { keep_size } => (false, keep_size),
            Allocation::PunchHole => (true, true),
            Allocation::ZeroRange { keep_size } => (true, keep_size),
        };
        let files = Arc::clone(self);
        let allocated = tokio::spawn(async move {
            if clears {
                files.punch(&file, range.clone()).await?;
            }
            if keeps_size || file.pending.lock().size() >= range.end {
                return Ok(());
            }
            let size = NewSize::AtLeast(range.end);
            files.change_size(file.inode, size, false).await
        });
        allocated.await.unwrap_or_else(|_| {
            Err(FsError::Io(
                "a change of room ended unexpectedly".to_owned(),
            ))
        })
    }

    async fn punch(self: &Arc<Self>, file: &File, range: Range<u64>) -> FsResult<()> {
        let _turn = file.turn.lock().await;
        let punched = file.pending.lock().punch(range.clone());
        let outcome = self.punch_saved(file.inode, &range).await;
        let mut pending = file.pending.lock();
        if outcome.is_err() {
            pending.undo_punch(punched);
        }
        pending.moved();
        outcome
    }

    async fn punch_saved(self: &Arc<Self>, inode: Inode, range: &Range<u64>) -> FsResult<()> {
        let look = |reads: &dyn crate::engine::Reads| {
            operations::clearing(reads, inode, range, usize::MAX)
        };
        let edits = query(&*self.engine, look).await?;
        if edits.is_empty() {
            return Ok(());
        }
        let now = clock::wall_time();
        let change = move |_: &Step| FileChange {
            modified: Some(now),
            changed: Some(now),
            ..FileChange::default()
        };
        self.edit((inode, edits), change, |_| ()).await
    }

    /// The next place that is written, or that is not. What is pending is saved first, and so has extents.
    pub(crate) async fn seek(self: &Arc<Self>, from: Position, wanted: Seek) -> FsResult<u64> {
        let file = self.handle(from.handle)?.file;
        self.save(&file).await?;
        snapshots::look(&*self.engine, |reads| {
            operations::next_place(reads, file.inode, from.offset, wanted)
        })
        .await
    }
}
