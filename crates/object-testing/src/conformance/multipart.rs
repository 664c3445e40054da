//! Contracts of multipart uploads.

use std::sync::Arc;

use penstock_base::{KIB, Payload};

use super::support::{
    assert_fails, exists, head, key, keys_under, only_if_absent, pattern, put, read,
};
use penstock_object::{
    CompleteOptions, ErrorKind, ObjectResult, Part, PartCopy, PutOptions, Store, Stored, UploadId,
    UserMetadata,
};

/// A part size that the store takes for every part.
pub(super) fn part_size(store: &Arc<dyn Store>) -> usize {
    store.capabilities().part_size_min.max(64 * KIB) as usize
}

pub(super) async fn begin(store: &Arc<dyn Store>, name: &str) -> UploadId {
    let created = store.create_upload(&key(name), PutOptions::default()).await;
    created.expect("an upload can be begun")
}

async fn send(
    store: &Arc<dyn Store>,
    name: &str,
    upload: &UploadId,
    (number, body): (u32, &[u8]),
) -> Part {
    let body = Payload::from(body.to_vec());
    let sent = store.upload_part(&key(name), upload, number, body).await;
    let part = sent.expect("the part is taken");
    assert_eq!(part.number, number);
    part
}

async fn complete(
    store: &Arc<dyn Store>,
    name: &str,
    upload: &UploadId,
    parts: &[Part],
) -> ObjectResult<Stored> {
    store
        .complete_upload(&key(name), upload, parts, CompleteOptions::default())
        .await
}

/// Parts sent in any order, numbered with gaps, make one object with the upload's metadata.
pub async fn parts_become_an_object(store: &Arc<dyn Store>) {
    let size = part_size(store);
    let body = pattern(2 * size + 4321, 1);
    let options = PutOptions {
        content_type: Some("text/x-test".to_owned()),
        metadata: UserMetadata::from([("colour".to_owned(), "blue".to_owned())]),
        ..PutOptions::default()
    };
    let name = "dir/assembled";
    put(store, name, b"what was there before").await;
    let upload = store.create_upload(&key(name), options).await;
    let upload = upload.expect("an upload can be begun");
    let last = send(store, name, &upload, (7, &body[2 * size..])).await;
    let first = send(store, name, &upload, (1, &body[..size])).await;
    let middle = send(store, name, &upload, (4, &body[size..2 * size])).await;
    assert_eq!((first.size, last.size), (size as u64, 4321));
    let stored = complete(store, name, &upload, &[first, middle, last]).await;
    let stored = stored.expect("the upload completes");
    let info = head(store, name).await.expect("it is there");
    assert_eq!((info.size, info.etag), (body.len() as u64, stored.etag));
    assert_eq!(info.content_type, "text/x-test");
    assert_eq!(
        info.metadata.get("colour").map(String::as_str),
        Some("blue")
    );
    assert!(
        read(store, name).await == body,
        "the object has other bytes"
    );
    assert_eq!(keys_under(store, "").await, [name]);
    let single = begin(store, "single").await;
    let part = send(store, "single", &single, (1, b"small last part")).await;
    complete(store, "single", &single, &[part])
        .await
        .expect("one part is enough");
    assert_eq!(read(store, "single").await, b"small last part");
}

/// A part sent again replaces the one before it.
pub async fn parts_can_be_sent_again(store: &Arc<dyn Store>) {
    let size = part_size(store);
    let upload = begin(store, "again").await;
    send(store, "again", &upload, (1, &pattern(size, 1))).await;
    let second = send(store, "again", &upload, (2, b"end")).await;
    let replaced = pattern(size + 1, 2);
    let first = send(store, "again", &upload, (1, &replaced)).await;
    let stored = complete(store, "again", &upload, &[first, second]).await;
    stored.expect("the upload completes");
    assert!(read(store, "again").await == [&replaced[..], b"end"].concat());
}

/// Parts can be copied from objects, pinned to a version.
pub async fn parts_can_be_copied(store: &Arc<dyn Store>) {
    let size = part_size(store);
    let source = pattern(size + 1000, 1);
    let version = put(store, "source", &source).await;
    let upload = begin(store, "target").await;
    let copy = |from: &str, range, if_match| {
        let source = key(from);
        let copy = PartCopy {
            source,
            range,
            if_match,
        };
        let upload = upload.clone();
        async move { store.copy_part(&key("target"), &upload, 1, copy).await }
    };
    let end = 10 + size as u64;
    let first = copy("source", 10..end, Some(version.etag.clone())).await;
    let first = first.expect("the part is copied");
    assert_eq!((first.number, first.size), (1, size as u64));
    put(store, "source", b"another version").await;
    let stale = copy("source", 0..10, Some(version.etag)).await;
    assert_fails(
        stale,
        ErrorKind::PreconditionFailed,
        "a copy of the old version",
    );
    let missing = copy("missing", 0..10, None).await;
    assert_fails(missing, ErrorKind::NotFound, "a copy of nothing");
    let second = send(store, "target", &upload, (2, b"tail")).await;
    let stored = complete(store, "target", &upload, &[first, second]).await;
    stored.expect("the upload completes");
    assert!(read(store, "target").await == [&source[10..10 + size], b"tail"].concat());
}

