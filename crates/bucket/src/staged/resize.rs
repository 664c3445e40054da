//! Changing the size of a staged file, and what is allocated of it.

use std::{ops::Range, sync::Arc};

use penstock_base::{FsError, FsResult};
use penstock_object::Key;
use penstock_transfer::staging::{Content, on_worker, staged_size_max};
use penstock_vfs::{Allocation, HandleId, Inode, OpenOptions};

use crate::{
    files::Files,
    mount::run_to_end,
    open_file::{Body, FileHandle, OpenFile},
    staged::StagedBody,
};

/// What an allocation does to a file.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    zeroes: bool,
    grows: bool,
}

impl From<Allocation> for Wanted {
    fn from(allocation: Allocation) -> Self {
        let (zeroes, grows) = match allocation {
            Allocation::Reserve { keep_size } => (false, !keep_size),
            Allocation::PunchHole => (true, false),
            Allocation::ZeroRange { keep_size } => (true, !keep_size),
        };
        Self { zeroes, grows }
    }
}

impl StagedBody {
    /// Zeros `range` as far as the file reaches, and makes the file reach as far as `range`, as is
    /// wanted. The caller has the file alone: a write that came after the look at its size would be
    /// cut off.
    fn allocate(&self, range: Range<u64>, wanted: Wanted, then: &dyn Fn(&Content)) -> FsResult<()> {
        let size = self.content.look(Content::size)?;
        if wanted.zeroes && range.start < size {
            self.content.zero(range.start..range.end.min(size), then)?;
        }
        if wanted.grows && range.end > size {
            self.content.resize(range.end, then)?;
        }
        Ok(())
    }
}

impl Files {
    /// Fails if a file may not have so many bytes.
    pub(crate) fn check_size(&self, size: u64) -> FsResult<()> {
        if size > staged_size_max(&self.mount.transfer) {
            return Err(FsError::FileTooLarge);
        }
        Ok(())
    }

    /// Truncates or extends a file through a handle. Nothing reaches the store yet.
    pub(crate) async fn resize_staged(
        self: &Arc<Self>,
        handle: &FileHandle,
        body: &StagedBody,
        size: u64,
    ) -> FsResult<()> {
        if !handle.access.writes() {
            return Err(FsError::BadHandle);
        }
        self.check_size(size)?;
        if size == 0 && !body.content.is_engaged() {
            self.empty_with_room(&handle.file, body).await?;
        }
        self.engage(&handle.file, body).await?;
        if body.content.look(Content::size)? == size {
            return Ok(());
        }
        self.change_staged(&handle.file, body, |then| body.content.resize(size, then))
            .await
    }

    /// Changes what is allocated of a file.
    pub(crate) async fn allocate_staged(
        self: &Arc<Self>,
        handle: &FileHandle,
        body: &StagedBody,
        range: Range<u64>,
        allocation: Allocation,
    ) -> FsResult<()> {
        if !handle.access.writes() {
            return Err(FsError::BadHandle);
        }
        self.check_size(range.end)?;
        self.engage(&handle.file, body).await?;
        let wanted = Wanted::from(allocation);
        let file = &handle.file;
        if wanted.zeroes {
            // A hole takes no bytes, but it may make two extents of one.
            self.bound_extents(file, body).await?;
        }
        // Only a look: a file that reaches so far may be made shorter by others, before or after.
        let grows = wanted.grows && body.content.look(Content::size)? < range.end;
        if !wanted.zeroes && !grows {
            return Ok(());
        }
        self.change_staged(file, body, |then| body.allocate(range, wanted, then))
            .await
    }

    /// Makes a change that moves bytes away.
    async fn change_staged(
        &self,
        file: &OpenFile,
        body: &StagedBody,
        change: impl FnOnce(&dyn Fn(&Content)) -> FsResult<()>,
    ) -> FsResult<()> {
        let _alone = body.content.hold_alone().await;
        self.mount.check_not_shut()?;
        on_worker(|| {
            change(&|content: &Content| file.show_staged(content))?;
            self.metadata.note_written(file);
            Ok(())
        })
        .await
    }

    async fn empty_with_room(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        body: &StagedBody,
    ) -> FsResult<()> {
        match self.empty(file, body).await {
            Err(FsError::NoSpace) => {}
            emptied => return emptied,
        }
        // Others have filled the disk.
        body.staging().space().doubt();
        drop(
            self.make_room(&body.mode, Content::cost_of_write(0))
                .await?,
        );
        self.empty(file, body).await
    }

    /// Engages a file as an empty one, without a look at what the store has unless it is empty.
    async fn empty(self: &Arc<Self>, file: &Arc<OpenFile>, body: &StagedBody) -> FsResult<()> {
        let _entered = self.mount.namespace.enter(&[file.inode]).await?;
        let _turn = body.turn.lock().await;
        if body.content.is_engaged() || file.view().removed || self.is_empty_in_store(file).await? {
            return Ok(());
        }
        let (key, version): (Key, _) = {
            let tree = self.mount.namespace.lock();
            (tree.file_key(file.inode)?, tree.version(file.inode))
        };
        let content = Content::emptied(version.map(|version| version.etag));
        let _alone = body.content.hold_alone().await;
        self.mount.check_not_shut()?;
        // Before it is seen: when the disk refuses, the file is as it was.
        on_worker(|| body.content.begin_journal(&content, &key)).await?;
        body.engage(file, content, key, |content| file.show_staged(content));
        self.metadata.note_written(file);
        Ok(())
    }

    /// Changes the size of a file: through a handle, or of one that the caller has not opened, at
    /// once and durably.
    pub(crate) async fn set_staged_size(
        self: &Arc<Self>,
        inode: Inode,
        size: u64,
        handle: Option<HandleId>,
    ) -> FsResult<()> {
        if let Some(handle) = handle {
            let handle = self.handles.get(handle)?;
            return self.resize(&handle, size).await;
        }
        let this = Arc::clone(self);
        run_to_end(async move {
            let opened = this.open_as_it_is(inode, OpenOptions::WRITE).await?;
            let handle = this.handles.get(opened.handle)?;
            let resized = this.resize(&handle, size).await;
            drop(handle);
            let saved = this.save_and_close(opened.handle).await;
            resized.and(saved)
        })
        .await
    }

    async fn resize(self: &Arc<Self>, handle: &FileHandle, size: u64) -> FsResult<()> {
        match &handle.file.body {
            Body::Staged(body) => self.resize_staged(handle, body, size).await,
            Body::Streamed(_) => Err(FsError::BadHandle),
        }
    }
}
