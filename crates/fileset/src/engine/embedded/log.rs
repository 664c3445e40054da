//! The log: changes in the order in which they were made, in files called segments.
//!
//! ```text
//! log.00000000000000000042     a segment, named after the number of its first change
//!   "PENSTKL1"                 eight bytes that say what it is and in which version
//!   length  crc32c  sequence  changes      a record: 4 + 4 + 8 bytes and the changes of one operation
//!   ...
//! changes: ( key length u16, value length u32 or ALL ONES for a key that goes, key, value ) ...
//! ```
//!
//! Numbers are little endian; the checksum is of all behind it. Records are numbered without gaps, over all
//! segments. A crash may leave the end of the last segment cut or torn: what is behind its last whole record was
//! never acknowledged. Where a later segment goes on with another number than that leads to, something is missing
//! that was, and the log is refused.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use penstock_base::{ChecksumKind, Summing};

use crate::engine::{EngineError, EngineResult, layers::Changes};

const MAGIC: &[u8; 8] = b"PENSTKL1";
const PREFIX: &str = "log.";
/// Length and checksum.
const FRAME: usize = 8;
/// What stands for the length of the value of a key that goes.
const GONE: u32 = u32::MAX;

/// The end of the log, where records are added.
#[derive(Debug)]
pub(super) struct Log {
    directory: PathBuf,
    file: File,
    /// Segments before the one that is written, oldest first.
    older: Vec<PathBuf>,
    current: PathBuf,
}

/// What a log that was found says.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    pub(super) changes: Changes,
    /// The number of the last change.
    pub(super) last: u64,
    segments: Vec<PathBuf>,
}

/// Adds the record of an operation to `bytes`.
pub(super) fn append(bytes: &mut BytesMut, sequence: u64, changes: &Changes) {
    let start = bytes.len();
    bytes.put_bytes(0, FRAME);
    bytes.put_u64_le(sequence);
    for (key, value) in changes {
        bytes.put_u16_le(key.len() as u16);
        bytes.put_u32_le(value.as_ref().map_or(GONE, |value| value.len() as u32));
        bytes.put_slice(key);
        bytes.put_slice(value.as_deref().unwrap_or_default());
    }
    let length = (bytes.len() - start - FRAME) as u32;
    let sum = checksum(&bytes[start + FRAME..]);
    bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
    bytes[start + 4..start + FRAME].copy_from_slice(&sum.to_le_bytes());
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut summing = Summing::new(ChecksumKind::Crc32c);
    summing.add(bytes);
    summing.take().value() as u32
}

/// Takes the next record off `bytes`; nothing if it is cut or torn.
fn take_record(bytes: &mut Bytes) -> Option<(u64, Bytes)> {
    let mut frame = bytes.get(..FRAME)?;
    let (length, sum) = (frame.get_u32_le() as usize, frame.get_u32_le());
    let record = bytes.get(FRAME..FRAME.checked_add(length)?)?;
    if length < 8 || checksum(record) != sum {
        return None;
    }
    let mut record = bytes.slice(FRAME..FRAME + length);
    bytes.advance(FRAME + length);
    Some((record.get_u64_le(), record))
}

/// Makes the changes of a record, which its checksum says is whole.
fn redo(mut record: Bytes, changes: &mut Changes) -> Option<()> {
    while record.has_remaining() {
        let key_length = usize::from(record.try_get_u16_le().ok()?);
        let value_length = record.try_get_u32_le().ok()?;
        let value_bytes = if value_length == GONE {
            0
        } else {
            value_length as usize
        };
        if record.remaining() < key_length + value_bytes {
            return None;
        }
        // Copies: a slice would keep the whole segment in memory.
        let key = Bytes::copy_from_slice(&record.split_to(key_length));
        let value = Bytes::copy_from_slice(&record.split_to(value_bytes));
        changes.insert(key, (value_length != GONE).then_some(value));
    }
    Some(())
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
            replayed.segments.push(path);
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
        while let Some((sequence, record)) = take_record(&mut bytes) {
            let is_next = sequence == next;
            if is_next && sequence <= self.last {
                next += 1;
                continue;
            }
            if !is_next || redo(record, &mut self.changes).is_none() {
                let text = format!("record {sequence} of {}", path.display());
                return Err(EngineError::Corrupt(text));
            }
            self.last = sequence;
            next += 1;
        }
        Ok(next)
    }
}

impl Log {
    /// Begins a segment behind what was `replayed`.
    pub(super) fn go_on(directory: &Path, replayed: &Replayed) -> EngineResult<Self> {
        let (file, current) = begin(directory, replayed.last + 1)?;
        let mut older = replayed.segments.clone();
        // One without a whole record has the same number, and the new one is in its place.
        older.retain(|path| *path != current);
        Ok(Self {
            directory: directory.to_owned(),
            file,
            older,
            current,
        })
    }

    /// Writes records.
    pub(super) fn write(&mut self, records: &[u8]) -> EngineResult<()> {
        let written = self.file.write_all(records);
        written.map_err(|error| failure(&self.current, &error))
    }

    /// Makes what was written durable.
    pub(super) fn sync(&self) -> EngineResult<()> {
        let synced = self.file.sync_data();
        synced.map_err(|error| failure(&self.current, &error))
    }

    /// Begins the next segment, whose first record is `first`. The present one is durable then.
    pub(super) fn rotate(&mut self, first: u64) -> EngineResult<()> {
        self.sync()?;
        let (file, path) = begin(&self.directory, first)?;
        if path != self.current {
            self.older.push(std::mem::replace(&mut self.current, path));
        }
        self.file = file;
        Ok(())
    }

    /// Removes all segments but the present one: the tree has what is in them.
    pub(super) fn drop_older(&mut self) -> EngineResult<()> {
        for path in self.older.drain(..) {
            fs::remove_file(&path).map_err(|error| failure(&path, &error))?;
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
