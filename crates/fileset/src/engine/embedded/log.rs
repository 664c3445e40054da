//! The log: changes in the order in which they were made, in files called segments.
//!
//! ```text
//! log.00000000000000000042     a segment, named after the number of its first change
//!   "PENSTKL3" history token   eight bytes that say what it is and in which version, eight of what led to it, see
//!                              [`Tip`](crate::engine::record::Tip), and eight that only this segment has
//!   record ...                 one for each operation, see [`crate::engine::record`]
//!   mark ...                   a record with the number MARK: up to which change all was synced, and the token
//! ```
//!
//! Records are numbered without gaps, over all segments. A mark is written behind each sync, and tells a crash from
//! damage:
//!
//! | what is found | what it is |
//! |---|---|
//! | a cut or torn record, no mark behind it that covers it | the end that a crash left: never acknowledged, passed over |
//! | a torn record, and a mark behind it that covers it | damage: the log is refused |
//! | a segment that does not begin as one, and is longer than such a beginning | damage |
//! | a segment that goes on with another number or history than the ones before lead to | damage: something is missing, or of another time |
//! | a log that leads elsewhere than to what the tree has | damage: one of them is of another time |
//! | a whole record that no mark covers, whose data is not on the disk ([`Barrier::has`]) | the power went: the log ends before it, and is cut there |
//!
//! What a power cut leaves of pages that were not synced may be any of them: so a whole record behind a torn one proves
//! nothing, and a mark does. A damaged log is never changed. A segment goes when the tree has what is in it, and
//! whoever ships the log to elsewhere has it there.
//!
//! After a sync that failed the kernel takes pages for clean that the disk does not have, and later syncs of them succeed.
//! So what no mark covers is written again, from what was read, before an engine goes on behind it.

mod head;

use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

use self::head::{HEAD, Head};
use super::disk::{Disk, is_full};
use crate::engine::{
    Barrier, EngineError, EngineResult,
    layers::Changes,
    record::{self, Record, Tip},
};

const PREFIX: &str = "log.";

/// The end of the log, where records are added.
#[derive(Debug)]
pub(super) struct Log {
    directory: PathBuf,
    disk: Arc<Disk>,
    file: Arc<File>,
    head: Head,
    /// Bytes of it that are whole: what a write that failed left is behind them.
    length: u64,
    /// Segments before the one that is written, oldest first, with the numbers of their first records.
    older: VecDeque<(u64, PathBuf)>,
    current: (u64, PathBuf),
}

/// What a log that was found says.
#[derive(Debug, Default)]
pub(in crate::engine) struct Replayed {
    pub(super) changes: Changes,
    /// Behind the last change.
    pub(super) tip: Tip,
    /// Before the first of `records`.
    begin: Tip,
    /// All records that were found, in order, also those that the tree has.
    pub(in crate::engine) records: Vec<Record>,
    segments: VecDeque<(u64, PathBuf)>,
    unproven: BTreeMap<u64, Unproven>,
    /// Where the last segment is to be cut, since the data of what follows was lost with the power.
    cut: Option<u64>,
    /// Segments behind the one that is cut, which go.
    lost: Vec<PathBuf>,
}

/// What a segment has behind the last record that was synced for sure, up to its last whole one.
#[derive(Debug)]
struct Unproven {
    at: u64,
    bytes: Bytes,
}

/// What was read of the segments.
#[derive(Debug, Default)]
struct Found {
    /// With the number of the segment of each, and where it ends there.
    records: Vec<(Record, (u64, u64))>,
    /// Before the first of them and behind the last, if a segment says so.
    ends: Option<(Tip, Tip)>,
    /// The last change that was synced for sure.
    synced: u64,
    /// By the numbers of segments.
    unproven: BTreeMap<u64, Unproven>,
}

