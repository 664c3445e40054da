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
//! that was never stored nobody else knows it. So does when a save began and what it sent, until the
//! journal is written anew after it ([`crate::staged::attempt`]).
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

use penstock_base::random;
use penstock_object::Description;

use crate::staged::{
    content::Content,
    extents::{Extents, Held},
    folder::Folder,
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
}

/// How much of which journal there was at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    serial: u64,
    length: u64,
    repeated: u64,
}

impl Journal {
    /// Writes a journal that says `content` and `description`, in place of the one that may be
    /// there. If `covered`, the bytes are on the disk, and it says so.
    pub(crate) fn create(
        path: &Path,
        header: Header,
        (content, description): (&Content, Option<&Description>),
        covered: bool,
    ) -> io::Result<Self> {
        let mut bytes = Vec::new();
        Record::Header(header).encode(&mut bytes);
        if let Some(description) = description {
            Record::Described(description.clone()).encode(&mut bytes);
        }
        encode_extents(content.extents(), &mut bytes);
        for attempt in content.attempts() {
            Record::Saving(attempt.size).encode(&mut bytes);
            if let Some(sums) = &attempt.sums {
                Record::Sent(sums.clone()).encode(&mut bytes);
            }
            encode_extents(&attempt.touched, &mut bytes);
        }
        let new = path.with_extension("new");
        let _ = fs::remove_file(&new);
        let file = Folder::create(&new)?;
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
        })
    }

    /// Adds a record, or nothing.
    pub(crate) fn append(&mut self, record: &Record) -> io::Result<()> {
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

    /// Whether a crash of the machine leaves anything of it.
    pub(crate) fn is_covered(&self) -> bool {
        self.synced > 0
    }

    /// The file, to be synced without the journal, which writers need.
    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// What to pass to [`Journal::note_covered`] when the bytes of all records so far, and the
    /// records, are on the disk. `None` if they are already.
    pub(crate) fn uncovered(&self) -> Option<Extent> {
        let is_uncovered = self.length > self.synced || self.repeated > self.repeated_synced;
        is_uncovered.then_some(Extent {
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
        }
    }

    /// Removes it.
    pub(crate) fn remove(self) {
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
mod tests {
    use std::ops::Range;

    use penstock_object::{ETag, Key};
    use penstock_transfer::ObjectVersion;
    use proptest::prelude::*;

    use super::{
        reading::{apply, tell},
        *,
    };
    use crate::staged::{content::Base, extents::Extents};

    impl Journal {
        fn cover(&mut self, extent: Extent) -> io::Result<()> {
            if let Some(noted) = self.note_covered(extent)? {
                self.confirm(noted);
            }
            Ok(())
        }
    }

    fn header() -> Header {
        let version = ObjectVersion {
            key: Key::new("a/b").expect("valid"),
            etag: ETag::new("tag"),
            size: 50,
        };
        Header {
            boot: "now".to_owned(),
            volume: "s3://bucket".to_owned(),
            key: "a/b".to_owned(),
            base: Base::Version(version),
            size: 50,
        }
    }

    fn range() -> impl Strategy<Value = Range<u64>> {
        (0..90u64, 1..20u64).prop_map(|(start, length)| start..start + length)
    }

    fn record() -> impl Strategy<Value = Record> {
        prop_oneof![
            3 => range().prop_map(Record::Dirty),
            1 => range().prop_map(Record::Zero),
            1 => (0..100u64).prop_map(Record::Size),
            1 => (0..100u64).prop_map(Record::Saving),
            1 => Just(Record::Sent(Vec::new())),
        ]
    }

    fn new_content() -> Content {
        let header = header();
        Content::recovered(header.base, header.size, Extents::default())
    }

    fn left(mut content: Content) -> Content {
        content.note_recovered();
        content
    }

    /// What the bytes of a journal say, if it is believed.
    fn told_by(bytes: &[u8]) -> Option<Told> {
        let told = tell(&mut io::Cursor::new(bytes), "now").expect("memory is readable");
        told.ok()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_journal_says_what_was_done(
            records in prop::collection::vec(record(), 0..40),
            rewritten in 0..40usize,
        ) {
            let scratch = tempfile::tempdir().expect("a temporary directory");
            let path = scratch.path().join("x.journal");
            let mut content = new_content();
            let mut journal = Journal::create(&path, header(), (&content, None), false).expect("writable");
            for (number, record) in records.iter().enumerate() {
                journal.append(record).expect("writable");
                apply(&mut content, record);
                if number == rewritten {
                    let (base, size) = (content.base().clone(), content.size());
                    let header = Header { base, size, ..header() };
                    journal = Journal::create(&path, header, (&content, None), false).expect("writable");
                }
            }
            let told = read(&path, "now").expect("readable").expect("whole");
            prop_assert_eq!(told.content, left(content));
        }

        #[test]
        fn after_a_restart_only_what_was_synced_is_believed(
            before in prop::collection::vec(record(), 0..10),
            after in prop::collection::vec(record(), 0..10),
        ) {
            let scratch = tempfile::tempdir().expect("a temporary directory");
            let path = scratch.path().join("x.journal");
            let mut content = new_content();
            let mut journal = Journal::create(&path, header(), (&content, None), false).expect("writable");
            prop_assert!(read(&path, "later").expect("readable").is_err());
            for record in &before {
                journal.append(record).expect("writable");
                apply(&mut content, record);
            }
            let covered = journal.uncovered().expect("new");
            for record in &after {
                journal.append(record).expect("writable");
            }
            journal.cover(covered).expect("writable");
            let told = read(&path, "later").expect("readable").expect("synced");
            prop_assert_eq!(told.content, left(content));
        }

        #[test]
        fn a_journal_that_is_written_anew_stays_covered(
            before in prop::collection::vec(record(), 0..10),
            after in prop::collection::vec(record(), 1..10),
        ) {
            let scratch = tempfile::tempdir().expect("a temporary directory");
            let path = scratch.path().join("x.journal");
            let mut content = new_content();
            for record in &before {
                apply(&mut content, record);
            }
            let covered = Header { size: content.size(), ..header() };
            let said = (&content, None);
            let mut journal = Journal::create(&path, covered, said, true).expect("writable");
            prop_assert!(journal.is_covered() && journal.uncovered().is_none());
            for record in &after {
                journal.append(record).expect("writable");
            }
            let told = read(&path, "later").expect("readable").expect("synced");
            prop_assert_eq!(told.content.pieces(0..100), content.pieces(0..100));
        }

        #[test]
        fn a_journal_that_was_cut_says_a_beginning(
            records in prop::collection::vec(record(), 0..10),
            cut in 0..500usize,
        ) {
            let mut bytes = Vec::new();
            Record::Header(header()).encode(&mut bytes);
            let mut told = vec![None, Some(new_content())];
            for record in &records {
                record.encode(&mut bytes);
                let mut next = told.last().cloned().flatten().expect("pushed before");
                apply(&mut next, record);
                told.push(Some(next));
            }
            bytes.truncate(cut);
            let found = told_by(&bytes).map(|told| told.content);
            let told: Vec<_> = told.into_iter().map(|told| told.map(left)).collect();
            prop_assert!(told.contains(&found));
        }

        #[test]
        fn the_last_description_counts(count in 0..4usize, rewritten: bool) {
            let scratch = tempfile::tempdir().expect("a temporary directory");
            let path = scratch.path().join("x.journal");
            let described = |number: usize| Description {
                content_type: None,
                metadata: [("mode".to_owned(), number.to_string())].into(),
            };
            let content = new_content();
            let first = rewritten.then(|| described(9));
            let said = (&content, first.as_ref());
            let mut journal = Journal::create(&path, header(), said, false).expect("writable");
            for number in 0..count {
                journal.append(&Record::Described(described(number))).expect("writable");
            }
            let told = read(&path, "now").expect("readable").expect("whole");
            let last = count.checked_sub(1).map(described);
            prop_assert_eq!(told.description, last.or(first));
            prop_assert_eq!(told.content, left(content));
        }

        #[test]
        fn made_up_bytes_do_no_harm(bytes: Vec<u8>) {
            prop_assert_eq!(told_by(&bytes), None);
        }
    }
    /// Header, one write and one size, as the version wrote them that knew of no descriptions.
    const OLD: &str = "\
        3d00000013c9d411013200000000000000030000006e6f770b00000073333a2f2f6275636b657403\
        000000612f6203320000000000000003000000612f620300000074616711000000bfc32b5a020500\
        0000000000000900000000000000090000000a407a8f043c00000000000000";

    #[test]
    fn bytes_written_over_unsaved_ones_are_forced_to_the_disk_too() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("x.journal");
        let mut journal =
            Journal::create(&path, header(), (&new_content(), None), true).expect("writable");
        assert!(journal.uncovered().is_none());
        journal.repeat();
        let first = journal.uncovered().expect("a change");
        journal.repeat();
        journal.cover(first).expect("writable");
        let second = journal.uncovered().expect("a change during the sync");
        journal.cover(second).expect("writable");
        assert!(journal.uncovered().is_none());
    }

    #[test]
    fn a_record_made_during_a_sync_waits_for_the_next() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("x.journal");
        let mut journal =
            Journal::create(&path, header(), (&new_content(), None), false).expect("writable");
        let extent = journal.uncovered().expect("new");
        journal.append(&Record::Dirty(5..6)).expect("writable");
        journal.cover(extent).expect("writable");
        let rest = journal.uncovered().expect("the record");
        journal.cover(rest).expect("writable");
        assert!(journal.uncovered().is_none());
    }

    #[test]
    fn a_journal_of_the_version_before_is_read() {
        let bytes: Vec<u8> = (0..OLD.len() / 2)
            .map(|at| u8::from_str_radix(&OLD[2 * at..][..2], 16).expect("hexadecimal"))
            .collect();
        let mut content = new_content();
        content.write(5..9);
        content.resize(60);
        let expected = Told {
            header: header(),
            content: left(content),
            description: None,
            length: bytes.len() as u64,
            synced: 0,
        };
        assert_eq!(told_by(&bytes), Some(expected));
    }

    #[test]
    fn a_journal_of_any_length_is_read() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("x.journal");
        let said = (&new_content(), None);
        drop(Journal::create(&path, header(), said, false).expect("writable"));
        let mut bytes = fs::read(&path).expect("readable");
        let records = 700_000;
        for at in 0..records {
            Record::Dirty(at..at + 1).encode(&mut bytes);
        }
        assert!(bytes.len() > 16 << 20);
        fs::write(&path, &bytes).expect("writable");
        let told = read(&path, "now").expect("readable").expect("whole");
        assert_eq!(told.content.size(), records);
    }

    #[test]
    fn a_system_that_does_not_tell_since_when_it_runs_is_never_the_same() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("x.journal");
        let untold = Header {
            boot: String::new(),
            ..header()
        };
        let said = (&new_content(), None);
        drop(Journal::create(&path, untold, said, false).expect("writable"));
        assert!(read(&path, "").expect("readable").is_err());
    }

    #[test]
    fn a_journal_of_a_later_version_is_left_alone() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = scratch.path().join("x.journal");
        let said = (&new_content(), None);
        drop(Journal::create(&path, header(), said, false).expect("writable"));
        let mut bytes = fs::read(&path).expect("readable");
        bytes.extend(codec::record_of(200));
        fs::write(&path, bytes).expect("writable");
        assert!(read(&path, "now").is_err());
        assert!(path.exists());
    }
}
