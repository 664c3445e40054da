//! A folder that one thread works in, and what the files in it may hold.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Instant,
};

use super::{Chance, is_passing, timed};
use crate::{
    data::{lines, noise},
    system::{self, Errno, SystemResult},
};

/// Names in a folder: few, so that files are replaced often.
const NAMES: usize = 12;
/// Bytes in one `write`.
const PIECE: usize = 200_000;
/// Sizes of files, drawn evenly, as limits below which they lie.
const SIZES: [usize; 6] = [1, 5000, 70_000, 400_000, 700_000, 700_000];
/// The most in a file of a folder without large ones.
const SMALL_MAX: usize = 900_000;
/// A file that is uploaded in parts.
const LARGE: usize = 20_000_000;

/// How much is remembered of what was done.
const HISTORY: usize = 400;

/// What a file holds: pieces, each a seed and a length.
type Content = Vec<(u64, usize)>;

/// See [the module](self).
#[derive(Debug)]
pub struct Shadow {
    folder: PathBuf,
    chance: Chance,
    /// Whether some files are large: sent in parts and read in ranges.
    large: bool,
    /// Whether files can be written in place. A write that fails may leave any part of it behind then.
    /// Nothing is written through mappings here: a thread that waits in one keeps all others of its
    /// process from memory, among them those of the test's own server.
    in_place: bool,
    /// Whether the mount may end meanwhile.
    may_end: bool,
    /// What may be under a name: `None` for nothing. What is not listed is certainly absent; of
    /// what is listed with nothing anything may be there.
    files: BTreeMap<String, Vec<Option<Content>>>,
    /// What was done last, and when.
    history: VecDeque<String>,
    began: Instant,
    /// Operations that went well, and those that failed as they may.
    pub done: u64,
    /// See `done`.
    pub failed: u64,
}

impl Shadow {
    /// Works in `folder`, which is empty.
    pub fn new(folder: PathBuf, seed: u64, large: bool) -> Self {
        Self {
            folder,
            chance: Chance::new(seed),
            large,
            in_place: false,
            may_end: false,
            files: BTreeMap::new(),
            history: VecDeque::new(),
            began: Instant::now(),
            done: 0,
            failed: 0,
        }
    }

    /// Files there can be written in place.
    #[must_use]
    pub fn in_place(self) -> Self {
        Self {
            in_place: true,
            ..self
        }
    }

    /// The mount may be killed, or shut out of its file system.
    #[must_use]
    pub fn that_may_end(self) -> Self {
        Self {
            may_end: true,
            ..self
        }
    }

    /// Whether what happens may be the cause of this error.
    fn passes(&self, error: Errno) -> bool {
        let ended = matches!(error.0, libc::ENOTCONN | libc::ECONNABORTED);
        is_passing(error) || self.may_end && ended
    }

    /// Does one thing or another.
    pub fn step(&mut self) {
        let name = self.any_name();
        let what = format!("{}: {name}", self.folder.display());
        match self.chance.below(14) {
            0..=4 => self.write(&name),
            5..=6 => self.append(&name),
            7 => self.remove(&name),
            8 => self.rename(&name),
            9 => timed(&what, || self.list()),
            10 if self.in_place => self.copy(&name),
            _ => {
                timed(&what, || self.verify(&name));
            }
        }
    }

    fn any_name(&mut self) -> String {
        format!("file {}", self.chance.below(NAMES))
    }

    fn any_piece(&mut self) -> (u64, usize) {
        let length = if self.large && self.chance.below(6) == 0 {
            self.chance.below(LARGE)
        } else {
            let limit = *self.chance.pick(&SIZES);
            self.chance.below(limit)
        };
        (self.chance.next(), length)
    }

    fn possible(&self, name: &str) -> Vec<Option<Content>> {
        self.files.get(name).cloned().unwrap_or(vec![None])
    }

    /// What the file holds, if it exists and that is certain.
    fn certain(&self, name: &str) -> Option<Content> {
        match &self.files.get(name)?[..] {
            [Some(content)] => Some(content.clone()),
            _ => None,
        }
    }

    /// Whether nothing is known of what is there.
    fn is_unknown(&self, name: &str) -> bool {
        self.files.get(name).is_some_and(Vec::is_empty)
    }

    fn may_be_absent(&self, name: &str) -> bool {
        self.is_unknown(name) || self.possible(name).contains(&None)
    }