impl Found {
    /// Reads a segment and returns the number that comes behind its last whole record.
    fn read_segment(&mut self, path: &Path, first: u64) -> EngineResult<u64> {
        let whole = Bytes::from(fs::read(path).map_err(|error| failure(path, &error))?);
        let mut rest = whole.clone();
        if rest.len() <= HEAD {
            // A crash came before the first record.
            return Ok(first);
        }
        let head = Head::take(&mut rest, first).ok_or_else(|| damage(path, 0))?;
        let mut tip = head.before;
        let (begin, end) = self.ends.unwrap_or((tip, tip));
        if end != tip {
            return Err(damage(path, head::HISTORY));
        }
        let before = self.records.len();
        let at = |rest: &Bytes| (whole.len() - rest.len()) as u64;
        let records_at = at(&rest);
        while let Some(record) = record::take(&mut rest) {
            if let Some(synced) = head.mark_in(&record) {
                self.synced = self.synced.max(synced);
                continue;
            }
            let end = at(&rest);
            let behind = tip.behind(&record);
            tip = behind.ok_or_else(|| damage(path, end - record.whole.len() as u64))?;
            self.records.push((record, (first, end)));
        }
        self.ends = Some((begin, tip));
        self.note_unproven((first, &whole), (before, records_at));
        match head.marks_in(&rest).any(|synced| synced > tip.sequence) {
            true => Err(damage(path, at(&rest))),
            false => Ok(tip.sequence + 1),
        }
    }

    /// Of a segment whose records, from the one at index `before` on, begin at `records_at`.
    fn note_unproven(
        &mut self,
        (segment, whole): (u64, &Bytes),
        (before, records_at): (usize, u64),
    ) {
        let records = &self.records[before..];
        let proven = records.partition_point(|(record, _)| record.sequence <= self.synced);
        let end_of = |(_, (_, end)): &(Record, (u64, u64))| *end;
        let at = records[..proven].last().map_or(records_at, end_of);
        if let Some(end) = records[proven..].last().map(end_of) {
            let bytes = whole.slice(at as usize..end as usize);
            self.unproven.insert(segment, Unproven { at, bytes });
        }
    }
}

fn damage(path: &Path, at: u64) -> EngineError {
    EngineError::Corrupt(format!("{} is damaged at byte {at}", path.display()))
}

impl Replayed {
    /// Reads the log in `directory` from `after` on, which the tree has. What refers to data that `barrier` lacks, and
    /// was not synced, is left out with all behind it.
    pub(super) fn read(
        directory: &Path,
        after: Tip,
        barrier: Option<&dyn Barrier>,
    ) -> EngineResult<Self> {
        let mut replayed = Self {
            tip: after,
            begin: after,
            ..Self::default()
        };
        let mut found = Found {
            synced: after.sequence,
            ..Found::default()
        };
        let mut next = None;
        let mut last_known = after.sequence;
        for (first, path) in segments(directory)? {
            if next.is_some_and(|next| next != first) || first > last_known + 1 {
                let text = format!("{} does not go on where the log ends", path.display());
                return Err(EngineError::Corrupt(text));
            }
            let behind = found.read_segment(&path, first)?;
            last_known = last_known.max(behind - 1);
            next = Some(behind);
            replayed.segments.push_back((first, path));
        }
        replayed.take_all(found, barrier)?;
        Ok(replayed)
    }

    fn take_all(&mut self, found: Found, barrier: Option<&dyn Barrier>) -> EngineResult<()> {
        self.begin = found.ends.map_or(self.begin, |(begin, _)| begin);
        let mut tip = self.begin;
        self.check_history(tip)?;
        self.unproven = found.unproven;
        for (record, (segment, end)) in found.records {
            let is_sound = |barrier: &dyn Barrier| barrier.has(&record.puts());
            if record.sequence > found.synced && !barrier.is_none_or(is_sound) {
                tracing::warn!(
                    operation = record.sequence,
                    "data of this operation, which was not synced, was lost with the power: it is undone"
                );
                self.cut_in(segment, end - record.whole.len() as u64);
                return Ok(());
            }
            let torn = || EngineError::Corrupt(format!("record {}", record.sequence));
            tip = tip.behind(&record).ok_or_else(torn)?;
            self.take(&record).ok_or_else(torn)?;
            self.check_history(tip)?;
            self.records.push(record);
        }
        Ok(())
    }

