//! Open files and what was written to them.
//!
//! ```text
//!  write ──► pending pieces, in memory ──► objects in the bucket ──► extents in the metadata ──► synced
//!                                └───────────── a save: at fsync and close, and when memory is short
//! ```
//!
//! A save puts what is pending into objects, which it shares with other files that are saved at the same time
//! ([`Packer`]), and then tells the metadata of it, in as many operations as keep each of them short: so the metadata
//! never refers to bytes that the bucket does not have. What could not be saved stays pending, and the next save tries
//! again. Reads see pending pieces over the extents, and chunks of many extents are folded behind (`compact.rs`).
//!
//! | lock | of what |
//! |---|---|
//! | `File::turn` | who saves, cuts or punches; waited for by tasks, held across requests |
//! | `File::pending` | pieces, size and times in memory; held for work in memory alone |

mod change;
mod compact;
mod pending;
mod read;
mod room;
mod save;
mod share;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use penstock_base::{FsError, FsResult, Mutex};
use penstock_transfer::ExtentReader;
use penstock_vfs::{Access, Attributes, FileKind, HandleId, Inode, OpenOptions, Unsaved};
use tokio::sync::OnceCell;

use crate::{
    data::{Objects, Packer},
    engine::Engine,
    held::Held,
    metrics::Failures,
    operations,
    quotas::Accepted,
    snapshots::{self, Preserving},
    volume::Parts,
};

pub(crate) use self::{change::NewSize, pending::Overruled};
use self::{compact::Compactor, pending::Pending};

/// A regular file that is open, or of which something is not saved.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) inode: Inode,
    turn: tokio::sync::Mutex<()>,
    pending: Mutex<Pending>,
    /// The size was asked for once the file could be found here.
    is_loaded: OnceCell<()>,
}

impl File {
    fn new(inode: Inode, pending: Pending) -> Self {
        Self {
            inode,
            turn: tokio::sync::Mutex::default(),
            pending: Mutex::new(pending),
            is_loaded: OnceCell::new(),
        }
    }

    /// Where bytes of it lie may be another place by now.
    pub(crate) fn moved(&self) {
        self.pending.lock().moved();
    }
}

/// A handle of a file.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    pub(crate) file: Arc<File>,
    pub(crate) access: Access,
    /// It changed the file, or may: its close says whether that is durable. Who opens a file to read may truncate it by that.
    pub(crate) is_changing: bool,
    /// Reads what is saved. Gives up what it fetches ahead when the handle is closed.
    reader: Arc<ExtentReader>,
}

/// One who needs a file in the table, until this goes.
struct Pinned<'a> {
    files: &'a Files,
    inode: Inode,
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.files.unpin(self.inode);
    }
}

#[derive(Debug, Default)]
struct Table {
    /// With the number of those who need them here.
    files: HashMap<Inode, (Arc<File>, usize)>,
    handles: HashMap<HandleId, Handle>,
    /// Files that were taken out with changes that are not known to be durable, and how many of them are by now.
    undurable: u64,
    durable: u64,
}

/// All open files.
#[derive(Debug)]
pub(crate) struct Files {
    engine: Arc<Preserving>,
    /// Other machines change files, too.
    is_shared: bool,
    /// Of the volume that is to be told of what is found out late about others.
    parts: OnceLock<Weak<Parts>>,
    objects: Arc<Objects>,
    packer: Arc<Packer>,
    /// Of what was written and is not saved, what counts for quotas.
    accepted: Arc<Accepted>,
    /// Files that are about to be gone count for quotas still.
    held: Arc<Held>,
    failures: Arc<Failures>,
    table: Mutex<Table>,
    last_handle: AtomicU64,
    compactor: Compactor,
}

impl Files {
    pub(crate) fn new(
        engine: Arc<Preserving>,
        objects: Arc<Objects>,
        held: Arc<Held>,
        failures: Arc<Failures>,
    ) -> Arc<Self> {
        Arc::new(Self {
            is_shared: engine.peers().is_some(),
            parts: OnceLock::new(),
            engine,
            packer: Packer::new(Arc::clone(&objects)),
            objects,
            accepted: Arc::default(),
            held,
            failures,
            table: Mutex::default(),
            last_handle: AtomicU64::new(0),
            compactor: Compactor::default(),
        })
    }

