//! What `stat` shows, and what of it can be changed.
//!
//! A bucket keeps a size and a time of each object and nothing of directories. Owner and mode
//! come from the settings; changing them succeeds without effect, because too many programs fail
//! when it does not. Time stamps that are set are kept in memory until the object changes or the
//! file is forgotten. With [`crate::metadata`] all of them are kept, and the settings stand for
//! what an object does not say.

use std::{sync::Arc, time::Duration};

use penstock_base::{FsError, FsResult, clock};
use penstock_vfs::{AttributeChanges, Attributes, Entry, FileKind, HandleId, Inode, OpenOptions};

use crate::{
    files::Files,
    inode::{Node, Place},
    lookup::Lookups,
    metadata::Metadata,
    metadata::{MetadataChange, moment},
    mount::Mount,
    mount::run_to_end,
    open_file::Mode,
};

/// Bytes that every directory shows as its size, as local file systems do for small ones.
const DIRECTORY_SIZE: u64 = 4096;
/// Permission bits of a symbolic link, which nobody checks (symlink(7)).
const SYMLINK_PERMISSIONS: u16 = 0o777;

/// Changes what `stat` shows.
#[derive(Debug)]
pub(crate) struct SetAttributes {
    mount: Arc<Mount>,
    lookups: Arc<Lookups>,
    metadata: Arc<Metadata>,
    files: Arc<Files>,
}

impl SetAttributes {
    /// Of the volume whose open files these are.
    pub(crate) fn new(files: &Arc<Files>) -> Arc<Self> {
        Arc::new(Self {
            mount: Arc::clone(&files.mount),
            lookups: Arc::clone(&files.lookups),
            metadata: Arc::clone(&files.metadata),
            files: Arc::clone(files),
        })
    }
}

impl Mount {
    /// What is known of a file that memory holds.
    pub(crate) fn entry(&self, inode: Inode) -> FsResult<Entry> {
        let tree = self.namespace.lock();
        Ok(self.entry_of(inode, tree.node(inode)?))
    }

    /// Whether what memory knows of a file is believed.
    fn is_current(&self, inode: Inode) -> FsResult<bool> {
        let tree = self.namespace.lock();
        Ok(tree.node(inode)?.is_current(clock::now()))
    }

    /// What `stat` shows of a node and for how long that may be believed.
    pub(crate) fn entry_of(&self, inode: Inode, node: &Node) -> Entry {
        let now = clock::now();
        let known_for = node
            .known
            .as_ref()
            .map(|known| known.until.duration_since(now));
        let (entry_ttl, attributes_ttl) = if inode == Inode::ROOT {
            (self.settings.attr_timeout, self.settings.attr_timeout)
        } else if node.is_dirty() {
            let ours = self.settings.attr_timeout;
            let is_kept = self.settings.door_keeps_sizes || self.is_shown_as_saved(node);
            (ours, if is_kept { ours } else { Duration::ZERO })
        } else {
            let ttl = known_for.unwrap_or_default();
            (ttl, ttl)
        };
        Entry {
            attributes: self.attributes_of(inode, node),
            entry_ttl,
            attributes_ttl,
        }
    }

    /// Whether an unsaved file is shown as it will be when it is saved, as its times go along. A kernel that writes it keeps
    /// its size and asks for its times after each write, not for the bits that a write takes away. Streaming sends what it knows
    /// of a file before the last byte.
    fn is_shown_as_saved(&self, node: &Node) -> bool {
        self.keeps_metadata()
            && matches!(self.mode, Mode::Staged(_))
            && !node.kept().is_some_and(|kept| kept.posix.lends_rights())
    }

