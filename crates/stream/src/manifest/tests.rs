use std::collections::BTreeMap;

use penstock_base::Payload;
use penstock_object::{Operation, PutOptions};
use penstock_object_testing::{Faults, Faulty, MemoryStore};
use proptest::prelude::*;

use super::*;
use crate::{ObjectSource, SpoolSettings, Timestamp};

type Found = BTreeMap<String, (u64, i64, String)>;

struct Bed {
    directory: tempfile::TempDir,
    store: Arc<dyn Store>,
    faults: Arc<Faults>,
}

impl Bed {
    fn new() -> Self {
        let faults = Faults::new(1);
        let store = Faulty::new(Arc::new(MemoryStore::new()), Arc::clone(&faults));
        Self {
            directory: tempfile::tempdir().expect("a directory"),
            store: Arc::new(store),
            faults,
        }
    }

    async fn put(&self, key: &str, body: &[u8]) {
        let body = Payload::from(body.to_vec());
        let key = Key::new(key).expect("a key");
        let stored = self.store.put(&key, body, PutOptions::default()).await;
        stored.expect("memory takes it");
    }

    async fn load_from(
        &self,
        location: &ManifestLocation,
        settings: &ManifestSettings,
    ) -> Result<(Found, ManifestSummary), SnapshotError> {
        let spool = SpoolSettings::new(self.directory.path().join("spool"), "manifest");
        let spool = Spool::open(&spool).expect("opens");
        let progress = Arc::new(ListingProgress::default());
        let (mut source, summary) =
            load_manifest(&self.store, location, spool, settings, &progress).await?;
        let mut found = Found::new();
        while let Some(object) = source.next_object()? {
            let key = String::from_utf8(object.key.to_vec()).expect("UTF-8");
            assert!(found.last_key_value().is_none_or(|(last, _)| *last < key));
            let row = (object.size, object.modified.seconds, object.etag.to_owned());
            found.insert(key, row);
        }
        let left = std::fs::read_dir(self.directory.path().join("spool"));
        let runs = usize::from(!found.is_empty());
        assert!(left.expect("there").count() >= 2 + runs);
        source.into_spool().discard().expect("removable");
        assert!(!self.directory.path().join("spool").exists());
        Ok((found, summary))
    }

    async fn load(
        &self,
        text: &[u8],
        settings: &ManifestSettings,
    ) -> Result<(Found, ManifestSummary), SnapshotError> {
        let path = self.directory.path().join("manifest.csv");
        std::fs::write(&path, text).expect("writable");
        self.load_from(&ManifestLocation::File(path), settings)
            .await
    }
}

fn row(size: u64, seconds: i64, etag: &str) -> (u64, i64, String) {
    (size, seconds, etag.to_owned())
}

#[tokio::test]
async fn columns_may_come_in_any_order() {
    let text = "\u{feff}ETag,Bucket, Last_Modified ,KEY,size\r\n\
        \"abc\",b,2020-05-18T05:45:54.000Z,\"z,\"\"quoted\"\"\nname\",12\r\n\
        \r\n\
        ,b,1600000000.5,a+b%20,0\n";
    let (found, summary) = Bed::new()
        .load(text.as_bytes(), &ManifestSettings::default())
        .await
        .expect("well formed");
    let expected = [
        (
            "z,\"quoted\"\nname".to_owned(),
            row(12, 1_589_780_754, "abc"),
        ),
        ("a+b%20".to_owned(), row(0, 1_600_000_000, "")),
    ];
    assert_eq!(found, Found::from(expected));
    assert_eq!(summary.rows, 2);
}

