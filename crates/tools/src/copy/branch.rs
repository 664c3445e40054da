//! A directory and its copy.

use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    io,
    sync::Arc,
};

use rustix::fs::Stat;

use super::made::Made;
use crate::{
    local::{Directory, FileId, is_temporary},
    work::Node,
};

/// A directory of the source with its counterpart.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) source: Arc<Directory>,
    /// None in a dry run, where it would have been made.
    pub(super) target: Option<Arc<Directory>>,
    /// What the source directory was; none for where the user's names lie.
    pub(super) stat: Option<Stat>,
    /// The copy was made just now: nothing can be there.
    pub(super) is_fresh: bool,
    /// The names in the copy under which others that were killed left content. None where nobody looked: that is not done for
    /// what the user named, which may be a large directory that one file is copied into.
    pub(super) left: Option<HashSet<CString>>,
    /// What was copied into it, or was there and the same.
    pub(super) made: Arc<Made>,
    /// What is made in the copy gets a list of who may use it.
    pub(super) hands_down: bool,
    /// The name of the copy.
    pub(super) target_name: CString,
    /// The file system of what the user named.
    pub(super) device: u64,
    /// The directory into which everything goes.
    pub(super) destination: FileId,
}

pub(super) type Branch = Arc<Node<Pair>>;

/// Something in a directory.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) name: CString,
    /// What its copy is called, if otherwise.
    pub(super) renamed: Option<CString>,
}

impl Item {
    pub(super) fn target_name(&self) -> &CStr {
        self.renamed.as_ref().unwrap_or(&self.name)
    }

    /// Refuses a name under which a neighbour of the copy may be written.
    pub(super) fn check_name(&self) -> io::Result<()> {
        match is_temporary(self.target_name().to_bytes()) {
            false => Ok(()),
            true => Err(io::Error::other(
                "copies on their way have such names: rename it, or remove what a copy left that was cut off",
            )),
        }
    }
}

/// A copy that can be found again when its directory is no longer open: from the directory into which everything
/// goes, by names.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    top: Arc<Directory>,
    directories: Vec<CString>,
    name: CString,
}

impl Spot {
    pub(super) fn of(branch: &Branch, name: &CStr) -> Option<Self> {
        let mut directories = Vec::new();
        let mut node = branch;
        while let Some(above) = &node.above {
            directories.push(node.data.target_name.clone());
            node = above;
        }
        directories.reverse();
        Some(Self {
            top: Arc::clone(node.data.target.as_ref()?),
            directories,
            name: name.to_owned(),
        })
    }

    /// Opens its directory, without following a link.
    pub(super) fn open(&self) -> rustix::io::Result<(Arc<Directory>, &CStr)> {
        let mut directory = Arc::clone(&self.top);
        for name in &self.directories {
            directory = directory.open_in(name)?;
        }
        Ok((directory, &self.name))
    }
}
