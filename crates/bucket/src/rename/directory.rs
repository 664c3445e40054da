//! Renaming directories.
//!
//! The objects below are listed, up to a limit, then copied, then deleted; the object that marks
//! the directory is copied first and deleted last, so that neither name is ever a directory
//! without its marker. Changes of this mount below the directory wait meanwhile.
//!
//! - A failure while copying removes the copies again: the source is intact.
//! - A failure while deleting leaves the target whole and the source in part. The rename is
//!   remembered, and repeating it goes on from there.
//! - After a crash both names are there, the source whole as long as copying was under way.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use penstock_base::{FsError, FsResult, clock};
use penstock_object::{ETag, ErrorKind, Key, ObjectKind, ObjectResult, WriteCondition};
use penstock_transfer::ObjectVersion;
use penstock_vfs::Inode;

use crate::{
    core::Core,
    errors::{Purpose, for_writing, object_failure},
    key,
    open_file::OpenFile,
    rename::{
        Rename,
        copy::Original,
        descendants::{Descendant, Descendants},
    },
};

/// Objects that one request deletes.
const DELETE_MANY_MAX: usize = 1000;

/// A rename of a directory at work.
struct Work<'rename> {
    from: &'rename str,
    to: &'rename str,
    /// What an earlier attempt copied.
    resumed: Option<&'rename Descendants>,
    /// Whether the target was there before, as an empty directory.
    replaces: bool,
    /// Files that are open, in the versions that their handles know.
    open: HashMap<Box<str>, ETag>,
    /// The copies that these handles follow to, since they are copies of those versions.
    versions: Mutex<HashMap<Box<str>, ETag>>,
}

impl Work<'_> {
    fn note_version(&self, suffix: &str, etag: ETag) {
        if self.open.contains_key(suffix) {
            let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
            versions.insert(suffix.into(), etag);
        }
    }
}

/// What became of the copies.
#[derive(Default)]
struct Copied {
    /// Copies that may have been made.
    made: Vec<usize>,
    failure: Option<FsError>,
}

impl Copied {
    fn note(&mut self, index: usize, outcome: ObjectResult<()>) {
        match outcome {
            Ok(()) => self.made.push(index),
            Err(error) => {
                // Unless the key was taken, the copy may have been made all the same.
                if error.kind != ErrorKind::AlreadyExists {
                    self.made.push(index);
                }
                self.failure = Some(object_failure(&error, Purpose::Write));
            }
        }
    }
}

impl Core {
    pub(super) async fn rename_directory(self: &Arc<Self>, rename: &Rename) -> FsResult<()> {
        let top = rename.moved.inode();
        if self.namespace.lock().is_below(rename.target.parent, top) {
            return Err(FsError::InvalidArgument(
                "a directory cannot be moved into itself",
            ));
        }
        let entered = [rename.source_parent, rename.target.parent];
        let _moving = self.namespace.begin_move(top, &entered).await?;
        self.save_below(top).await?;
        let (from, to) = {
            let tree = self.namespace.lock();
            let parent = tree.prefix(rename.target.parent)?;
            (
                tree.prefix(top)?,
                key::directory_prefix(&parent, &rename.target.name),
            )
        };
        let resumed = self.journal().take(&from, &to);
        if let (Some(replaced), None) = (&rename.replaced, &resumed) {
            self.check_empty(replaced.inode(), &to).await?;
        }
        let open = self.open_below(top, &from);
        let work = Work {
            from: &from,
            to: &to,
            resumed: resumed.as_ref(),
            replaces: rename.replaced.is_some(),
            open: open.iter().filter_map(known_version).collect(),
            versions: Mutex::default(),
        };
        let objects = self.move_objects(&work).await;
        self.settle_rename(rename, objects.is_ok());
        objects?;
        let versions = work
            .versions
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        self.follow(&to, open, &versions)
    }

