//! Making and removing names.
//!
//! Each change enters the gate (see [`crate::inode`]), changes the store, and then the tree. It
//! runs in a task of its own, so an interrupted caller leaves no half of it.

mod behind;
mod links;
mod make;
mod mkdir;
mod new;
mod remove;
mod special;
mod symlink;

use std::sync::Arc;

use crate::{files::Files, lookup::Lookups, metadata::Metadata, mount::Mount};

/// Makes and removes names.
#[derive(Debug)]
pub(crate) struct Names {
    mount: Arc<Mount>,
    lookups: Arc<Lookups>,
    metadata: Arc<Metadata>,
    files: Arc<Files>,
}

impl Names {
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
