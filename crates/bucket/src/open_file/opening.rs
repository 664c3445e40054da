//! Opening and creating files.

use std::sync::Arc;

use penstock_base::{
    FsError, FsResult, LocalFile, MIB, Utf8Name,
    clock::{self, Instant},
};
use penstock_transfer::{
    ObjectVersion,
    staging::{Content, Reopened},
};
use penstock_vfs::{Access, FileKind, HandleId, Inode, OpenOptions, Opened};

use crate::{
    files::Files,
    inode::{Node, Reference, Tree},
    open_file::{Body, FileHandle, Mode, OpenFile, View},
    staged::{StagedBody, StagedMode},
};

/// How long after an open another one counts as soon: worth keeping the content in the door's
/// cache.
const REOPEN_WINDOW: std::time::Duration = std::time::Duration::from_secs(60);

/// Bytes up to which a file that was not opened a short while ago bypasses the door's cache: it is
/// read in one go and most likely only once.
const SMALL_FILE_MAX: u64 = MIB;

impl Files {
    /// Opens a file that exists.
    pub(crate) async fn open(
        self: &Arc<Self>,
        inode: Inode,
        options: OpenOptions,
    ) -> FsResult<Opened> {
        // POSIX leaves it open what that does to a file that is opened for reading; Linux empties it.
        if options.truncate && !options.access.writes() {
            self.mount.check_writable()?;
            self.set_size(inode, 0, None).await?;
        }
        let opened = self.open_as_it_is(inode, options).await?;
        self.keep_or_drop(opened)
    }

    /// Decides whether the door drops what it keeps of a staged file that was opened: as seldom as can be,
    /// for it reads anew a page that it drops while it writes it. The last step of an open: a door that
    /// hears of an error drops nothing.
    fn keep_or_drop(&self, opened: Opened) -> FsResult<Opened> {
        let file = Arc::clone(&self.handles.get(opened.handle)?.file);
        let is_unchanged = match file.body {
            Body::Staged(_) => std::mem::replace(&mut file.view().is_shown, true),
            Body::Streamed(_) => opened.is_unchanged,
        };
        Ok(Opened {
            is_unchanged,
            ..opened
        })
    }

    /// Closes what was opened when the door did not hear of that.
    pub(crate) async fn undo_open(self: &Arc<Self>, handle: HandleId) {
        if let Ok(handle) = self.handles.get(handle) {
            handle.file.view().is_shown = false;
            if let Ok(node) = self.mount.namespace.lock().node_mut(handle.file.inode) {
                node.doubt_pages();
            }
        }
        self.release(handle).await;
    }

    /// The same as [`Self::open`] within the mount, where no door hears of it. Only a handle that may write
    /// empties the file.
    pub(crate) async fn open_as_it_is(
        self: &Arc<Self>,
        inode: Inode,
        options: OpenOptions,
    ) -> FsResult<Opened> {
        if options.access.writes() {
            self.mount.check_writable()?;
        }
        if self.must_ask_before_open(inode, options)? {
            self.lookups.refresh(inode).await?;
        }
        let found = Found {
            local: self.local_copy(inode, options),
            left: self.what_it_left(inode, options).await?,
        };
        let (handle, opened) = self.attach(inode, options, found)?;
        if let Body::Staged(body) = &handle.file.body
            && body.content.is_given_up()
        {
            body.content.empty_given_up().await;
        }
        if options.truncate && options.access.writes() {
            self.truncate(&handle).await?;
        }
        self.handles.insert(handle.id, handle);
        Ok(opened)
    }

    /// Creates a file and opens it, or opens what is there unless it `must_be_new`.
    pub(crate) async fn create(
        self: &Arc<Self>,
        (parent, name): (Inode, &Utf8Name),
        options: OpenOptions,
        must_be_new: bool,
    ) -> FsResult<Created> {
        self.mount.check_writable()?;
        loop {
            if let Some(found) = self
                .lookups
                .find(parent, name, self.mount.change_patience())
                .await?
            {
                if must_be_new {
                    return Err(FsError::AlreadyExists);
                }
                let opened = self.open(found.inode(), options).await?;
                return Ok(Created {
                    file: found,
                    opened,
                    existed: true,
                });
            }
            let _entered = self.mount.namespace.enter(&[parent]).await?;
            if let Some(created) = self.try_create((parent, name), options)? {
                return Ok(created);
            }
        }
    }

