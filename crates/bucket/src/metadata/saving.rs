//! Metadata that goes to the store together with a file's content.
//!
//! [`Metadata::stored_metadata`] is for whoever saves a file: it says how the object is to be
//! described, and notes that this is under way. When the save is published, what was sent becomes
//! what is known of the store; what was changed meanwhile stays unsaved, and
//! [`Metadata::store_unsaved_metadata`] stores it by itself.
//!
//! An upload in parts is described when it begins, long before the last write, so it leaves the
//! time of that out: the object then shows when the upload was completed, which is the same.

use std::{sync::Arc, time::SystemTime};

use penstock_base::{FsResult, clock};
use penstock_object::{Key, PutOptions};
use penstock_vfs::{FileKind, Inode, Owner};

use crate::{
    metadata::Metadata,
    open_file::OpenFile,
    posix::{DIRECTORY_TYPE, KeptMetadata, options_of},
};

impl Metadata {
    /// Gives a file that was just created here its owner and mode.
    pub(crate) fn own_new_file(&self, inode: Inode, owner: Owner, permissions: u16) {
        let mut tree = self.mount.namespace.lock();
        let Ok(node) = tree.node(inode) else { return };
        let is_new = node.file.as_ref().is_some_and(|file| file.view().new);
        if !self.mount.keeps_metadata() || !is_new || node.unsaved.is_some() {
            return;
        }
        let parent = node.place.as_ref().map(|place| place.parent);
        let Some(parent) = parent.and_then(|parent| tree.node(parent).ok()) else {
            return;
        };
        let posix = self
            .mount
            .new_attributes(FileKind::Regular, (owner, permissions), parent);
        if let Ok(node) = tree.node_mut(inode) {
            let kept = KeptMetadata {
                posix,
                ..KeptMetadata::default()
            };
            node.unsaved = Some(Arc::new(kept));
        }
        let file = tree.node(inode).ok().and_then(|node| node.file.clone());
        drop(tree);
        if let Some(file) = file {
            // The file is new: nobody else uses its journal.
            self.note_description_now(&file);
        }
    }

    /// How to describe the object of a file whose content is saved now and complete: media type
    /// and metadata, without a condition. Whoever saves publishes the new version afterwards, and
    /// then calls [`Metadata::store_unsaved_metadata`].
    pub(crate) fn stored_metadata(&self, inode: Inode) -> PutOptions {
        self.sent_metadata(inode, true)
    }

    /// The same for an upload that begins before everything was written.
    pub(crate) fn early_metadata(&self, inode: Inode) -> PutOptions {
        self.sent_metadata(inode, false)
    }

    fn sent_metadata(&self, inode: Inode, complete: bool) -> PutOptions {
        let mut tree = self.mount.namespace.lock();
        let key = tree.file_key(inode).ok();
        let key = key.as_ref().map(Key::as_str).unwrap_or_default();
        let Ok(node) = tree.node_mut(inode) else {
            return PutOptions::default();
        };
        if !self.mount.keeps_metadata() {
            return PutOptions {
                content_type: self.named_type(key),
                ..PutOptions::default()
            };
        }
        let mut kept = node.kept().map(|kept| KeptMetadata::clone(kept));
        let kept = kept.get_or_insert_default();
        let written = complete.then(|| {
            let written = node.file.as_ref().map(|file| file.view().modified);
            written.unwrap_or_else(clock::wall_time)
        });
        self.complete_description(kept, (node.kind, key), written);
        let options = options_of(kept.description());
        let sent = Arc::new(std::mem::take(kept));
        node.unsaved = Some(Arc::clone(&sent));
        node.sent = Some(sent);
        options
    }

    /// Says of an object everything that is stored with it; `written` says when its content was
    /// written last, if that is known.
    pub(crate) fn complete_description(
        &self,
        kept: &mut KeptMetadata,
        (kind, key): (FileKind, &str),
        written: Option<SystemTime>,
    ) {
        self.fill_in(kept, kind);
        if let Some(written) = written {
            kept.posix.modified.get_or_insert(written);
            kept.posix.accessed.get_or_insert(written);
            kept.posix.changed.get_or_insert(written);
        }
        if kept.content_type.is_empty() || kept.content_type == DIRECTORY_TYPE {
            kept.content_type = self.named_type(key).unwrap_or_default();
        }
    }

    /// The media type that the settings give a file of this name.
    fn named_type(&self, key: &str) -> Option<String> {
        self.mount.settings.content_types.of(key).map(str::to_owned)
    }

    /// Says of an object what was only shown of it so far.
    pub(super) fn fill_in(&self, kept: &mut KeptMetadata, kind: FileKind) {
        let posix = &mut kept.posix;
        posix.uid.get_or_insert(self.mount.settings.uid);
        posix.gid.get_or_insert(self.mount.settings.gid);
        if posix.mode.is_none_or(|mode| mode >> 12 == 0) {
            let shown = posix.permissions();
            let shown = shown.unwrap_or_else(|| self.mount.default_permissions(kind));
            posix.set_permissions(kind, shown);
        }
    }

    /// Whether a save under way, or one that failed half way, left something for
    /// [`Metadata::store_unsaved_metadata`].
    pub(crate) fn has_unsaved_metadata(&self, inode: Inode) -> bool {
        let tree = self.mount.namespace.lock();
        tree.node(inode).is_ok_and(|node| node.unsaved.is_some())
    }

    /// Of a file that an earlier attempt stored: what was to be sent along now counts as unsaved, unless the object says
    /// that. It may have been changed since that attempt.
    pub(crate) async fn compare_sent(&self, inode: Inode, key: &Key) {
        let there = self.mount.head(key).await.ok().flatten();
        let mut tree = self.mount.namespace.lock();
        let Ok(node) = tree.node_mut(inode) else {
            return;
        };
        let is_there = |sent: &Arc<KeptMetadata>| {
            let there = there.as_ref();
            there.is_some_and(|there| there.metadata == sent.metadata())
        };
        if let Some(sent) = node.sent.take_if(|sent| !is_there(sent)) {
            node.unsaved.get_or_insert(sent);
        }
    }

    /// Stores what was changed of a file while it was being saved. In the file's turn.
    pub(crate) async fn store_unsaved_metadata(&self, file: &OpenFile) -> FsResult<()> {
        let unsaved = {
            let tree = self.mount.namespace.lock();
            let Ok(node) = tree.node(file.inode) else {
                return Ok(());
            };
            let stays = node.is_dirty() || node.place.is_none();
            node.unsaved.clone().filter(|_| !stays)
        };
        match unsaved {
            Some(unsaved) => self.store_metadata(file.inode, unsaved).await,
            None => Ok(()),
        }
    }
}
