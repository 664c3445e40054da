//! What a file system must show: the names of one client and the bytes of its files, as they are and as they may be after a
//! crash.
//!
//! | of what | what a crash may leave |
//! |---|---|
//! | names | the tree behind any of the operations, but none that is on the disk is missing and none that is not is there |
//! | a file | each byte as one of the versions has it that are not older than the last one that was acknowledged as durable |
//!
//! A version is what a file was behind one change. Saves happen at any time, so any of them can be what is stored; what cuts a
//! file is durable before what was written before it.

use std::{collections::BTreeMap, sync::Arc};

use penstock_base::{FsError, FsResult};
use penstock_fileset::BLOCK_SIZE;
use penstock_vfs::{RemoveKind, RenameMode};

/// A regular file, whatever its names. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// What a name leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Directory,
    File(FileId),
    Symlink(String),
}

/// Names by their paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree(pub BTreeMap<String, Node>);

/// The directory in which a path lies, and the name in it.
pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn is_below(path: &str, directory: &str) -> bool {
    let rest = path.strip_prefix(directory);
    rest.is_some_and(|rest| rest.starts_with('/'))
}

impl Tree {
    /// Names with a new one.
    pub fn made(&self, path: &str, node: Node) -> FsResult<Self> {
        let mut tree = self.clone();
        match tree.0.insert(path.to_owned(), node) {
            None => Ok(tree),
            Some(_) => Err(FsError::AlreadyExists),
        }
    }

    pub fn removed(&self, path: &str, kind: RemoveKind) -> FsResult<Self> {
        let node = self.0.get(path).ok_or(FsError::NotFound)?;
        match (kind, node) {
            (RemoveKind::File, Node::Directory) => return Err(FsError::IsADirectory),
            (RemoveKind::Directory, Node::Directory) => self.check_empty(path)?,
            (RemoveKind::Directory, _) => return Err(FsError::NotADirectory),
            _ => {}
        }
        let mut tree = self.clone();
        tree.0.remove(path);
        Ok(tree)
    }

    fn check_empty(&self, directory: &str) -> FsResult<()> {
        match self.0.keys().any(|path| is_below(path, directory)) {
            true => Err(FsError::DirectoryNotEmpty),
            false => Ok(()),
        }
    }

    pub fn renamed(&self, (from, to): (&str, &str), mode: RenameMode) -> FsResult<Self> {
        let moved = self.0.get(from).ok_or(FsError::NotFound)?;
        let there = self.0.get(to);
        match (mode, there) {
            (RenameMode::NoReplace, Some(_)) => return Err(FsError::AlreadyExists),
            (RenameMode::Exchange, None) => return Err(FsError::NotFound),
            _ if from == to => return Ok(self.clone()),
            (_, Some(Node::File(file))) if *moved == Node::File(*file) => return Ok(self.clone()),
            _ => {}
        }
        if is_below(to, from) || mode == RenameMode::Exchange && is_below(from, to) {
            return Err(FsError::InvalidArgument("into itself"));
        }
        if mode == RenameMode::Exchange {
            return Ok(self.moved(&[(from, to), (to, from)]));
        }
        match (moved, there) {
            (Node::Directory, Some(Node::Directory)) => self.check_empty(to)?,
            (Node::Directory, Some(_)) => return Err(FsError::NotADirectory),
            (_, Some(Node::Directory)) => return Err(FsError::IsADirectory),
            _ => {}
        }
        let mut tree = self.clone();
        tree.0.remove(to);
        Ok(tree.moved(&[(from, to)]))
    }

    /// Names with all that lies at or below some of them elsewhere.
    fn moved(&self, moves: &[(&str, &str)]) -> Self {
        let elsewhere = |path: &String| {
            let is_in = |(from, _): &&(&str, &str)| path == from || is_below(path, from);
            match moves.iter().find(is_in) {
                Some((from, to)) => format!("{to}{}", &path[from.len()..]),
                None => path.clone(),
            }
        };
        let moved = self.0.iter();
        Self(
            moved
                .map(|(path, node)| (elsewhere(path), node.clone()))
                .collect(),
        )
    }