#[tokio::test]
async fn inventories_of_s3_are_understood() {
    let settings = ManifestSettings {
        prefix: "data/".to_owned(),
        columns: Some(
            "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag"
                .to_owned(),
        ),
        percent_encoded: true,
        missing_sizes: MissingSizes::Refuse,
        ..ManifestSettings::default()
    };
    let text = "\"b\",\"data/x%2Fy+z\",\"v2\",\"true\",\"false\",\"7\",\"2020-05-18T05:45:54.000Z\",\"e2\"\n\
        \"b\",\"data/x%2Fy+z\",\"v1\",\"false\",\"false\",\"6\",\"2020-05-17T05:45:54.000Z\",\"e1\"\n\
        \"b\",\"data/gone\",\"v3\",\"true\",\"true\",\"\",\"2020-05-17T05:45:54.000Z\",\"\"\n\
        \"b\",\"data/\",\"v3\",\"true\",\"false\",\"0\",\"\",\"\"\n\
        \"b\",\"other/k\",\"v3\",\"true\",\"false\",\"5\",\"2020-05-17T05:45:54.000Z\",\"e\"\n";
    let loaded = Bed::new().load(text.as_bytes(), &settings).await;
    let (found, summary) = loaded.expect("well formed");
    let expected = [("x/y z".to_owned(), row(7, 1_589_780_754, "e2"))];
    assert_eq!(found, Found::from(expected));
    assert_eq!((summary.rows, summary.left_out), (5, 4));
}

#[tokio::test]
async fn sizes_that_are_missing_are_asked_for() {
    let bed = Bed::new();
    for key in ["b/long,name", "a", "c"] {
        bed.put(key, key.as_bytes()).await;
    }
    let text = b"c\nb/long,name\nnot there\na\nc\n";
    let (found, summary) = bed
        .load(text, &ManifestSettings::default())
        .await
        .expect("the store answers");
    let sizes: Vec<_> = found
        .iter()
        .map(|(key, row)| (key.as_str(), row.0))
        .collect();
    assert_eq!(sizes, [("a", 1), ("b/long,name", 11), ("c", 1)]);
    assert!(found.values().all(|row| row.1 > 0 && !row.2.is_empty()));
    assert_eq!((summary.gone, summary.repeated), (1, 1));
    let calls = [Operation::Head, Operation::List].map(|kind| bed.faults.calls(kind));
    assert_eq!(calls, [4, 0]);
    let refusing = ManifestSettings {
        missing_sizes: MissingSizes::Refuse,
        ..ManifestSettings::default()
    };
    let error = bed.load(text, &refusing).await.expect_err("there are none");
    assert!(
        error
            .to_string()
            .contains("line 1 of the manifest has no size")
    );
}

#[tokio::test]
async fn a_manifest_may_be_an_object() {
    let bed = Bed::new();
    bed.put("inventory.csv", b"key,size\nk,5\n").await;
    let object = |key| ManifestLocation::Object {
        store: Arc::clone(&bed.store),
        key: Key::new(key).expect("a key"),
    };
    let location = object("inventory.csv");
    let settings = ManifestSettings::default();
    let (found, _) = bed.load_from(&location, &settings).await.expect("there");
    assert_eq!(found, Found::from([("k".to_owned(), row(5, 0, ""))]));
    assert!(bed.load_from(&object("missing"), &settings).await.is_err());
}

#[tokio::test]
async fn a_manifest_of_another_path_is_a_mistake() {
    let settings = ManifestSettings {
        prefix: "data/".to_owned(),
        ..ManifestSettings::default()
    };
    let bed = Bed::new();
    let error = bed.load(b"key,size\nk,5\nl,6\n", &settings).await;
    let error = error.expect_err("nothing is left").to_string();
    assert!(error.contains("none of the 2 keys"), "{error}");
    assert!(error.contains("begins with `data/`"), "{error}");
    let one = bed.load(b"key,size\nk,5\ndata/l,6\n", &settings).await;
    assert_eq!(one.expect("one is there").1.left_out, 1);
}

