//! Contracts of `get` and `head`.

use std::{sync::Arc, time::Duration};

use penstock_base::{Payload, clock};

use super::support::{
    Recorder, assert_fails, exists, head, key, pattern, put, read, read_with, sliced, try_read,
};
use penstock_object::{ByteRange, ETag, ErrorKind, GetOptions, ObjectKind, PutOptions, Store};

fn range(range: ByteRange) -> GetOptions {
    GetOptions {
        range: Some(range),
        ..GetOptions::default()
    }
}

fn if_match(etag: &ETag) -> GetOptions {
    GetOptions {
        if_match: Some(etag.clone()),
        ..GetOptions::default()
    }
}

/// Bodies of every size, in one slice or many, come back byte by byte.
pub async fn get_returns_what_was_put(store: &Arc<dyn Store>) {
    for (index, size) in [1, 7, 4096, 65_537, 3 << 20].into_iter().enumerate() {
        let name = format!("size-{size}");
        let body = pattern(size, index as u32);
        let payload = sliced(&body, size.div_ceil(3));
        let stored = store
            .put(&key(&name), payload, PutOptions::default())
            .await
            .expect("the put succeeds");
        let (got, read) = read_with(store, &name, GetOptions::default()).await;
        assert!(read == body, "{name}: other bytes came back");
        assert_eq!(got.range, 0..size as u64);
        assert_eq!((got.info.size, got.info.etag), (size as u64, stored.etag));
    }
}

/// Neither `get` nor `head` finds what was never written or was deleted.
pub async fn what_is_missing_is_not_found(store: &Arc<dyn Store>) {
    put(store, "there/below", b"x").await;
    for name in ["missing", "there", "there/", "there/below/more"] {
        assert!(!exists(store, name).await, "`{name}` exists");
        let got = try_read(store, name, GetOptions::default()).await;
        assert_fails(got, ErrorKind::NotFound, name);
    }
    put(store, "gone", b"x").await;
    store.delete(&key("gone")).await.expect("deleting works");
    assert!(!exists(store, "gone").await);
}

/// `head` knows size, tag, kind and a plausible time.
pub async fn head_describes_the_object(store: &Arc<dyn Store>) {
    let stored = put(store, "described", b"twelve bytes").await;
    let info = head(store, "described").await.expect("it is there");
    assert_eq!((info.size, &info.etag), (12, &stored.etag));
    assert_eq!(info.kind, ObjectKind::Normal);
    let hour = Duration::from_secs(3600);
    let now = clock::wall_time();
    assert!(
        info.modified > now - hour && info.modified < now + hour,
        "modified {:?}",
        info.modified
    );
    let (got, _) = read_with(store, "described", GetOptions::default()).await;
    assert_eq!(got.info, info, "get and head disagree");
}

/// `begin` is called once, before the first byte, with what `get` then returns; never for an
/// error.
pub async fn a_sink_learns_what_it_receives(store: &Arc<dyn Store>) {
    put(store, "begun", &pattern(1000, 1)).await;
    for (options, expected) in [
        (GetOptions::default(), 0..1000),
        (range(10..20), 10..20),
        (range(990..2000), 990..1000),
    ] {
        let mut sink = Recorder::new(64, 1000);
        let got = store.get(&key("begun"), options, &mut sink).await;
        let got = got.expect("it can be read");
        assert_eq!(got.range, expected);
        assert_eq!(sink.begun, [got]);
    }
    let mut sink = Recorder::new(64, 1000);
    let got = store
        .get(&key("missing"), GetOptions::default(), &mut sink)
        .await;
    assert_fails(got, ErrorKind::NotFound, "get");
    assert!(sink.begun.is_empty() && sink.body.is_empty());
}

