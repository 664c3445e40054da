//! What is particular to a bucket in a directory; `tests/local` holds it to what every store must do.

mod appends;
mod crash;
mod foreign;
mod full;
mod layout;
mod neighbours;

use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::ErrorKind;

fn key(text: &str) -> Key {
    Key::new(text).expect("tests use valid keys")
}

fn body(text: &str) -> Payload {
    Payload::from(text.as_bytes().to_vec())
}

/// Fast, taking everything staged for left behind, and reading directories again at every listing.
fn settings() -> LocalSettings {
    LocalSettings {
        durable: false,
        staging_age_max: Duration::ZERO,
        window: 4,
        ..LocalSettings::default()
    }
}

fn open(directory: &Path) -> LocalStore {
    LocalStore::open(directory, settings()).expect("the bucket opens")
}

fn bucket() -> (TempDir, LocalStore) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let store = open(directory.path());
    (directory, store)
}

async fn put(store: &LocalStore, name: &str, text: &str) -> Stored {
    let stored = store
        .put(&key(name), body(text), PutOptions::default())
        .await;
    stored.expect("the put succeeds")
}

async fn read(store: &LocalStore, name: &str) -> ObjectResult<String> {
    let mut bytes = Vec::new();
    let (key, options) = (key(name), GetOptions::default());
    store.get(&key, options, &mut bytes).await?;
    Ok(String::from_utf8(bytes).expect("tests write text"))
}

async fn list(store: &LocalStore, options: ListOptions) -> (Vec<String>, Vec<String>) {
    let page = store.list(options).await.expect("listing works");
    assert_eq!(page.continuation, None);
    let keys = page.objects.into_iter().map(|object| object.key);
    (keys.collect(), page.common_prefixes)
}

async fn all_keys(store: &LocalStore) -> Vec<String> {
    list(store, ListOptions::default()).await.0
}

/// Every path below `directory`, sorted; directories end with a slash.
fn paths(directory: &Path) -> Vec<String> {
    fn collect(directory: &Path, root: &Path, paths: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).expect("it can be listed") {
            let path = entry.expect("it can be listed").path();
            let name = path.strip_prefix(root).expect("it is below");
            let name = name.to_str().expect("names are text").to_owned();
            if path.is_dir() && !path.is_symlink() {
                paths.push(name + "/");
                collect(&path, root, paths);
            } else {
                paths.push(name);
            }
        }
    }
    let mut paths = Vec::new();
    collect(directory, directory, &mut paths);
    paths.sort();
    paths
}
