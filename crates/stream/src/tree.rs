//! From keys to directories.
//!
//! Keys come in byte order, so all keys below a directory come together, and the tree can be
//! written while they come: leave the directories that the next key is not in, enter those that it
//! is in, add the file.
//!
//! One thing cannot be told at once. The file `a` is hidden when there is a directory `a`, and
//! the keys `a-x` and `a.txt`, or a million others, come between `a` and `a/b`. So a file waits
//! until a key comes that is behind all keys `a/...`. While `a` waits, every key that comes begins
//! with `a`. Thus each waiting file is the beginning of the next, and of the directory that is
//! open: there are never more of them than bytes in a key, however many keys there are.
//!
//! What no file can have as its name is hidden, counted by its reason, and the first of each kind
//! is kept to be told ([`Hidden`]). The directories on the way to such a key are there, as in a
//! listing of the bucket.

mod hidden;
mod key;

#[cfg(test)]
mod tests;

use std::io;

pub use hidden::{Hidden, HiddenReason};
use key::Components;

use crate::{BlockAddress, FileNode, ImageSummary, ImageWriter, Timestamp};

/// A directory that is open.
#[derive(Debug, Clone, Copy, Default)]
struct Open {
    /// Bytes of the path to it, with the slash at its end.
    path_length: usize,
    /// What the object that marks it says.
    marked: Option<Timestamp>,
    /// The newest file in or below it.
    newest: Option<Timestamp>,
}

impl Open {
    /// The time that the directory shows.
    fn modified(&self) -> Timestamp {
        self.marked.or(self.newest).unwrap_or_default()
    }

    fn note(&mut self, modified: Timestamp) {
        self.newest = self.newest.max(Some(modified));
    }
}

/// A file that a directory of its name may hide yet.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// How many directories were open when it came.
    depth: usize,
    /// Where its path ends; the path is the beginning of the last key.
    path_length: usize,
    node: FileNode,
    /// Whether it is a symbolic link, whose target is then the last one that waits.
    is_link: bool,
}

/// Makes the calls of an [`ImageWriter`] from keys that rise in byte order.
pub struct TreeBuilder {
    writer: Box<dyn ImageWriter + Send>,
    /// The key before this one.
    last: Vec<u8>,
    /// From the root to the directory that is open; all paths are beginnings of `last`.
    open: Vec<Open>,
    waiting: Vec<Waiting>,
    /// Targets of the links that wait.
    targets: Vec<String>,
    hidden: Hidden,
}

impl TreeBuilder {
    /// Writes the tree with `writer`, of which nothing was asked yet.
    pub fn new(writer: Box<dyn ImageWriter + Send>) -> Self {
        Self {
            writer,
            last: Vec::new(),
            open: vec![Open::default()],
            waiting: Vec::new(),
            targets: Vec::new(),
            hidden: Hidden::default(),
        }
    }

    /// Whether an object of this key has bytes that a file shows, so that it needs a place.
    pub fn needs_place(key: &[u8]) -> bool {
        matches!(Components::of(key).leaf(), Ok(Some(_)))
    }

    /// Adds the object `key`, which is behind all keys before it. Where it lies matters only if it
    /// [needs a place](Self::needs_place).
    pub fn add(&mut self, key: &[u8], node: &FileNode) -> io::Result<()> {
        self.settle(key)?;
        let components = Components::of(key);
        self.move_to(key, components.directory_length())?;
        self.last.clear();
        self.last.extend_from_slice(key);
        match components.leaf() {
            Ok(Some(_)) => self.waiting.push(Waiting {
                depth: self.open.len(),
                path_length: key.len(),
                node: *node,
                is_link: false,
            }),
            Ok(None) => self.top().marked = Some(node.modified),
            Err(reason) => self.hidden.note(reason, key),
        }
        Ok(())
    }

    /// Adds the object `key`, of which the same holds and which needs a place, as a symbolic link.
    pub fn add_link(&mut self, key: &[u8], target: &str, modified: Timestamp) -> io::Result<()> {
        let node = FileNode {
            size: 0,
            modified,
            start: BlockAddress { disk: 0, block: 0 },
        };
        self.add(key, &node)?;
        if let Some(link) = self.waiting.last_mut().filter(|_| Self::needs_place(key)) {
            link.is_link = true;
            self.targets.push(target.to_owned());
        }
        Ok(())
    }

    /// Ends the tree and the image.
    pub fn finish(mut self, disk_blocks: &[u64]) -> io::Result<(ImageSummary, Hidden)> {
        while let Some(file) = self.waiting.pop() {
            self.release(&file)?;
        }
        while self.open.len() > 1 {
            self.leave()?;
        }
        let modified = self.top().modified();
        let summary = self.writer.finish(modified, disk_blocks)?;
        Ok((summary, self.hidden))
    }

    /// What was hidden so far.
    pub fn hidden(&self) -> &Hidden {
        &self.hidden
    }

    /// Decides about waiting files, as far as the next key tells.
    fn settle(&mut self, key: &[u8]) -> io::Result<()> {
        while let Some(file) = self.waiting.last().copied() {
            let path = &self.last[..file.path_length];
            match key.strip_prefix(path).and_then(<[u8]>::first) {
                // `a` waits, and this may be `a-x`.
                Some(0..b'/') => break,
                Some(b'/') => {
                    self.hidden.note(HiddenReason::DirectoryOfTheSameName, path);
                    if file.is_link {
                        self.targets.pop();
                    }
                }
                _ => self.release(&file)?,
            }
            self.waiting.pop();
        }
        Ok(())
    }

    /// Writes a file that waited.
    fn release(&mut self, file: &Waiting) -> io::Result<()> {
        // What was opened since is left: the keys in it came before the one that settles the file.
        while self.open.len() > file.depth {
            self.leave()?;
        }
        let directory = self.top();
        directory.note(file.node.modified);
        let name = directory.path_length..file.path_length;
        let target = self.targets.pop_if(|_| file.is_link);
        match target {
            Some(target) => {
                let modified = file.node.modified;
                self.writer
                    .symlink(&self.last[name], target.as_bytes(), modified)
            }
            None => self.writer.file(&self.last[name], &file.node),
        }
    }

    /// Leaves and enters directories until the one that the first `length` bytes of `key` name is
    /// open.
    fn move_to(&mut self, key: &[u8], length: usize) -> io::Result<()> {
        let path = &key[..length];
        let mut start = self.top().path_length;
        while !path.starts_with(&self.last[..start]) {
            self.leave()?;
            start = self.top().path_length;
        }
        while let Some(slash) = path[start..].iter().position(|byte| *byte == b'/') {
            self.writer.enter(&path[start..start + slash])?;
            start += slash + 1;
            self.open.push(Open {
                path_length: start,
                ..Open::default()
            });
        }
        Ok(())
    }

    fn leave(&mut self) -> io::Result<()> {
        let directory = self.open.pop().expect("the root is never left");
        if let Some(newest) = directory.newest {
            self.top().note(newest);
        }
        self.writer.leave(directory.modified())
    }

    fn top(&mut self) -> &mut Open {
        self.open.last_mut().expect("the root is never left")
    }
}
