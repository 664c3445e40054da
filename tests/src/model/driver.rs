//! Does steps on a real directory.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use super::step::{Access, Content, OpenMode, Outcome, Slot, Step, pattern};
use crate::system::{self, Errno, SystemResult};

/// A directory under test and the handles that are open in it.
#[derive(Debug)]
pub struct Driver {
    root: PathBuf,
    handles: BTreeMap<Slot, OwnedFd>,
}

impl Driver {
    /// Works below `root`, which exists and is empty.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            handles: BTreeMap::new(),
        }
    }

    /// Does `step` and says what it answered.
    pub fn apply(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Open { slot, path, mode } => self.open(*slot, path, *mode).into(),
            Step::Write {
                slot,
                offset,
                length,
                seed,
            } => system::write_at(&self.handles[slot], &pattern(*seed, *length), *offset)
                .map_or_else(Outcome::Failed, Outcome::Wrote),
            Step::Read {
                slot,
                offset,
                length,
            } => read_fully(&self.handles[slot], *offset, *length)
                .map_or_else(Outcome::Failed, |data| Outcome::Data(Content(data))),
            Step::TruncateOpen { slot, size } => {
                system::truncate_open(&self.handles[slot], *size).into()
            }
            Step::Sync { slot } => system::sync(&self.handles[slot]).into(),
            Step::Close { slot } => self.close(*slot).into(),
            Step::StatusOpen { slot } => system::status_open(&self.handles[slot]).into(),
            named => self.apply_named(named),
        }
    }

    /// Steps on paths.
    fn apply_named(&self, step: &Step) -> Outcome {
        match step {
            Step::Truncate { path, size } => system::truncate(&self.path(path), *size).into(),
            Step::Status { path } => system::status(&self.path(path)).into(),
            Step::List { path } => {
                system::list(&self.path(path)).map_or_else(Outcome::Failed, Outcome::Names)
            }
            Step::MakeDirectory { path } => system::make_directory(&self.path(path)).into(),
            Step::RemoveDirectory { path } => system::remove_directory(&self.path(path)).into(),
            Step::Remove { path } => system::remove(&self.path(path)).into(),
            Step::Rename {
                from,
                to,
                no_replace,
            } => {
                let flags = if *no_replace {
                    libc::RENAME_NOREPLACE
                } else {
                    0
                };
                system::rename(&self.path(from), &self.path(to), flags).into()
            }
            other => unreachable!("{other:?} is about a handle"),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn open(&mut self, slot: Slot, path: &str, mode: OpenMode) -> SystemResult<()> {
        let file = system::open(&self.path(path), flags_of(mode))?;
        self.handles.insert(slot, file);
        Ok(())
    }

    fn close(&mut self, slot: Slot) -> SystemResult<()> {
        match self.handles.remove(&slot) {
            Some(file) => system::close(file),
            None => Err(Errno(libc::EBADF)),
        }
    }
}

fn flags_of(mode: OpenMode) -> i32 {
    let access = match mode.access {
        Access::Read => libc::O_RDONLY,
        Access::Write => libc::O_WRONLY,
        Access::Both => libc::O_RDWR,
    };
    let flag = |wanted: bool, flag| if wanted { flag } else { 0 };
    access
        | flag(mode.create, libc::O_CREAT)
        | flag(mode.exclusive, libc::O_EXCL)
        | flag(mode.append, libc::O_APPEND)
        | flag(mode.truncate, libc::O_TRUNC)
}

/// Repeats short reads, which are allowed anywhere, until the end of the file or an error.
fn read_fully(file: &OwnedFd, offset: u64, length: usize) -> SystemResult<Vec<u8>> {
    let mut data = Vec::new();
    while data.len() < length {
        let piece = system::read_at(file, length - data.len(), offset + data.len() as u64)?;
        if piece.is_empty() {
            break;
        }
        data.extend(piece);
    }
    Ok(data)
}