    /// Paths of directories, with the one of all.
    pub fn directories(&self) -> Vec<&str> {
        let directories = self.0.iter().filter(|(_, node)| **node == Node::Directory);
        let paths = directories.map(|(path, _)| path.as_str());
        [""].into_iter().chain(paths).collect()
    }

    /// Files with one of their paths.
    pub fn files(&self) -> BTreeMap<FileId, &str> {
        let files = self.0.iter().filter_map(|(path, node)| match node {
            Node::File(file) => Some((*file, path.as_str())),
            _ => None,
        });
        files.collect()
    }
}

/// Names behind an operation.
#[derive(Debug)]
struct Behind {
    tree: Tree,
    /// Operations of the engine when it began.
    begun: u64,
    /// The same when it was answered.
    done: Option<u64>,
}

/// The bytes of a file.
#[derive(Debug)]
pub struct Content {
    /// What it was behind each change, since it was durable last; never empty.
    versions: Vec<Arc<Vec<u8>>>,
}

impl Content {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self {
            versions: vec![Arc::new(bytes)],
        }
    }

    /// What readers see.
    pub fn live(&self) -> Arc<Vec<u8>> {
        Arc::clone(self.versions.last().expect("it is never empty"))
    }

    /// Changes it.
    pub fn change(&mut self, bytes: Vec<u8>) {
        self.versions.push(Arc::new(bytes));
    }

    /// What readers see is durable.
    pub fn durable(&mut self) {
        self.versions.drain(..self.versions.len() - 1);
    }

    /// Whether these bytes may be what is left of it.
    pub fn admits(&self, left: &[u8]) -> bool {
        let byte = |version: &[u8], at: usize| version.get(at).copied().unwrap_or(0);
        let is_of = |version: &Arc<Vec<u8>>| {
            let common = left.len().min(version.len());
            left[..common] == version[..common] && left[common..].iter().all(|byte| *byte == 0)
        };
        let admits_byte = |at: usize| {
            let mut versions = self.versions.iter();
            versions.any(|version| byte(version, at) == left[at])
        };
        self.admits_length(left.len())
            && (self.versions.iter().any(is_of) || (0..left.len()).all(admits_byte))
    }

    /// The lengths that it had, and those in between at which a long cut rests.
    fn admits_length(&self, length: usize) -> bool {
        let lengths = || self.versions.iter().map(|version| version.len());
        let within = lengths().min() < Some(length) && Some(length) < lengths().max();
        lengths().any(|known| known == length)
            || within && (length as u64).is_multiple_of(BLOCK_SIZE)
    }
}

/// What one client has.
#[derive(Debug)]
pub struct Model {
    /// Names behind each operation, since they were compared last; never empty.
    behind: Vec<Behind>,
    /// Also of files that have no name any more: a crash may bring it back.
    pub files: BTreeMap<FileId, Content>,
    last_file: u64,
}

/// Names and bytes that are to stay as they are.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    pub tree: Tree,
    pub files: BTreeMap<FileId, Arc<Vec<u8>>>,
}

/// Names and bytes that were found, and by which numbers files go.
#[derive(Debug, Default)]
pub struct Found {
    pub tree: Tree,
    pub files: BTreeMap<FileId, Vec<u8>>,
}

impl Model {
    pub fn new() -> Self {
        Self {
            behind: vec![Behind {
                tree: Tree::default(),
                begun: 0,
                done: Some(0),
            }],
            files: BTreeMap::new(),
            last_file: 0,
        }
    }

    /// Names as they are.
    pub fn tree(&self) -> &Tree {
        &self.behind.last().expect("it is never empty").tree
    }