    /// Makes a file that does not exist, unless somebody else just did. Asks the store nothing.
    fn try_create(
        self: &Arc<Self>,
        (parent, name): (Inode, &Utf8Name),
        options: OpenOptions,
    ) -> FsResult<Option<Created>> {
        let mut tree = self.mount.namespace.lock();
        self.mount.check_not_shut()?;
        let key = crate::key::file_key(&tree.prefix(parent)?, name)?;
        if tree.directory(parent)?.entries.contains_key(name) {
            return Ok(None);
        }
        let id = self.ids.next()?;
        let inode = tree.link((parent, name), FileKind::Regular, None);
        let file = OpenFile::created(inode, self.mount.mode.body());
        let opened = file.body.opened_for_writing(id);
        match &file.body {
            // The view of a new file says so from the beginning.
            Body::Staged(body) => body.engage(&file, Content::default(), key, |_| ()),
            Body::Streamed(body) => body
                .stream
                .try_lock()
                .expect("the file is not known yet")
                .begin(id, self.new_sink(key, false)),
        }
        tree.node_mut(inode)?.file = Some(Arc::clone(&file));
        let tree_of = (&self.mount.namespace, &mut *tree);
        let handle = FileHandle::attach(tree_of, &file, options, &opened);
        drop(tree);
        self.handles.insert(id, handle);
        Ok(Some(Created {
            file: Reference::adopt(&self.mount.namespace, inode),
            opened,
            existed: false,
        }))
    }

    /// Whether the version of a file must be asked for before it is opened: also when memory knows it, but
    /// the door may keep pages of it. Who has seen pages of an old version could not change the file.
    fn must_ask_before_open(&self, inode: Inode, options: OpenOptions) -> FsResult<bool> {
        let mut tree = self.mount.namespace.lock();
        let now = clock::now();
        let was_looked_up = tree.node_mut(inode)?.opens_what_was_looked_up(now);
        let node = tree.node(inode)?;
        match node.kind {
            FileKind::Directory => return Err(FsError::IsADirectory),
            FileKind::Symlink => {
                return Err(FsError::InvalidArgument(
                    "a symbolic link cannot be opened itself",
                ));
            }
            FileKind::Special(_) => {
                return Err(FsError::InvalidArgument(
                    "pipes, sockets and devices are opened by the kernel",
                ));
            }
            FileKind::Regular => {}
        }
        if node.lost_its_name() || node.place.is_none() && self.mount.settings.door_keeps_sizes {
            return Err(FsError::Stale);
        }
        if node.is_dirty() || node.place.is_none() {
            return Ok(false);
        }
        let shows_pages =
            || node.is_seen() || options.access == Access::ReadWrite && node.last_open.is_some();
        let changes = options.access.writes() && !options.truncate;
        let changes_pages = changes && shows_pages() && !self.goes_on(&tree, inode);
        // What is written replaces the object: its metadata must be known to go along.
        let keeps_metadata = self.mount.keeps_metadata() && options.access.writes();
        let lacks_metadata = keeps_metadata && node.kept().is_none();
        let is_outdated = changes_pages || !node.is_current(now);
        Ok(self.mount.settings.close_to_open || lacks_metadata || is_outdated && !was_looked_up)
    }

    /// Whether a file that nobody has open goes on with what it left when it was closed.
    fn goes_on(&self, tree: &Tree, inode: Inode) -> bool {
        let version = tree.version(inode);
        version.is_some_and(|version| self.mount.mode.has_left(&version))
    }

    /// A file that holds the version which is about to be opened for reading. Not in staged mode: the
    /// kernel would refuse to open the file for writing, through its cache, as long as it reads the
    /// copy.
    fn local_copy(&self, inode: Inode, options: OpenOptions) -> Option<LocalCopy> {
        if options.access.writes() || self.mount.mode.staged().is_some() {
            return None;
        }
        let version = self.mount.namespace.lock().version(inode)?;
        let file = self
            .mount
            .transfer
            .store()
            .local_copy(&version.key, &version.etag)?;
        Some(LocalCopy { version, file })
    }

    /// What a file that nobody has open left when it was closed, unless whoever opens it empties it. The
    /// disk opens it before the tree is locked to open the file: if somebody else opens that meanwhile,
    /// what it left goes.
    async fn what_it_left(&self, inode: Inode, options: OpenOptions) -> FsResult<Option<Reopened>> {
        if self.mount.mode.staged().is_none() || options.truncate && options.access.writes() {
            return Ok(None);
        }
        let left = {
            let tree = self.mount.namespace.lock();
            let is_open = tree.node(inode)?.file.is_some();
            let version = tree.version(inode).filter(|_| !is_open);
            version.and_then(|version| self.mount.mode.take_left(&version))
        };
        match left {
            Some(left) => Ok(self.mount.mode.reopen(left).await),
            None => Ok(None),
        }
    }

    /// Makes a handle of a file whose version is known.
    fn attach(
        &self,
        inode: Inode,
        options: OpenOptions,
        Found { local, mut left }: Found,
    ) -> FsResult<(Arc<FileHandle>, Opened)> {
        let mut tree = self.mount.namespace.lock();
        let id = self.ids.next()?;
        let writes = options.access.writes();
        let file = open_file_of(&mut tree, inode, &self.mount.mode, &mut left)?;
        let is_staged = file.body.staged().is_some();
        let mut opened = if must_bypass_caches(options) || writes && is_staged {
            file.body.opened_for_writing(id)
        } else if file.body.is_engaged() {
            Opened {
                closes_silently: true,
                ..file.body.opened_for_writing(id)
            }
        } else {
            let advised = self.advise(id, tree.node_mut(inode)?, clock::now());
            Opened {
                closes_silently: !options.access.writes(),
                ..advised
            }
        };
        opened.local = local.and_then(|local| local.of(&file.view()));
        let tree_of = (&self.mount.namespace, &mut *tree);
        let handle = FileHandle::attach(tree_of, &file, options, &opened);
        Ok((handle, opened))
    }

