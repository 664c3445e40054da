//! Contracts of `delete` and `delete_many`.

use std::sync::Arc;

use super::support::{key, keys_under, put};
use penstock_object::{Key, Store};

/// Deleting succeeds whether or not there was something.
pub async fn deleting_is_idempotent(store: &Arc<dyn Store>) {
    put(store, "dir/one", b"1").await;
    put(store, "dir/two", b"2").await;
    for name in [
        "dir/one",
        "dir/one",
        "never",
        "dir/",
        "dir",
        "dir/two/below",
    ] {
        let deleted = store.delete(&key(name)).await;
        assert!(deleted.is_ok(), "deleting `{name}`: {deleted:?}");
    }
    assert_eq!(keys_under(store, "").await, ["dir/two"]);
}

/// `delete_many` deletes what is there, overlooks what is not and touches nothing else.
pub async fn many_are_deleted_at_once(store: &Arc<dyn Store>) {
    for index in 0..20 {
        put(store, &format!("many/{index:02}"), b"x").await;
    }
    put(store, "many <&> odd", b"x").await;
    let mut doomed: Vec<Key> = (0..15)
        .map(|index| key(&format!("many/{index:02}")))
        .collect();
    doomed.extend([key("many/missing"), key("many <&> odd")]);
    let failures = store.delete_many(&doomed).await;
    assert_eq!(failures.expect("deleting works"), []);
    let left = ["many/15", "many/16", "many/17", "many/18", "many/19"];
    assert_eq!(keys_under(store, "").await, left);
    let failures = store.delete_many(&[]).await;
    assert_eq!(failures.expect("no keys are no error"), []);
}