    /// Copies and deletes. Fails with the state described in the module.
    async fn move_objects(&self, work: &Work<'_>) -> FsResult<()> {
        let objects = self.descendants(work.from).await?;
        let longest = objects
            .objects
            .iter()
            .map(|object| object.suffix.len())
            .max();
        let longest = longest.ok_or(FsError::NotFound)?;
        // The store may have keys that are longer than those that can be asked for here.
        if work.from.len().max(work.to.len()) + longest > penstock_object::KEY_LENGTH_MAX {
            return Err(FsError::NameTooLong);
        }
        let copied = self.copy_all(work, &objects.objects).await;
        if let Some(error) = copied.failure {
            self.undo(work, &objects.objects, &copied.made).await;
            return Err(error);
        }
        if let Err(error) = self.delete_all(work.from, &objects.objects).await {
            tracing::warn!(
                "the directory `{}` was copied to `{}` but not wholly deleted: repeat the rename \
                 to finish it",
                work.from,
                work.to
            );
            self.journal().remember(work.from, work.to, objects);
            return Err(error);
        }
        Ok(())
    }

    /// Copies the marker, then everything else, until one fails.
    async fn copy_all(&self, work: &Work<'_>, objects: &[Descendant]) -> Copied {
        let mut copied = Copied::default();
        let marker = usize::from(objects.first().is_some_and(|first| first.suffix.is_empty()));
        for mut indices in [0..marker, marker..objects.len()] {
            let mut copies = FuturesUnordered::new();
            loop {
                while copied.failure.is_none() && copies.len() < self.copies_at_once() {
                    let Some(index) = indices.next() else { break };
                    copies.push(self.copy_one(work, objects, index));
                }
                let Some((index, outcome)) = copies.next().await else {
                    break;
                };
                copied.note(index, outcome);
            }
        }
        copied
    }

    fn copies_at_once(&self) -> usize {
        self.settings.rename_dir_concurrency.max(1)
    }

    async fn copy_one(
        &self,
        work: &Work<'_>,
        objects: &[Descendant],
        index: usize,
    ) -> (usize, ObjectResult<()>) {
        let object = &objects[index];
        if work.resumed.is_some_and(|copied| copied.has(object)) {
            return (index, Ok(()));
        }
        let known = work.open.get(&object.suffix);
        let original = Original {
            key: joined(work.from, &object.suffix),
            size: object.size,
            etag: known.cloned(),
            kind: object.kind,
        };
        let may_exist = object.suffix.is_empty() || work.resumed.is_some();
        let condition = if may_exist {
            WriteCondition::Always
        } else {
            self.if_absent()
        };
        let target = joined(work.to, &object.suffix);
        let copied = self
            .copy_object(&original, &target, condition.clone())
            .await;
        let outcome = match copied {
            Ok(stored) => {
                work.note_version(&object.suffix, stored.etag);
                Ok(())
            }
            // Another client replaced what is open here: it moves, and the handles are stale.
            Err(error) if known.is_some() && error.kind == ErrorKind::PreconditionFailed => {
                let any = Original {
                    etag: None,
                    ..original
                };
                self.copy_object(&any, &target, condition).await.map(drop)
            }
            Err(error) => Err(error),
        };
        (index, outcome)
    }

    /// Removes copies again.
    async fn undo(&self, work: &Work<'_>, objects: &[Descendant], made: &[usize]) {
        if work.resumed.is_some() {
            return;
        }
        let mut copies: Vec<Key> = made
            .iter()
            .map(|index| &objects[*index].suffix)
            .filter(|suffix| !(work.replaces && suffix.is_empty()))
            .map(|suffix| joined(work.to, suffix))
            .collect();
        copies.sort_unstable();
        if let Err(error) = self.delete_keys(&copies).await {
            tracing::warn!(
                "some copies below `{}` could not be removed again ({error}): remove them before \
                 you repeat the rename",
                work.to
            );
        }
    }

