//! One open handle of a file.

use std::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use penstock_base::{FsError, FsResult, clock};
use penstock_transfer::Reader;
use penstock_vfs::{Access, HandleId, OpenOptions, Opened};

use crate::{
    inode::{Namespace, Tree},
    open_file::OpenFile,
};

/// One open handle of a file. Dropping the last one forgets the open file.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub(crate) id: HandleId,
    pub(crate) file: Arc<OpenFile>,
    pub(crate) access: Access,
    /// Every write goes to the end.
    pub(crate) append: bool,
    /// The door keeps nothing of what is read.
    pub(super) direct: bool,
    /// There may be something to save: it can write, or it created the file.
    pub(super) saves: bool,
    /// No program has it open any more: it keeps a file that waits to be saved.
    closed: AtomicBool,
    /// Its last close was told of a failure.
    pub(super) told: AtomicBool,
    /// What was written through it is lost, as a close was told; nothing more is written through it.
    pub(super) lost: OnceLock<FsError>,
    /// Made at the first read.
    pub(super) reader: Mutex<Option<Arc<Reader>>>,
    pub(super) namespace: Arc<Namespace>,
}

impl FileHandle {
    /// A handle of `file`, which the node of its inode holds. The tree is locked by the caller.
    pub(crate) fn attach(
        (namespace, tree): (&Arc<Namespace>, &mut Tree),
        file: &Arc<OpenFile>,
        options: OpenOptions,
        opened: &Opened,
    ) -> Arc<Self> {
        tree.pin(file.inode);
        {
            let mut view = file.view();
            let keeps_pages = file.body.staged().is_none() && opened.is_unchanged;
            view.handles += 1;
            view.readers += usize::from(options.access.reads());
            view.writers += usize::from(options.access.writes());
            // What is only read is read in the size that the door was shown with the open.
            let is_read_by_page = !opened.passes_once && options.access == Access::Read;
            view.seen |= keeps_pages || is_read_by_page || opened.local.is_some();
        }
        Arc::new(Self {
            id: opened.handle,
            file: Arc::clone(file),
            access: options.access,
            append: options.append,
            direct: opened.passes_once,
            saves: !opened.closes_silently,
            closed: AtomicBool::new(false),
            told: AtomicBool::new(false),
            lost: OnceLock::new(),
            reader: Mutex::default(),
            namespace: Arc::clone(namespace),
        })
    }

    /// No program writes through it any more; it only keeps the file.
    pub(crate) fn note_closed(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.file.view().writers -= usize::from(self.access.writes());
        }
    }

    /// Fails with what was lost of what it wrote, once a close was told.
    pub(super) fn check_not_lost(&self) -> FsResult<()> {
        self.lost.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        let mut tree = self.namespace.lock();
        let view = {
            let mut view = self.file.view();
            view.handles -= 1;
            view.readers -= usize::from(self.access.reads());
            if !self.closed.load(Ordering::Relaxed) {
                view.writers -= usize::from(self.access.writes());
            }
            view.clone()
        };
        if view.handles == 1 {
            self.file.alone.notify_one();
        }
        if view.handles == 0
            && let Ok(node) = tree.node_mut(self.file.inode)
        {
            node.file = None;
            if self.file.body.staged().is_some() {
                let version = view.version.filter(|_| view.is_shown);
                node.note_pages(version.map(|version| version.etag), clock::now());
            }
        }
        tree.unpin(self.file.inode);
    }
}
