//! Steps on names: directories, removal, renaming.

use super::state::{Model, Node, NodeId};
use crate::system::{Errno, SystemResult};

impl Model {
    /// The sorted names in a directory.
    pub(super) fn entries(&self, path: &str) -> SystemResult<Vec<String>> {
        let entries = self.directory(self.find(path)?)?;
        Ok(entries.keys().cloned().collect())
    }

    pub(super) fn make_directory(&mut self, path: &str) -> SystemResult<()> {
        let (parent, name) = self.parent_of(path)?;
        if self.directory(parent)?.contains_key(name) {
            return Err(Errno(libc::EEXIST));
        }
        let node = self.add(Node::Directory(Default::default()));
        self.link(parent, name, node);
        Ok(())
    }

    pub(super) fn remove_directory(&mut self, path: &str) -> SystemResult<()> {
        let (parent, name) = self.parent_of(path)?;
        let node = self.find(path)?;
        if !self.directory(node)?.is_empty() {
            return Err(Errno(libc::ENOTEMPTY));
        }
        self.unlink(parent, name);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &str) -> SystemResult<()> {
        let (parent, name) = self.parent_of(path)?;
        let node = self.find(path)?;
        if self.is_directory(node) {
            return Err(Errno(libc::EISDIR));
        }
        self.unlink(parent, name);
        self.on_removed(node);
        Ok(())
    }

    /// The order of the checks is the kernel's.
    pub(super) fn rename(&mut self, from: &str, to: &str, no_replace: bool) -> SystemResult<()> {
        let (from_parent, from_name) = self.parent_of(from)?;
        let (to_parent, to_name) = self.parent_of(to)?;
        let node = self.find(from)?;
        let replaced = self.find(to).ok();
        if no_replace && replaced.is_some() {
            return Err(Errno(libc::EEXIST));
        }
        if is_below(to, from) {
            return Err(Errno(libc::EINVAL));
        }
        if is_below(from, to) {
            return Err(Errno(libc::ENOTEMPTY));
        }
        if replaced == Some(node) {
            return Ok(());
        }
        if let Some(replaced) = replaced {
            self.check_replacement(node, replaced)?;
        }
        self.on_renaming(node);
        if let Some(replaced) = replaced {
            self.on_removed(replaced);
        }
        self.unlink(from_parent, from_name);
        self.link(to_parent, to_name, node);
        Ok(())
    }

    fn check_replacement(&self, node: NodeId, replaced: NodeId) -> SystemResult<()> {
        match (self.is_directory(node), self.is_directory(replaced)) {
            (true, false) => Err(Errno(libc::ENOTDIR)),
            (false, true) => Err(Errno(libc::EISDIR)),
            (true, true) if !self.directory(replaced)?.is_empty() => Err(Errno(libc::ENOTEMPTY)),
            _ => Ok(()),
        }
    }
}

/// Whether `path` lies strictly below `directory`.
fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.starts_with('/'))
}