/// A range delivers exactly its bytes, and what lies beyond the end is cut off.
pub async fn ranges_deliver_their_bytes_and_are_clipped(store: &Arc<dyn Store>) {
    let body = pattern(10_000, 1);
    put(store, "ranged", &body).await;
    for wanted in [
        0..1,
        0..10_000,
        1..2,
        4095..4097,
        9999..10_000,
        9000..u64::from(u32::MAX),
    ] {
        let (got, bytes) = read_with(store, "ranged", range(wanted.clone())).await;
        let end = wanted.end.min(10_000);
        assert_eq!((&got.range, got.info.size), (&(wanted.start..end), 10_000));
        assert!(
            bytes == body[wanted.start as usize..end as usize],
            "{wanted:?}"
        );
    }
}

/// A range that starts at or beyond the end of an object has nothing to deliver.
pub async fn ranges_beyond_the_end_are_refused(store: &Arc<dyn Store>) {
    put(store, "short", b"0123456789").await;
    for beyond in [10..11, 10..1000, 5000..5001] {
        let what = format!("range {beyond:?}");
        let got = try_read(store, "short", range(beyond)).await;
        assert_fails(got, ErrorKind::InvalidRange, &what);
    }
}

/// With `if_match` a read gets that version or none.
pub async fn reads_can_be_pinned_to_a_version(store: &Arc<dyn Store>) {
    let first = put(store, "pinned", b"first").await;
    let (got, body) = read_with(store, "pinned", if_match(&first.etag)).await;
    assert_eq!(
        (got.info.etag, &body[..]),
        (first.etag.clone(), &b"first"[..])
    );
    let second = put(store, "pinned", b"other").await;
    let got = try_read(store, "pinned", if_match(&first.etag)).await;
    assert_fails(
        got,
        ErrorKind::PreconditionFailed,
        "a read of the old version",
    );
    let options = GetOptions {
        range: Some(1..3),
        ..if_match(&second.etag)
    };
    assert_eq!(read_with(store, "pinned", options).await.1, b"th");
    store.delete(&key("pinned")).await.expect("deleting works");
    let got = try_read(store, "pinned", if_match(&second.etag)).await;
    assert_fails(got, ErrorKind::NotFound, "a pinned read of what is gone");
}

/// An object without bytes is there, is listed and can be read whole.
pub async fn empty_objects_are_objects(store: &Arc<dyn Store>) {
    let stored = store
        .put(&key("empty"), Payload::new(), PutOptions::default())
        .await
        .expect("an empty put succeeds");
    let info = head(store, "empty").await.expect("it is there");
    assert_eq!((info.size, info.etag), (0, stored.etag));
    let mut sink = Recorder::new(16, 16);
    let got = store
        .get(&key("empty"), GetOptions::default(), &mut sink)
        .await;
    assert_eq!(got.expect("a whole read succeeds").range, 0..0);
    assert_eq!((sink.begun.len(), sink.body.len()), (1, 0));
}

/// When the sink is full the read ends well with the range that fitted.
pub async fn a_full_sink_ends_the_read(store: &Arc<dyn Store>) {
    let body = pattern(300_000, 1);
    put(store, "large", &body).await;
    let mut sink = Recorder::new(1 << 20, 100_001);
    let got = store.get(&key("large"), range(5..250_000), &mut sink).await;
    let got = got.expect("a full sink is no error");
    assert_eq!((got.range, got.info.size), (5..100_006, 300_000));
    assert!(sink.body == body[5..100_006]);
    assert!(
        read(store, "large").await == body,
        "the next read is not disturbed"
    );
}

/// A sink decides how much memory it hands out at once.
pub async fn sinks_may_hand_out_memory_in_pieces(store: &Arc<dyn Store>) {
    let body = pattern(20_011, 1);
    put(store, "pieces", &body).await;
    for piece in [1, 13, 4096] {
        let mut sink = Recorder::new(piece, usize::MAX);
        let got = store
            .get(&key("pieces"), GetOptions::default(), &mut sink)
            .await;
        assert_eq!(got.expect("it can be read").range, 0..20_011);
        assert!(sink.body == body, "pieces of {piece}");
    }
}
