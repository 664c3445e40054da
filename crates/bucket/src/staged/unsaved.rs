//! What waits to be saved, one by one, as `penstock unsaved` tells it.

use std::collections::HashMap;

use penstock_vfs::{Inode, UnsavedItem, UnsavedKind};

use crate::{
    files::Files,
    open_file::{Body, Mode, OpenFile},
    staged::{StagedMode, lock, retry::is_unsaved},
};

impl Files {
    /// The content of files and, behind the close, names; what waits longest first.
    pub(crate) fn unsaved_items(&self) -> Vec<UnsavedItem> {
        let mut items = match &self.mount.mode {
            Mode::Streaming => self.streams(),
            Mode::Staged(mode) => self.staged_items(mode),
        };
        if let Some(names) = self.mount.write_back() {
            items.extend(names.items());
        }
        items.sort_by(|one, other| (other.age, &one.path).cmp(&(one.age, &other.path)));
        items
    }

    fn staged_items(&self, mode: &StagedMode) -> Vec<UnsavedItem> {
        let ages = self.behind.ages();
        let mut files = mode.engaged.all();
        files.retain(|file| is_unsaved(file));
        let items = files.iter().map(|file| {
            let failure = match &file.body {
                Body::Staged(body) => lock(&body.failure).clone(),
                _ => None,
            };
            UnsavedItem {
                age: ages.get(&file.inode).copied(),
                failure,
                ..self.item(file)
            }
        });
        items.collect()
    }

    /// Files that are being written.
    fn streams(&self) -> Vec<UnsavedItem> {
        let mut files = HashMap::<Inode, _>::new();
        self.handles.for_each(|handle| {
            if is_unsaved(&handle.file) {
                files.insert(handle.file.inode, handle.file.clone());
            }
        });
        files.values().map(|file| self.item(file)).collect()
    }

    fn item(&self, file: &OpenFile) -> UnsavedItem {
        let bytes = file.view().size;
        UnsavedItem {
            path: self.mount.namespace.lock().path(file.inode),
            kind: UnsavedKind::File,
            bytes,
            age: None,
            failure: None,
        }
    }
}
