//! Renaming directories.
//!
//! The objects below are listed, up to a limit, then copied, then deleted; the object that marks
//! the directory is copied first and deleted last, so that neither name is ever a directory
//! without its marker. Changes of this mount below the directory wait meanwhile.
//!
//! - A failure while copying removes the copies again: the source is intact.
//! - A failure while deleting leaves the target whole and the source in part. The rename is
//!   remembered, and repeating it goes on from there, if the target is still as it was left.
//! - After a crash both names are there, the source whole as long as copying was under way.
//!
//! Other clients do not wait. What is copied is the version that was listed; one that was replaced
//! meanwhile is looked at again, one that was removed is left out. No store deletes many objects on
//! condition of their versions, so each thousand is listed once more just before: what was replaced
//! since it was copied is copied again, and what is replaced over and over ends the rename as busy.
//! Objects that others add below stay where they were put.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use penstock_base::{FsError, FsResult, clock};
use penstock_object::{
    DELETE_MANY_MAX, ETag, ErrorKind, Key, ObjectKind, ObjectResult, WriteCondition,
};
use penstock_vfs::Inode;

use crate::{
    errors::{Purpose, for_writing, object_failure},
    inode::{Change, Moving},
    key,
    open_file::OpenFile,
    rename::Renames,
    rename::{
        Rename,
        copy::{Original, is_changed},
        descendants::{Descendant, Descendants},
    },
};

/// Copies that are under way at the same time. The store's own limit of requests applies below.
const COPIES_AT_ONCE: usize = 128;

/// How often objects are copied again that others changed, before the rename gives up.
const CHANGES_MAX: usize = 3;

const KEEPS_CHANGING: FsError = FsError::Busy(
    "other clients keep changing the directory while it is renamed; repeat the rename to finish it",
);

/// A rename of a directory at work.
struct Work<'rename> {
    from: &'rename str,
    to: &'rename str,
    /// What an earlier attempt copied.
    resumed: Option<&'rename Descendants>,
    /// Whether the target was there before, as an empty directory.
    replaces: bool,
    /// Files that are open, whose handles follow to the copies.
    open: HashSet<Box<str>>,
    /// What was copied of them.
    versions: Mutex<HashMap<Box<str>, Followed>>,
}

/// The copy of a file that is open.
struct Followed {
    /// The version that was copied.
    original: ETag,
    copy: ETag,
}

impl Work<'_> {
    /// Notes a copy.
    fn copied(&self, object: &Descendant, copy: ETag) -> Descendant {
        if self.open.contains(&object.suffix) {
            let followed = Followed {
                original: object.etag.clone(),
                copy: copy.clone(),
            };
            let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
            versions.insert(object.suffix.clone(), followed);
        }
        // Most copies have the tag of their original, which then needs no memory of its own.
        let copy = if copy == object.etag {
            object.etag.clone()
        } else {
            copy
        };
        Descendant {
            copy: Some(copy),
            ..object.clone()
        }
    }
}

/// What became of the copies.
#[derive(Default)]
struct Copied {
    /// Copies that may have been made.
    made: Vec<usize>,
    /// What was copied, which may not be the version that was listed; nothing if it was removed.
    copied: Vec<(usize, Option<Descendant>)>,
    failure: Option<FsError>,
}

