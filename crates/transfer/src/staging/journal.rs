//! What a crash leaves of a staged file.
//!
//! A journal lies beside each staging file that has something unsaved. It begins with which file
//! that is and what its changes are relative to; then each change is appended when its bytes are in
//! the staging file and before the write is answered. So when the process dies, everything that was
//! answered can be recovered by doing the changes again on paper.
//!
//! When the *machine* dies a journal may have survived whose bytes did not. Every few seconds the
//! bytes and then the journal are forced to the disk, and a record notes how much of the journal is
//! covered by that; after another start of the system only so much is believed. What fsync and
//! close promised is in the store and needs none of this.
//!
//! What the file is beside its bytes, where that is kept, stands in the journal as well: of a file
//! that was never stored it is known nowhere else. So does when a save began and what it sent, until the
//! journal is written anew after it ([`crate::staging::attempt`]).
//!
//! Each record carries its length and its checksum, which is how [`reading`] knows what of it is whole. A
//! journal that has grown long is written anew, from what it says in sum. One with records of a kind
//! that is not known here is left to the later version that wrote it.

mod codec;
mod reading;

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use penstock_base::{disk_call, random};
use penstock_object::Description;

use crate::staging::{
    content::Content,
    extents::{Extents, Held},
    folder::{FileId, Folder},
};

pub(crate) use codec::{Header, Record, join_texts, split_texts};
pub(crate) use reading::{Doubt, Told, read};

/// Bytes from which on a journal is written anew, unless that is worth little.
const LONG: u64 = 1 << 20;
/// A journal is written anew only when it is this much longer than it was when it was new.
const GROWTH: u64 = 4;

/// The journal of one file, open for appending.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Arc<File>,
    path: PathBuf,
    /// Bytes of whole records.
    length: u64,
    /// Bytes when it was new.
    begun: u64,
    /// Bytes that were covered by the last sync.
    synced: u64,
    /// Changes of bytes that the records tell of already.
    repeated: u64,
    /// Of these, those that the last sync covered.
    repeated_synced: u64,
    /// Tells it from the one that is written in its place.
    serial: u64,
    /// An earlier mount wrote it, perhaps before another start of the system: the first change here
    /// makes it anew.
    found: bool,
    /// Nothing may be added to it: a later note of what is on the disk would cover what is not believed.
    is_doubted: bool,
    /// Its name survives a crash of the machine.
    is_named: bool,
}

/// How much of which journal there was at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    serial: u64,
    length: u64,
    repeated: u64,
}

/// What a new journal says. It is made while the content is locked, and written when it is not.
#[derive(Debug)]
pub(crate) struct Draft(Vec<u8>);

impl Draft {
    pub(crate) fn of(header: Header, content: &Content, description: Option<&Description>) -> Self {
        let mut bytes = Vec::new();
        Record::Header(header).encode(&mut bytes);
        if let Some(description) = description {
            Record::Described(description.clone()).encode(&mut bytes);
        }
        encode_extents(content.extents(), &mut bytes);
        for attempt in content.attempts() {
            Record::Saving(attempt.size).encode(&mut bytes);
            if let Some(trace) = &attempt.trace {
                Record::Sent(trace.clone()).encode(&mut bytes);
            }
            let touched = attempt.touched.ranges();
            encode_extents(touched.unwrap_or(content.extents()), &mut bytes);
        }
        Self(bytes)
    }

    /// The same of a file that took the name of this one.
    pub(crate) fn replacing(mut self, replaced: Option<&FileId>) -> Self {
        if let Some(replaced) = replaced {
            Record::Replaces(replaced.clone()).encode(&mut self.0);
        }
        self
    }
}