    fn attributes_of(&self, inode: Inode, node: &Node) -> Attributes {
        let written = node
            .file
            .as_ref()
            .map(|file| file.view())
            .filter(|view| view.dirty);
        let (size, modified) = match (&written, &node.known) {
            (Some(view), _) => (view.size, view.modified),
            (None, Some(known)) => (known.shown_size(), known.modified.unwrap_or(self.mounted)),
            (None, None) => (0, self.mounted),
        };
        let posix = node.kept().map(|kept| &kept.posix);
        let times = node.times();
        let kept_modified = posix.and_then(|posix| posix.modified);
        let modified = times.modified.or(kept_modified).unwrap_or(modified);
        let accessed = posix.and_then(|posix| posix.accessed);
        let changed = posix.and_then(|posix| posix.changed);
        let shown = &self.settings.metadata;
        let uid = shown.uid.or(posix.and_then(|posix| posix.uid));
        let gid = shown.gid.or(posix.and_then(|posix| posix.gid));
        let linked = node.place.is_some() || inode == Inode::ROOT;
        let size = if node.kind == FileKind::Directory {
            DIRECTORY_SIZE
        } else {
            size
        };
        Attributes {
            inode,
            generation: self.generation,
            kind: node.kind,
            permissions: self.permissions_of(inode, node),
            access_list: None,
            // One link also for directories: it tells programs that links do not count children.
            links: u32::from(linked),
            uid: uid.unwrap_or(self.settings.uid),
            gid: gid.unwrap_or(self.settings.gid),
            size,
            allocated: size,
            accessed: times.accessed.or(accessed).unwrap_or(modified),
            modified,
            // What was changed in a directory here is newer than what its marker says.
            changed: changed
                .max(times.modified)
                .max(times.changed)
                .unwrap_or(modified),
        }
    }

    fn permissions_of(&self, inode: Inode, node: &Node) -> u16 {
        let kept = node.kept().and_then(|kept| kept.posix.permissions());
        match (node.kind, kept) {
            (FileKind::Symlink, _) => SYMLINK_PERMISSIONS,
            (_, Some(permissions)) => permissions & !self.settings.metadata.umask,
            (FileKind::Directory, None) if inode == Inode::ROOT => {
                let root = self.settings.metadata.root_mode;
                root.unwrap_or_else(|| self.default_permissions(node.kind))
            }
            (kind, None) => self.default_permissions(kind),
        }
    }

    /// The permission bits of what says nothing of its own.
    pub(crate) fn default_permissions(&self, kind: FileKind) -> u16 {
        match kind {
            FileKind::Regular | FileKind::Special(_) => {
                self.settings.file_mode & !self.settings.metadata.umask
            }
            FileKind::Directory => self.settings.dir_mode & !self.settings.metadata.umask,
            FileKind::Symlink => SYMLINK_PERMISSIONS,
        }
    }

    /// Fails if the file lost its name to another client: a change would be seen by nobody, or be another file's.
    pub(crate) fn check_not_replaced(&self, inode: Inode) -> FsResult<()> {
        let tree = self.namespace.lock();
        let node = tree.node(inode)?;
        // What was removed here can be changed as long as it is open; of other kinds nobody notes that.
        if node.kind == FileKind::Regular && node.lost_its_name() {
            return Err(FsError::Stale);
        }
        Ok(())
    }
}

impl Lookups {
    /// What `stat` shows, asking the store when memory is too old.
    pub(crate) async fn attributes(self: &Arc<Self>, inode: Inode) -> FsResult<Entry> {
        let place = {
            let mut tree = self.mount.namespace.lock();
            let now = clock::now();
            let was_looked_up = tree.node_mut(inode)?.shows_what_was_looked_up(now);
            let node = tree.node(inode)?;
            let orphan = node.place.is_none() && inode != Inode::ROOT;
            if orphan && node.file.is_none() && node.kind != FileKind::Directory {
                return Err(FsError::Stale);
            }
            let is_current = was_looked_up || node.is_current(now);
            node.place.clone().filter(|_| !is_current)
        };
        let ask = match place {
            Some(Place { parent, name }) => {
                let is_renewed = self.learn_names(parent, &name).await?;
                !(is_renewed && self.mount.is_current(inode)?)
            }
            None => false,
        };
        if ask && let Err(error) = self.refresh(inode).await {
            let is_open = self.mount.namespace.lock().node(inode)?.file.is_some();
            // Who has it open goes on with what was opened.
            if error != FsError::Stale || !is_open {
                return Err(error);
            }
        }
        self.mount.entry(inode)
    }
}

