//! What one directory holds, in the order of keys.
//!
//! Byte order of keys is not the order of names: `a-b` comes before `a/b`, and the object `a`
//! before both. So each directory stands in the order under its name and a slash, and may stand
//! there a second time, without the slash, for the object of its name.
//!
//! A directory is read whole, but at most [`Tree::window`] of its entries are kept, those that come
//! first; it is read again when they are used up. Memory stays bounded however large it is.

use std::{mem::MaybeUninit, ops::ControlFlow};

use rustix::{
    fd::OwnedFd,
    fs::{FileType, OFlags, RawDir, fstat},
    io::Errno,
};

use super::{
    name::{self, Meaning, OBJECT_NAME},
    tree::Tree,
    version::Version,
};

/// Bytes of directory records that are taken from the kernel at once.
const RECORDS: usize = 32 << 10;

/// What an entry of a directory is to a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ItemKind {
    /// A file, perhaps behind a symbolic link.
    Object,
    /// Perhaps an object: the one within the directory of this name.
    Within,
    /// A directory.
    Directory,
    /// A directory behind a symbolic link.
    LinkedDirectory,
}

impl ItemKind {
    pub(super) fn is_directory(self) -> bool {
        matches!(self, Self::Directory | Self::LinkedDirectory)
    }
}

/// An entry of a directory under the text that it is sorted by: the component of the key, with a
/// slash behind it for a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Item {
    pub(super) text: Box<str>,
    pub(super) kind: ItemKind,
}

impl Item {
    /// The component without the slash.
    pub(super) fn component(&self) -> &str {
        if self.kind.is_directory() {
            &self.text[..self.text.len() - 1]
        } else {
            &self.text
        }
    }
}

/// The first entries of a directory in order.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// In descending order, so that the first is taken from the end.
    items: Vec<Item>,
    /// Whether entries were left out.
    pub(super) more: bool,
}

impl Window {
    /// The first entries of the directory at `names` that `wanted` takes.
    pub(super) fn read(
        tree: &Tree,
        names: &[String],
        wanted: &dyn Fn(&str, ItemKind) -> bool,
    ) -> Result<Self, Errno> {
        let window = tree.window;
        let mut first = Vec::new();
        let mut more = false;
        visit(tree, names, &mut |text, kind| {
            if wanted(text, kind) {
                first.push(Item {
                    text: text.into(),
                    kind,
                });
            }
            if first.len() == 2 * window {
                first.select_nth_unstable(window);
                first.truncate(window);
                more = true;
            }
            ControlFlow::Continue(())
        })?;
        first.sort_unstable();
        more |= first.len() > window;
        first.truncate(window);
        first.reverse();
        Ok(Self { items: first, more })
    }

    pub(super) fn next(&mut self) -> Option<Item> {
        self.items.pop()
    }
}

