//! Making and removing names.
//!
//! Each change enters the gate (see [`crate::inode`]), changes the store, and then the tree. It
//! runs in a task of its own, so an interrupted caller leaves no half of it.

mod make;
mod mkdir;
mod remove;
mod special;
mod symlink;

use std::sync::Arc;

use penstock_base::{FsError, FsResult, Utf8Name};
use penstock_vfs::Inode;

use crate::core::Core;

impl Core {
    /// Checks that there is nothing under a name that is to be made. Somebody else may still make
    /// it in the same moment.
    pub(crate) async fn check_free(
        self: &Arc<Self>,
        parent: Inode,
        name: &Utf8Name,
    ) -> FsResult<()> {
        match self.find(parent, name, self.change_patience()).await? {
            Some(_) => Err(FsError::AlreadyExists),
            None => Ok(()),
        }
    }
}
