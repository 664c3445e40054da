//! Saves what an earlier mount left in the staging directory.
//!
//! A mount that was killed leaves a journal beside each file that had something unsaved. The next
//! mount of the same bucket with the same directory saves them before it serves anything, but never
//! over a version that somebody wrote since: such a file is put aside, and the log says where it is.
//! Not even what looks like somebody else's need be: the kill may have come between the save and
//! the removal of the journal, so the unsaved ranges are compared with what the store has.

use std::{
    io::ErrorKind::NotFound,
    sync::{Arc, atomic::Ordering},
};

use penstock_base::{FsError, FsResult, MIB, run_blocking};
use penstock_object::{ErrorKind, Key, WriteCondition};
use penstock_transfer::{ObjectVersion, TransferError};

use crate::{
    core::Core,
    errors::for_reading,
    staged::{
        StagedFile,
        content::Snapshot,
        disk::DiskFile,
        folder::{FileId, Folder},
        journal::{self, Journal, Told},
        lock,
        save::SaveError,
        staging::Staging,
    },
};

/// Bytes that are compared at once.
const COMPARED: u64 = MIB;

impl StagedFile {
    /// A file as its journal tells.
    fn recovered(
        staging: &Arc<Staging>,
        id: FileId,
        told: Told,
        key: Key,
    ) -> std::io::Result<Self> {
        let (data, path) = (staging.folder().data(&id), staging.folder().journal(&id));
        let disk = match Folder::open(&data) {
            Ok(file) => Some(Arc::new(DiskFile::new(file, data))),
            // Where nothing was written there are no bytes.
            Err(error) if error.kind() == NotFound && told.content.extents().backed() == 0 => None,
            Err(error) => return Err(error),
        };
        let journal = Journal::reopen(&path)?;
        let staged = Self::with_id(staging, id);
        *lock(&staged.disk) = disk;
        *lock(&staged.journal) = Some(journal);
        staged.engage((told.content, key), |_| ());
        if let Some(state) = staged.state().as_mut() {
            state.description = told.description;
        }
        Ok(staged)
    }
}

impl Core {
    /// Saves what an earlier mount left behind.
    pub(crate) async fn recover(self: &Arc<Self>) {
        let Some(staging) = &self.staging else { return };
        let orphans = match run_blocking(|| staging.folder().orphans()) {
            Ok(orphans) => orphans,
            Err(error) => {
                tracing::error!("the staging directory cannot be searched: {error}");
                return;
            }
        };
        for id in orphans {
            if let Err(error) = self.recover_one(staging, id.clone()).await {
                let journal = staging.folder().journal(&id);
                tracing::error!(
                    "what {} tells of could not be saved: {error}; it stays there for the next \
                     mount",
                    journal.display()
                );
            }
        }
    }

    async fn recover_one(self: &Arc<Self>, staging: &Arc<Staging>, id: FileId) -> FsResult<()> {
        let path = staging.folder().journal(&id);
        let disk_error = |error: std::io::Error| FsError::Io(error.to_string());
        let told = run_blocking(|| journal::read(&path, staging.boot())).map_err(disk_error)?;
        let Some(told) = told else {
            tracing::warn!(
                "{} tells nothing that can be believed after a crash of the machine: removed",
                path.display()
            );
            staging.folder().remove(&id);
            return Ok(());
        };
        if staging.folder().kept_data(&id).exists() {
            // The last mount broke off while it put the file aside.
            return put_aside(staging, &id, &told.header.key);
        }
        if told.header.volume != staging.volume() {
            let text = format!("it is of {}", told.header.volume);
            return Err(FsError::Io(text));
        }
        let key = Key::new(&told.header.key).map_err(|error| FsError::Io(error.to_string()))?;
        let staged = StagedFile::recovered(staging, id.clone(), told, key.clone());
        self.save_recovered(staged.map_err(disk_error)?, id, key)
            .await
    }

    async fn save_recovered(&self, staged: StagedFile, id: FileId, key: Key) -> FsResult<()> {
        let Some(mut snapshot) = run_blocking(|| staged.begin_save()) else {
            staged.abandon();
            return Ok(());
        };
        snapshot.condition = snapshot.base.condition_after_crash();
        match self.save_unless_there(&staged, &key, &snapshot).await {
            Ok(()) => {
                tracing::warn!(
                    "recovered `{key}`: what was written before the last mount broke off is in \
                     the store now ({} bytes)",
                    snapshot.size
                );
                staged.staging().recovered.fetch_add(1, Ordering::Relaxed);
                staged.abandon();
                Ok(())
            }
            Err(SaveError::Conflict(_)) => {
                if let Some(version) = self.find_attempt(&staged, &key).await? {
                    staged.end_save(version, |_| ());
                    return Box::pin(self.save_recovered(staged, id, key)).await;
                }
                if self.find_saved(&staged, &key, &snapshot).await?.is_some() {
                    staged.abandon();
                    return Ok(());
                }
                put_aside(staged.staging(), &id, key.as_str())
            }
            Err(SaveError::Failed(error)) => Err(error),
        }
    }

    /// Saves a file under a condition that the store may not be able to check.
    async fn save_unless_there(
        &self,
        staged: &StagedFile,
        key: &Key,
        snapshot: &Snapshot,
    ) -> Result<(), SaveError> {
        let checked = self.store().capabilities().write_if_absent;
        let mut snapshot = snapshot.clone();
        if snapshot.condition == WriteCondition::IfAbsent && !checked {
            if for_reading(self.head(key).await)?.is_some() {
                return Err(SaveError::Conflict(FsError::AlreadyExists));
            }
            snapshot.condition = WriteCondition::Always;
        }
        self.store_snapshot(staged, key.clone(), None, &snapshot)
            .await?;
        Ok(())
    }

    /// The version that the store has, if it is what a snapshot says: the save of it succeeded, and
    /// only its answer was lost.
    pub(super) async fn find_saved(
        &self,
        staged: &StagedFile,
        key: &Key,
        snapshot: &Snapshot,
    ) -> FsResult<Option<ObjectVersion>> {
        let Some(info) = for_reading(self.head(key).await)? else {
            return Ok(None);
        };
        if info.size != snapshot.size {
            return Ok(None);
        }
        let theirs = ObjectVersion {
            key: key.clone(),
            etag: info.etag,
            size: info.size,
        };
        for range in &snapshot.unsaved {
            let mut at = range.start;
            while at < range.end {
                let end = range.end.min(at + COMPARED);
                let ours = self.gather(staged, None, at..end).await;
                let ours = ours.map_err(|error| FsError::from(SaveError::from(error)))?;
                let reader = self.transfer.reader(theirs.clone());
                match reader.read(at, (end - at) as u32).await {
                    Ok(stored) if stored.to_vec() == ours.to_vec() => {}
                    Ok(_) => return Ok(None),
                    Err(TransferError::Object(error))
                        if error.kind == ErrorKind::PreconditionFailed =>
                    {
                        return Ok(None);
                    }
                    Err(error) => return Err(SaveError::from(error).into()),
                }
                at = end;
            }
        }
        Ok(Some(theirs))
    }
}

/// Puts a file aside that must not be saved.
fn put_aside(staging: &Staging, id: &FileId, key: &str) -> FsResult<()> {
    let kept = run_blocking(|| staging.folder().keep(id));
    let kept = kept.map_err(|error| FsError::Io(error.to_string()))?;
    tracing::error!(
        "`{key}`: another client changed the object after the last mount broke off; theirs stays, \
         and what was written here is kept in {}: compare the two, and remove it",
        kept.display()
    );
    Ok(())
}
