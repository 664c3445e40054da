//! Writes the tree as an image of our own.

use std::{
    io::{self, Write},
    path::Path,
};

use penstock_vfs::FileKind;

use super::{
    index::{END, ENTRY_HEAD, MAGIC},
    node::{NODE, Node},
};
use crate::{
    FileNode, ImageSummary, ImageWriter, Timestamp,
    checked_file::CheckedWriter,
    image::{
        entries::{DIRECTORIES_MEMORY, Entry, NodeKind},
        open::{OpenDirectories, OpenDirectory},
    },
};

/// Writes a [`super::DirectoryIndex`] in one pass, in place of a file-system image.
///
/// Memory is bounded as for other images, but for four bytes for each entry of the directory that
/// is being left. A file that was not finished is refused by readers.
#[derive(Debug)]
pub struct DirectoryIndexWriter {
    file: CheckedWriter,
    open: OpenDirectories<()>,
    summary: ImageSummary,
    nodes: u64,
}

impl DirectoryIndexWriter {
    /// Begins an index at `path`, in the place of what is there.
    pub fn create(path: &Path) -> io::Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("."));
        Ok(Self {
            file: CheckedWriter::create(path)?,
            open: OpenDirectories::new((), DIRECTORIES_MEMORY, folder),
            summary: ImageSummary {
                directories: 1,
                ..ImageSummary::default()
            },
            nodes: 0,
        })
    }

    /// Writes a node and returns its slot.
    fn write_node(&mut self, node: &Node) -> io::Result<u64> {
        let padding = [0; NODE as usize];
        let position = self.file.length();
        let start = position.next_multiple_of(NODE);
        self.file
            .write_all(&padding[..(start - position) as usize])?;
        self.file.write_all(&node.encode())?;
        self.nodes += 1;
        Ok(start / NODE)
    }

    fn add_entry(&mut self, name: &[u8], slot: u64, kind: NodeKind) -> io::Result<()> {
        self.open.add(&Entry {
            name,
            node: slot,
            kind,
        })
    }

    /// Writes a directory that is left and returns its slot.
    fn write_directory(
        &mut self,
        left: &mut OpenDirectory<()>,
        modified: Timestamp,
    ) -> io::Result<u64> {
        let start = self.file.length();
        let mut sorted = self.open.sort(left)?;
        let mut distances = Vec::new();
        while let Some(entry) = sorted.next_entry()? {
            distances.push(distance(self.file.length() - start)?);
            let length = u8::try_from(entry.name.len()).map_err(io::Error::other)?;
            self.file.write_all(&entry.node.to_le_bytes())?;
            self.file.write_all(&[length])?;
            self.file.write_all(entry.name)?;
        }
        self.open.reuse(sorted);
        let table = self.file.length();
        let whole = distance(table - start)?;
        for from_start in &distances {
            self.file.write_all(&(whole - from_start).to_le_bytes())?;
        }
        self.write_node(&Node {
            kind: FileKind::Directory,
            modified,
            size: distances.len() as u64,
            disk: 0,
            place: table,
        })
    }
}

/// The entries of one directory lie within four gibibytes.
fn distance(bytes: u64) -> io::Result<u32> {
    let why = "a directory has too many names: mount a path below it";
    u32::try_from(bytes).map_err(|_| io::Error::other(why))
}

impl ImageWriter for DirectoryIndexWriter {
    fn enter(&mut self, name: &[u8]) -> io::Result<()> {
        self.open.enter(name, ());
        Ok(())
    }

    fn leave(&mut self, modified: Timestamp) -> io::Result<()> {
        let mut left = self.open.leave()?;
        let slot = self.write_directory(&mut left, modified)?;
        self.summary.directories += 1;
        self.add_entry(&left.name, slot, NodeKind::Directory)
    }

    fn file(&mut self, name: &[u8], node: &FileNode) -> io::Result<()> {
        let slot = self.write_node(&Node::file(node))?;
        self.summary.files += 1;
        self.add_entry(name, slot, NodeKind::File)
    }

    fn symlink(&mut self, name: &[u8], target: &[u8], modified: Timestamp) -> io::Result<()> {
        let place = self.file.length();
        self.file.write_all(target)?;
        let slot = self.write_node(&Node {
            kind: FileKind::Symlink,
            modified,
            size: target.len() as u64,
            disk: 0,
            place,
        })?;
        self.add_entry(name, slot, NodeKind::Symlink)
    }

    fn finish(
        mut self: Box<Self>,
        modified: Timestamp,
        _disk_blocks: &[u64],
    ) -> io::Result<ImageSummary> {
        let mut root = self.open.finish()?;
        let slot = self.write_directory(&mut root, modified)?;
        self.file.write_all(&self.nodes.to_le_bytes())?;
        self.file.write_all(&slot.to_le_bytes())?;
        let bytes = self.file.length();
        self.file.finish(MAGIC)?;
        Ok(ImageSummary {
            bytes,
            ..self.summary
        })
    }
}

const _: () = assert!(END == 16 && ENTRY_HEAD == 9, "what is written above");
