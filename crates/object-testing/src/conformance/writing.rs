//! Contracts of `put`.

use std::{collections::HashSet, sync::Arc};

use futures_util::future::join_all;
use penstock_base::Payload;

use super::support::{
    assert_fails, exists, head, key, keys_under, only_if_absent, pattern, put, read, read_with,
};
use penstock_object::{
    CompleteOptions, ETag, ErrorKind, GetOptions, PutOptions, Store, UserMetadata, WriteCondition,
};

fn described(content_type: &str, metadata: &[(&str, &str)]) -> PutOptions {
    let metadata: UserMetadata = metadata
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    PutOptions {
        content_type: Some(content_type.to_owned()),
        metadata,
        ..PutOptions::default()
    }
}

/// Content type and user metadata come back with `head` and `get`.
pub async fn metadata_comes_back(store: &Arc<dyn Store>) {
    let options = described(
        "text/x-test",
        &[
            ("colour", "blue"),
            ("two-words", "with spaces, and = signs"),
            ("n", "0"),
        ],
    );
    let name = key("described");
    store
        .put(&name, Payload::from(b"x".to_vec()), options.clone())
        .await
        .expect("metadata is taken");
    let info = head(store, "described").await.expect("it is there");
    assert_eq!(info.content_type, "text/x-test");
    assert_eq!(info.metadata, options.metadata);
    let (got, _) = read_with(store, "described", GetOptions::default()).await;
    assert_eq!(got.info.metadata, options.metadata);
}

/// A second put leaves nothing of the first: no bytes, no metadata, no tag.
pub async fn overwriting_replaces_everything(store: &Arc<dyn Store>) {
    let options = described("text/x-test", &[("colour", "blue")]);
    let body = Payload::from(pattern(5000, 1));
    let first = store.put(&key("replaced"), body, options).await;
    let first = first.expect("the first put succeeds");
    let second = put(store, "replaced", b"short").await;
    assert_ne!(first.etag, second.etag);
    assert_eq!(read(store, "replaced").await, b"short");
    let info = head(store, "replaced").await.expect("it is there");
    assert_eq!((info.size, info.etag), (5, second.etag));
    assert!(info.metadata.is_empty() && info.content_type != "text/x-test");
    assert_eq!(keys_under(store, "").await, ["replaced"]);
}

/// Tags tell versions apart even when they have one size and follow each other at once.
pub async fn other_content_has_another_tag(store: &Arc<dyn Store>) {
    let mut tags = HashSet::new();
    for version in 0..50_u32 {
        let stored = put(store, "versions", &version.to_be_bytes()).await;
        let info = head(store, "versions").await.expect("it is there");
        assert_eq!(info.etag, stored.etag);
        assert!(
            tags.insert(stored.etag),
            "version {version} has an earlier tag"
        );
    }
}

/// `IfAbsent` writes once and refuses from then on, without touching what is there.
pub async fn a_write_can_insist_on_a_free_key(store: &Arc<dyn Store>) {
    let write = |body: &'static [u8]| {
        let payload = Payload::from(body.to_vec());
        async move { store.put(&key("once"), payload, only_if_absent()).await }
    };
    write(b"first").await.expect("the key is free");
    assert_fails(
        write(b"second").await,
        ErrorKind::AlreadyExists,
        "the second write",
    );
    assert_eq!(read(store, "once").await, b"first");
    store.delete(&key("once")).await.expect("deleting works");
    write(b"third").await.expect("the key is free again");
    let racers = (0..8_u32).map(|racer| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let body = Payload::from(racer.to_be_bytes().to_vec());
            store
                .put(&key("race"), body, only_if_absent())
                .await
                .is_ok()
        })
    });
    let outcomes = join_all(racers).await;
    let winners = outcomes.into_iter().filter(|won| matches!(won, Ok(true)));
    assert_eq!(winners.count(), 1, "one of the racing writers wins");
}

/// `IfMatch` replaces that version and no other, in one put and at the end of an upload.
pub async fn a_write_can_insist_on_a_version(store: &Arc<dyn Store>) {
    let name = key("pinned");
    let write = |tag: &ETag, body: &'static [u8]| {
        let options = PutOptions {
            condition: WriteCondition::IfMatch(tag.clone()),
            ..PutOptions::default()
        };
        store.put(&name, Payload::from(body.to_vec()), options)
    };
    let first = put(store, "pinned", b"first").await;
    let second = write(&first.etag, b"second").await;
    let second = second.expect("it is the first version that is there");
    let refused = write(&first.etag, b"third").await;
    assert_fails(refused, ErrorKind::PreconditionFailed, "another version");
    assert_eq!(read(store, "pinned").await, b"second");
    for (tag, wins) in [(&first.etag, false), (&second.etag, true)] {
        let id = store.create_upload(&name, PutOptions::default()).await;
        let id = id.expect("an upload begins");
        let body = Payload::from(b"third".to_vec());
        let part = store.upload_part(&name, &id, 1, body).await;
        let parts = [part.expect("the part is taken")];
        let options = CompleteOptions {
            condition: WriteCondition::IfMatch(tag.clone()),
            ..CompleteOptions::default()
        };
        let ended = store.complete_upload(&name, &id, &parts, options).await;
        if wins {
            ended.expect("it is the second version that is there");
        } else {
            assert_fails(ended, ErrorKind::PreconditionFailed, "another version");
            store.abort_upload(&name, &id).await.expect("aborted");
        }
    }
    assert_eq!(read(store, "pinned").await, b"third");
    store.delete(&name).await.expect("deleting works");
    let refused = write(&second.etag, b"fourth").await;
    assert_fails(refused, ErrorKind::PreconditionFailed, "no version");
    assert!(!exists(store, "pinned").await);
}

/// Of racing puts one wins whole; readers see whole bodies at every moment.
pub async fn concurrent_puts_leave_one_whole_body(store: &Arc<dyn Store>) {
    const WRITERS: u8 = 6;
    const ROUNDS: usize = 5;
    put(store, "contended", &[0; 100_000]).await;
    let writers = (0..WRITERS).map(|writer| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                let length = 50_000 + 10_000 * round;
                put(&store, "contended", &vec![writer; length]).await;
                let (got, body) = read_with(&store, "contended", GetOptions::default()).await;
                assert_eq!(body.len() as u64, got.info.size);
                assert!(
                    body.iter().all(|byte| *byte == body[0]),
                    "a mixture is visible"
                );
            }
        })
    });
    for writer in join_all(writers).await {
        writer.expect("no writer failed");
    }
    assert_eq!(keys_under(store, "").await, ["contended"]);
}

/// A put whose future is dropped leaves the whole object or nothing.
pub async fn a_dropped_put_is_whole_or_nothing(store: &Arc<dyn Store>) {
    let body = pattern(1 << 20, 1);
    for polls in 0..10_u32 {
        let name = format!("dropped-{polls}");
        let task = {
            let (store, name, body) = (Arc::clone(store), key(&name), body.clone());
            tokio::spawn(async move {
                let _ = store
                    .put(&name, Payload::from(body), PutOptions::default())
                    .await;
            })
        };
        for _ in 0..polls {
            tokio::task::yield_now().await;
        }
        task.abort();
        let _ = task.await;
        if exists(store, &name).await {
            assert!(
                read(store, &name).await == body,
                "half of a dropped put is visible"
            );
        }
    }
}