    /// Fails if the log leads elsewhere than to what is known.
    fn check_history(&self, tip: Tip) -> EngineResult<()> {
        match tip.sequence == self.tip.sequence && tip != self.tip {
            false => Ok(()),
            true => Err(EngineError::Corrupt(format!(
                "the log and the file `tree` have each another operation {}: one of them is of \
                 another time",
                tip.sequence
            ))),
        }
    }

    /// The place behind operation `sequence`, if the log still has it.
    pub(in crate::engine) fn tip_at(&self, sequence: u64) -> Option<Tip> {
        if sequence == self.tip.sequence {
            return Some(self.tip);
        }
        let records = self.records.iter();
        let mut records = records.take_while(|record| record.sequence <= sequence);
        let tip = records.try_fold(self.begin, Tip::behind)?;
        (tip.sequence == sequence).then_some(tip)
    }

    /// Makes the changes of a record, unless it made them before.
    fn take(&mut self, record: &Record) -> Option<()> {
        if record.sequence > self.tip.sequence {
            let tip = self.tip.behind(record)?;
            record::redo(record.changes.clone(), &mut self.changes)?;
            self.tip = tip;
        }
        Some(())
    }

    /// The log ends in segment `number`, of which `length` bytes stay.
    fn cut_in(&mut self, number: u64, length: u64) {
        let kept = self
            .segments
            .iter()
            .take_while(|(first, _)| *first <= number);
        let behind = self.segments.split_off(kept.count());
        self.lost = behind.into_iter().map(|(_, path)| path).collect();
        self.cut = Some(length);
        if let Some(Unproven { at, bytes }) = self.unproven.get_mut(&number) {
            bytes.truncate(length.saturating_sub(*at) as usize);
        }
    }

    /// Cuts off what was left out, so that nobody reads it later.
    fn make_cut(&self) -> EngineResult<()> {
        let (Some(length), Some((_, path))) = (self.cut, self.segments.back()) else {
            return Ok(());
        };
        for path in self.lost.iter().rev() {
            fs::remove_file(path).map_err(|error| failure(path, &error))?;
        }
        let cut = || {
            let file = OpenOptions::new().write(true).open(path)?;
            file.set_len(length)?;
            file.sync_all()
        };
        cut().map_err(|error: io::Error| failure(path, &error))
    }

    /// Makes what was read durable: who wrote it may have been killed before it was, or told that it is not. It counts as
    /// synced from now on.
    fn sync(&self) -> EngineResult<()> {
        for (number, path) in &self.segments {
            let synced = self.write_again(*number, path);
            let synced = synced.and_then(|file| file.sync_data());
            synced.map_err(|error| failure(path, &error))?;
        }
        Ok(())
    }

    fn write_again(&self, segment: u64, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new().write(true).open(path)?;
        if let Some(Unproven { at, bytes }) = self.unproven.get(&segment) {
            file.write_all_at(bytes, *at)?;
        }
        Ok(file)
    }

    /// Whether a directory has a log.
    pub(super) fn is_there(directory: &Path) -> EngineResult<bool> {
        Ok(!segments(directory)?.is_empty())
    }

    /// Removes all segments.
    pub(super) fn remove(directory: &Path) -> EngineResult<()> {
        for (_, path) in segments(directory)? {
            fs::remove_file(&path).map_err(|error| failure(&path, &error))?;
        }
        Ok(())
    }

    /// Goes on with a record that is known from elsewhere, and which the next segment is to begin with.
    pub(super) fn go_on_with(&mut self, record: &Record) -> EngineResult<()> {
        let is_new = record.sequence > self.tip.sequence;
        let taken = if is_new { self.take(record) } else { None };
        taken.ok_or_else(|| EngineError::Corrupt(format!("record {}", record.sequence)))
    }
}

