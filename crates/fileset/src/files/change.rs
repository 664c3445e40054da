//! Cutting, growing and punching files.

use std::{ops::Range, sync::Arc};

use penstock_base::{FsError, FsResult, clock};
use penstock_vfs::{Allocation, Identity, Inode, Position, Seek};

use super::{File, Files};
use crate::{
    engine::{Reads, Transaction, query, transact},
    operations::{self, Condition, Cut, Edit, FileChange, SizeChange, Step},
    schema::BLOCK_SIZE,
    snapshots,
};

/// A size that a file is to get.
#[derive(Debug, Clone)]
pub(crate) struct NewSize {
    pub(crate) size: u64,
    /// As for a write.
    pub(crate) drops_set_id: bool,
    /// What must be so then.
    pub(crate) condition: Option<Condition>,
}

impl Files {
    /// Gives a file another size. A long one is cut from its end in steps, each of which leaves a file that is
    /// shorter than before. Goes on if it is dropped.
    pub(crate) async fn resize(self: &Arc<Self>, inode: Inode, new: NewSize) -> FsResult<()> {
        if new.size > i64::MAX as u64 {
            return Err(FsError::FileTooLarge);
        }
        let file = self.pin(inode).await?;
        let files = Arc::clone(self);
        let resized = tokio::spawn(async move {
            let outcome = files.resize_pinned(&file, new).await;
            files.unpin(inode);
            outcome
        });
        resized.await.unwrap_or_else(|_| {
            Err(FsError::Io(
                "a change of size ended unexpectedly".to_owned(),
            ))
        })
    }

    async fn resize_pinned(self: &Arc<Self>, file: &File, new: NewSize) -> FsResult<()> {
        let _turn = file.turn.lock().await;
        let now = clock::wall_time();
        let before = file.pending.lock().resize(new.size, now);
        let change = FileChange {
            size: Some(match before.is_dirty && !self.is_shared {
                // What is pending brings the size along when it is saved.
                true => SizeChange::AtMost(new.size),
                false => SizeChange::To(new.size),
            }),
            modified: Some(now),
            changed: Some(now),
            drops_set_id: new.drops_set_id,
        };
        let cut = Cut {
            inode: file.inode,
            size: new.size,
            from: new.size,
            change,
            condition: new.condition,
        };
        let outcome = self.cut(cut).await;
        if outcome.is_err() {
            let saved = self.size(file.inode).await.unwrap_or(before.size);
            file.pending.lock().undo_resize(before, saved);
        }
        // Whoever looked at the metadata meanwhile may have seen what is cut now.
        file.pending.lock().moved();
        self.learn_size_behind(file).await;
        outcome
    }

    async fn cut(self: &Arc<Self>, mut cut: Cut) -> FsResult<()> {
        let mut left = Vec::new();
        loop {
            let step = cut.clone();
            let done = transact(&*self.engine, move |transaction| {
                operations::cut(transaction, &step)
            });
            let done = done.await?;
            left.truncate(left.partition_point(|chunk: &u64| chunk * BLOCK_SIZE < cut.from));
            if let Some(done) = done {
                self.fold_behind(cut.inode, &done.step.crowded);
                if done.step.is_last && cut.from == cut.size {
                    return Ok(());
                }
                left.extend(done.left);
                cut.condition = None;
            } else {
                left.extend(self.written_from(cut.inode, cut.from).await?);
            }
            cut.from = operations::next_cut(cut.size, &left);
        }
    }

    /// The chunks that are written from a place of a file on.
    async fn written_from(&self, inode: Inode, mut from: u64) -> FsResult<Vec<u64>> {
        let mut written = Vec::new();
        loop {
            let look = |reads: &dyn Reads| operations::some_written(reads, inode, from);
            let (some, may_be_more) = query(&*self.engine, look).await?;
            written.extend(some);
            match written.last() {
                Some(last) if may_be_more => from = (last + 1).saturating_mul(BLOCK_SIZE),
                _ => return Ok(written),
            }
        }
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
    /// written to; but fails where a quota has no room by now. Goes on if it is dropped.
    pub(crate) async fn allocate(
        self: &Arc<Self>,
        by: &Identity,
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
        if matches!(allocation, Allocation::Reserve { .. }) {
            let bytes = range.end - range.start;
            self.room(by, &file, (&range, bytes)).await?;
        }
        if by.uid != 0 && self.has_set_id(&file).await? {
            let (inode, now) = (file.inode, clock::wall_time());
            let drop = move |transaction: &mut dyn Transaction| {
                operations::drop_set_id(transaction, inode, now)
            };
            transact(&*self.engine, drop).await?;
        }
        let files = Arc::clone(self);
        let allocated = tokio::spawn(async move {
            if clears {
                files.punch(&file, range.clone()).await?;
            }
            match keeps_size {
                true => Ok(()),
                false => files.grow(&file, range.end).await,
            }
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
        let (now, mut rest) = (clock::wall_time(), range.clone());
        loop {
            let range = rest.clone();
            let step = transact(&*self.engine, move |transaction| {
                operations::punch(transaction, inode, &range, now)
            });
            let step = step.await?;
            self.fold_behind(inode, &step.crowded);
            if step.is_last {
                return Ok(());
            }
            rest.start = (step.chunk + 1) * BLOCK_SIZE;
        }
    }

    /// Makes a file at least so long.
    async fn grow(&self, file: &File, size: u64) -> FsResult<()> {
        let is_known = || file.pending.lock().size() >= size && !self.is_shared;
        if is_known() {
            return Ok(());
        }
        let _turn = file.turn.lock().await;
        if is_known() {
            return Ok(());
        }
        let (inode, now) = (file.inode, clock::wall_time());
        let grown = transact(&*self.engine, move |transaction| {
            operations::grow(transaction, inode, size, now)
        });
        grown.await?;
        file.pending.lock().grow(size, now);
        match self.is_shared {
            true => self.learn_size(file).await.map(drop),
            false => Ok(()),
        }
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