/// Until it is completed an upload shows nowhere and disturbs nothing.
pub async fn nothing_is_visible_before_completion(store: &Arc<dyn Store>) {
    put(store, "kept", b"old").await;
    for name in ["kept", "new"] {
        let upload = begin(store, name).await;
        send(store, name, &upload, (1, b"new content")).await;
        assert_eq!(keys_under(store, "").await, ["kept"]);
        assert!(!exists(store, "new").await);
        assert_eq!(read(store, "kept").await, b"old");
        store
            .abort_upload(&key(name), &upload)
            .await
            .expect("aborting works");
    }
    assert_eq!(keys_under(store, "").await, ["kept"]);
}

/// Completion refuses parts that it does not have and leaves the upload as it was.
pub async fn completion_refuses_what_does_not_fit(store: &Arc<dyn Store>) {
    let size = part_size(store);
    let upload = begin(store, "strict").await;
    let old = send(store, "strict", &upload, (1, &pattern(size, 1))).await;
    let first = send(store, "strict", &upload, (1, &pattern(size, 2))).await;
    let second = send(store, "strict", &upload, (2, b"end")).await;
    let never = Part {
        number: 3,
        ..second.clone()
    };
    let reversed = [second.clone(), first.clone()];
    for (parts, what) in [
        (&[old, second.clone()][..], "a part that was replaced"),
        (&[first.clone(), never][..], "a part that was never sent"),
        (&reversed[..], "parts in the wrong order"),
        (&[], "no parts"),
    ] {
        let refused = complete(store, "strict", &upload, parts).await;
        assert_fails(refused, ErrorKind::InvalidRequest, what);
        assert!(!exists(store, "strict").await, "{what}");
    }
    let stored = complete(store, "strict", &upload, &[first, second]).await;
    stored.expect("the upload is still good");
}

/// A part that is not the last has at least `part_size_min` bytes.
pub async fn small_parts_are_refused_where_the_store_says_so(store: &Arc<dyn Store>) {
    let minimum = store.capabilities().part_size_min;
    let upload = begin(store, "small").await;
    let size = minimum.saturating_sub(1).max(1) as usize;
    let first = send(store, "small", &upload, (1, &pattern(size, 1))).await;
    let second = send(store, "small", &upload, (2, b"end")).await;
    let completed = complete(store, "small", &upload, &[first, second]).await;
    if minimum > 1 {
        assert_fails(completed, ErrorKind::InvalidRequest, "too small a part");
        assert!(!exists(store, "small").await);
        store
            .abort_upload(&key("small"), &upload)
            .await
            .expect("aborting works");
    } else {
        completed.expect("the store takes parts of any size");
    }
}

/// With `IfAbsent` completion refuses to replace what has come in the meantime.
pub async fn completion_can_insist_on_a_free_key(store: &Arc<dyn Store>) {
    let options = CompleteOptions {
        condition: only_if_absent().condition,
        ..CompleteOptions::default()
    };
    let finish = |name: &'static str| {
        let options = options.clone();
        async move {
            let upload = store.create_upload(&key(name), only_if_absent()).await;
            let upload = upload.expect("an upload can be begun");
            let part = send(store, name, &upload, (1, b"new")).await;
            let done = store
                .complete_upload(&key(name), &upload, &[part], options)
                .await;
            if done.is_err() {
                store
                    .abort_upload(&key(name), &upload)
                    .await
                    .expect("aborting works");
            }
            done
        }
    };
    put(store, "taken", b"old").await;
    assert_fails(
        finish("taken").await,
        ErrorKind::AlreadyExists,
        "a taken key",
    );
    assert_eq!(read(store, "taken").await, b"old");
    finish("free").await.expect("the key is free");
    assert_eq!(read(store, "free").await, b"new");
}

/// Aborting succeeds whether or not there is something to abort, and ends the upload.
pub async fn aborting_is_idempotent(store: &Arc<dyn Store>) {
    let upload = begin(store, "aborted").await;
    let part = send(store, "aborted", &upload, (1, b"x")).await;
    for _ in 0..2 {
        store
            .abort_upload(&key("aborted"), &upload)
            .await
            .expect("aborting works");
    }
    let sent = store
        .upload_part(&key("aborted"), &upload, 2, Payload::from(b"x".to_vec()))
        .await;
    assert_fails(sent, ErrorKind::NoSuchUpload, "a part of an aborted upload");
    let completed = complete(store, "aborted", &upload, &[part]).await;
    assert_fails(
        completed,
        ErrorKind::NoSuchUpload,
        "completing an aborted upload",
    );
    assert!(!exists(store, "aborted").await);
}

/// A completed upload takes no more parts and cannot be completed again.
pub async fn finished_uploads_are_gone(store: &Arc<dyn Store>) {
    let upload = begin(store, "finished").await;
    let part = send(store, "finished", &upload, (1, b"first")).await;
    let parts = [part];
    complete(store, "finished", &upload, &parts)
        .await
        .expect("the upload completes");
    put(store, "finished", b"later").await;
    let sent = store
        .upload_part(&key("finished"), &upload, 2, Payload::from(b"x".to_vec()))
        .await;
    assert_fails(sent, ErrorKind::NoSuchUpload, "a part of a finished upload");
    let again = complete(store, "finished", &upload, &parts).await;
    assert_fails(again, ErrorKind::NoSuchUpload, "completing twice");
    store
        .abort_upload(&key("finished"), &upload)
        .await
        .expect("aborting works");
    assert_eq!(read(store, "finished").await, b"later");
}
