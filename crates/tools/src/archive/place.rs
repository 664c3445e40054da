//! Where members go: directories by path, opened name by name from where the archive is extracted.
//!
//! A link on the way is not followed, whoever made it: a member that would go through one is refused.

use std::{collections::HashMap, ffi::CString, io, sync::Arc};

use rustix::{
    fs::{self, Mode},
    io::Errno,
};

use crate::local::{Directory, c_string};

/// Directories that are kept open.
const OPEN_MAX: usize = 256;

/// The tree that an archive is extracted to.
pub(super) struct Places {
    root: Arc<Directory>,
    open: HashMap<Vec<u8>, Arc<Directory>>,
}

impl Places {
    pub(super) fn new(root: Arc<Directory>) -> Self {
        Self {
            root,
            open: HashMap::new(),
        }
    }

    /// The directory of these names, which is made where it is missing.
    pub(super) fn directory(&mut self, parts: &[&[u8]]) -> io::Result<Arc<Directory>> {
        self.find(parts, true)
    }

    /// The directory of these names. Fails if it is missing.
    pub(super) fn existing(&mut self, parts: &[&[u8]]) -> io::Result<Arc<Directory>> {
        self.find(parts, false)
    }

    fn find(&mut self, parts: &[&[u8]], makes: bool) -> io::Result<Arc<Directory>> {
        let path = parts.join(&b'/');
        if let Some(known) = self.open.get(&path) {
            return Ok(Arc::clone(known));
        }
        let Some((name, above)) = parts.split_last() else {
            return Ok(Arc::clone(&self.root));
        };
        let above = self.find(above, makes)?;
        let name = c_string(name)?;
        let directory = match above.open_in(&name) {
            Err(Errno::NOENT) if makes => {
                make(&above, &name)?;
                above.open_in(&name)
            }
            other => other,
        };
        let directory = directory.map_err(explained)?;
        if self.open.len() >= OPEN_MAX {
            self.open.clear();
        }
        self.open.insert(path, Arc::clone(&directory));
        Ok(directory)
    }

    /// Forgets what is at a path, and below it: it becomes something else.
    pub(super) fn forget(&mut self, path: &[u8]) {
        self.open.remove(path);
    }
}

fn make(above: &Arc<Directory>, name: &CString) -> rustix::io::Result<()> {
    match fs::mkdirat(above, name, Mode::from_raw_mode(0o777)) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

fn explained(error: Errno) -> io::Error {
    match error {
        Errno::LOOP | Errno::NOTDIR => {
            io::Error::other("it would go through a link, or through what is no directory")
        }
        other => other.into(),
    }
}
