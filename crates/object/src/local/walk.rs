//! Walking the tree in the order of keys.
//!
//! A walk goes down one directory at a time and holds one window of entries per level of depth.
//! It can begin after any key: whole directories that lie before it are not even opened.

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{AtFlags, OFlags, fstat, statat},
    io::Errno,
};

use super::{
    directory::{Item, ItemKind, Window, existing, holds_objects, leads_up},
    name::{self, OBJECT_NAME},
    problem::Attempt,
    tree::Tree,
    version::Version,
};

/// Where a walk begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum After {
    /// At the first key after this one.
    Key(String),
    /// At the first key that follows all those that start with this.
    Prefix(String),
}

/// What a walk comes upon.
#[derive(Debug)]
pub(super) enum Found {
    Object(String, Version),
    /// A directory with objects in it, with the slash; only in a delimited walk.
    Prefix(String),
}

impl Found {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Object(text, _) | Self::Prefix(text) => text,
        }
    }
}

/// A walk over the keys under a prefix.
pub(super) struct Walk {
    delimited: bool,
    after: Option<After>,
    levels: Vec<Level>,
    /// What was found but not used.
    put_back: Option<Found>,
}

/// A directory that is being walked.
struct Level {
    /// What all keys in it begin with, slash included.
    prefix: String,
    names: Vec<String>,
    /// What entries must start with.
    filter: String,
    window: Option<Window>,
    /// The entry that was taken last.
    last: Option<Box<str>>,
    /// Open while the walk is here.
    directory: Option<OwnedFd>,
}

impl Walk {
    pub(super) fn new(prefix: &str, delimited: bool, after: Option<After>) -> Self {
        let (directory, filter) = match prefix.rfind('/') {
            Some(slash) => (&prefix[..=slash], &prefix[slash + 1..]),
            None => ("", prefix),
        };
        let names = match directory.strip_suffix('/') {
            Some(path) => name::directory_names(path),
            None => Vec::new(),
        };
        Self {
            delimited,
            after,
            levels: vec![Level::new(directory, names, filter)],
            put_back: None,
        }
    }

    /// The next key or prefix.
    pub(super) fn next(&mut self, tree: &Tree) -> Attempt<Option<Found>> {
        if let Some(found) = self.put_back.take() {
            return Ok(Some(found));
        }
        loop {
            let is_top = self.levels.len() == 1;
            let Some(level) = self.levels.last_mut() else {
                return Ok(None);
            };
            let item = match level.next(tree, self.after.as_ref()) {
                // Somebody else's directory, such as lost+found.
                Err(Errno::ACCESS) if !is_top => {
                    let reason = "the directory may not be read: change its owner or mode";
                    tree.tell_hidden(&level.prefix, reason);
                    None
                }
                next => next?,
            };
            let Some(item) = item else {
                self.levels.pop();
                continue;
            };
            if let Some(found) = self.examine(tree, &item)? {
                return Ok(Some(found));
            }
        }
    }

    /// Takes back what [`Walk::next`] returned last.
    pub(super) fn put_back(&mut self, found: Found) {
        self.put_back = Some(found);
        // Descriptors are not kept while nobody is at work.
        for level in &mut self.levels {
            level.directory = None;
        }
    }

    fn examine(&mut self, tree: &Tree, item: &Item) -> Attempt<Option<Found>> {
        let level = self.levels.last_mut().expect("the item came from it");
        let text = format!("{}{}", level.prefix, item.text);
        if !item.kind.is_directory() {
            let version = level.version_of(tree, item)?;
            return Ok(version.map(|version| Found::Object(text, version)));
        }
        let names = level.names_of(item);
        if item.kind == ItemKind::LinkedDirectory && leads_up(tree, &names)? {
            return Ok(None);
        }
        if !self.delimited {
            level.directory = None;
            self.levels.push(Level::new(&text, names, ""));
            return Ok(None);
        }
        Ok(self
            .shows(tree, &text, &names)?
            .then_some(Found::Prefix(text)))
    }

    /// Whether a delimited walk shows the directory: it has a key behind the beginning.
    fn shows(&self, tree: &Tree, prefix: &str, names: &[String]) -> Attempt<bool> {
        match &self.after {
            Some(After::Key(key)) if key.starts_with(prefix) => {
                let mut inner = Self::new(prefix, false, self.after.clone());
                Ok(inner.next(tree)?.is_some())
            }
            _ => match holds_objects(tree, names) {
                Err(Errno::ACCESS) => Ok(false),
                held => Ok(held?),
            },
        }
    }
}

impl Level {
    fn new(prefix: &str, names: Vec<String>, filter: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            names,
            filter: filter.to_owned(),
            window: None,
            last: None,
            directory: None,
        }
    }

    fn next(&mut self, tree: &Tree, after: Option<&After>) -> Result<Option<Item>, Errno> {
        loop {
            let window = match &mut self.window {
                Some(window) => window,
                None => {
                    let window = self.read(tree, after)?;
                    self.window.insert(window)
                }
            };
            if let Some(item) = window.next() {
                self.last = Some(item.text.clone());
                return Ok(Some(item));
            }
            if !window.more {
                return Ok(None);
            }
            self.window = None;
        }
    }

    fn read(&self, tree: &Tree, after: Option<&After>) -> Result<Window, Errno> {
        Window::read(tree, &self.names, &|text, kind| {
            text.starts_with(&self.filter)
                && self.last.as_deref().is_none_or(|last| text > last)
                && after.is_none_or(|after| self.is_after(after, text, kind))
        })
    }

    /// Whether keys of the entry lie behind the beginning of the walk.
    fn is_after(&self, after: &After, text: &str, kind: ItemKind) -> bool {
        let (After::Key(begin) | After::Prefix(begin)) = after;
        let Some(begin) = begin.strip_prefix(&self.prefix) else {
            return *begin < self.prefix;
        };
        match after {
            After::Key(_) => text > begin || (kind.is_directory() && begin.starts_with(text)),
            After::Prefix(_) => text > begin && !text.starts_with(begin),
        }
    }

    /// Size and tag of an entry that is an object, if it still is one.
    fn version_of(&mut self, tree: &Tree, item: &Item) -> Result<Option<Version>, Errno> {
        let mut names = Vec::new();
        name::push_names(&mut names, item.component());
        if item.kind == ItemKind::Within {
            names.push(OBJECT_NAME.to_owned());
        }
        let directory = match &self.directory {
            Some(directory) => directory,
            None => match existing(tree.directory(&self.names))? {
                Some(opened) => &*self.directory.insert(opened),
                None => return Ok(None),
            },
        };
        let path = names.join("/");
        let stat = || statat(directory.as_fd(), &path, AtFlags::SYMLINK_NOFOLLOW);
        let version = match tree.observe(stat) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            version => version?,
        };
        if version.is_file() {
            return Ok(Some(version));
        }
        // A link, or a file that has become a directory with the object in it.
        let mut from_root = [&self.names[..], &names[..]].concat();
        if version.is_directory() {
            from_root.push(OBJECT_NAME.to_owned());
        }
        let opened = tree.resolve(&from_root, OFlags::PATH);
        let version = opened.and_then(|file| tree.observe(|| fstat(&file)));
        Ok(version.ok().filter(Version::is_file))
    }

    fn names_of(&self, item: &Item) -> Vec<String> {
        let mut names = self.names.clone();
        name::push_names(&mut names, item.component());
        names
    }
}
