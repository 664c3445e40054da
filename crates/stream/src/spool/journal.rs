//! Which runs are finished, written down as it happens.
//!
//! ```text
//! entry   length (4 bytes), CRC-32C of what follows (4 bytes), what follows
//! first   version, when it was begun, the source
//! others  file + 1 or 0, objects, bytes, checksum, after, whether there is an end, the end
//! ```
//!
//! An entry that is cut or damaged ends the journal: what comes after it is not believed.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use penstock_base::{ChecksumKind, Summing};

use super::{
    FinishedRun, Span, SpoolSettings, file_error,
    record::{put_number, take_number},
    run::{crc32c, is_intact},
    run_path,
};
use crate::{SnapshotError, private};

/// Name of the journal.
pub(super) const JOURNAL_FILE: &str = "journal";

/// Changes with the form of records and entries.
const VERSION: u64 = 1;

/// Bytes before an entry: length and checksum.
const ENTRY_HEAD: usize = 8;

#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes of the first entry.
    head: u64,
}

impl Journal {
    /// Goes on with the journal of an interrupted listing where it is of the same source, or begins
    /// one. Returns the runs that are complete.
    pub(super) fn open(
        settings: &SpoolSettings,
        now: SystemTime,
    ) -> Result<(Self, Vec<FinishedRun>), SnapshotError> {
        let path = settings.directory.join(JOURNAL_FILE);
        let (begun, runs) = read(&path, settings, now).unwrap_or((now, Vec::new()));
        let intact = |run: &FinishedRun| {
            let path = run.file.map(|file| run_path(&settings.directory, file));
            path.is_none_or(|path| is_intact(&path, run))
        };
        let runs: Vec<_> = runs.into_iter().filter(intact).collect();
        // Written anew, so that what was not believed is gone.
        let mut bytes = Vec::new();
        put_entry(&mut bytes, &head(begun, &settings.source));
        let head = bytes.len() as u64;
        for run in &runs {
            put_entry(&mut bytes, &run_entry(run));
        }
        let draft = path.with_extension("new");
        let written = private::create(&draft).and_then(|mut draft| draft.write_all(&bytes));
        written.map_err(|error| file_error(&draft, error))?;
        fs::rename(&draft, &path).map_err(|error| file_error(&path, error))?;
        let file = OpenOptions::new().append(true).open(&path);
        let file = file.map_err(|error| file_error(&path, error))?;
        Ok((Self { path, file, head }, runs))
    }

    /// Forgets all runs.
    pub(super) fn clear(&mut self) -> Result<(), SnapshotError> {
        let cleared = self.file.set_len(self.head);
        cleared.map_err(|error| file_error(&self.path, error))
    }

    /// Writes down that a run is complete.
    pub(super) fn add(&mut self, run: &FinishedRun) -> Result<(), SnapshotError> {
        let mut bytes = Vec::new();
        put_entry(&mut bytes, &run_entry(run));
        let written = self.file.write_all(&bytes);
        written.map_err(|error| file_error(&self.path, error))
    }
}

/// The journal at `path`, if it is of the same source and not too old: when it was begun, and runs.
fn read(
    path: &std::path::Path,
    settings: &SpoolSettings,
    now: SystemTime,
) -> Option<(SystemTime, Vec<FinishedRun>)> {
    let bytes = fs::read(path).ok()?;
    let mut entries = Entries { rest: &bytes };
    let mut first = Fields {
        rest: entries.next()?,
    };
    let version = first.number()?;
    let begun = UNIX_EPOCH.checked_add(Duration::from_secs(first.number()?))?;
    let source = first.text()?;
    let age = now.duration_since(begun).ok()?;
    if version != VERSION || source != settings.source || age >= settings.age_max {
        return None;
    }
    Some((begun, entries.map_while(run_of).collect()))
}

fn head(begun: SystemTime, source: &str) -> Vec<u8> {
    let mut entry = Vec::new();
    put_number(&mut entry, VERSION);
    let seconds = begun.duration_since(UNIX_EPOCH).unwrap_or_default();
    put_number(&mut entry, seconds.as_secs());
    put_text(&mut entry, source);
    entry
}

fn run_entry(run: &FinishedRun) -> Vec<u8> {
    let mut entry = Vec::new();
    put_number(&mut entry, run.file.map_or(0, |file| file + 1));
    put_number(&mut entry, run.objects);
    put_number(&mut entry, run.bytes);
    put_number(&mut entry, u64::from(run.checksum));
    put_text(&mut entry, &run.span.after);
    put_number(&mut entry, u64::from(run.span.up_to.is_some()));
    put_text(&mut entry, run.span.up_to.as_deref().unwrap_or(""));
    entry
}

fn run_of(entry: &[u8]) -> Option<FinishedRun> {
    let mut fields = Fields { rest: entry };
    let file = fields.number()?.checked_sub(1);
    let objects = fields.number()?;
    let bytes = fields.number()?;
    let checksum = u32::try_from(fields.number()?).ok()?;
    let after = fields.text()?.to_owned();
    let has_end = fields.number()? == 1;
    let up_to = Some(fields.text()?.to_owned()).filter(|_| has_end);
    Some(FinishedRun {
        span: Span { after, up_to },
        file,
        objects,
        bytes,
        checksum,
    })
}

fn put_entry(out: &mut Vec<u8>, entry: &[u8]) {
    out.extend_from_slice(&(entry.len() as u32).to_le_bytes());
    out.extend_from_slice(&checksum(entry).to_le_bytes());
    out.extend_from_slice(entry);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut summing = Summing::new(ChecksumKind::Crc32c);
    summing.add(bytes);
    crc32c(&summing)
}

struct Entries<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Entries<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(ENTRY_HEAD)?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| head[at + byte]));
        let (entry, rest) = rest.split_at_checked(word(0) as usize)?;
        self.rest = rest;
        (checksum(entry) == word(4)).then_some(entry)
    }
}

struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, length) = take_number(self.rest)?;
        self.rest = &self.rest[length..];
        Some(number)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        std::str::from_utf8(text).ok()
    }
}