    fn set(&mut self, name: &str, possible: Vec<Option<Content>>) {
        if possible == [None] {
            self.files.remove(name);
        } else {
            self.files.insert(name.to_owned(), possible);
        }
    }

    /// Notes that `name` has become `after`, or may have if that failed.
    fn remember(&mut self, what: &str) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        let at = self.began.elapsed();
        self.history.push_back(format!("{at:.3?} {what}"));
    }

    /// What was done with a file, in lines.
    fn history_of(&self, name: &str) -> String {
        let lines = self.history.iter();
        let lines: Vec<_> = lines
            .filter(|line| line.contains(&format!("{name};")))
            .cloned()
            .collect();
        lines.join("\n")
    }

    #[track_caller]
    fn settle(&mut self, name: &str, after: Option<Content>, outcome: SystemResult<()>) {
        self.remember(&format!("{name}; {after:?}: {outcome:?}"));
        let before = self.possible(name);
        match outcome {
            Ok(()) => {
                self.done += 1;
                self.set(name, vec![after]);
            }
            Err(error) => {
                self.expect_passing(name, error);
                if self.in_place {
                    return self.set(name, Vec::new());
                }
                let mut possible = before;
                if !possible.contains(&after) {
                    possible.push(after);
                }
                self.set(name, possible);
            }
        }
    }

    #[track_caller]
    fn expect_passing(&mut self, name: &str, error: Errno) {
        // What another client might have done to the file is as uncertain to the mount as to us.
        let uncertain = self.possible(name).len() != 1
            && matches!(error.0, libc::ESTALE | libc::EBUSY | libc::ENOENT);
        assert!(
            self.passes(error) || uncertain,
            "{}/{name}: {error:?}, and it may be {:?}",
            self.folder.display(),
            self.possible(name)
        );
        self.failed += 1;
    }

    fn write(&mut self, name: &str) {
        let piece = self.any_piece();
        let sync = self.chance.below(2) == 0;
        let path = self.folder.join(name);
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
        let written = timed(name, || write_file(&path, flags, &written(piece), sync));
        self.settle(name, Some(vec![piece]), written);
    }

    fn append(&mut self, name: &str) {
        let Some(mut content) = self.certain(name) else {
            return;
        };
        let piece = self.any_piece();
        if !self.large && length(&content) + piece.1 > SMALL_MAX {
            return;
        }
        let path = self.folder.join(name);
        let flags = libc::O_WRONLY | libc::O_APPEND;
        let written = timed(name, || write_file(&path, flags, &written(piece), false));
        content.push(piece);
        self.settle(name, Some(content), written);
    }

    fn remove(&mut self, name: &str) {
        let removed = timed(name, || system::remove(&self.folder.join(name)));
        let absent = self.may_be_absent(name);
        // After a failure the mount may not know of what is there all the same.
        if removed != Err(Errno(libc::ENOENT)) || !absent {
            self.settle(name, None, removed);
        }
    }

    fn rename(&mut self, name: &str) {
        let target = self.any_name();
        let Some(content) = self.certain(name) else {
            return;
        };
        if target == name {
            return;
        }
        let (from, to) = (self.folder.join(name), self.folder.join(&target));
        let renamed = timed(name, || system::rename(&from, &to, 0));
        if let Err(error) = renamed {
            let about_target = self.possible(&target).len() != 1;
            assert!(
                self.passes(error) || about_target,
                "{from:?} to {to:?}: {error:?}"
            );
        }
        self.remember(&format!("{name}; renamed to {target}; {renamed:?}"));
        let passed = renamed.map_err(|_| Errno(libc::EIO));
        self.settle(&target, Some(content), passed);
        self.settle(name, None, passed);
    }

    /// Lets the kernel copy a file over another one, or the file system itself where it can.
    fn copy(&mut self, name: &str) {
        let target = self.any_name();
        let Some(content) = self.certain(name).filter(|_| target != name) else {
            return;
        };
        let (from, to) = (self.folder.join(name), self.folder.join(&target));
        let copied = timed(name, || copy_file(&from, &to, length(&content)));
        self.remember(&format!("{name}; copied to {target}; {copied:?}"));
        self.settle(&target, Some(content), copied);
    }

    /// What is certainly there is listed, what is certainly absent is not.
    fn list(&mut self) {
        let names = match system::list(&self.folder) {
            Ok(names) => names,
            Err(error) if self.passes(error) => return self.failed += 1,
            Err(error) => panic!("listing {}: {error:?}", self.folder.display()),
        };
        for name in &names {
            assert!(
                self.files.contains_key(name),
                "{name} is listed and was removed"
            );
        }
        for (name, possible) in &self.files {
            let listed = names.contains(name);
            let may_be_absent = possible.is_empty() || possible.contains(&None);
            assert!(listed || may_be_absent, "{name} is not listed");
        }
        self.done += 1;
    }

    /// Reads a file, and fails the test unless it holds what it may hold. Returns whether it
    /// could be read.
    #[track_caller]
    pub fn verify(&mut self, name: &str) -> bool {
        let path = self.folder.join(name);
        match read_file(&path) {
            Ok(_) if self.is_unknown(name) => true,
            Ok(found) => {
                let content = self.matching(name, &found);
                assert!(
                    content.is_some(),
                    "{}: {} bytes that it cannot hold; it may be {:?}. What was done with it:\n{}",
                    path.display(),
                    found.len(),
                    self.possible(name),
                    self.history_of(name)
                );
                self.remember(&format!("{name}; found {} bytes", found.len()));
                self.set(name, vec![content]);
                self.done += 1;
                true
            }
            Err(Errno(libc::ENOENT)) if self.may_be_absent(name) => true,
            Err(error) => {
                self.expect_passing(name, error);
                false
            }
        }
    }

    /// What of that which the file may hold is `found`.
    fn matching(&self, name: &str, found: &[u8]) -> Option<Content> {
        let possible = self.possible(name);
        possible
            .into_iter()
            .flatten()
            .find(|content| length(content) == found.len() && bytes(content) == found)
    }

    /// Compares every name with what a store has under it, which `get` finds out.
    #[track_caller]
    pub fn compare_stored(&self, get: impl Fn(&str) -> Option<Vec<u8>>) {
        for number in 0..NAMES {
            let name = format!("file {number}");
            match get(&name) {
                Some(found) => assert!(
                    self.is_unknown(&name) || self.matching(&name, &found).is_some(),
                    "{name}: the store has {} bytes; it may be {:?}",
                    found.len(),
                    self.possible(&name)
                ),
                None => assert!(
                    self.may_be_absent(&name),
                    "{name}: lost; it may be {:?}",
                    self.possible(&name)
                ),
            }
        }
    }

    /// Looks for the same folder in another mount.
    pub fn move_to(&mut self, mount: &Path) {
        self.folder = mount.join(self.folder_name());
    }

    /// The folder's name.
    pub fn folder_name(&self) -> String {
        let name = self.folder.file_name().expect("a folder has a name");
        name.to_string_lossy().into_owned()
    }

    /// The names of all files that there may be.
    pub fn names(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }
}

