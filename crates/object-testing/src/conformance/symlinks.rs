//! Contracts of symbolic links.

use std::sync::Arc;

use super::support::{assert_fails, exists, head, key, keys_under, put, read};
use penstock_object::{
    ErrorKind, ListOptions, ObjectKind, ObjectResult, PutOptions, Store, Stored,
};

async fn link(store: &Arc<dyn Store>, name: &str, target: &str) -> ObjectResult<Stored> {
    store
        .put_symlink(&key(name), &key(target), PutOptions::default())
        .await
}

/// Whether the store has links. If not, it must say so and change nothing.
async fn has_links(store: &Arc<dyn Store>) -> bool {
    if !store.capabilities().symlinks {
        let refused = link(store, "link", "target").await;
        assert_fails(refused, ErrorKind::Unsupported, "a link");
        let refused = store.get_symlink(&key("link")).await;
        assert_fails(refused, ErrorKind::Unsupported, "a link's target");
        assert!(!exists(store, "link").await);
    }
    store.capabilities().symlinks
}

/// A link tells its target, reads as it, and is told apart from it.
pub async fn links_lead_to_their_target(store: &Arc<dyn Store>) {
    if !has_links(store).await {
        return;
    }
    put(store, "dir/target +%", b"content").await;
    link(store, "link", "dir/target +%")
        .await
        .expect("links can be made");
    let target = store.get_symlink(&key("link")).await;
    assert_eq!(target.expect("it is a link"), key("dir/target +%"));
    assert_eq!(read(store, "link").await, b"content");
    let info = head(store, "link").await.expect("it is there");
    assert_eq!(info.kind, ObjectKind::Symlink);
    let page = store.list(ListOptions::default()).await.expect("it lists");
    let kinds: Vec<ObjectKind> = page.objects.iter().map(|object| object.kind).collect();
    assert_eq!(kinds, [ObjectKind::Normal, ObjectKind::Symlink]);
    let missing = store.get_symlink(&key("missing")).await;
    assert_fails(missing, ErrorKind::NotFound, "the target of nothing");
}

/// A put over a link replaces it and leaves its target; a dangling link is still a link.
pub async fn links_are_replaced_and_deleted_like_objects(store: &Arc<dyn Store>) {
    if !has_links(store).await {
        return;
    }
    put(store, "target", b"content").await;
    link(store, "link", "target")
        .await
        .expect("links can be made");
    link(store, "dangling", "missing")
        .await
        .expect("links may dangle");
    let target = store.get_symlink(&key("dangling")).await;
    assert_eq!(target.expect("it is a link"), key("missing"));
    assert!(!exists(store, "dangling").await, "it leads nowhere");
    assert_eq!(keys_under(store, "").await, ["dangling", "link", "target"]);
    put(store, "link", b"whole").await;
    assert_eq!(read(store, "target").await, b"content");
    let info = head(store, "link").await.expect("it is there");
    assert_eq!(info.kind, ObjectKind::Normal);
    link(store, "link", "target")
        .await
        .expect("a link replaces an object");
    store.delete(&key("link")).await.expect("deleting works");
    assert_eq!(read(store, "target").await, b"content");
}
