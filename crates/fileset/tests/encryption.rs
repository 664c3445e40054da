//! A fileset whose bucket is encrypted: nothing in it can be read without the key, and nothing in it can be changed
//! unnoticed.

#![allow(clippy::unwrap_used)]

mod keys;
mod support;

use std::sync::Arc;

use penstock_base::Payload;
use penstock_fileset::engine::{Engine, ShippedEngine, ShippedSettings};
use penstock_object::{
    GetOptions, Key, ListOptions, PutOptions, Store,
    sealed::{DataKey, Sealed},
};
use penstock_object_testing::MemoryStore;
use penstock_vfs::Volume;
use support::{Place, ROOT};
use tempfile::TempDir;

const MARKER: &[u8] = b"a text that nobody else would write";

/// All objects of a bucket.
async fn objects(bucket: &dyn Store) -> Vec<(Key, Vec<u8>)> {
    let page = bucket.list(ListOptions::default()).await.unwrap();
    let mut objects = Vec::new();
    for object in page.objects {
        let (key, mut bytes) = (Key::new(object.key).unwrap(), Vec::new());
        let got = bucket.get(&key, GetOptions::default(), &mut bytes);
        got.await.unwrap();
        objects.push((key, bytes));
    }
    objects
}

fn holds_marker(bytes: &[u8]) -> bool {
    bytes.windows(MARKER.len()).any(|window| window == MARKER)
}

async fn put(bucket: &dyn Store, key: &Key, bytes: Vec<u8>) {
    let put = bucket.put(key, Payload::from(bytes), PutOptions::default());
    put.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_cannot_be_found_in_the_bucket() {
    let place = Place::encrypted_with_memory(64 << 20).await;
    let large = MARKER.repeat(20_000);
    place.store(ROOT, "large", &large).await.unwrap();
    place.store(ROOT, "small", MARKER).await.unwrap();
    let objects = objects(&*place.raw).await;
    assert!(objects.iter().all(|(_, bytes)| !holds_marker(bytes)));
    assert!(objects.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > large.len());
    assert!(place.content(ROOT, "large").await.unwrap() == large);
    place.is_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_in_the_spool_is_encrypted_on_its_way_to_the_bucket() {
    let place = Place::encrypted_and_spooled().await;
    for number in 0..20 {
        let name = format!("file-{number}");
        place.store(ROOT, &name, MARKER).await.unwrap();
    }
    let left = place.volume.shut_down().await;
    assert!(left.is_empty(), "{left:?}");
    let objects = objects(&*place.raw).await;
    assert!(!objects.is_empty());
    assert!(objects.iter().all(|(_, bytes)| !holds_marker(bytes)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_in_the_place_of_another_is_never_read() {
    let place = Place::encrypted_with_memory(64 << 20).await;
    for (name, byte) in [("a", 1), ("b", 2)] {
        place.store(ROOT, name, &vec![byte; 1 << 20]).await.unwrap();
    }
    let there = objects(&*place.raw).await;
    let [(one, first), (other, second), ..] = &there[..] else {
        panic!("{} objects", there.len());
    };
    assert_eq!(first.len(), second.len());
    put(&*place.raw, one, second.clone()).await;
    put(&*place.raw, other, first.clone()).await;
    for name in ["a", "b"] {
        assert!(place.content(ROOT, name).await.is_err(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_in_the_bucket_is_encrypted_and_brought_back_with_the_key_alone() {
    let (raw, key) = (Arc::new(MemoryStore::new()), DataKey::random().unwrap());
    let [first, second, third] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let settings = |directory: &TempDir, key: &DataKey| ShippedSettings {
        local: keys::settings(directory.path()),
        store: Arc::new(Sealed::new(raw.clone(), key.clone(), 8 << 20)),
        identity: 7,
    };
    let engine = ShippedEngine::create(&settings(&first, &key)).await;
    let engine = engine.unwrap();
    for number in 0..20 {
        let name = format!("key-{number}");
        keys::put_value(&engine, &name, MARKER.to_vec())
            .await
            .unwrap();
    }
    engine.close().await.unwrap();
    let there = objects(&*raw).await;
    assert!(!there.is_empty());
    assert!(there.iter().all(|(_, bytes)| !holds_marker(bytes)));
    let stranger = settings(&third, &DataKey::random().unwrap());
    let refused = ShippedEngine::attach(&stranger, &|_| ()).await;
    assert!(refused.is_err(), "{refused:?}");
    let attached = ShippedEngine::attach(&settings(&second, &key), &|_| ()).await;
    let attached = attached.unwrap();
    assert_eq!(keys::model(&attached).await.len(), 20);
}