    /// A new file, which has no name yet.
    pub fn new_file(&mut self) -> FileId {
        self.last_file += 1;
        let file = FileId(self.last_file);
        self.files.insert(file, Content::new(Vec::new()));
        file
    }

    /// Names are about to change. `begun` operations of the engine are applied.
    pub fn begin(&mut self, tree: Tree, begun: u64) {
        self.behind.push(Behind {
            tree,
            begun,
            done: None,
        });
    }

    /// They did, in one of the first `done` operations.
    pub fn done(&mut self, done: u64) {
        self.behind.last_mut().expect("it is never empty").done = Some(done);
    }

    pub fn content(&mut self, file: FileId) -> &mut Content {
        self.files.get_mut(&file).expect("it is known")
    }

    /// All that readers see is durable.
    pub fn durable(&mut self) {
        self.files.values_mut().for_each(Content::durable);
    }

    pub fn picture(&self) -> Picture {
        let tree = self.tree().clone();
        let files = tree.files().into_keys();
        let files = files.map(|file| (file, self.files[&file].live())).collect();
        Picture { tree, files }
    }

    /// Which of the trees that may be left after a crash, when the disk has the first `kept` operations, are there.
    fn admitted(&self, kept: u64) -> &[Behind] {
        let is_kept = |behind: &Behind| behind.done.is_some_and(|done| done <= kept);
        let is_begun = |behind: &Behind| behind.begun < kept;
        let first = self.behind.iter().rposition(is_kept).unwrap_or(0);
        let last = self.behind.iter().rposition(is_begun).unwrap_or(0);
        &self.behind[first..=last.max(first)]
    }

    /// Goes on with what was found after a crash. Fails if it may not be so.
    pub fn go_on_with(&mut self, found: Found, kept: u64) -> Result<(), String> {
        let admitted = self.admitted(kept);
        let same = admitted
            .iter()
            .find_map(|behind| same(&behind.tree, &found.tree));
        let Some(names) = same else {
            let trees: Vec<_> = admitted.iter().map(|behind| &behind.tree).collect();
            let found = &found.tree;
            return Err(format!(
                "names may be those of {trees:#?} and are {found:#?}"
            ));
        };
        let mut files = BTreeMap::new();
        for (file, number) in names {
            let (content, left) = (&self.files[&file], &found.files[&number]);
            if !content.admits(left) {
                let path = found.tree.files()[&number].to_owned();
                let lengths: Vec<_> = content.versions.iter().map(|it| it.len()).collect();
                let length = left.len();
                return Err(format!(
                    "{path} has {length} bytes that it never had; versions had {lengths:?}"
                ));
            }
            files.insert(number, Content::new(left.clone()));
        }
        self.files = files;
        let found_last = self.files.keys().last().map_or(0, |file| file.0);
        self.last_file = self.last_file.max(found_last);
        self.behind = vec![Behind {
            tree: found.tree,
            begun: kept,
            done: Some(kept),
        }];
        Ok(())
    }
}

impl Picture {
    /// Whether it is what was found.
    pub fn is(&self, found: &Found) -> bool {
        same(&self.tree, &found.tree).is_some_and(|names| {
            let mut names = names.into_iter();
            names.all(|(file, number)| *self.files[&file] == found.files[&number])
        })
    }
}

/// The numbers of files in another tree, if names and which of them lead to one file are the same in both.
fn same(tree: &Tree, other: &Tree) -> Option<BTreeMap<FileId, FileId>> {
    if !tree.0.keys().eq(other.0.keys()) {
        return None;
    }
    let (mut there, mut back) = (BTreeMap::new(), BTreeMap::new());
    for (one, other) in tree.0.values().zip(other.0.values()) {
        match (one, other) {
            (Node::File(one), Node::File(other)) => {
                let is_known = *there.entry(*one).or_insert(*other) == *other
                    && *back.entry(*other).or_insert(*one) == *one;
                if !is_known {
                    return None;
                }
            }
            _ if one == other => {}
            _ => return None,
        }
    }
    Some(there)
}
