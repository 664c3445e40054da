//! What a staged file is beside its bytes, for the journal.
//!
//! A node knows the owner, mode, times and extended attributes that go to the store with the next
//! save. The journal has them too, from the first unsaved byte until a save has stored bytes and description: a recovery
//! finds them nowhere else, be it of a file that was never stored or of what changed while it was being saved.

use std::sync::Arc;

use penstock_base::{FsResult, run_blocking};
use penstock_object::{Description, Key, ObjectInfo, PutOptions};
use penstock_transfer::staging::{Content, StagedFile};
use penstock_vfs::Inode;

use crate::{
    errors::for_reading,
    metadata::Metadata,
    open_file::{Body, OpenFile},
    posix::{KeptMetadata, options_of},
};

impl Metadata {
    /// Brings the journal of a staged file up to what the next save would say of it.
    pub(crate) async fn note_description(self: &Arc<Self>, file: &Arc<OpenFile>) {
        let Body::Staged(body) = &file.body else {
            return;
        };
        let (this, described) = (Arc::clone(self), Arc::clone(file));
        let describe = move || {
            this.note_description_now(&described);
            Ok(())
        };
        let quick = body.content.notes_quickly();
        if let Err(error) = body.staging().on_disk(quick, describe).await {
            tracing::warn!(%error, "a change of owner, mode or times is not in the staging directory");
        }
    }

    /// The same. Blocks.
    pub(crate) fn note_description_now(&self, file: &OpenFile) {
        let Body::Staged(body) = &file.body else {
            return;
        };
        if !self.mount.keeps_metadata() {
            return;
        }
        let current = || {
            let tree = self.mount.namespace.lock();
            let unsaved = tree.node(file.inode).ok()?.unsaved.clone();
            drop(tree);
            unsaved.map(|kept| kept.description())
        };
        if let Err(error) = run_blocking(|| body.content.describe(current)) {
            tracing::warn!(
                %error,
                "a change of owner, mode or times is not in the staging directory: it is lost if \
                 the mount breaks off before the file is saved"
            );
        }
    }

    /// How to describe the object of a file that is saved: as its node says. Of one that an earlier
    /// mount left, as its journal says, or else as the object is described that it replaces.
    pub(super) async fn saved_description(
        &self,
        content: &StagedFile,
        inode: Inode,
        key: &Key,
    ) -> FsResult<PutOptions> {
        if !content.look(Content::is_recovered)? || self.knows_metadata(inode) {
            return Ok(self.stored_metadata(inode));
        }
        let description = match content.description() {
            Some(description) => Some(description),
            None => for_reading(self.mount.head(key).await)?.map(description_of),
        };
        match description {
            Some(description) if self.mount.keeps_metadata() => {
                self.note_kept(inode, &description);
                Ok(self.stored_metadata(inode))
            }
            Some(description) => Ok(options_of(description)),
            None => Ok(self.stored_metadata(inode)),
        }
    }

    fn knows_metadata(&self, inode: Inode) -> bool {
        let tree = self.mount.namespace.lock();
        tree.node(inode).is_ok_and(|node| node.kept().is_some())
    }

    /// Takes `description` for what is to be kept of a file, unless something else is.
    pub(super) fn note_kept(&self, inode: Inode, description: &Description) {
        if !self.mount.keeps_metadata() {
            return;
        }
        if let Ok(node) = self.mount.namespace.lock().node_mut(inode) {
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
