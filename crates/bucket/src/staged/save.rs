//! Saving a staged file.
//!
//! A save runs under the file's stream lock, in a task of its own. It fails without a trace here:
//! everything that was unsaved still is, so the next close, fsync or attempt in the background
//! begins anew.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
};

use futures_util::{StreamExt, stream};
use penstock_base::{FsError, FsResult, MIB, Payload, run_blocking};
use penstock_object::{
    CompleteOptions, ErrorKind, Key, ObjectError, ObjectKind, PartCopy, PutOptions, Stored,
};
use penstock_transfer::{Assembly, ObjectVersion, Slot, Slots, TransferError};
use penstock_vfs::Inode;

use crate::{
    core::{Core, run_to_end},
    errors::{Purpose, transfer_failure},
    open_file::OpenFile,
    staged::{
        StagedFile,
        attempt::{Sum, Trace},
        content::{Content, Snapshot},
        disk::on_worker,
        gather::GatherError,
        plan::{Limits, Part, Plan, Source, plan},
    },
};

/// Bytes in a part that the store copies: enough that a request more does not matter, and little
/// enough that the parts of a large file are copied at the same time.
const COPY_PART: u64 = 256 * MIB;
/// The smallest part that is sent or copied, where the store would take an even smaller one.
const PART_MIN: u64 = MIB;
/// Parts of one file that are put together at once: one connection does not fetch as fast as several.
const GATHERED_AHEAD: usize = 4;
/// A part that is sent may occupy this fraction of the memory budget.
const PARTS_PER_BUDGET: u64 = 4;

/// A part that can be made.
enum Ready {
    Copy(PartCopy),
    Send(Sum, Payload, Slot),
}

/// Which save the store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Saved {
    /// The one that was just made.
    Now,
    /// Perhaps one before it, so that more may be unsaved.
    Earlier,
}

/// Why a file was not saved.
#[derive(Debug, Clone)]
pub(crate) enum SaveError {
    /// Another client changed the object: trying again is of no use.
    Conflict(FsError),
    /// Something that may pass.
    Failed(FsError),
}

impl From<SaveError> for FsError {
    fn from(error: SaveError) -> Self {
        match error {
            SaveError::Conflict(error) | SaveError::Failed(error) => error,
        }
    }
}

impl From<FsError> for SaveError {
    fn from(error: FsError) -> Self {
        Self::Failed(error)
    }
}

impl From<TransferError> for SaveError {
    fn from(error: TransferError) -> Self {
        let conflict = matches!(&error, TransferError::Object(error)
        if is_conflict(error));
        let meaning = transfer_failure(&error, Purpose::Write);
        if conflict {
            let text = "another client changed the object meanwhile; theirs stays, and yours is in \
                        the staging directory";
            return Self::Conflict(FsError::Busy(text));
        }
        Self::Failed(meaning)
    }
}

/// Whether the store says that the object is not the version that was to be replaced.
fn is_conflict(error: &ObjectError) -> bool {
    match error.kind {
        ErrorKind::PreconditionFailed | ErrorKind::AlreadyExists | ErrorKind::InvalidRange => true,
        // Whatever stands before the store may answer so, and not know of any object.
        ErrorKind::NotFound => error.status.is_none() || !error.code.is_empty(),
        _ => false,
    }
}

impl From<GatherError> for SaveError {
    fn from(error: GatherError) -> Self {
        match error {
            GatherError::Transfer(error) => error.into(),
            GatherError::File(error) => error.into(),
        }
    }
}

impl Core {
    /// Saves a staged file if there is anything to save, on behalf of somebody who holds no lock.
    pub(crate) async fn save_shared(self: Arc<Self>, file: Arc<OpenFile>) -> FsResult<()> {
        Ok(self.try_save(&file).await?)
    }

    pub(super) async fn try_save(self: &Arc<Self>, file: &Arc<OpenFile>) -> Result<(), SaveError> {
        let Some(staged) = &file.staged else {
            return Ok(());
        };
        if !file.view().dirty && !self.has_unsaved_metadata(file.inode) {
            return Ok(());
        }
        let _entered = self.namespace.enter(&[file.inode]).await?;
        let _stream = file.stream().await;
        self.save_staged(file, staged).await
    }

