//! Journals that are written, cut off, damaged and read again.

use std::ops::Range;

use penstock_object::{ETag, Key};
use proptest::prelude::*;

use super::{
    reading::{apply, tell},
    *,
};
use crate::{
    ObjectVersion,
    staging::{attempt::Trace, content::Base, extents::Extents},
};

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
        1 => Just(Record::Sent(Trace::default())),
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
        let mut journal = Journal::create(&path, Draft::of(header(), &content, None), false).expect("writable");
        for (number, record) in records.iter().enumerate() {
            journal.append(record).expect("writable");
            apply(&mut content, record);
            if number == rewritten {
                let (base, size) = (content.base().clone(), content.size());
                let header = Header { base, size, ..header() };
                journal = Journal::create(&path, Draft::of(header, &content, None), false).expect("writable");
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
        let mut journal = Journal::create(&path, Draft::of(header(), &content, None), false).expect("writable");
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
        let mut journal = Journal::create(&path, Draft::of(covered, &content, None), true).expect("writable");
        prop_assert!(journal.is_covered() && !journal.is_named());
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
        let mut journal = Journal::create(&path, Draft::of(header(), &content, first.as_ref()), false).expect("writable");
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
        Journal::create(&path, Draft::of(header(), &new_content(), None), true).expect("writable");
    let begun = journal.uncovered().expect("its name");
    journal.cover(begun).expect("writable");
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
fn a_journal_that_is_written_anew_tells_each_save_by_itself() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let path = scratch.path().join("x.journal");
    let mut content = new_content();
    let save = |content: &mut Content, tag: &str| {
        content.begin_attempt(50);
        content.announce(Trace {
            sums: Vec::new(),
            tags: vec![ETag::new(tag)],
        });
    };
    content.write(0..10);
    save(&mut content, "first");
    content.write(40..45);
    save(&mut content, "second");
    // Nothing is left of what was changed between the two, which differ none the less.
    content.resize(40);
    drop(Journal::create(&path, Draft::of(header(), &content, None), false).expect("writable"));
    let told = read(&path, "now").expect("readable").expect("whole");
    assert_eq!(told.content.attempts(), content.attempts());
}

#[test]
fn a_record_made_during_a_sync_waits_for_the_next() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let path = scratch.path().join("x.journal");
    let mut journal =
        Journal::create(&path, Draft::of(header(), &new_content(), None), false).expect("writable");
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
        replaces: None,
        length: bytes.len() as u64,
        synced: 0,
        is_doubted: false,
    };
    assert_eq!(told_by(&bytes), Some(expected));
}

#[test]
fn a_journal_of_any_length_is_read() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let path = scratch.path().join("x.journal");
    drop(
        Journal::create(&path, Draft::of(header(), &new_content(), None), false).expect("writable"),
    );
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
    drop(Journal::create(&path, Draft::of(untold, &new_content(), None), false).expect("writable"));
    assert!(read(&path, "").expect("readable").is_err());
}

#[test]
fn a_journal_of_a_later_version_is_left_alone() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let path = scratch.path().join("x.journal");
    drop(
        Journal::create(&path, Draft::of(header(), &new_content(), None), false).expect("writable"),
    );
    let mut bytes = fs::read(&path).expect("readable");
    bytes.extend(codec::record_of(200));
    fs::write(&path, bytes).expect("writable");
    assert!(read(&path, "now").is_err());
    assert!(path.exists());
}