impl SetAttributes {
    /// Changes what can be changed. See the module.
    pub(crate) async fn set_attributes(
        self: &Arc<Self>,
        inode: Inode,
        changes: AttributeChanges,
    ) -> FsResult<Entry> {
        self.mount.check_writable()?;
        if let Some(time) = changes.only_if_changed_at
            && self.lookups.attributes(inode).await?.attributes.changed != time
        {
            return Err(FsError::NotSynchronized);
        }
        self.mount.check_not_replaced(inode)?;
        if let Some(size) = changes.size {
            if self.mount.keeps_metadata() {
                self.lookups.know_metadata(inode).await?;
            }
            self.files.set_size(inode, size, changes.handle).await?;
        }
        if self.mount.keeps_metadata() {
            return self.keep_attributes(inode, changes).await;
        }
        if changes.permissions.is_some() || changes.uid.is_some() || changes.gid.is_some() {
            self.note_ignored_change();
        }
        let entry = self.lookups.attributes(inode).await?;
        self.mount.check_not_replaced(inode)?;
        if changes.accessed.is_none() && changes.modified.is_none() {
            return Ok(entry);
        }
        self.set_times(inode, changes)?;
        self.mount.entry(inode)
    }

    /// Changes what is kept of a file, if anything else than its size is changed.
    async fn keep_attributes(
        self: &Arc<Self>,
        inode: Inode,
        changes: AttributeChanges,
    ) -> FsResult<Entry> {
        let other = AttributeChanges {
            size: None,
            handle: None,
            only_if_changed_at: None,
            ..changes
        };
        if other != AttributeChanges::default() {
            let change = MetadataChange::Attributes(other);
            self.metadata.change_metadata(inode, change).await?;
        }
        self.lookups.attributes(inode).await
    }

    fn set_times(&self, inode: Inode, changes: AttributeChanges) -> FsResult<()> {
        let mut tree = self.mount.namespace.lock();
        let times = tree.node_mut(inode)?.times_mut();
        times.accessed = changes.accessed.map(moment).or(times.accessed);
        times.modified = changes.modified.map(moment).or(times.modified);
        Ok(())
    }

    fn note_ignored_change(&self) {
        self.mount.metrics.ignored_changes.increment();
        if self.mount.notices.ignored_change.first() {
            tracing::info!(
                "chmod and chown have no effect on a bucket: set owner and mode of all files with \
                 uid, gid, file_mode and dir_mode (later cases are only counted)"
            );
        }
    }
}

impl Files {
    /// Changes the size of a file; a streamed one can only be truncated to nothing.
    pub(crate) async fn set_size(
        self: &Arc<Self>,
        inode: Inode,
        size: u64,
        handle: Option<HandleId>,
    ) -> FsResult<()> {
        let kind = self.mount.namespace.lock().node(inode)?.kind;
        match kind {
            FileKind::Directory => return Err(FsError::IsADirectory),
            FileKind::Special(_) => {
                return Err(FsError::InvalidArgument("only files have a size"));
            }
            FileKind::Regular | FileKind::Symlink => {}
        }
        match &self.mount.mode {
            Mode::Streaming => self.set_streamed_size(inode, size, handle).await,
            Mode::Staged(_) => self.set_staged_size(inode, size, handle).await,
        }
    }

    async fn set_streamed_size(
        self: &Arc<Self>,
        inode: Inode,
        size: u64,
        handle: Option<HandleId>,
    ) -> FsResult<()> {
        if size != 0 {
            return self.check_size_unchanged(inode, size).await;
        }
        match handle {
            Some(handle) => self.truncate(&*self.handles.get(handle)?).await,
            None => run_to_end(Arc::clone(self).truncate_path(inode)).await,
        }
    }

    async fn check_size_unchanged(self: &Arc<Self>, inode: Inode, size: u64) -> FsResult<()> {
        let shown = self.lookups.attributes(inode).await?;
        self.mount.check_not_replaced(inode)?;
        if shown.attributes.size == size {
            return Ok(());
        }
        Err(FsError::Unsupported(
            "an object can only be truncated to nothing; write the file anew",
        ))
    }

    /// Truncates a file that the caller has not opened, at once and durably.
    async fn truncate_path(self: Arc<Self>, inode: Inode) -> FsResult<()> {
        let options = OpenOptions {
            truncate: true,
            ..OpenOptions::WRITE
        };
        let opened = self.open_as_it_is(inode, options).await?;
        self.save_and_close(opened.handle).await
    }

    /// Saves what was changed through a handle that no door knows, and closes it.
    pub(crate) async fn save_and_close(self: &Arc<Self>, handle: HandleId) -> FsResult<()> {
        let saved = self.flush(&*self.handles.get(handle)?).await;
        self.release(handle).await;
        saved
    }
}
