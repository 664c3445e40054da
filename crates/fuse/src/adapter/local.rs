//! Files that the kernel reads by itself.
//!
//! A volume may have a local copy of what a handle reads (`Opened::local`). The kernel is told of
//! that file, once for all handles of an inode, and reads then never come here.
//!
//! The kernel keeps the handles of an inode apart, and an OPEN that breaks its rules fails. While
//! one uses the page cache, or is mapped, none may read a local file; while one reads a local file
//! all others must name the same file, also those whose reads and writes come here all the same.
//! So handles are counted here, and whoever opens an inode first decides.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use penstock_base::LocalFile;
use penstock_vfs::{HandleId, Inode, Opened};
use tracing::{info, warn};

use crate::{protocol::encode::OpenReply, system, transport::DevFuse};

/// Which inodes the kernel reads from where.
pub(crate) struct LocalFiles {
    device: Weak<DevFuse>,
    open: Mutex<Open>,
    refused: AtomicBool,
}

#[derive(Default)]
struct Open {
    inodes: HashMap<Inode, Manner>,
    handles: HashMap<HandleId, Inode>,
}

/// How the kernel reads an inode.
enum Manner {
    /// From us, through this many handles.
    Usual(usize),
    /// From a local file.
    Local(Lent),
}

/// A file that the kernel has.
struct Lent {
    file: Arc<dyn LocalFile>,
    /// The kernel's number for it.
    number: u32,
    handles: usize,
}

impl LocalFiles {
    /// For the connection `device`, on which passthrough was agreed.
    pub(crate) fn new(device: &Arc<DevFuse>) -> Self {
        Self {
            device: Arc::downgrade(device),
            open: Mutex::default(),
            refused: AtomicBool::new(false),
        }
    }

    /// How a handle of `inode` that was just opened shall be read.
    pub(super) fn opened(&self, inode: Inode, opened: &Opened) -> OpenReply {
        let mut reply = OpenReply::of(opened);
        let mut held = self.lock();
        let open = &mut *held;
        open.handles.insert(opened.handle, inode);
        let manner = open.inodes.entry(inode).or_insert_with(|| {
            let lent = opened.local.as_ref().and_then(|file| self.lend(file));
            lent.map_or(Manner::Usual(0), Manner::Local)
        });
        match manner {
            Manner::Usual(handles) => *handles += 1,
            Manner::Local(lent) => {
                lent.handles += 1;
                reply.local = Some(lent.number);
                (reply.direct, reply.keep_cache) = (!lent.is(opened.local.as_ref()), false);
            }
        }
        reply
    }

    /// The kernel is done with a handle.
    pub(super) fn closed(&self, handle: HandleId) {
        let mut open = self.lock();
        let Some(inode) = open.handles.remove(&handle) else {
            return;
        };
        let left = match open.inodes.get_mut(&inode) {
            Some(Manner::Usual(handles)) => handles,
            Some(Manner::Local(lent)) => &mut lent.handles,
            None => return,
        };
        *left -= 1;
        if *left == 0
            && let Some(Manner::Local(lent)) = open.inodes.remove(&inode)
        {
            self.take_back(&lent);
        }
    }

    /// Tells the kernel of a file. `None` when it refuses, which is logged once.
    fn lend(&self, file: &Arc<dyn LocalFile>) -> Option<Lent> {
        let device = self.device.upgrade()?;
        match system::lend_file(device.device(), file.as_fd()) {
            Ok(number) => Some(Lent {
                file: Arc::clone(file),
                number,
                handles: 0,
            }),
            Err(error) => {
                if !self.refused.swap(true, Ordering::Relaxed) {
                    info!(%error, "the kernel does not read local files by itself, so they are read for it");
                }
                None
            }
        }
    }

    fn take_back(&self, lent: &Lent) {
        let device = self.device.upgrade();
        if let Some(Err(error)) =
            device.map(|device| system::take_file_back(device.device(), lent.number))
        {
            warn!(%error, "the kernel keeps a local file");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lent {
    /// Whether `file` is this one.
    fn is(&self, file: Option<&Arc<dyn LocalFile>>) -> bool {
        file.is_some_and(|file| Arc::ptr_eq(file, &self.file))
    }
}
