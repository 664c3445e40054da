//! What a client does next, drawn by chance.

use std::ops::Range;

use fastrand::Rng;
use penstock_vfs::RenameMode;

use crate::model::{Node, Tree};

/// Names that are made; there are as many again one directory below, and so on.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "p", "q"];
/// Directories in which a name lies at most.
const DEPTH_MAX: usize = 3;
/// Where a chunk ends.
const CHUNK: u64 = 4 << 20;

/// See the module.
#[derive(Debug, Clone)]
pub enum Deed {
    Make(String),
    MakeDirectory(String),
    MakeSymlink(String),
    Link(String, String),
    RemoveFile(String),
    RemoveDirectory(String),
    Rename(String, String, RenameMode),
    Write(String, Range<u64>),
    /// Many pieces at some distance from each other, so that a chunk has to be folded.
    Scatter(String, u64),
    Cut(String, u64),
    Punch(String, Range<u64>),
    /// A range of one file to a place of another.
    Copy((String, Range<u64>), (String, u64)),
    Read(String),
    Sync(String),
    Close(String),
    SyncDirectory,
    /// All names are looked at.
    Look,
}

/// Draws deeds on what there is.
pub struct Draw<'a> {
    pub chance: &'a mut Rng,
    pub tree: &'a Tree,
}

impl Draw<'_> {
    pub fn deed(&mut self) -> Deed {
        match self.chance.u8(0..100) {
            0..9 => Deed::Make(self.path()),
            9..13 => Deed::MakeDirectory(self.path()),
            13..15 => Deed::MakeSymlink(self.path()),
            15..18 => self.of_file(|draw, file| Deed::Link(file, draw.path())),
            18..24 => Deed::RemoveFile(self.path()),
            24..26 => Deed::RemoveDirectory(self.path()),
            26..33 => Deed::Rename(self.path(), self.path(), self.mode()),
            33..53 => self.of_file(|draw, file| Deed::Write(file, draw.range())),
            53..56 => self.of_file(|draw, file| Deed::Scatter(file, draw.offset())),
            56..61 => self.of_file(|draw, file| Deed::Cut(file, draw.offset())),
            61..64 => self.of_file(|draw, file| Deed::Punch(file, draw.range())),
            64..71 => self.of_file(|draw, file| {
                let source = (draw.file().unwrap_or_default(), draw.range());
                Deed::Copy(source, (file, draw.offset()))
            }),
            71..81 => self.of_file(|_, file| Deed::Read(file)),
            81..88 => self.of_file(|_, file| Deed::Sync(file)),
            88..94 => self.of_file(|_, file| Deed::Close(file)),
            94..96 => Deed::SyncDirectory,
            _ => Deed::Look,
        }
    }

    fn mode(&mut self) -> RenameMode {
        match self.chance.u8(0..6) {
            0 => RenameMode::NoReplace,
            1 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        }
    }

    /// A deed on a file, or one is made.
    fn of_file(&mut self, deed: impl FnOnce(&mut Self, String) -> Deed) -> Deed {
        match self.file() {
            Some(file) => deed(self, file),
            None => Deed::Make(self.path()),
        }
    }

    fn file(&mut self) -> Option<String> {
        let is_file = |(_, node): &(&String, &Node)| matches!(node, Node::File(_));
        let files = self.tree.0.iter().filter(is_file);
        let files: Vec<_> = files.map(|(path, _)| path).collect();
        self.chance.choice(files).cloned()
    }

    /// One that is there, or a name in a directory that is.
    fn path(&mut self) -> String {
        if self.chance.bool()
            && let Some(path) = self.chance.choice(self.tree.0.keys())
        {
            return path.clone();
        }
        let directories = self.tree.directories().into_iter();
        let shallow = |path: &&str| path.matches('/').count() < DEPTH_MAX - 1;
        let directories: Vec<_> = directories.filter(shallow).collect();
        let directory = self.chance.choice(directories).unwrap_or_default();
        let name = NAMES[self.chance.usize(0..NAMES.len())];
        match directory {
            "" => name.to_owned(),
            directory => format!("{directory}/{name}"),
        }
    }

    /// A place near the beginning, and now and then near the end of a chunk.
    fn offset(&mut self) -> u64 {
        let near = self.chance.u64(0..20_000);
        match self.chance.u8(0..100) {
            0 => CHUNK - 10_000 + near,
            _ => near,
        }
    }

    fn range(&mut self) -> Range<u64> {
        let start = self.offset();
        let length = match self.chance.u8(0..100) {
            // Such a run has an object of its own.
            0 => self.chance.u64(1 << 20..1_200_000),
            1..15 => self.chance.u64(1..60_000),
            _ => self.chance.u64(1..5_000),
        };
        start..start + length
    }
}