/// Whether any object lies below the directory at `names`, not counting the one of its name.
pub(super) fn holds_objects(tree: &Tree, names: &[String]) -> Result<bool, Errno> {
    let mut found = false;
    let mut directories = Vec::new();
    visit(tree, names, &mut |text, kind| {
        match kind {
            ItemKind::Object => {
                found = true;
                return ControlFlow::Break(());
            }
            ItemKind::Within => {}
            _ => directories.push((text[..text.len() - 1].to_owned(), kind)),
        }
        ControlFlow::Continue(())
    })?;
    if found {
        return Ok(true);
    }
    for (component, kind) in directories {
        let mut below = names.to_vec();
        name::push_names(&mut below, &component);
        if kind == ItemKind::LinkedDirectory && leads_up(tree, &below)? {
            continue;
        }
        let inner = [&below[..], &[OBJECT_NAME.to_owned()]].concat();
        if is_file(tree, &inner) || holds_objects(tree, &below)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the directory at `names` is one of those on the way to it: a link that leads up, below
/// which everything would be found again.
pub(super) fn leads_up(tree: &Tree, names: &[String]) -> Result<bool, Errno> {
    let identity = |names: &[String]| -> Result<Option<(u64, u64)>, Errno> {
        let directory = existing(tree.directory(names))?;
        let stat = directory.map(fstat).transpose()?;
        Ok(stat.map(|stat| Version::of(&stat).identity))
    };
    let here = identity(names)?;
    for depth in 0..names.len() {
        if here.is_none() || identity(&names[..depth])? == here {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `None` for a directory that is not there: it was removed or replaced meanwhile, or is a link
/// that leads nowhere or out.
pub(super) fn existing(opened: Result<OwnedFd, Errno>) -> Result<Option<OwnedFd>, Errno> {
    match opened {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP) => Ok(None),
        opened => opened.map(Some),
    }
}

fn is_file(tree: &Tree, names: &[String]) -> bool {
    let stat = tree.resolve(names, OFlags::PATH).and_then(fstat);
    stat.is_ok_and(|stat| Version::of(&stat).is_file())
}

type Visitor<'a> = &'a mut dyn FnMut(&str, ItemKind) -> ControlFlow<()>;

/// Shows `visitor` every entry of the directory at `names`, in no order. A directory that is not
/// there has none.
fn visit(tree: &Tree, names: &[String], visitor: Visitor<'_>) -> Result<(), Errno> {
    let Some(directory) = existing(tree.directory(names))? else {
        return Ok(());
    };
    let mut visit = Visit {
        tree,
        directory: names,
        pieces: Vec::new(),
        visitor,
    };
    visit.level(&directory).map(|_| ())
}

struct Visit<'a> {
    tree: &'a Tree,
    directory: &'a [String],
    /// The pieces of an escaped component in whose directory the visit is.
    pieces: Vec<String>,
    visitor: Visitor<'a>,
}

impl Visit<'_> {
    fn level(&mut self, directory: &OwnedFd) -> Result<ControlFlow<()>, Errno> {
        let mut memory = Vec::with_capacity(RECORDS);
        let memory: &mut [MaybeUninit<u8>] = memory.spare_capacity_mut();
        let mut records = RawDir::new(directory, memory);
        while let Some(record) = records.next() {
            let record = match record {
                // The directory was removed since it was opened, so it is empty.
                Err(Errno::NOENT) => break,
                record => record?,
            };
            let Ok(name) = record.file_name().to_str() else {
                let shown = record.file_name().to_string_lossy();
                let reason = "its name is not UTF-8, as keys must be: rename it";
                self.tree.tell_hidden(&shown, reason);
                continue;
            };
            if self.entry(name, record.file_type())?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn entry(&mut self, name: &str, file_type: FileType) -> Result<ControlFlow<()>, Errno> {
        match name::meaning(name) {
            Meaning::Component(component) if self.pieces.is_empty() => {
                Ok(self.show(component, name, file_type))
            }
            Meaning::Last(_) => {
                let spelling = [&self.pieces[..], &[name.to_owned()]].concat();
                match name::component(&spelling) {
                    Some(component) => Ok(self.show(&component, name, file_type)),
                    None => Ok(ControlFlow::Continue(())),
                }
            }
            Meaning::Piece(_) => self.piece(name),
            Meaning::Component(_) | Meaning::Hidden => Ok(ControlFlow::Continue(())),
        }
    }

    fn piece(&mut self, name: &str) -> Result<ControlFlow<()>, Errno> {
        let opened = self.tree.directory(&self.names_of(name));
        let Some(directory) = existing(opened)? else {
            return Ok(ControlFlow::Continue(()));
        };
        self.pieces.push(name.to_owned());
        let visited = self.level(&directory);
        self.pieces.pop();
        visited
    }

    fn show(&mut self, component: &str, name: &str, file_type: FileType) -> ControlFlow<()> {
        let (file_type, directory) = match file_type {
            // Some file systems do not say; then it may be a link.
            FileType::Symlink | FileType::Unknown => {
                (self.resolved(name), ItemKind::LinkedDirectory)
            }
            known => (known, ItemKind::Directory),
        };
        let is_root = self.directory.is_empty() && component.is_empty();
        match file_type {
            // A key cannot be empty.
            FileType::RegularFile if !is_root => (self.visitor)(component, ItemKind::Object),
            FileType::Directory => {
                if !is_root {
                    (self.visitor)(component, ItemKind::Within)?;
                }
                (self.visitor)(&format!("{component}/"), directory)
            }
            _ => ControlFlow::Continue(()),
        }
    }

    /// What a link leads to, unless that is outside or nothing.
    fn resolved(&self, name: &str) -> FileType {
        let opened = self.tree.resolve(&self.names_of(name), OFlags::PATH);
        let stat = opened.and_then(fstat);
        stat.map_or(FileType::Unknown, |stat| Version::of(&stat).file_type)
    }

    fn names_of(&self, name: &str) -> Vec<String> {
        [self.directory, &self.pieces[..], &[name.to_owned()]].concat()
    }
}