#[tokio::test]
async fn what_is_wrong_is_named_with_its_line() {
    let long = format!("key\n{}", "x".repeat(csv::RECORD_MAX + 1));
    let long_key = format!("key\n{}", "x".repeat(5000));
    let cases: [(&[u8], &str); 12] = [
        (
            b"key,size\na,1\nb,x\n",
            "line 3 of the manifest has the size `x`",
        ),
        (b"key,size\na,-1\n", "line 2"),
        (b"key,mtime\na,yesterday\n", "the time `yesterday`"),
        (b"key,size\n\"a,1\n", "does not end"),
        (b"key,size\na\"b\",1\n", "a quote where none can be"),
        (b"key,size\n\"a\"b,1\n", "a quote where none can be"),
        (b"size,key\n1\n", "too few fields"),
        (b"size,key\n1,\n", "has no key"),
        (b"key,size\na,1\nb,1\na,2\n", "`a` twice"),
        (b"\"b\",\"k\",\"1\"\n", "name the columns"),
        (b"\x1f\x8b\x08", "gunzip"),
        (b"ok\n\xff\xfe\n", "line 2 of the manifest is not UTF-8"),
    ];
    let bed = Bed::new();
    let more = [
        (long.as_bytes(), "too long"),
        (long_key.as_bytes(), "longer than any"),
    ];
    for (text, part) in cases.into_iter().chain(more) {
        let error = bed.load(text, &ManifestSettings::default()).await;
        let error = error.expect_err(part).to_string();
        assert!(error.contains(part), "{error} lacks {part}");
    }
    for (settings, part) in [
        (
            ManifestSettings {
                columns: Some("size".into()),
                ..Default::default()
            },
            "one `key`",
        ),
        (
            ManifestSettings {
                percent_encoded: true,
                ..Default::default()
            },
            "percent-encoded",
        ),
    ] {
        let error = bed.load(b"a%2\n", &settings).await.expect_err(part);
        assert!(error.to_string().contains(part), "{error}");
    }
    let empty = bed.load(b"", &ManifestSettings::default()).await;
    assert!(empty.expect("no rows").0.is_empty());
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_rows_come_back_in_order(
        rows in prop::collection::btree_map(
            "\\PC{1,8}|[ab\",\n/]{1,6}",
            (0..u64::MAX, 0..4_000_000_000i64, "[0-9a-f]{32}|[a-zA-Z0-9-]{0,5}"),
            1..60,
        ),
        seed: u64,
        memory in prop::sample::select(vec![1u64, 300, 5000, 1 << 20]),
        repeat in 0..5usize,
    ) {
        let mut lines: Vec<String> = rows
            .iter()
            .map(|(key, (size, time, etag))| format!("{time},{},{size},{etag}", quoted(key)))
            .collect();
        let repeats = lines[..repeat.min(lines.len())].to_vec();
        let count = repeats.len() as u64;
        lines.extend(repeats);
        lines.sort_by_key(|line| line.bytes().fold(seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }));
        let text = format!("mtime,key,size,etag\n{}\n", lines.join("\r\n"));
        let settings = ManifestSettings { memory, ..ManifestSettings::default() };
        // More runs than this may not be.
        prop_assume!(memory > 1 || lines.len() < 200);
        let loaded = block_on(Bed::new().load(text.as_bytes(), &settings));
        let (found, summary) = loaded.expect("well formed");
        let expected: Found = rows.into_iter().collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(summary.repeated, count);
    }

    #[test]
    fn any_bytes_are_rows_or_an_error(
        start in prop::sample::select(vec!["key,size\n", "key\n", "", "a\n", "\"", "encoded_key,mtime\n"]),
        pieces in prop::collection::vec(
            prop_oneof![
                prop::sample::select(vec!["\"", ",", "\n", "\r\n", "%", "+", "1", "é", "\0", "a"])
                    .prop_map(|text: &str| text.as_bytes().to_vec()),
                prop::collection::vec(any::<u8>(), 0..4),
            ],
            0..40,
        ),
        percent_encoded: bool,
    ) {
        let text = [start.as_bytes(), &pieces.concat()].concat();
        let settings = ManifestSettings { percent_encoded, ..ManifestSettings::default() };
        let mut lines = 0;
        if let Ok(mut rows) = Rows::new(text.as_slice(), &settings) {
            while let Ok(Some(row)) = rows.next_row() {
                prop_assert!(!row.key.is_empty());
                prop_assert!(row.line > lines && row.modified >= Timestamp::default());
                lines = row.line;
            }
        }
        prop_assert!(lines <= text.len() as u64 + 1);
    }
}
