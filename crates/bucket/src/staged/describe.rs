//! What a staged file is beside its bytes, for the journal.
//!
//! A node knows the owner, mode, times and extended attributes that go to the store with the next
//! save. The journal has them too, as long as it has unsaved bytes: who recovers a file that was
//! never stored finds them nowhere else. Without bytes that are unsaved there is nothing to recover.

use std::{sync::Arc, time::SystemTime};

use penstock_base::{FsResult, run_blocking};
use penstock_object::{Description, Key, ObjectInfo, PutOptions};
use penstock_vfs::Inode;

use crate::{
    core::Core,
    errors::for_reading,
    open_file::OpenFile,
    posix::{KeptMetadata, options_of},
    staged::{StagedFile, State, content::Content, journal::Record, lock},
};

impl StagedFile {
    /// Notes how the object is to be described, which `current` tells.
    fn describe(&self, current: impl FnOnce() -> Option<Arc<KeptMetadata>>) {
        let mut journal = lock(&self.journal);
        // Under the lock, so that the last record tells the last change.
        let description = current().map(|kept| kept.description());
        let covered = self.cover_long(journal.as_ref());
        let Some(description) = description else {
            return;
        };
        let record = Record::Described(description.clone());
        let noting = {
            let mut state = self.state();
            let differs = |state: &&mut State| state.description.as_ref() != Some(&description);
            let Some(state) = state.as_mut().filter(differs) else {
                return;
            };
            state.description = Some(description);
            let journal = journal.as_ref();
            journal.map(|journal| self.begin_noting(Some(journal), state, &record))
        };
        let Some(noting) = noting else { return };
        let noted = covered.and_then(|covered| self.note(&mut journal, (noting, covered), &record));
        if let Err(error) = noted {
            tracing::warn!(
                %error,
                "a change of owner, mode or times is not in the staging directory: it is lost if \
                 the mount breaks off before the file is saved"
            );
        }
    }

    fn description(&self) -> Option<Description> {
        self.state().as_ref()?.description.clone()
    }

    /// When the staging file was written last.
    pub(crate) fn written(&self) -> Option<SystemTime> {
        self.disk_if_any()?.written().ok()
    }
}

impl Core {
    /// Brings the journal of a staged file up to what the next save would say of it.
    pub(crate) async fn note_description(self: &Arc<Self>, file: &Arc<OpenFile>) {
        let Some(staged) = &file.staged else { return };
        let (core, described) = (Arc::clone(self), Arc::clone(file));
        let describe = move || {
            core.note_description_now(&described);
            Ok(())
        };
        let noted = staged.staging().on_disk(staged.notes_quickly(), describe);
        if let Err(error) = noted.await {
            tracing::warn!(%error, "a change of owner, mode or times is not in the staging directory");
        }
    }

    /// The same. Blocks.
    pub(crate) fn note_description_now(&self, file: &OpenFile) {
        if let Some(staged) = &file.staged
            && self.keeps_metadata()
        {
            let current = || {
                let tree = self.namespace.lock();
                tree.node(file.inode).ok()?.unsaved.clone()
            };
            run_blocking(|| staged.describe(current));
        }
    }

    /// How to describe the object of a file that is saved: as its node says. Of one that an earlier
    /// mount left, as its journal says, or else as the object is described that it replaces.
    pub(super) async fn saved_description(
        &self,
        staged: &StagedFile,
        (inode, key): (Inode, &Key),
    ) -> FsResult<PutOptions> {
        if !staged.look(Content::is_recovered)? || self.knows_metadata(inode) {
            return Ok(self.stored_metadata(inode));
        }
        let description = match staged.description() {
            Some(description) => Some(description),
            None => for_reading(self.head(key).await)?.map(description_of),
        };
        match description {
            Some(description) if self.keeps_metadata() => {
                self.note_kept(inode, &description);
                Ok(self.stored_metadata(inode))
            }
            Some(description) => Ok(options_of(description)),
            None => Ok(self.stored_metadata(inode)),
        }
    }

    fn knows_metadata(&self, inode: Inode) -> bool {
        let tree = self.namespace.lock();
        tree.node(inode).is_ok_and(|node| node.kept().is_some())
    }

    /// Takes `description` for what is to be kept of a file, unless something else is.
    pub(super) fn note_kept(&self, inode: Inode, description: &Description) {
        if !self.keeps_metadata() {
            return;
        }
        if let Ok(node) = self.namespace.lock().node_mut(inode) {
            let kept = || Arc::new(KeptMetadata::described(description));
            node.unsaved.get_or_insert_with(kept);
        }
    }
}

fn description_of(info: ObjectInfo) -> Description {
    Description {
        content_type: Some(info.content_type).filter(|text| !text.is_empty()),
        metadata: info.metadata,
    }
}
