//! A bucket in a directory does what every store must do, and answers like a map.

mod model;

use std::{path::Path, sync::Arc, time::Duration};

use penstock_base::Payload;
use penstock_object::{
    CopyOptions, GetOptions, Key, ListOptions, LocalSettings, LocalStore, ObjectError, PutOptions,
    Store, WriteCondition,
};
use penstock_object_testing::MemoryStore;
use tempfile::TempDir;

fn key(text: &str) -> Key {
    Key::new(text).expect("tests use valid keys")
}

fn body(text: &str) -> Payload {
    Payload::from(text.as_bytes().to_vec())
}

/// Fast, and with so few entries of a directory in memory that every listing reads it again.
fn settings() -> LocalSettings {
    LocalSettings {
        durable: false,
        staging_age_max: Duration::ZERO,
        window: 4,
        ..LocalSettings::default()
    }
}

fn bucket_with(settings: LocalSettings) -> (TempDir, LocalStore) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let store = LocalStore::open(directory.path(), settings).expect("the bucket opens");
    (directory, store)
}

fn bucket() -> (TempDir, LocalStore) {
    bucket_with(settings())
}

mod conformance {
    use super::*;

    async fn open() -> (TempDir, Arc<dyn Store>) {
        let (directory, store) = bucket();
        (directory, Arc::new(store))
    }

    penstock_object_testing::conformance_tests!(open);
}

mod conformance_when_durable {
    use super::*;

    async fn open() -> (TempDir, Arc<dyn Store>) {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let store = LocalStore::open(directory.path(), LocalSettings::default());
        (directory, Arc::new(store.expect("the bucket opens")))
    }

    // Waiting for the disk makes the other contracts slow and changes nothing in them.
    penstock_object_testing::conformance_tests!(open =>
        get_returns_what_was_put,
        a_key_may_be_a_prefix_of_others,
        copies_have_content_and_metadata,
        copies_can_be_described_anew,
        parts_become_an_object,
        appends_grow_an_object,
    );
}

mod conformance_without_openat2 {
    use super::*;

    async fn open() -> (TempDir, Arc<dyn Store>) {
        let settings = LocalSettings {
            follow_links: false,
            ..settings()
        };
        let (directory, store) = bucket_with(settings);
        (directory, Arc::new(store))
    }

    penstock_object_testing::conformance_tests!(open);
}