    /// Deletes the originals, the marker last.
    async fn delete_all(&self, from: &str, objects: &[Descendant]) -> FsResult<()> {
        let mut keys: Vec<Key> = objects
            .iter()
            .map(|object| joined(from, &object.suffix))
            .collect();
        let marked = keys.first().is_some_and(|first| first.as_str() == from);
        let marker = marked.then(|| keys.remove(0));
        self.delete_keys(&keys).await?;
        self.delete_keys(marker.as_slice()).await
    }

    async fn delete_keys(&self, keys: &[Key]) -> FsResult<()> {
        for keys in keys.chunks(DELETE_MANY_MAX) {
            let failures = for_writing(self.store().delete_many(keys).await)?;
            if let Some(failure) = failures.first() {
                let text = format!("cannot delete `{}`: {}", failure.key, failure.message);
                tracing::warn!(code = failure.code, "{text} ({} such keys)", failures.len());
                return Err(FsError::Io(text));
            }
        }
        Ok(())
    }

    /// Saves every file below a directory that is being moved.
    async fn save_below(&self, top: Inode) -> FsResult<()> {
        let inodes = self.namespace.lock().nodes_below(top);
        for file in inodes.into_iter().filter_map(|inode| self.open_file(inode)) {
            let mut stream = file.stream().await;
            self.finish(&file, &mut stream).await?;
        }
        Ok(())
    }

    /// Open files below a directory by the rest of their keys.
    fn open_below(&self, top: Inode, prefix: &str) -> Vec<(Box<str>, Arc<OpenFile>)> {
        let tree = self.namespace.lock();
        let files = tree.nodes_below(top).into_iter().filter_map(|inode| {
            let file = tree.node(inode).ok()?.file.clone()?;
            let key = tree.file_key(inode).ok()?;
            Some((key.as_str().strip_prefix(prefix)?.into(), file))
        });
        files.collect()
    }

    async fn check_empty(&self, directory: Inode, prefix: &str) -> FsResult<()> {
        {
            let tree = self.namespace.lock();
            let entries = &tree.directory(directory)?.entries;
            if entries.values().any(|entry| tree.is_unsaved(entry)) {
                return Err(FsError::DirectoryNotEmpty);
            }
        }
        let keys = for_writing(self.first_keys_below(prefix, 2).await)?;
        if keys.iter().any(|key| key != prefix) {
            return Err(FsError::DirectoryNotEmpty);
        }
        Ok(())
    }

    /// Points the handles of open files to the copies.
    fn follow(
        &self,
        to: &str,
        open: Vec<(Box<str>, Arc<OpenFile>)>,
        versions: &HashMap<Box<str>, ETag>,
    ) -> FsResult<()> {
        let mut tree = self.namespace.lock();
        for (suffix, file) in open {
            let version = file.view().version.clone();
            let (Some(version), Some(etag)) = (version, versions.get(&suffix)) else {
                continue;
            };
            // A writer goes on from what is known of the file.
            if let Ok(node) = tree.node_mut(file.inode)
                && let Some(known) = &mut node.known
            {
                known.etag = Some(etag.clone());
                known.size = version.size;
                known.object = ObjectKind::Normal;
            }
            file.show_stored(ObjectVersion {
                key: key::checked_key(format!("{to}{suffix}"))?,
                etag: etag.clone(),
                size: version.size,
            });
        }
        Ok(())
    }

    /// Brings the tree in line with what the store has now.
    fn settle_rename(&self, rename: &Rename, done: bool) {
        let mut tree = self.namespace.lock();
        let top = rename.moved.inode();
        if done {
            tree.relocate(top, &rename.target);
        } else {
            tree.doubt(rename.target.parent, &rename.target.name);
        }
        tree.distrust_below(top, clock::now());
    }
}

/// An open file with the version that its handles know.
fn known_version((suffix, file): &(Box<str>, Arc<OpenFile>)) -> Option<(Box<str>, ETag)> {
    let version = file.view().version.as_ref()?.etag.clone();
    Some((suffix.clone(), version))
}

/// A key whose length was checked.
fn joined(prefix: &str, suffix: &str) -> Key {
    Key::new(format!("{prefix}{suffix}")).expect("the longest was checked before")
}