    /// Tells a volume of what is found out late about others.
    pub(crate) fn tell(&self, parts: Weak<Parts>) {
        // There is one volume.
        let _ = self.parts.set(parts);
    }

    /// Doors have something else of a file than it holds.
    fn content_changed(&self, inode: Inode) {
        let parts = self.parts.get().and_then(Weak::upgrade);
        if let Some(parts) = parts
            && let Some(machines) = &parts.machines
        {
            machines.content_changed(&parts, inode);
        }
    }

    /// A number for a handle, of a file or a directory.
    pub(crate) fn next_handle(&self) -> HandleId {
        HandleId(self.last_handle.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Opens a regular file.
    pub(crate) async fn open(&self, inode: Inode, options: OpenOptions) -> FsResult<HandleId> {
        let file = self.pin(inode).await?;
        let id = self.next_handle();
        let reader = Arc::new(self.objects.transfer().extent_reader());
        let handle = Handle {
            file,
            access: options.access,
            is_changing: options.access.writes() || options.truncate,
            reader,
        };
        self.table.lock().handles.insert(id, handle);
        Ok(id)
    }

    /// A regular file, which stays in the table until it is given back with [`Files::unpin`].
    async fn pin(&self, inode: Inode) -> FsResult<Arc<File>> {
        let size = self.size(inode).await?;
        let file = {
            let mut table = self.table.lock();
            let may_be_undurable = table.durable < table.undurable;
            let (file, pins) = table
                .files
                .entry(inode)
                .or_insert_with(|| (Arc::new(File::new(inode, self.pending(size))), 0));
            if *pins == 0 && may_be_undurable {
                // It may be one of those.
                file.moved();
            }
            *pins += 1;
            Arc::clone(file)
        };
        // Who opens it may give up before it is loaded.
        let pinned = Pinned { files: self, inode };
        // Who changes the size from now on finds the file; who did before it was there has done so.
        let load = || async { self.learn_size(&file).await.map(drop) };
        file.is_loaded.get_or_try_init(load).await?;
        std::mem::forget(pinned);
        Ok(file)
    }

    fn pending(&self, size: u64) -> Pending {
        Pending::new(size, self.is_shared)
    }

    /// Asks how long a file is by now, and returns whether that is news.
    pub(crate) async fn learn_size(&self, file: &File) -> FsResult<bool> {
        loop {
            let changes = file.pending.lock().changes();
            let size = self.size(file.inode).await?;
            if let Some(differs) = file.pending.lock().learn_size(size, changes) {
                return Ok(differs);
            }
        }
    }

    /// The same when a change was answered that others may have changed again, which was heard of before the answer.
    async fn learn_size_behind(&self, file: &File) {
        if !self.is_shared {
            return;
        }
        match self.learn_size(file).await {
            Ok(true) => self.content_changed(file.inode),
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(inode = file.inode.0, %error, "how long a file is by now is not known");
            }
        }
    }

    async fn size(&self, inode: Inode) -> FsResult<u64> {
        let node = snapshots::look(&*self.engine, |reads| operations::node(reads, inode)).await?;
        match node.kind {
            FileKind::Regular => Ok(node.size),
            FileKind::Directory => Err(FsError::IsADirectory),
            _ => Err(FsError::InvalidArgument("only files are opened")),
        }
    }

    /// Gives a file back. One of which something is not saved stays.
    fn unpin(&self, inode: Inode) {
        let mut table = self.table.lock();
        if let Some((_, pins)) = table.files.get_mut(&inode) {
            *pins -= 1;
        }
        Self::drop_idle(&mut table, inode);
    }

    /// An open handle.
    pub(crate) fn handle(&self, id: HandleId) -> FsResult<Handle> {
        let table = self.table.lock();
        table.handles.get(&id).cloned().ok_or(FsError::BadHandle)
    }

    /// The file, if it is open or not saved.
    pub(crate) fn find(&self, inode: Inode) -> Option<Arc<File>> {
        let table = self.table.lock();
        table.files.get(&inode).map(|(file, _)| Arc::clone(file))
    }

    /// All that are open or not saved.
    pub(crate) fn all(&self) -> Vec<Inode> {
        self.table.lock().files.keys().copied().collect()
    }

    /// Closes a handle and returns its file. One of which something is not saved stays, without handles.
    pub(crate) fn close(&self, id: HandleId) -> Option<Arc<File>> {
        let closed = self.table.lock().handles.remove(&id);
        let file = closed?.file;
        self.unpin(file.inode);
        Some(file)
    }

    /// A close says that a file could not be saved.
    pub(crate) fn told(&self, file: &File) {
        file.pending.lock().told();
    }

    /// Gives up what could not be saved of a file that nobody has open any more, if a close said so: what another machine
    /// has closed since is not overwritten by it.
    pub(crate) async fn give_up(&self, file: &File) {
        if !self.is_shared || !file.pending.lock().is_told() {
            return;
        }
        let _turn = file.turn.lock().await;
        let mut table = self.table.lock();
        let is_open = table
            .files
            .get(&file.inode)
            .is_some_and(|(_, pins)| *pins > 0);
        if !is_open && file.pending.lock().is_told() {
            tracing::warn!(inode = file.inode.0, "what could not be saved is given up");
            file.pending.lock().give_up();
            Self::drop_idle(&mut table, file.inode);
            drop(table);
            self.content_changed(file.inode);
        }
    }

    /// Whether nobody needs a file here but for what is not saved of it.
    fn is_unpinned(&self, inode: Inode) -> bool {
        let table = self.table.lock();
        table.files.get(&inode).is_none_or(|(_, pins)| *pins == 0)
    }

    /// Takes a file out of the table that nobody has open and of which all is saved.
    fn forget_idle(&self, inode: Inode) {
        Self::drop_idle(&mut self.table.lock(), inode);
    }

    fn drop_idle(table: &mut Table, inode: Inode) {
        let is_idle =
            |(file, pins): &(Arc<File>, usize)| *pins == 0 && !file.pending.lock().is_unsaved();
        if table.files.get(&inode).is_some_and(is_idle)
            && let Some((file, _)) = table.files.remove(&inode)
        {
            table.undurable += u64::from(!file.pending.lock().is_durable());
        }
    }

    /// Forgets what is pending of a file that nobody can reach any more.
    pub(crate) fn discard(&self, inode: Inode) {
        self.table.lock().files.remove(&inode);
    }

    /// Files of which something is not saved, in the order of their numbers.
    fn unsaved_files(&self) -> Vec<Arc<File>> {
        let table = self.table.lock();
        let files = table.files.values().map(|(file, _)| file);
        let unsaved = files.filter(|file| file.pending.lock().is_unsaved());
        let mut unsaved: Vec<_> = unsaved.map(Arc::clone).collect();
        unsaved.sort_by_key(|file| file.inode);
        unsaved
    }

    /// All that are open.
    pub(crate) fn with_handles(&self) -> HashSet<Inode> {
        let table = self.table.lock();
        let handles = table.handles.values();
        handles.map(|handle| handle.file.inode).collect()
    }

    /// How many handles there are.
    pub(crate) fn open_handles(&self) -> usize {
        self.table.lock().handles.len()
    }

    /// What is not saved.
    pub(crate) fn unsaved(&self) -> Unsaved {
        let files = self.unsaved_files();
        let bytes = files.iter().map(|file| file.pending.lock().bytes());
        Unsaved {
            files: files.len() as u64,
            bytes: bytes.sum(),
            parts_under_way: 0,
        }
    }

    /// Makes a change of a file's attributes that a save would make, too: one that is under way ends first, and what
    /// was written before the change does not change them again.
    pub(crate) async fn overrule<T>(
        &self,
        (inode, overruled): (Inode, Overruled),
        change: impl Future<Output = FsResult<T>>,
    ) -> FsResult<T> {
        let file = self.find(inode);
        let Some(file) = file.filter(|_| overruled.modified || overruled.set_id) else {
            return change.await;
        };
        let _turn = file.turn.lock().await;
        let written_at = file.pending.lock().written_at();
        let changed = change.await?;
        file.pending.lock().overrule(written_at, overruled);
        Ok(changed)
    }

    /// When what is pending of a file was written last.
    pub(crate) fn written_at(&self, inode: Inode) -> Option<SystemTime> {
        self.find(inode)?.pending.lock().shown_modified()
    }

    /// Shows what is pending of a file in its attributes.
    pub(crate) fn show(&self, attributes: &mut Attributes) {
        if let Some(file) = self.find(attributes.inode) {
            file.pending.lock().show(attributes);
        }
    }
}