impl Journal {
    /// Writes a journal, in place of the one that may be there. If `covered`, the bytes are on the
    /// disk, and it says so.
    pub(crate) fn create(path: &Path, Draft(mut bytes): Draft, covered: bool) -> io::Result<Self> {
        let new = path.with_extension("new");
        let file = match Folder::create(&new) {
            // One that could not be finished.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&new)?;
                Folder::create(&new)?
            }
            file => file?,
        };
        if covered {
            Record::Synced(bytes.len() as u64).encode(&mut bytes);
        }
        file.write_all_at(&bytes, 0)?;
        if covered {
            // The old one must not go before this one is there.
            file.sync_data()?;
        }
        fs::rename(&new, path)?;
        let length = bytes.len() as u64;
        Ok(Self {
            file: Arc::new(file),
            path: path.to_owned(),
            length,
            begun: length,
            synced: if covered { length } else { 0 },
            repeated: 0,
            repeated_synced: 0,
            serial: random::number(),
            found: false,
            is_doubted: false,
            is_named: false,
        })
    }

    /// A journal that an earlier mount left, and that says what was `told`.
    pub(crate) fn reopen(path: &Path, told: &Told) -> io::Result<Self> {
        let file = Folder::open(path)?;
        // What follows half a record could not be read.
        file.set_len(told.length)?;
        Ok(Self {
            file: Arc::new(file),
            path: path.to_owned(),
            length: told.length,
            begun: told.length,
            synced: told.synced,
            repeated: 0,
            repeated_synced: 0,
            serial: random::number(),
            found: true,
            is_doubted: told.is_doubted,
            // It was found after a crash of the machine.
            is_named: told.is_doubted,
        })
    }

    /// Whether records can be added to it. Else it must be made anew first.
    pub(crate) fn takes_records(&self) -> bool {
        !self.is_doubted
    }

    /// Adds a record, or nothing.
    pub(crate) fn append(&mut self, record: &Record) -> io::Result<()> {
        disk_call();
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let written = self.file.write_all_at(&bytes, self.length);
        if written.is_err() {
            // What follows half a record could not be read.
            let _ = self.file.set_len(self.length);
        }
        written?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Notes a change that the records tell of already: its bytes are to be forced to the disk like
    /// those of a new record.
    pub(crate) fn repeat(&mut self) {
        self.repeated += 1;
    }

    /// Whether it should be written anew.
    pub(crate) fn is_long(&self) -> bool {
        self.found || self.length > LONG.max(GROWTH * self.begun)
    }

    /// Whether its name survives a crash of the machine, and is not that of the journal before it.
    pub(crate) fn is_named(&self) -> bool {
        self.is_named
    }

    /// Whether a crash of the machine leaves anything of it.
    pub(crate) fn is_covered(&self) -> bool {
        self.synced > 0
    }

    /// The file, to be synced without the journal, which writers need.
    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// What to pass to [`Journal::note_covered`] when the bytes of all records so far, and the
    /// records, are on the disk, and the name of the journal. `None` if they are already.
    pub(crate) fn uncovered(&self) -> Option<Extent> {
        let is_uncovered = self.length > self.synced || self.repeated > self.repeated_synced;
        (is_uncovered || !self.is_named).then_some(Extent {
            serial: self.serial,
            length: self.length,
            repeated: self.repeated,
        })
    }

    /// Notes that the records in `extent`, and their bytes, are on the disk. Returns what to pass to
    /// [`Journal::confirm`] when the file was synced once more; `None` if another journal was
    /// written in place of the one that was meant.
    pub(crate) fn note_covered(&mut self, extent: Extent) -> io::Result<Option<Extent>> {
        if extent.serial != self.serial {
            return Ok(None);
        }
        let is_all = self.length == extent.length;
        self.append(&Record::Synced(extent.length))?;
        // What was noted meanwhile is for the next time.
        let length = if is_all { self.length } else { extent.length };
        Ok(Some(Extent { length, ..extent }))
    }

    /// The note is on the disk.
    pub(crate) fn confirm(&mut self, noted: Extent) {
        if noted.serial == self.serial {
            self.synced = noted.length;
            self.repeated_synced = noted.repeated;
            self.is_named = true;
        }
    }

    /// Removes it.
    pub(crate) fn remove(self) {
        disk_call();
        let _ = fs::remove_file(&self.path);
    }
}

fn encode_extents(extents: &Extents, bytes: &mut Vec<u8>) {
    for (range, held) in extents.iter() {
        match held {
            Held::Dirty => Record::Dirty(range).encode(bytes),
            Held::Zero => Record::Zero(range).encode(bytes),
            Held::Local => {}
        }
    }
}

#[cfg(test)]
mod tests;