    /// Saves a staged file. The caller has its stream, and nobody moves a directory above, or the
    /// caller does.
    pub(crate) async fn save_staged(
        &self,
        file: &OpenFile,
        staged: &StagedFile,
    ) -> Result<(), SaveError> {
        if file.view().removed {
            return Ok(());
        }
        loop {
            let snapshot = {
                let _alone = staged.change.write().await;
                on_worker(|| staged.begin_save()).await
            };
            let Some(snapshot) = snapshot else { break };
            if self.save_snapshot(file, staged, &snapshot).await? == Saved::Now {
                break;
            }
        }
        // An earlier save may have stored the content and nothing else.
        Ok(self.settle_metadata(file).await?)
    }

    async fn save_snapshot(
        &self,
        file: &OpenFile,
        staged: &StagedFile,
        snapshot: &Snapshot,
    ) -> Result<Saved, SaveError> {
        let key = self.namespace.lock().file_key(file.inode);
        let saved = match key {
            Ok(key) => self.store_or_find(file, staged, key, snapshot).await,
            // Another client's file has the name by now, and nothing else will lead here again.
            Err(FsError::Stale) => Err(SaveError::Conflict(FsError::Stale)),
            Err(error) => Err(error.into()),
        };
        staged.note_outcome(saved.is_err());
        match saved {
            Ok((version, saved)) => {
                self.publish_staged(file, staged, version);
                Ok(saved)
            }
            Err(error) => {
                if let Some(state) = staged.state().as_mut() {
                    state.content.give_up_save();
                }
                self.metrics.failed_uploads.increment();
                let path = self.namespace.lock().path(file.inode);
                let reason = FsError::from(error.clone());
                tracing::error!("`{path}` could not be saved: {reason}; it stays staged");
                Err(error)
            }
        }
    }

    /// Stores a snapshot, or finds what an earlier save stored whose answer was lost.
    async fn store_or_find(
        &self,
        file: &OpenFile,
        staged: &StagedFile,
        key: Key,
        snapshot: &Snapshot,
    ) -> Result<(ObjectVersion, Saved), SaveError> {
        if let Some(version) = self.find_among_many(staged, &key).await? {
            self.evict(staged).await;
            return Ok((version, Saved::Earlier));
        }
        let stored = self
            .store_snapshot(staged, key.clone(), file.inode, snapshot)
            .await;
        let Err(SaveError::Conflict(conflict)) = stored else {
            return stored.map(|version| (version, Saved::Now));
        };
        // This very attempt among them: its answer may have been lost on the way.
        if let Some(version) = self.find_attempt(staged, &key).await? {
            // Only what was sent has been compared.
            self.evict(staged).await;
            return Ok((version, Saved::Earlier));
        }
        // Older versions kept no checksums of what they sent.
        if staged.look(Content::is_recovered)?
            && let Some(version) = self.find_saved(staged, &key, snapshot).await?
        {
            self.evict(staged).await;
            return Ok((version, Saved::Now));
        }
        Err(SaveError::Conflict(conflict))
    }

    /// Stores what a snapshot says, whole or not at all.
    async fn store_snapshot(
        &self,
        staged: &StagedFile,
        key: Key,
        inode: Inode,
        snapshot: &Snapshot,
    ) -> Result<ObjectVersion, SaveError> {
        let limits = self.limits(staged);
        let plan = plan(snapshot.size, &snapshot.unsaved, &limits).ok_or(FsError::FileTooLarge)?;
        let options = PutOptions {
            condition: snapshot.condition.clone(),
            ..self.saved_description(staged, (inode, &key)).await?
        };
        let stored = match plan {
            Plan::Put => {
                let base = snapshot.base.version();
                let range = 0..snapshot.size;
                let body = self.gather(staged, base, range.clone()).await?;
                let (sum, body) = Sum::of(range, body, self.store().checksum_kind());
                let trace = Trace {
                    sums: vec![sum],
                    tags: Vec::new(),
                };
                on_worker(|| staged.announce(trace)).await;
                let stored = self.store().put(&key, body, options).await;
                stored.map_err(TransferError::from)?
            }
            Plan::Parts(parts) => {
                self.assemble(staged, &key, options, (snapshot, parts))
                    .await?
            }
        };
        Ok(ObjectVersion {
            key,
            etag: stored.etag,
            size: snapshot.size,
        })
    }