fn length(content: &Content) -> usize {
    content.iter().map(|piece| piece.1).sum()
}

fn bytes(content: &Content) -> Vec<u8> {
    let pieces = content.iter().map(|piece| written(*piece));
    pieces.collect::<Vec<_>>().concat()
}

/// The bytes of a piece, which can be compressed or not.
fn written((seed, length): (u64, usize)) -> Vec<u8> {
    match seed % 2 {
        0 => lines(seed, length),
        _ => noise(seed, length),
    }
}

/// Opens, writes, closes, and returns the first error of any of them.
fn write_file(path: &Path, flags: i32, content: &[u8], sync: bool) -> SystemResult<()> {
    let file = system::open(path, flags)?;
    let mut written = Ok(());
    let mut offset = 0;
    for piece in content.chunks(PIECE) {
        written = system::write_at(&file, piece, offset).map(drop);
        offset += piece.len() as u64;
        if written.is_err() {
            break;
        }
    }
    if sync && written.is_ok() {
        written = system::sync(&file);
    }
    written.and(system::close(file))
}

/// Opens, copies whole, closes, and returns the first error of any of them.
fn copy_file(from: &Path, to: &Path, length: usize) -> SystemResult<()> {
    let source = system::open(from, libc::O_RDONLY)?;
    let target = system::open(to, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC)?;
    let mut copied = 0;
    while copied < length {
        match system::copy_range(&source, &target, copied as u64, length - copied) {
            Ok(0) => return Err(Errno(libc::EIO)),
            Ok(count) => copied += count,
            Err(error) => return Err(error),
        }
    }
    system::close(target)
}

fn read_file(path: &Path) -> SystemResult<Vec<u8>> {
    let read = || -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        File::open(path)?.read_to_end(&mut content)?;
        Ok(content)
    };
    Ok(read()?)
}
