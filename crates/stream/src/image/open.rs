//! The directories that are being written, from the root to the innermost, with what is in them.
//!
//! All writers of images have these: names arrive in the order of keys and are sorted when their
//! directory is left. The memory for them is bounded for all open directories together; beyond it
//! the largest goes to a file.

use std::{
    io, mem,
    path::{Path, PathBuf},
};

use super::entries::{Entries, Entry, Sorted};

/// A directory that is open.
#[derive(Debug)]
pub(crate) struct OpenDirectory<D> {
    /// Empty for the root.
    pub(crate) name: Vec<u8>,
    /// What the writer keeps of it.
    pub(crate) own: D,
    entries: Entries,
}

/// The open directories of one image.
#[derive(Debug)]
pub(crate) struct OpenDirectories<D> {
    open: Vec<OpenDirectory<D>>,
    /// What the last directory's entries lay in, for the next one.
    spare: Entries,
    /// Bytes of entries in memory.
    held: usize,
    memory: usize,
    folder: PathBuf,
}

impl<D> OpenDirectories<D> {
    /// With the root open. Entries take up to `memory` bytes before they go to files in `folder`.
    pub(crate) fn new(root: D, memory: usize, folder: &Path) -> Self {
        let root = OpenDirectory {
            name: Vec::new(),
            own: root,
            entries: Entries::default(),
        };
        Self {
            open: vec![root],
            spare: Entries::default(),
            held: 0,
            memory,
            folder: folder.to_owned(),
        }
    }

    /// Opens `name` in the innermost directory.
    pub(crate) fn enter(&mut self, name: &[u8], own: D) {
        self.open.push(OpenDirectory {
            name: name.to_vec(),
            own,
            entries: mem::take(&mut self.spare),
        });
    }

    /// Leaves the innermost directory, which is not the root.
    pub(crate) fn leave(&mut self) -> io::Result<OpenDirectory<D>> {
        match self.open.len() {
            0 | 1 => Err(io::Error::other("the root is left by finishing the image")),
            _ => Ok(self.open.pop().expect("two are open")),
        }
    }

    /// Leaves the root, which must be all that is open.
    pub(crate) fn finish(&mut self) -> io::Result<OpenDirectory<D>> {
        match self.open.len() {
            1 => Ok(self.open.pop().expect("the root is open")),
            _ => Err(io::Error::other("an image ends with its root open")),
        }
    }

    /// Whether the innermost directory is the root.
    pub(crate) fn is_at_root(&self) -> bool {
        self.open.len() == 1
    }

    /// What the writer keeps of the innermost directory.
    pub(crate) fn innermost(&mut self) -> &mut D {
        &mut self.open.last_mut().expect("the root stays open").own
    }

    /// Adds to the innermost directory.
    pub(crate) fn add(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        let innermost = self.open.last_mut().expect("the root stays open");
        self.held += innermost.entries.push(entry);
        if self.held > self.memory {
            self.spill_largest()?;
        }
        Ok(())
    }

    fn spill_largest(&mut self) -> io::Result<()> {
        let largest = self.open.iter_mut().max_by_key(|open| open.entries.held());
        if let Some(open) = largest {
            self.held -= open.entries.held();
            open.entries.spill(&self.folder)?;
        }
        Ok(())
    }

    /// The entries of a directory that was left, by name. [`OpenDirectories::reuse`] takes back
    /// what they lie in.
    pub(crate) fn sort(&mut self, left: &mut OpenDirectory<D>) -> io::Result<Sorted> {
        self.held -= left.entries.held();
        left.entries.take_sorted()
    }

    pub(crate) fn reuse(&mut self, sorted: Sorted) {
        self.spare = Entries::reusing(sorted);
    }
}