    async fn assemble(
        &self,
        staged: &StagedFile,
        key: &Key,
        options: PutOptions,
        (snapshot, parts): (&Snapshot, Vec<Part>),
    ) -> Result<Stored, SaveError> {
        let completion = CompleteOptions {
            condition: options.condition.clone(),
            ..CompleteOptions::default()
        };
        let base = snapshot.base.version();
        let note = self.note_upload(staged.staging(), key);
        let mut assembly = Assembly::begin(&self.transfer, key, options, note);
        let (slots, mut sums) = (assembly.slots(), Vec::new());
        let ready = parts
            .into_iter()
            .map(|part| self.make_ready(staged, base, part, &slots));
        let mut ready = pin!(stream::iter(ready).buffered(GATHERED_AHEAD));
        while let Some(part) = ready.next().await {
            match part? {
                Ready::Copy(copy) => assembly.copy(copy),
                Ready::Send(sum, body, slot) => {
                    sums.push(sum);
                    assembly.send(body, slot)?;
                }
            }
        }
        let tags = assembly.arrive().await?;
        on_worker(|| staged.announce(Trace { sums, tags })).await;
        Ok(assembly.complete(completion).await?)
    }

    async fn make_ready(
        &self,
        staged: &StagedFile,
        base: Option<&ObjectVersion>,
        Part { range, source }: Part,
        slots: &Slots,
    ) -> Result<Ready, GatherError> {
        if let (Source::Copy, Some(base)) = (source, base) {
            return Ok(Ready::Copy(PartCopy {
                source: base.key.clone(),
                range,
                if_match: (!base.etag.as_str().is_empty()).then(|| base.etag.clone()),
            }));
        }
        let slot = slots.take().await;
        let body = self.gather(staged, base, range.clone()).await?;
        let (sum, body) = Sum::of(range, body, self.store().checksum_kind());
        Ok(Ready::Send(sum, body, slot))
    }

    fn limits(&self, staged: &StagedFile) -> Limits {
        let capabilities = self.store().capabilities();
        let affordable = self.affordable_part();
        let part_min = capabilities
            .part_size_min
            .max(PART_MIN.min(capabilities.part_size_max));
        let copy_max = capabilities.part_size_max.min(capabilities.copy_size_max);
        let wanted = self.transfer.settings().upload_part_size;
        Limits {
            put_max: staged.staging().put_max().min(capabilities.put_size_max),
            part_min,
            part_size: wanted.clamp(part_min, affordable.max(part_min)),
            part_max: affordable.max(part_min),
            copy_size: COPY_PART.min(copy_max),
            copy_max,
            parts_max: capabilities.parts_max.into(),
        }
    }

    /// Bytes in the largest part that memory allows.
    fn affordable_part(&self) -> u64 {
        let affordable = self.transfer.pool().budget().total() / PARTS_PER_BUDGET;
        affordable.min(self.store().capabilities().part_size_max)
    }

    /// Bytes in the largest file: all of it may have to be sent.
    pub(super) fn size_max(&self) -> u64 {
        let capabilities = self.store().capabilities();
        let parts = self
            .affordable_part()
            .saturating_mul(capabilities.parts_max.into());
        // Parts are equal, so some are smaller than they might be.
        capabilities.object_size_max.min(parts / 2)
    }

    /// Shows what was saved to everybody on this mount.
    fn publish_staged(&self, file: &OpenFile, staged: &StagedFile, version: ObjectVersion) {
        {
            let mut tree = self.namespace.lock();
            let known = self.known_written(file, &version, ObjectKind::Normal);
            // Before the content is unlocked: whoever syncs must not find that nothing is unsaved.
            staged.end_save(version.clone(), |content| {
                file.show_stored(version, content);
            });
            tree.publish(file.inode, known);
        }
        run_blocking(|| staged.settle_journal());
    }

    /// Saves a file that has much unsaved, while it is still being written.
    pub(super) fn save_in_background(self: &Arc<Self>, file: &Arc<OpenFile>, staged: &StagedFile) {
        if staged.saving_back.swap(true, Ordering::Relaxed) {
            return;
        }
        let (core, file) = (Arc::clone(self), Arc::clone(file));
        tokio::spawn(async move {
            // Whoever closes the file tries again, and is told.
            let _ = run_to_end(Arc::clone(&core).save_shared(Arc::clone(&file))).await;
            if let Some(staged) = &file.staged {
                staged.saving_back.store(false, Ordering::Relaxed);
            }
        });
    }
}
