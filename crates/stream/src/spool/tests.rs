use proptest::prelude::*;

use super::{
    record::{Before, Decoded, decode, encode},
    *,
};
use crate::{ObjectSource, SnapshotObject, Timestamp};

type Row = (String, u64, (i64, u32), String);

fn object(row: &Row) -> SnapshotObject<'_> {
    SnapshotObject {
        key: row.0.as_bytes(),
        size: row.1,
        modified: Timestamp {
            seconds: row.2.0,
            nanoseconds: row.2.1,
        },
        etag: &row.3,
        // Some are links.
        target: if row.1.is_multiple_of(2) { "" } else { &row.3 },
    }
}

fn row(key: &str) -> Row {
    let etag = format!("{:032x}", key.len());
    (key.to_owned(), key.len() as u64, (1_600_000_000, 0), etag)
}

fn span(after: &str, up_to: Option<&str>) -> Span {
    Span {
        after: after.to_owned(),
        up_to: up_to.map(str::to_owned),
    }
}

fn write(spool: &Spool, span: Span, keys: &[&str]) {
    let mut run = spool.begin_run();
    for key in keys {
        run.write(&object(&row(key))).expect("in order");
    }
    spool.finish_run(run, span).expect("written");
}

fn keys(source: &mut SpoolSource) -> Vec<String> {
    let mut keys = Vec::new();
    while let Some(object) = source.next_object().expect("intact") {
        keys.push(String::from_utf8(object.key.to_vec()).expect("UTF-8"));
    }
    keys
}

fn settings(directory: &tempfile::TempDir) -> SpoolSettings {
    SpoolSettings::new(directory.path().join("spool"), "s3://bucket/path")
}

#[test]
fn runs_are_read_in_the_order_of_their_spans() {
    let directory = tempfile::tempdir().expect("a directory");
    let spool = Spool::open(&settings(&directory)).expect("opens");
    write(&spool, span("m", None), &["n", "z"]);
    write(&spool, span("c", Some("m")), &[]);
    write(&spool, span("", Some("c")), &["a", "b", "c"]);
    let mut source = spool.into_source().expect("complete");
    assert_eq!(source.objects(), 5);
    assert_eq!(keys(&mut source), ["a", "b", "c", "n", "z"]);
    source.into_spool().discard().expect("removable");
    assert!(!directory.path().join("spool").exists());
}

#[test]
fn finished_runs_survive_and_the_rest_is_swept() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = settings(&directory);
    let spool = Spool::open(&settings).expect("opens");
    write(&spool, span("c", Some("m")), &["d", "e"]);
    let mut cut = spool.begin_run();
    for index in 0..20_000 {
        let key = format!("z{index:09}");
        cut.write(&object(&row(&key))).expect("in order");
    }
    drop(cut);
    drop(spool);
    let files = || fs::read_dir(&settings.directory).expect("there").count();
    assert_eq!(files(), 4, "lock, journal and two runs");
    let spool = Spool::open(&settings).expect("opens");
    assert_eq!(files(), 3);
    assert_eq!(spool.gaps(), [span("", Some("c")), span("m", None)]);
    assert!(spool.into_source().is_err(), "there are gaps");
    let spool = Spool::open(&settings).expect("opens");
    write(&spool, span("", Some("c")), &["a"]);
    write(&spool, span("m", None), &["x"]);
    let mut source = spool.into_source().expect("complete");
    assert_eq!(keys(&mut source), ["a", "d", "e", "x"]);
}

#[test]
fn another_source_or_an_old_journal_begins_anew() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = settings(&directory);
    let all = [Span::all()];
    for other in [
        SpoolSettings {
            source: "s3://bucket/other".to_owned(),
            ..settings.clone()
        },
        SpoolSettings {
            age_max: Duration::ZERO,
            ..settings.clone()
        },
    ] {
        let spool = Spool::open(&settings).expect("opens");
        write(&spool, span("c", Some("m")), &["d", "e"]);
        drop(spool);
        assert_eq!(Spool::open(&other).expect("opens").gaps(), all);
    }
}

#[test]
fn damaged_runs_and_journals_are_not_believed() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = settings(&directory);
    let spool = Spool::open(&settings).expect("opens");
    write(&spool, span("", Some("c")), &["a"]);
    write(&spool, span("c", Some("m")), &["d", "e"]);
    write(&spool, span("m", None), &["n"]);
    drop(spool);
    fs::write(settings.directory.join("run-000001"), "nonsense").expect("writable");
    let journal = settings.directory.join(journal::JOURNAL_FILE);
    let mut bytes = fs::read(&journal).expect("there");
    bytes.pop();
    fs::write(&journal, bytes).expect("writable");
    let spool = Spool::open(&settings).expect("opens");
    assert_eq!(spool.gaps(), [span("c", None)]);
}

#[test]
fn a_directory_has_one_user() {
    let directory = tempfile::tempdir().expect("a directory");
    let spool = Spool::open(&settings(&directory)).expect("opens");
    let error = Spool::open(&settings(&directory)).expect_err("in use");
    assert!(error.to_string().contains("another process"), "{error}");
    drop(spool);
    assert!(Spool::open(&settings(&directory)).is_ok());
}

#[test]
fn keys_that_do_not_rise_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let spool = Spool::open(&settings(&directory)).expect("opens");
    let mut run = spool.begin_run();
    run.write(&object(&row("b"))).expect("the first");
    for key in ["b", "a", &"x".repeat(SPOOLED_KEY_MAX + 1)] {
        assert!(run.write(&object(&row(key))).is_err(), "{key:.10}");
    }
}

fn tags() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9a-f]{32}",
        "[0-9a-f]{32}-[0-9]{1,5}",
        "[0-9a-fA-F]{30,34}",
        "[0-9a-f]{32}-[0-9]{9,12}",
        "\\PC{0,20}",
    ]
}

proptest! {
    #[test]
    fn records_come_back(
        rows in prop::collection::btree_map(
            "[ab/é]{1,12}",
            (any::<u64>(), (any::<i64>(), 0..1_000_000_000u32), tags()),
            1..40,
        ),
    ) {
        let rows: Vec<Row> = rows
            .into_iter()
            .map(|(key, (size, time, tag))| (key, size, time, tag))
            .collect();
        let (mut bytes, mut before) = (Vec::new(), Before::default());
        for row in &rows {
            encode(&mut bytes, &mut before, &object(row));
        }
        let (mut at, mut before, mut decoded) = (0, Before::default(), Decoded::default());
        for row in &rows {
            let length = decode(&bytes[at..], &mut before, &mut decoded).expect("whole");
            at += length;
            let found = SnapshotObject {
                key: &before.key,
                size: decoded.size,
                modified: before.modified,
                etag: &decoded.etag,
                target: &decoded.target,
            };
            prop_assert_eq!(found, object(row));
        }
        prop_assert_eq!(at, bytes.len());
    }

    #[test]
    fn any_bytes_are_a_record_or_none(bytes: Vec<u8>, key: Vec<u8>) {
        let mut before = Before { key: key.clone(), modified: Timestamp::default() };
        let mut decoded = Decoded::default();
        if let Some(length) = decode(&bytes, &mut before, &mut decoded) {
            prop_assert!(length <= bytes.len());
            prop_assert!(before.key > key);
        }
    }
}