impl Log {
    /// Begins a segment that goes on at `before`, behind the segments that were `replayed`.
    pub(super) fn go_on(
        (directory, disk): (&Path, Arc<Disk>),
        replayed: &Replayed,
        before: Tip,
    ) -> EngineResult<Self> {
        replayed.make_cut()?;
        replayed.sync()?;
        let path = segment(directory, before);
        let head = Head::new(before);
        let file = disk.write(|| begin((directory, &path), head));
        let file = file.map_err(|error| failure(&path, &error))?;
        let first = before.sequence + 1;
        let mut older = replayed.segments.clone();
        // One without a whole record has the same number, and the new one is in its place.
        older.retain(|(number, _)| *number != first);
        Ok(Self {
            directory: directory.to_owned(),
            disk,
            file: Arc::new(file),
            head,
            length: HEAD as u64,
            older,
            current: (first, path),
        })
    }

    /// Writes records, when the disk has room for them.
    pub(super) fn write(&mut self, records: &[u8]) -> EngineResult<()> {
        let disk = Arc::clone(&self.disk);
        let written = disk.write(|| self.append(records));
        written.map_err(|error| failure(&self.current.1, &error))
    }

    /// Writes records if the disk has room for them. What fails is not there.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.length)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Makes what was written durable.
    pub(super) fn sync(&self) -> EngineResult<()> {
        self.segment().sync()
    }

    /// The present segment, which can be synced while records are added.
    pub(super) fn segment(&self) -> Segment {
        Segment {
            file: Arc::clone(&self.file),
            path: self.current.1.clone(),
        }
    }

    /// What became of writing to the present segment.
    pub(super) fn failure(&self, error: &io::Error) -> EngineError {
        failure(&self.current.1, error)
    }

    /// Notes that all up to change `synced` is durable, if there is room for that.
    pub(super) fn mark(&mut self, synced: u64) -> EngineResult<()> {
        match self.append(&self.head.mark(synced)) {
            Err(error) if !is_full(&error) => Err(failure(&self.current.1, &error)),
            _ => Ok(()),
        }
    }

    /// Begins the next segment, which goes on at `before`, if the disk has room for it. The present one is durable; if it
    /// has no record, it goes on.
    pub(super) fn rotate(&mut self, before: Tip) -> io::Result<()> {
        let first = before.sequence + 1;
        if first == self.current.0 {
            return Ok(());
        }
        let path = segment(&self.directory, before);
        let head = Head::new(before);
        let file = begin((&self.directory, &path), head).inspect_err(|_| {
            // The next attempt may have another name, and this one would be no part of the log.
            let _ = fs::remove_file(&path);
        })?;
        let before = std::mem::replace(&mut self.current, (first, path));
        self.older.push_back(before);
        self.file = Arc::new(file);
        self.head = head;
        self.length = HEAD as u64;
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

/// A segment that is synced.
pub(super) struct Segment {
    file: Arc<File>,
    path: PathBuf,
}

impl Segment {
    /// Makes what was written before the call durable. When it fails nobody knows what is, whatever the cause.
    pub(super) fn sync(&self) -> EngineResult<()> {
        let path = self.path.display();
        let synced = self.file.sync_data();
        synced.map_err(|error| EngineError::Io(format!("{path}: {error}")))
    }
}

/// The file of the segment that goes on at `before`.
fn segment(directory: &Path, before: Tip) -> PathBuf {
    directory.join(format!("{PREFIX}{:020}", before.sequence + 1))
}

/// A new segment, durable and empty.
fn begin((directory, path): (&Path, &Path), head: Head) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(&head.encode())?;
    file.sync_data()?;
    File::open(directory)?.sync_all()?;
    Ok(file)
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
    let text = format!("{}: {error}", path.display());
    match is_full(error) {
        true => EngineError::Full(text),
        false => EngineError::Io(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is written to while it waits for room.
    #[test]
    fn a_segment_without_a_record_is_not_begun_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = (directory.path(), Arc::default());
        let begun = Log::go_on(place, &Replayed::default(), Tip::default());
        let mut log = begun.expect("it is new");
        log.mark(0).expect("there is room");
        let length = |log: &Log| fs::metadata(&log.current.1).expect("it is there").len();
        let before = length(&log);
        log.rotate(Tip::default()).expect("there is room");
        assert_eq!(length(&log), before);
        assert!(log.older.is_empty());
    }
}
