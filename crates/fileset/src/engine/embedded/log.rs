//! The log: changes in the order in which they were made, in files called segments.
//!
//! ```text
//! log.00000000000000000042     a segment, named after the number of its first change
//!   "PENSTKL1"                 eight bytes that say what it is and in which version
//!   record ...                 one for each operation, see [`crate::engine::record`]
//! ```
//!
//! Records are numbered without gaps, over all
//! segments. A crash may leave the end of the last segment cut or torn: what is behind its last whole record was
//! never acknowledged. Where a later segment goes on with another number than that leads to, something is missing
//! that was, and the log is refused. A segment goes when the tree has what is in it, and whoever ships the log to
//! elsewhere has it there.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use bytes::{Buf, Bytes};

use crate::engine::{
    EngineError, EngineResult,
    layers::Changes,
    record::{self, Record},
};

const MAGIC: &[u8; 8] = b"PENSTKL1";
const PREFIX: &str = "log.";

/// The end of the log, where records are added.
#[derive(Debug)]
pub(super) struct Log {
    directory: PathBuf,
    file: File,
    /// Segments before the one that is written, oldest first, with the numbers of their first records.
    older: VecDeque<(u64, PathBuf)>,
    current: (u64, PathBuf),
}

/// What a log that was found says.
#[derive(Debug, Default)]
pub(in crate::engine) struct Replayed {
    pub(super) changes: Changes,
    /// The number of the last change.
    pub(super) last: u64,
    /// All records that were found, in order, also those that the tree has.
    pub(in crate::engine) records: Vec<Record>,
    segments: VecDeque<(u64, PathBuf)>,
}

impl Replayed {
    /// Reads the log in `directory` from behind the change `after`, which the tree has.
    pub(super) fn read(directory: &Path, after: u64) -> EngineResult<Self> {
        let mut replayed = Self {
            last: after,
            ..Self::default()
        };
        let mut next = None;
        for (first, path) in segments(directory)? {
            if next.is_some_and(|next| next != first) || first > replayed.last + 1 {
                let text = format!("{} does not go on where the log ends", path.display());
                return Err(EngineError::Corrupt(text));
            }
            next = Some(replayed.read_segment(&path, first)?);
            replayed.segments.push_back((first, path));
        }
        Ok(replayed)
    }

    /// Reads a segment and returns the number that comes behind its last whole record.
    fn read_segment(&mut self, path: &Path, first: u64) -> EngineResult<u64> {
        let mut bytes = Vec::new();
        let mut file = File::open(path).map_err(|error| failure(path, &error))?;
        file.read_to_end(&mut bytes)
            .map_err(|error| failure(path, &error))?;
        let mut bytes = Bytes::from(bytes);
        let mut next = first;
        if !bytes.starts_with(MAGIC) {
            // A crash came before the first record.
            return Ok(next);
        }
        bytes.advance(MAGIC.len());
        while let Some(record) = record::take(&mut bytes) {
            let taken = match record.sequence == next {
                true => self.take(&record),
                false => None,
            };
            if taken.is_none() {
                let text = format!("record {} of {}", record.sequence, path.display());
                return Err(EngineError::Corrupt(text));
            }
            self.records.push(record);
            next += 1;
        }
        Ok(next)
    }

    /// Makes the changes of a record, unless it made them before.
    fn take(&mut self, record: &Record) -> Option<()> {
        if record.sequence > self.last {
            record::redo(record.changes.clone(), &mut self.changes)?;
            self.last = record.sequence;
        }
        Some(())
    }

    /// Removes all segments.
    pub(super) fn remove(&self) -> EngineResult<()> {
        for (_, path) in &self.segments {
            fs::remove_file(path).map_err(|error| failure(path, &error))?;
        }
        Ok(())
    }

    /// Goes on with a record that is known from elsewhere, and which the next segment is to begin with.
    pub(super) fn go_on_with(&mut self, record: &Record) -> EngineResult<()> {
        let is_next = record.sequence == self.last + 1;
        let taken = if is_next { self.take(record) } else { None };
        taken.ok_or_else(|| EngineError::Corrupt(format!("record {}", record.sequence)))
    }
}

impl Log {
    /// Begins a segment whose first record is `first`, behind the segments that were `replayed`.
    pub(super) fn go_on(directory: &Path, replayed: &Replayed, first: u64) -> EngineResult<Self> {
        let (file, path) = begin(directory, first)?;
        let mut older = replayed.segments.clone();
        // One without a whole record has the same number, and the new one is in its place.
        older.retain(|(number, _)| *number != first);
        Ok(Self {
            directory: directory.to_owned(),
            file,
            older,
            current: (first, path),
        })
    }

    /// Writes records.
    pub(super) fn write(&mut self, records: &[u8]) -> EngineResult<()> {
        let written = self.file.write_all(records);
        written.map_err(|error| failure(&self.current.1, &error))
    }

    /// Makes what was written durable.
    pub(super) fn sync(&self) -> EngineResult<()> {
        let synced = self.file.sync_data();
        synced.map_err(|error| failure(&self.current.1, &error))
    }

    /// Begins the next segment, whose first record is `first`. The present one is durable then.
    pub(super) fn rotate(&mut self, first: u64) -> EngineResult<()> {
        self.sync()?;
        let (file, path) = begin(&self.directory, first)?;
        if first != self.current.0 {
            let before = std::mem::replace(&mut self.current, (first, path));
            self.older.push_back(before);
        }
        self.file = file;
        Ok(())
    }

    /// Removes the segments before the present one whose last record is not behind `done`.
    pub(super) fn drop_older(&mut self, done: u64) -> EngineResult<()> {
        while let Some((_, path)) = self.older.front() {
            // A segment ends where the next one begins.
            let next = self.older.get(1).map_or(self.current.0, |(next, _)| *next);
            if next.saturating_sub(1) > done {
                break;
            }
            fs::remove_file(path).map_err(|error| failure(path, &error))?;
            self.older.pop_front();
        }
        Ok(())
    }
}

fn begin(directory: &Path, first: u64) -> EngineResult<(File, PathBuf)> {
    let path = directory.join(format!("{PREFIX}{first:020}"));
    let begin = || {
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(MAGIC)?;
        file.sync_data()?;
        File::open(directory)?.sync_all()?;
        Ok(file)
    };
    let file = begin().map_err(|error| failure(&path, &error))?;
    Ok((file, path))
}

/// All segments with the numbers of their first records, in order.
fn segments(directory: &Path) -> EngineResult<Vec<(u64, PathBuf)>> {
    let entries = fs::read_dir(directory).map_err(|error| failure(directory, &error))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| failure(directory, &error))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
        found.extend(number.map(|number| (number, path)));
    }
    found.sort();
    Ok(found)
}

pub(super) fn failure(path: &Path, error: &io::Error) -> EngineError {
    EngineError::Io(format!("{}: {error}", path.display()))
}
