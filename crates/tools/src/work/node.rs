//! A directory that is being worked on, and when that ends.
//!
//! A directory is done when its listing and everything below it are: only then it can be removed, or get its
//! times. Each task that works on it, and each directory below it, is counted with its node; the last one that
//! leaves finishes it and leaves the node above.

use std::{
    ffi::{CStr, CString, OsStr},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

/// Nodes that were made.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// A directory with what a tool knows of it.
#[derive(Debug)]
pub(crate) struct Node<T> {
    pub(crate) above: Option<Arc<Node<T>>>,
    pub(crate) name: CString,
    pub(crate) data: T,
    number: u64,
    pending: AtomicUsize,
    has_failed: AtomicBool,
}

impl<T> Node<T> {
    /// A node with one task, which is counted with the node above too.
    pub(crate) fn new(above: Option<Arc<Self>>, name: CString, data: T) -> Arc<Self> {
        Arc::new(Self {
            above,
            name,
            data,
            number: COUNT.fetch_add(1, Ordering::Relaxed) + 1,
            pending: AtomicUsize::new(1),
            has_failed: AtomicBool::new(false),
        })
    }

    /// A number that no other node has, greater than that of the node above.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// One more task.
    pub(crate) fn enter(self: &Arc<Self>) -> Arc<Self> {
        self.pending.fetch_add(1, Ordering::Relaxed);
        Arc::clone(self)
    }

    /// One task less. Says whether it was the last.
    pub(crate) fn leave(&self) -> bool {
        self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Something in it could not be done.
    pub(crate) fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Whether something in it, or below it, could not be done.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// The path, as it began on the command line.
    pub(crate) fn path(&self) -> PathBuf {
        let mut names = vec![self.name.as_c_str()];
        let mut node = self;
        while let Some(above) = &node.above {
            names.push(&above.name);
            node = above;
        }
        names.into_iter().rev().map(as_os_str).collect()
    }

    /// The path of `name` in it from what the user named, whose own name is no part of it.
    pub(crate) fn relative(&self, name: &CStr) -> Vec<u8> {
        let mut names = vec![name.to_bytes()];
        let mut node = self;
        while let Some(above) = &node.above
            && above.above.is_some()
        {
            names.push(node.name.to_bytes());
            node = above;
        }
        // What is above is the user's own name, or where that lies.
        names.reverse();
        names.join(&b'/')
    }

    /// The path of something in it.
    pub(crate) fn path_of(&self, name: &CStr) -> PathBuf {
        self.path().join(as_os_str(name))
    }
}

fn as_os_str(name: &CStr) -> &OsStr {
    OsStr::from_bytes(name.to_bytes())
}
