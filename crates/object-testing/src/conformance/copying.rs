//! Contracts of `copy`.

use std::sync::Arc;

use penstock_base::Payload;

use super::support::{assert_fails, exists, head, key, pattern, put, read};
use penstock_object::{
    CopyOptions, Description, ErrorKind, PutOptions, Store, UserMetadata, WriteCondition,
};

/// A copy has the bytes, the content type and the metadata of its source and replaces its target.
pub async fn copies_have_content_and_metadata(store: &Arc<dyn Store>) {
    let body = pattern(300_000, 1);
    let options = PutOptions {
        content_type: Some("text/x-test".to_owned()),
        metadata: UserMetadata::from([("colour".to_owned(), "blue".to_owned())]),
        ..PutOptions::default()
    };
    let written = store
        .put(&key("from"), Payload::from(body.clone()), options)
        .await;
    written.expect("the put succeeds");
    put(store, "dir/to", b"old").await;
    for target in ["dir/to", "new/to"] {
        let copied = store
            .copy(&key("from"), &key(target), CopyOptions::default())
            .await;
        let stored = copied.expect("the copy succeeds");
        let info = head(store, target).await.expect("it is there");
        assert_eq!((info.size, info.etag), (300_000, stored.etag));
        assert_eq!(info.content_type, "text/x-test");
        assert_eq!(
            info.metadata.get("colour").map(String::as_str),
            Some("blue")
        );
        assert!(
            read(store, target).await == body,
            "the copy has other bytes"
        );
    }
    put(store, "from", b"new").await;
    assert!(
        read(store, "dir/to").await == body,
        "the copy changed with its source"
    );
    let copied = store
        .copy(&key("missing"), &key("to"), CopyOptions::default())
        .await;
    assert_fails(copied, ErrorKind::NotFound, "a copy of nothing");
    assert!(!exists(store, "to").await);
}

/// A copy can be given another description than its source, also onto itself.
pub async fn copies_can_be_described_anew(store: &Arc<dyn Store>) {
    let body = pattern(70_000, 1);
    let options = PutOptions {
        content_type: Some("text/x-old".to_owned()),
        metadata: UserMetadata::from([("old".to_owned(), "1".to_owned())]),
        ..PutOptions::default()
    };
    let written = store
        .put(&key("file"), Payload::from(body.clone()), options)
        .await
        .expect("the put succeeds");
    let description = Description {
        content_type: Some("text/x-new".to_owned()),
        metadata: UserMetadata::from([("new".to_owned(), "2".to_owned())]),
    };
    let options = CopyOptions {
        if_match: Some(written.etag),
        description: Some(description.clone()),
        ..CopyOptions::default()
    };
    let copied = store
        .copy(&key("file"), &key("copy"), options.clone())
        .await;
    copied.expect("a copy elsewhere succeeds");
    let copied = store.copy(&key("file"), &key("file"), options).await;
    let stored = copied.expect("a copy onto itself succeeds");
    for name in ["file", "copy"] {
        let info = head(store, name).await.expect("it is there");
        assert_eq!(info.content_type, "text/x-new");
        assert_eq!(info.metadata, description.metadata);
        assert!(read(store, name).await == body, "the copy has other bytes");
    }
    let info = head(store, "file").await.expect("it is there");
    assert_eq!(info.etag, stored.etag);
}

/// With `if_match` a copy is made of that version or not at all.
pub async fn copies_can_be_pinned_to_a_version(store: &Arc<dyn Store>) {
    let pinned = |etag| CopyOptions {
        if_match: Some(etag),
        ..CopyOptions::default()
    };
    let first = put(store, "from", b"first").await;
    let second = put(store, "from", b"second").await;
    let copied = store
        .copy(&key("from"), &key("to"), pinned(first.etag))
        .await;
    assert_fails(
        copied,
        ErrorKind::PreconditionFailed,
        "a copy of the old version",
    );
    assert!(!exists(store, "to").await);
    let copied = store
        .copy(&key("from"), &key("to"), pinned(second.etag))
        .await;
    copied.expect("that version is there");
    assert_eq!(read(store, "to").await, b"second");
}

/// `IfAbsent` copies once and refuses from then on.
pub async fn a_copy_can_insist_on_a_free_key(store: &Arc<dyn Store>) {
    let options = CopyOptions {
        condition: WriteCondition::IfAbsent,
        ..CopyOptions::default()
    };
    put(store, "from", b"new").await;
    put(store, "taken", b"old").await;
    let onto_taken = store
        .copy(&key("from"), &key("taken"), options.clone())
        .await;
    assert_fails(
        onto_taken,
        ErrorKind::AlreadyExists,
        "a copy onto a taken key",
    );
    assert_eq!(read(store, "taken").await, b"old");
    let copied = store.copy(&key("from"), &key("free"), options).await;
    copied.expect("the key is free");
    assert_eq!(read(store, "free").await, b"new");
}