impl Copied {
    /// Notes what was copied in place of an object; nothing if it is gone.
    fn note(&mut self, index: usize, outcome: ObjectResult<Option<Descendant>>) {
        match outcome {
            Ok(copied) => {
                if copied.is_some() {
                    self.made.push(index);
                }
                self.copied.push((index, copied));
            }
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

impl Renames {
    /// Moves everything below a directory. Returns the change of the old name.
    pub(super) async fn rename_directory(self: &Arc<Self>, rename: &Rename) -> FsResult<Change> {
        let top = rename.moved.inode();
        if self
            .mount
            .namespace
            .lock()
            .is_below(rename.target.parent, top)
        {
            return Err(FsError::InvalidArgument(
                "a directory cannot be moved into itself",
            ));
        }
        let entered = [rename.source_parent, rename.target.parent];
        let moving = self.mount.namespace.begin_move(top, &entered).await?;
        self.save_below(top).await?;
        for directory in [Some(&rename.moved), rename.replaced.as_ref()]
            .into_iter()
            .flatten()
        {
            self.metadata.modernize(directory.inode()).await?;
        }
        let old = self.metadata.old_markers(top)?;
        let (from, to) = {
            let tree = self.mount.namespace.lock();
            let parent = tree.prefix(rename.target.parent)?;
            (
                tree.prefix(top)?,
                key::directory_prefix(&parent, &rename.target.name),
            )
        };
        for prefix in [&from, &to] {
            self.mount.settle_below(prefix).await?;
        }
        let resumed = self.unfinished(&from, &to).await?;
        if let (Some(replaced), None) = (&rename.replaced, &resumed) {
            self.check_empty(replaced.inode(), &to).await?;
        }
        let open = self.open_below(top, &from);
        let work = Work {
            from: &from,
            to: &to,
            resumed: resumed.as_ref(),
            replaces: rename.replaced.is_some(),
            open: open.iter().map(|(suffix, _)| suffix.clone()).collect(),
            versions: Mutex::default(),
        };
        let change = self.mount.namespace.begin_change_of(top)?;
        let target = self.mount.namespace.begin_change(rename.target.clone());
        let moved = self.move_objects(&work, &moving).await;
        let versions = work
            .versions
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let (Err(_), Some(copied)) = (&moved, resumed) {
            self.journal().keep(&from, &to, copied);
        }
        self.settle_rename(rename, moved.is_ok());
        moved?;
        target.end();
        self.follow(&to, open, &versions)?;
        self.metadata.delete_old_markers(&old).await?;
        Ok(change)
    }

    /// What an earlier attempt at this rename copied, if all of it is still there: somebody may
    /// have cleared up the target, or made another one, and then this is a rename like any other.
    async fn unfinished(&self, from: &str, to: &str) -> FsResult<Option<Descendants>> {
        let Some(copied) = self.journal().take(from, to) else {
            return Ok(None);
        };
        match self.has_copies(to, &copied).await {
            Ok(true) => Ok(Some(copied)),
            Ok(false) => Ok(None),
            Err(error) => {
                self.journal().keep(from, to, copied);
                Err(error)
            }
        }
    }

    /// Copies and deletes. Fails with the state described in the module.
    async fn move_objects(&self, work: &Work<'_>, moving: &Moving) -> FsResult<()> {
        let mut objects = self.descendants(work.from).await?;
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
        objects.bring_up_to_date(copied.copied);
        moving.begin_removal();
        if let Err(error) = self.delete_all(work, &mut objects.objects).await {
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
                while copied.failure.is_none() && copies.len() < COPIES_AT_ONCE {
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

    async fn copy_one(
        &self,
        work: &Work<'_>,
        objects: &[Descendant],
        index: usize,
    ) -> (usize, ObjectResult<Option<Descendant>>) {
        let object = &objects[index];
        if let Some(copy) = work.resumed.and_then(|copied| copied.copy_of(object)) {
            return (index, Ok(Some(work.copied(object, copy.clone()))));
        }
        let may_exist = object.suffix.is_empty() || work.resumed.is_some();
        let condition = if may_exist {
            WriteCondition::Always
        } else {
            WriteCondition::IfAbsent
        };
        let outcome = match self.copy_version(work, object, condition.clone()).await {
            Err(error) if is_changed(&error) => self.copy_present(work, object, condition).await,
            copied => copied.map(Some),
        };
        (index, outcome)
    }

    /// Copies an object as it was listed.
    async fn copy_version(
        &self,
        work: &Work<'_>,
        object: &Descendant,
        condition: WriteCondition,
    ) -> ObjectResult<Descendant> {
        let original = Original {
            key: joined(work.from, &object.suffix),
            size: object.size,
            etag: Some(object.etag.clone()).filter(|etag| !etag.as_str().is_empty()),
            kind: object.kind,
        };
        let target = joined(work.to, &object.suffix);
        let stored = self
            .mount
            .copy_object(&original, &target, condition)
            .await?;
        Ok(work.copied(object, stored.etag))
    }

    /// Copies an object as it is now.
    async fn copy_present(
        &self,
        work: &Work<'_>,
        object: &Descendant,
        condition: WriteCondition,
    ) -> ObjectResult<Option<Descendant>> {
        let Some(info) = self.mount.head(&joined(work.from, &object.suffix)).await? else {
            return Ok(None);
        };
        let now = Descendant {
            suffix: object.suffix.clone(),
            size: info.size,
            kind: info.kind,
            etag: info.etag,
            copy: None,
        };
        self.copy_version(work, &now, condition).await.map(Some)
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
    async fn delete_all(&self, work: &Work<'_>, objects: &mut [Descendant]) -> FsResult<()> {
        let marker = usize::from(objects.first().is_some_and(|first| first.suffix.is_empty()));
        let (markers, files) = objects.split_at_mut(marker);
        let mut before: Box<str> = "".into();
        for files in files.chunks_mut(DELETE_MANY_MAX) {
            self.copy_changed(work, &before, files).await?;
            self.delete_keys(&keys_of(work.from, files)).await?;
            before = files[files.len() - 1].suffix.clone();
        }
        self.delete_keys(&keys_of(work.from, markers)).await
    }

    /// Copies those of `objects` again that others changed since they were copied.
    async fn copy_changed(
        &self,
        work: &Work<'_>,
        before: &str,
        objects: &mut [Descendant],
    ) -> FsResult<()> {
        for _ in 0..=CHANGES_MAX {
            let changed = self.changed_since(work.from, before, objects).await?;
            if changed.is_empty() {
                return Ok(());
            }
            for now in changed {
                let copied = match self.copy_version(work, &now, WriteCondition::Always).await {
                    // It will show again.
                    Err(error) if is_changed(&error) => continue,
                    copied => for_writing(copied)?,
                };
                if let Ok(index) = objects.binary_search_by(|old| old.suffix.cmp(&now.suffix)) {
                    objects[index] = copied;
                }
            }
        }
        Err(KEEPS_CHANGING)
    }

    async fn delete_keys(&self, keys: &[Key]) -> FsResult<()> {
        for keys in keys.chunks(DELETE_MANY_MAX) {
            let failures = for_writing(self.mount.store().delete_many(keys).await)?;
            if let Some(failure) = failures.first() {
                let text = format!("cannot delete `{}`: {}", failure.key, failure.message);
                tracing::warn!(code = failure.code, "{text} ({} such keys)", failures.len());
                return Err(FsError::Io(text));
            }
        }
        Ok(())
    }

    /// Saves every file below a directory that is being moved. None is begun after one that failed.
    async fn save_below(&self, top: Inode) -> FsResult<()> {
        let inodes = self.mount.namespace.lock().nodes_below(top);
        let mut files = inodes
            .into_iter()
            .filter_map(|inode| self.mount.open_file(inode));
        let (mut saves, mut saved) = (FuturesUnordered::new(), Ok(()));
        loop {
            while saved.is_ok() && saves.len() < self.files.saves_at_once() {
                let Some(file) = files.next() else { break };
                saves.push(self.save_in_turn(file));
            }
            let Some(one) = saves.next().await else {
                return saved;
            };
            saved = saved.and(one);
        }
    }

    async fn save_in_turn(&self, file: Arc<OpenFile>) -> FsResult<()> {
        let mut turn = file.turn().await;
        self.files.finish(&file, &mut turn).await
    }

    /// Open files below a directory by the rest of their keys.
    fn open_below(&self, top: Inode, prefix: &str) -> Vec<(Box<str>, Arc<OpenFile>)> {
        let tree = self.mount.namespace.lock();
        let files = tree.nodes_below(top).into_iter().filter_map(|inode| {
            let file = tree.node(inode).ok()?.file.clone()?;
            let key = tree.file_key(inode).ok()?;
            Some((key.as_str().strip_prefix(prefix)?.into(), file))
        });
        files.collect()
    }

    async fn check_empty(&self, directory: Inode, prefix: &str) -> FsResult<()> {
        {
            let tree = self.mount.namespace.lock();
            let entries = &tree.directory(directory)?.entries;
            if entries.values().any(|entry| tree.is_ours(entry)) {
                return Err(FsError::DirectoryNotEmpty);
            }
        }
        let keys = for_writing(self.mount.first_keys_below(prefix, 2).await)?;
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
        versions: &HashMap<Box<str>, Followed>,
    ) -> FsResult<()> {
        let mut tree = self.mount.namespace.lock();
        for (suffix, file) in &open {
            let Some(followed) = versions.get(suffix) else {
                continue;
            };
            let key = key::checked_key(format!("{to}{suffix}"))?;
            file.show_moved(&followed.original, key, followed.copy.clone());
            // A writer goes on from what is known of the file.
            if let Ok(node) = tree.node_mut(file.inode)
                && let Some(known) = &mut node.known
                && known.etag.as_ref() == Some(&followed.original)
            {
                known.etag = Some(followed.copy.clone());
                known.object = ObjectKind::Normal;
            }
        }
        drop(tree);
        for (_, file) in open {
            file.renew_journal();
        }
        Ok(())
    }

    /// Brings the tree in line with what the store has now.
    fn settle_rename(&self, rename: &Rename, done: bool) {
        let mut tree = self.mount.namespace.lock();
        let top = rename.moved.inode();
        if done {
            tree.relocate(top, &rename.target);
        }
        tree.distrust_below(top, clock::now());
    }
}

fn keys_of(prefix: &str, objects: &[Descendant]) -> Vec<Key> {
    let keys = objects.iter().map(|object| joined(prefix, &object.suffix));
    keys.collect()
}

/// A key whose length was checked.
fn joined(prefix: &str, suffix: &str) -> Key {
    Key::new(format!("{prefix}{suffix}")).expect("the longest was checked before")
}
