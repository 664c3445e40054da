//! Contracts of `append`.

use std::sync::Arc;

use penstock_base::Payload;

use super::support::{assert_fails, exists, head, key, pattern, put, read};
use penstock_object::{
    Appended, ErrorKind, ObjectKind, ObjectResult, PutOptions, Store, UserMetadata,
};

async fn append(
    store: &Arc<dyn Store>,
    name: &str,
    position: u64,
    body: &[u8],
) -> ObjectResult<Appended> {
    let body = Payload::from(body.to_vec());
    store
        .append(&key(name), position, body, PutOptions::default())
        .await
}

/// Whether the store can append. If not, an append must say so and change nothing.
async fn can_append(store: &Arc<dyn Store>) -> bool {
    if !store.capabilities().append {
        let refused = append(store, "log", 0, b"x").await;
        assert_fails(refused, ErrorKind::Unsupported, "appending");
        assert!(!exists(store, "log").await);
    }
    store.capabilities().append
}

/// Appends begin an object and grow it; each piece is visible at once.
pub async fn appends_grow_an_object(store: &Arc<dyn Store>) {
    if !can_append(store).await {
        return;
    }
    let options = PutOptions {
        metadata: UserMetadata::from([("colour".to_owned(), "blue".to_owned())]),
        ..PutOptions::default()
    };
    let body = pattern(200_000, 1);
    let name = key("dir/log");
    let begun = store
        .append(&name, 0, Payload::from(body[..10].to_vec()), options)
        .await;
    let begun = begun.expect("an append begins an object");
    assert_eq!(begun.next_position, 10);
    let first = head(store, "dir/log").await.expect("it is there");
    assert_eq!((first.size, first.kind), (10, ObjectKind::Appendable));
    let mut position = 10;
    for end in [11, 5000, 200_000] {
        let piece = &body[position as usize..end];
        let appended = append(store, "dir/log", position, piece).await;
        position = appended.expect("the object grows").next_position;
        assert_eq!(position, end as u64);
        assert!(
            read(store, "dir/log").await == body[..end],
            "after {end} bytes"
        );
    }
    let last = head(store, "dir/log").await.expect("it is there");
    assert_ne!(first.etag, last.etag, "other content has another tag");
    assert_eq!(
        last.metadata.get("colour").map(String::as_str),
        Some("blue")
    );
}

/// An append lands at the position that it names or nowhere.
pub async fn appends_check_the_position(store: &Arc<dyn Store>) {
    if !can_append(store).await {
        return;
    }
    let early = append(store, "log", 5, b"x").await;
    assert_fails(
        early,
        ErrorKind::PositionMismatch,
        "an append to nothing at 5",
    );
    assert!(!exists(store, "log").await);
    append(store, "log", 0, b"12345").await.expect("it begins");
    for position in [0, 4, 6] {
        let refused = append(store, "log", position, b"x").await;
        assert_fails(refused, ErrorKind::PositionMismatch, "an append elsewhere");
    }
    assert_eq!(read(store, "log").await, b"12345");
    append(store, "log", 5, b"6")
        .await
        .expect("the end is the place");
    assert_eq!(read(store, "log").await, b"123456");
}

/// An object written whole does not grow; one that is replaced stops being appendable.
pub async fn only_appendable_objects_grow(store: &Arc<dyn Store>) {
    if !can_append(store).await {
        return;
    }
    put(store, "whole", b"12345").await;
    let refused = append(store, "whole", 5, b"6").await;
    assert_fails(
        refused,
        ErrorKind::Unsupported,
        "an append to a whole object",
    );
    assert_eq!(read(store, "whole").await, b"12345");
    append(store, "log", 0, b"12345").await.expect("it begins");
    put(store, "log", b"12345").await;
    let info = head(store, "log").await.expect("it is there");
    assert_eq!(info.kind, ObjectKind::Normal);
    let refused = append(store, "log", 5, b"6").await;
    assert_fails(
        refused,
        ErrorKind::Unsupported,
        "an append to a replaced object",
    );
}
