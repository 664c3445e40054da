use std::sync::Arc;

use penstock_base::Payload;
use penstock_object::{ErrorKind, ObjectError, Operation, PutOptions};
use penstock_object_testing::{Fault, Faults, Faulty, MemoryStore};
use tokio::runtime::Runtime;

use super::{ranges::RANGES_MAX, *};
use crate::Summary;

/// A bucket in memory that fails on command.
struct Bed {
    runtime: Runtime,
    faults: Arc<Faults>,
    bucket: Arc<Bucket>,
}

impl Bed {
    fn with(keys: impl IntoIterator<Item = String>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("threads");
        let faults = Faults::new(1);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::like_s3());
        for key in keys {
            let key = Key::new(key).expect("a key");
            let put = store.put(&key, Payload::from(b"four".to_vec()), PutOptions::default());
            runtime.block_on(put).expect("room");
        }
        let bucket = Arc::new(Bucket {
            url: "s3://bucket".to_owned(),
            store: Arc::new(Faulty::new(store, Arc::clone(&faults))),
            runtime: runtime.handle().clone(),
            explain: |url, error: &ObjectError| format!("{url}: {error}"),
        });
        Self {
            runtime,
            faults,
            bucket,
        }
    }

    fn of(keys: &[&str]) -> Self {
        Self::with(keys.iter().map(|key| (*key).to_owned()))
    }

    fn path(&self, key: &str) -> ObjectPath {
        ObjectPath {
            bucket: Arc::clone(&self.bucket),
            key: key.to_owned(),
        }
    }

    fn removed_as(&self, key: &str, settings: ObjectSettings) -> Summary {
        let report = Report::default();
        remove(&[self.path(key)], settings, &report, &Stop::default());
        report.summary()
    }

    fn removed(&self, key: &str) -> Summary {
        self.removed_as(key, recursive())
    }

    fn keys(&self) -> Vec<String> {
        let list = self.bucket.store.list(ListOptions::default());
        let page = self.runtime.block_on(list).expect("a page");
        page.objects.into_iter().map(|object| object.key).collect()
    }
}

fn recursive() -> ObjectSettings {
    ObjectSettings {
        recursive: true,
        force: false,
        root: false,
        threads: Threads::Fixed(4),
    }
}

fn plain() -> ObjectSettings {
    ObjectSettings {
        recursive: false,
        ..recursive()
    }
}

fn numbered(prefix: &str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |number| format!("{prefix}{number:06}"))
}

#[test]
fn a_path_is_the_object_and_what_is_below_and_never_its_neighbours() {
    let everything = ["a", "a!", "a/", "a/b", "a/b/c", "a/d", "ab", "b/a/x"];
    for (key, left) in [
        ("a", &["a!", "ab", "b/a/x"][..]),
        ("a/", &["a", "a!", "ab", "b/a/x"]),
        ("a/b", &["a", "a!", "a/", "a/d", "ab", "b/a/x"]),
    ] {
        let bed = Bed::of(&everything);
        let summary = bed.removed(key);
        assert_eq!(summary.failures, [""; 0], "{key}");
        assert_eq!(summary.files as usize, everything.len() - left.len());
        assert_eq!(bed.keys(), left, "{key}");
    }
}

#[test]
fn without_r_an_object_goes_and_a_directory_does_not() {
    let bed = Bed::of(&["a", "a/b", "c/d"]);
    assert_eq!(bed.removed_as("a", plain()).files, 1);
    assert_eq!(bed.keys(), ["a/b", "c/d"]);
    let refused = "cannot remove 's3://bucket/c': it is a directory; use -r";
    assert_eq!(bed.removed_as("c", plain()).failures, [refused]);
    assert_eq!(bed.removed_as("c/", plain()).failed, 1);
    assert_eq!(bed.removed_as("", plain()).failed, 1);
    assert_eq!(bed.keys(), ["a/b", "c/d"]);
}

#[test]
fn what_is_not_there_is_a_failure_unless_forced() {
    let bed = Bed::of(&["ab"]);
    for settings in [plain(), recursive()] {
        let missing = "cannot remove 's3://bucket/a': there is no such object";
        assert_eq!(bed.removed_as("a", settings).failures, [missing]);
        let force = ObjectSettings {
            force: true,
            ..settings
        };
        assert_eq!(bed.removed_as("a", force).failed, 0);
    }
    assert_eq!(bed.keys(), ["ab"]);
}

