//! Contracts about names: a key is bytes, and none of them means anything to a store but `/` in
//! a delimited listing.

use std::sync::Arc;

use super::support::{exists, key, keys_under, put, read};
use penstock_object::{KEY_LENGTH_MAX, Store};

/// Each of `names` is an object of its own: written, found, listed, read and deleted by its name.
async fn are_kept(store: &Arc<dyn Store>, names: &[String]) {
    for name in names {
        put(store, name, name.as_bytes()).await;
    }
    for name in names {
        assert!(
            read(store, name).await == name.as_bytes(),
            "`{name}` is another object"
        );
    }
    let mut sorted = names.to_vec();
    sorted.sort();
    assert_eq!(keys_under(store, "").await, sorted);
    for (index, name) in names.iter().enumerate() {
        store.delete(&key(name)).await.expect("deleting works");
        assert!(!exists(store, name).await, "`{name}` is still there");
        if let Some(next) = names.get(index + 1) {
            assert!(exists(store, next).await, "`{next}` went with `{name}`");
        }
    }
    assert!(keys_under(store, "").await.is_empty());
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Spaces, letters of any script and what URLs, shells and queries treat as special.
pub async fn printable_keys_are_kept(store: &Arc<dyn Store>) {
    let names = [
        "a b",
        " leading",
        "trailing ",
        "plus+plus",
        "percent%",
        "%41",
        "%2F",
        "what?",
        "hash#",
        "amp&ersand",
        "equals=",
        "semi;colon",
        "comma,",
        "quote'",
        "double\"",
        "back\\slash",
        "star*",
        "(brackets)",
        "[square]",
        "{curly}",
        "<angle>",
        "tilde~",
        "dollar$",
        "at@",
        "bang!",
        "pipe|",
        "caret^",
        "backtick`",
        "colon:",
        "Ünïcödé",
        "日本語/キー",
        "🚰",
        "e\u{301}",
        "é",
        "UPPER",
        "upper",
        "dir with space/file+1%.txt",
        "-dash",
        "_",
        "~",
    ];
    are_kept(store, &owned(&names)).await;
}

/// `.` and `..` are names like any other.
pub async fn dot_components_are_kept(store: &Arc<dyn Store>) {
    let names = [
        ".",
        "..",
        "...",
        "./a",
        "../a",
        "a/.",
        "a/..",
        "a/./b",
        "a/../b",
        "a/.../b",
        "../../etc",
        ".hidden",
        "b/.hidden",
    ];
    are_kept(store, &owned(&names)).await;
}

/// Slashes may lead, trail and follow each other.
pub async fn empty_components_are_kept(store: &Arc<dyn Store>) {
    let names = [
        "/", "//", "/a", "a", "a/", "a//", "a//b", "a/b", "//a//b//", "b/", "b/c/",
    ];
    are_kept(store, &owned(&names)).await;
}

/// Keys and their components may be as long as a key can be.
pub async fn long_keys_are_kept(store: &Arc<dyn Store>) {
    // A service may add the prefix under which the test runs.
    let length = KEY_LENGTH_MAX - 64;
    let deep = "d/".repeat(length / 2 - 1) + "x";
    let names = [
        "x".repeat(255),
        "x".repeat(256),
        "x".repeat(length),
        "ü".repeat(length / 2),
        "%".repeat(length),
        format!("dir/{}/{}", "y".repeat(300), "z".repeat(300)),
        deep,
        "/".repeat(length),
    ];
    are_kept(store, &names).await;
}

/// `a` and what lies under `a/` are objects beside each other, whichever came first.
pub async fn a_key_may_be_a_prefix_of_others(store: &Arc<dyn Store>) {
    are_kept(store, &owned(&["a", "a/b", "a/b/c", "a-b", "a0"])).await;
    are_kept(store, &owned(&["x/y/z", "x/y", "x", "x/", "x/y/"])).await;
}

/// No name is taken by the store itself.
pub async fn keys_may_look_like_a_stores_own_names(store: &Arc<dyn Store>) {
    let names = [
        ".penstock",
        ".penstock/staging/x",
        ".penstock-object",
        ".penstock=",
        ".penstock=a",
        ".penstock+a/b",
        ".penstock=%2F",
        "a/.penstock",
        "a/.penstock-object",
        "a/.penstock=.",
        ".penstockade",
        ".minio.sys/x",
        ".ossfs_hidden_file_a",
    ];
    are_kept(store, &owned(&names)).await;
}
