//! The model's state, and the steps that read or change names.

use std::collections::BTreeMap;

use super::{
    action::{Planted, Position},
    files::{File, Handle},
    step::{Expected, Outcome, Slot, Step, pattern},
};
use crate::system::{Errno, Status, SystemResult};

/// What a step should answer where a bucket cannot be a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// Everything as a local file system does it.
    Posix,
    /// As a bucket mounted in streaming mode does it.
    Streaming,
}

/// The number of a file or directory, never used twice.
pub(super) type NodeId = usize;

/// The root directory.
pub(super) const ROOT: NodeId = 0;

/// A file or directory.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Directory(BTreeMap<String, NodeId>),
    File(File),
}

/// A file system in a few maps.
#[derive(Debug, Clone)]
pub struct Model {
    pub(super) rules: Rules,
    pub(super) nodes: Vec<Node>,
    pub(super) handles: BTreeMap<Slot, Handle>,
    pub(super) slots_used: Slot,
}

impl Model {
    /// An empty root directory.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            nodes: vec![Node::Directory(BTreeMap::new())],
            handles: BTreeMap::new(),
            slots_used: 0,
        }
    }

    /// An empty root directory into which somebody else put `planted`.
    pub fn with_planted(rules: Rules, planted: Planted) -> Self {
        let mut model = Self::new(rules);
        for path in planted {
            let mut parent = ROOT;
            let (directories, name) = path.rsplit_once('/').unwrap_or(("", path));
            for directory in directories.split('/').filter(|name| !name.is_empty()) {
                let found = model
                    .directory(parent)
                    .ok()
                    .and_then(|it| it.get(directory));
                parent = found.copied().unwrap_or_else(|| {
                    let node = model.add(Node::Directory(BTreeMap::new()));
                    model.link(parent, directory, node);
                    node
                });
            }
            let node = model.add(Node::File(File::planted(path)));
            model.link(parent, name, node);
        }
        model
    }

    /// Does `step` and says what it should answer.
    pub fn apply(&mut self, step: &Step) -> Expected {
        let outcome: Outcome = match step {
            Step::Read {
                slot,
                offset,
                length,
            } => return self.read(*slot, *offset, *length),
            Step::Open { slot, path, mode } => self.open(*slot, path, *mode).into(),
            Step::Write {
                slot,
                offset,
                length,
                seed,
            } => self
                .write(*slot, *offset, &pattern(*seed, *length))
                .map_or_else(Outcome::Failed, Outcome::Wrote),
            Step::TruncateOpen { slot, size } => self.truncate_open(*slot, *size).into(),
            Step::Truncate { path, size } => self.truncate(path, *size).into(),
            Step::Sync { slot } => self.sync(*slot).into(),
            Step::Close { slot } => self.close(*slot).into(),
            Step::StatusOpen { slot } => self.status_open(*slot).into(),
            Step::Status { path } => self.find(path).map(|node| self.status_of(node)).into(),
            Step::List { path } => self
                .entries(path)
                .map_or_else(Outcome::Failed, Outcome::Names),
            Step::MakeDirectory { path } => self.make_directory(path).into(),
            Step::RemoveDirectory { path } => self.remove_directory(path).into(),
            Step::Remove { path } => self.remove(path).into(),
            Step::Rename {
                from,
                to,
                no_replace,
            } => self.rename(from, to, *no_replace).into(),
        };
        outcome.into()
    }

    /// The paths of all directories, parents first; the root is the empty path.
    pub fn directories(&self) -> Vec<String> {
        self.paths()
            .into_iter()
            .filter(|(_, is_directory)| *is_directory)
            .map(|(path, _)| path)
            .collect()
    }

    /// Every path with whether it is a directory, parents first.
    pub fn paths(&self) -> Vec<(String, bool)> {
        let mut found = vec![(String::new(), true)];
        self.collect(ROOT, "", &mut found);
        found
    }

    /// What the file at `path` holds; `None` for what is no file.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        match &self.nodes[self.find(path).ok()?] {
            Node::File(file) => Some(file.content().to_vec()),
            Node::Directory(_) => None,
        }
    }

    fn collect(&self, directory: NodeId, path: &str, found: &mut Vec<(String, bool)>) {
        let Node::Directory(entries) = &self.nodes[directory] else {
            return;
        };
        for (name, node) in entries {
            let path = join(path, name);
            found.push((path.clone(), self.is_directory(*node)));
            self.collect(*node, &path, found);
        }
    }

    /// The byte that `position` means in the file behind `slot`.
    pub(super) fn offset_of(&self, slot: Slot, position: Position) -> u64 {
        let end = self.status_open(slot).map_or(0, |status| status.size);
        match position {
            Position::End => end,
            Position::BeforeEnd(distance) => end.saturating_sub(u64::from(distance)),
            Position::BeyondEnd(distance) => end + u64::from(distance),
            Position::Start(distance) => u64::from(distance),
        }
    }

    pub(super) fn find(&self, path: &str) -> SystemResult<NodeId> {
        let mut node = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            node = *self.directory(node)?.get(name).ok_or(Errno(libc::ENOENT))?;
        }
        Ok(node)
    }

    /// The directory that holds `path`'s last name, and that name.
    pub(super) fn parent_of<'a>(&self, path: &'a str) -> SystemResult<(NodeId, &'a str)> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.find(parent)?;
        self.directory(parent)?;
        Ok((parent, name))
    }

    pub(super) fn status_of(&self, node: NodeId) -> Status {
        match &self.nodes[node] {
            Node::Directory(_) => Status {
                is_directory: true,
                size: 0,
            },
            Node::File(file) => Status {
                is_directory: false,
                size: file.size(),
            },
        }
    }

    pub(super) fn is_directory(&self, node: NodeId) -> bool {
        matches!(self.nodes[node], Node::Directory(_))
    }

    pub(super) fn directory(&self, node: NodeId) -> SystemResult<&BTreeMap<String, NodeId>> {
        match &self.nodes[node] {
            Node::Directory(entries) => Ok(entries),
            Node::File(_) => Err(Errno(libc::ENOTDIR)),
        }
    }

    pub(super) fn link(&mut self, parent: NodeId, name: &str, node: NodeId) {
        if let Node::Directory(entries) = &mut self.nodes[parent] {
            entries.insert(name.to_owned(), node);
        }
    }

    pub(super) fn unlink(&mut self, parent: NodeId, name: &str) {
        if let Node::Directory(entries) = &mut self.nodes[parent] {
            entries.remove(name);
        }
    }

    pub(super) fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        self.nodes.len() - 1
    }
}

/// `parent/name`, with the root as the empty path.
pub(super) fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        name.to_owned()
    } else {
        format!("{parent}/{name}")
    }
}