#[test]
fn a_whole_bucket_goes_only_where_that_is_said() {
    let bed = Bed::of(&["a", "b/c"]);
    for key in ["", "/"] {
        let failures = bed.removed(key).failures;
        assert!(failures[0].contains("--no-preserve-root"), "{failures:?}");
    }
    assert_eq!(bed.keys().len(), 2);
    let root = ObjectSettings {
        root: true,
        ..recursive()
    };
    assert_eq!(bed.removed_as("", root).files, 2);
    assert_eq!(bed.keys(), [""; 0]);
}

#[test]
fn many_pages_go_in_few_requests() {
    let bed = Bed::with(numbered("a/", 20_500).chain(numbered("ab", 3)));
    let summary = bed.removed("a");
    assert_eq!((summary.files, summary.failed), (20_500, 0));
    assert_eq!(bed.keys().len(), 3);
    let deletes = bed.faults.calls(Operation::DeleteMany);
    let lists = bed.faults.calls(Operation::List);
    let most = 21 + RANGES_MAX as u64;
    assert!(deletes <= most, "{deletes} requests");
    assert!(lists <= 2 * most, "{lists} requests");
}

#[test]
fn keys_that_fail_are_told_each_and_the_rest_goes() {
    let bed = Bed::with(numbered("a/", 3000));
    let spare = || Fault::Spare(ErrorKind::PermissionDenied);
    bed.faults.queue(Operation::DeleteMany, [spare(), spare()]);
    let summary = bed.removed("a");
    assert_eq!((summary.files, summary.failed), (2998, 2));
    let left = bed.keys();
    assert_eq!(left.len(), 2);
    for key in left {
        let line =
            format!("cannot remove 's3://bucket/{key}': a fault was injected (PermissionDenied)");
        assert!(summary.failures.contains(&line), "{summary:?}");
    }
}

#[test]
fn a_request_that_makes_no_sense_for_one_key_is_taken_apart() {
    let bed = Bed::with(numbered("a/", 100));
    let refused = || Fault::fail(ErrorKind::InvalidRequest);
    bed.faults
        .queue(Operation::DeleteMany, [refused(), refused()]);
    let summary = bed.removed("a");
    assert_eq!((summary.files, summary.failed), (100, 0));
    assert_eq!(bed.keys(), [""; 0]);
}

#[test]
fn a_store_that_refuses_is_not_asked_for_every_page() {
    for (operation, most) in [(Operation::DeleteMany, 4), (Operation::List, 2)] {
        let bed = Bed::with(numbered("a/", 30_000));
        let denied = Fault::fail(ErrorKind::BadCredentials);
        bed.faults.rate(Some(operation), 1.0, denied);
        let summary = bed.removed("a");
        assert_eq!(summary.files, 0);
        assert!((1..=most).contains(&summary.failed), "{summary:?}");
        let calls = bed.faults.calls(operation);
        assert!(calls <= most, "{calls} requests");
    }
}

#[test]
fn who_stops_keeps_the_rest() {
    let bed = Bed::with(numbered("a/", 30_000));
    let report = Report::default();
    let stop = Stop::default();
    let pause = std::time::Duration::from_millis(20);
    bed.faults
        .rate(Some(Operation::DeleteMany), 1.0, Fault::Delay(pause));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while report.files.get() == 0 {
                std::thread::yield_now();
            }
            stop.set();
        });
        remove(&[bed.path("a")], recursive(), &report, &stop);
    });
    let summary = report.summary();
    assert_eq!((summary.files % 1000, summary.failed), (0, 0));
    assert!(summary.files < 30_000, "{summary:?}");
    bed.faults.clear();
    assert_eq!(bed.removed("a").files, 30_000 - summary.files);
}

#[test]
fn a_first_look_counts_a_page_and_the_object_itself() {
    let bed = Bed::with(
        numbered("a/", 1500)
            .chain(numbered("b/", 2))
            .chain(["b".to_owned()]),
    );
    let survey = |key| survey(&bed.path(key)).expect("a page");
    let cut = Survey {
        objects: 1000,
        bytes: 4000,
        is_cut: true,
    };
    assert_eq!(survey("a"), cut);
    let whole = Survey {
        objects: 3,
        bytes: 12,
        is_cut: false,
    };
    assert_eq!(survey("b"), whole);
    assert_eq!(survey("c"), Survey::default());
}