    /// What is known of a file that is opened for reading.
    fn advise(&self, handle: HandleId, node: &mut Node, now: Instant) -> Opened {
        let Some((size, etag)) = node
            .known
            .as_ref()
            .and_then(|known| known.etag.clone().map(|etag| (known.size, etag)))
        else {
            return Opened {
                passes_once: true,
                ..Opened::new(handle)
            };
        };
        let last = node.note_pages(Some(etag.clone()), now);
        let same = last
            .as_ref()
            .is_some_and(|last| last.etag.as_ref() == Some(&etag));
        let soon = last.is_some_and(|last| last.at + REOPEN_WINDOW > now);
        let passes_once = size <= SMALL_FILE_MAX && !(same && soon);
        Opened {
            passes_once,
            is_unchanged: same && !passes_once,
            ..Opened::new(handle)
        }
    }
}

/// Whether nothing that passes through the handle should be kept by the door. A handle that may read
/// and write what is there is taken for a reader: many programs open so whatever they read, and
/// each of their small reads would be a question to this volume. What it writes after all goes
/// through the door's cache at once.
fn must_bypass_caches(options: OpenOptions) -> bool {
    options.access == Access::Write || (options.truncate && options.access.writes())
}

/// A file that was created, or found instead, and is open.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) file: Reference,
    pub(crate) opened: Opened,
    /// Whether it was there before.
    pub(crate) existed: bool,
}

/// What was found of a file before it is opened.
struct Found {
    local: Option<LocalCopy>,
    left: Option<Reopened>,
}

/// A local file that holds a version.
struct LocalCopy {
    version: ObjectVersion,
    file: Arc<dyn LocalFile>,
}

impl LocalCopy {
    /// The file, if it holds what a handle of an open file with this view reads.
    fn of(self, view: &View) -> Option<Arc<dyn LocalFile>> {
        let same = !view.dirty && view.version.as_ref() == Some(&self.version);
        same.then_some(self.file)
    }
}

impl OpenFile {
    /// Takes `version` for the newest in the store, unless this mount has a newer content, and returns
    /// whether it was taken. Fails with `Stale` if a handle may have seen something of another one.
    pub(crate) fn take_version(&self, version: Option<ObjectVersion>) -> FsResult<bool> {
        let Some(version) = version else {
            return Ok(false);
        };
        let Body::Staged(body) = &self.body else {
            return self.view().take(version);
        };
        let mut taken = Ok(false);
        body.content.disengage_if(|| {
            taken = self.view().take(version);
            taken == Ok(true)
        });
        taken
    }
}

/// What the handles of a file share, made if there are none. Takes the node's version as the
/// newest. Who opens it first goes on with what it `left` of that when it was closed. Fails with
/// `Stale` if the name leads to another client's version by now, which is another file.
fn open_file_of(
    tree: &mut Tree,
    inode: Inode,
    mode: &Mode,
    left: &mut Option<Reopened>,
) -> FsResult<Arc<OpenFile>> {
    let version = tree.version(inode);
    let node = tree.node_mut(inode)?;
    if let Some(file) = node.file.clone() {
        if file.take_version(version).is_err() {
            tree.orphan(inode);
            return Err(FsError::Stale);
        }
        return Ok(file);
    }
    let Some(version) = version else {
        // A new file whose handles are closed and which was not stored: whoever looks again asks the store.
        tree.give_up(inode);
        return Err(FsError::Stale);
    };
    let left = left.take_if(|left| *left.version() == version);
    let keeps_pages = node.keeps_pages_of(&version.etag);
    // A stream is told with each open whether the door keeps any.
    let has_pages = mode.staged().is_some() && keeps_pages && node.last_open.is_some();
    let file = match (mode, left) {
        (Mode::Staged(mode), Some(left)) => going_on(inode, version, mode, left),
        _ => OpenFile::existing(inode, version, mode.body()),
    };
    {
        let mut view = file.view();
        view.is_shown = keeps_pages;
        view.seen |= has_pages;
    }
    node.file = Some(Arc::clone(&file));
    Ok(file)
}

/// What the handles share of a file that goes on with what it left.
fn going_on(
    inode: Inode,
    version: ObjectVersion,
    mode: &Arc<StagedMode>,
    left: Reopened,
) -> Arc<OpenFile> {
    let (body, content) = StagedBody::going_on(mode, left);
    let (body, key) = (Arc::new(body), version.key.clone());
    let file = OpenFile::existing(inode, version, Body::Staged(Arc::clone(&body)));
    // It was written here, and the door holds nothing else of it.
    body.engage(&file, content, key, |_| file.view().ours = true);
    file
}
