//! What an earlier mount left to be done to names.

use std::sync::Arc;

use penstock_base::{FsError, FsResult, clock, run_blocking};
use penstock_object::Key;
use penstock_transfer::staging::{NameChange, SmallObject};
use penstock_vfs::FileKind;

use crate::{
    inode::{Known, Reference},
    key,
    mount::Mount,
    posix::KeptMetadata,
    write_back::{Late, WriteBack},
};

impl WriteBack {
    /// Shows names as an earlier mount left them, and begins to bring the store in line. Before anything is served, and
    /// before the files that it left are shown.
    pub(crate) fn recover(&self, mount: &Arc<Mount>) {
        let left = match run_blocking(|| self.staging.names().recover()) {
            Ok(left) => left,
            Err(error) => {
                return tracing::error!("the log of names cannot be read: {error}");
            }
        };
        if left.is_empty() {
            return;
        }
        tracing::warn!(
            "the last mount broke off with {} changes of names not yet in the store: they are made behind this mount",
            left.len()
        );
        for (key, change) in left {
            let node = match &*change {
                NameChange::Remove(_) | NameChange::Describe(_) => None,
                NameChange::Write(object) => self.show_left(mount, &key, object),
            };
            // Its first attempt may have been made.
            let displaced = self.pending().add_left(&key, change, node);
            drop(displaced);
        }
        self.bell.notify_one();
    }

    fn show_left(&self, mount: &Arc<Mount>, key: &Key, object: &SmallObject) -> Option<Reference> {
        let shown = mount.show_small(key, object);
        shown
            .inspect_err(|error| tracing::error!("`{key}` cannot be shown yet: {error}"))
            .ok()
    }
}

impl Mount {
    /// Makes an object that waits to be written what its name leads to.
    fn show_small(self: &Arc<Self>, key: &Key, object: &SmallObject) -> FsResult<Reference> {
        let kept = KeptMetadata::described(&object.description);
        let (kind, path) = match key.as_str().strip_suffix('/') {
            Some(path) => (FileKind::Directory, key::checked_key(path)?),
            None => (kept.posix.kind().unwrap_or(FileKind::Regular), key.clone()),
        };
        let mut tree = self.namespace.lock();
        let known = Known {
            kind,
            size: object.body.len() as u64,
            kept: Some(Arc::new(kept)),
            ..Known::directory(clock::now())
        };
        // A directory may be there for what was recovered below it.
        let inode = match tree.place_in_memory(&path) {
            Some(place) if tree.entry(place.parent, &place.name).is_some() => {
                let held = tree.hold(place.parent, &place.name);
                held.ok_or(FsError::Stale)?
            }
            _ => {
                let place = tree.place_of(&path)?;
                tree.link((place.parent, &place.name), kind, Some(known.clone()))
            }
        };
        let node = tree.node_mut(inode)?;
        // The store may lack it, whatever it had before.
        node.late = Some(Late::New);
        node.known = Some(known);
        if let Ok(directory) = tree.directory_mut(inode) {
            directory.marker = Some(true);
        }
        drop(tree);
        Ok(Reference::adopt(&self.namespace, inode))
    }
}
