//! Contracts of `list`.

use std::sync::Arc;

use super::support::{head, key, keys, keys_under, pages, pattern, put};
use penstock_object::{FlatPage, ListOptions, ListPage, Store};

/// Keys whose byte order differs from the order of their directories and from any locale's.
const TREE: [&str; 14] = [
    "B", "a", "a b", "a!", "a-b", "a.b", "a/", "a/b", "a/b-c", "a/b/c", "a/b/d/e", "a0", "b", "é",
];

async fn plant(store: &Arc<dyn Store>, names: &[&str]) {
    for name in names.iter().rev() {
        put(store, name, name.as_bytes()).await;
    }
}

fn delimited(prefix: &str) -> ListOptions {
    ListOptions {
        prefix: prefix.to_owned(),
        delimited: true,
        ..ListOptions::default()
    }
}

/// Objects and prefixes of all pages in the order in which a merge of both would show them.
fn merged(pages: &[ListPage]) -> Vec<String> {
    let mut merged = Vec::new();
    for page in pages {
        let objects = page.objects.iter().map(|object| object.key.clone());
        let mut entries: Vec<String> = objects.chain(page.common_prefixes.clone()).collect();
        entries.sort();
        merged.extend(entries);
    }
    merged
}

/// Pages in the compact form show the same objects.
pub async fn flat_listings_are_the_same(store: &Arc<dyn Store>) {
    plant(store, &TREE).await;
    for (prefix, after, max_keys) in [
        ("", None, None),
        ("a", Some("a/b"), Some(3)),
        ("a/", Some("a"), Some(1)),
        ("missing", None, Some(2)),
    ] {
        let mut options = ListOptions {
            prefix: prefix.to_owned(),
            start_after: after.map(str::to_owned),
            max_keys,
            ..ListOptions::default()
        };
        let expected = pages(store, &options).await;
        for page in expected {
            let flat = store.list_flat(options.clone()).await.expect("it lists");
            options.continuation = flat.continuation.clone();
            assert_eq!(flat, FlatPage::from(page), "below `{prefix}`");
        }
        assert_eq!(options.continuation, None);
    }
}

/// Keys come in byte order over the whole listing.
pub async fn listings_are_in_byte_order(store: &Arc<dyn Store>) {
    assert_eq!(
        store.list(ListOptions::default()).await.expect("it lists"),
        ListPage::default()
    );
    plant(store, &TREE).await;
    assert_eq!(keys_under(store, "").await, TREE);
}

/// An entry has the size and tag that `head` has.
pub async fn listings_describe_objects(store: &Arc<dyn Store>) {
    put(store, "one", &pattern(4321, 1)).await;
    put(store, "two", b"").await;
    let page = store.list(ListOptions::default()).await.expect("it lists");
    for object in &page.objects {
        let info = head(store, &object.key)
            .await
            .expect("what is listed is there");
        assert_eq!((object.size, &object.etag), (info.size, &info.etag));
        let apart = object.modified.duration_since(info.modified);
        let apart = apart.unwrap_or_else(|error| error.duration());
        assert!(apart.as_secs() < 2, "modified differs by {apart:?}");
    }
    let sizes: Vec<u64> = page.objects.iter().map(|object| object.size).collect();
    assert_eq!(sizes, [4321, 0]);
}

/// A prefix may end anywhere, also within a component.
pub async fn listings_keep_to_the_prefix(store: &Arc<dyn Store>) {
    plant(store, &TREE).await;
    for prefix in [
        "a", "a/", "a/b", "a/b/", "a-", "a/b/d", "B", "missing", "a/b/c/",
    ] {
        let expected: Vec<&str> = TREE
            .into_iter()
            .filter(|name| name.starts_with(prefix))
            .collect();
        assert_eq!(
            keys_under(store, prefix).await,
            expected,
            "prefix `{prefix}`"
        );
    }
}

/// A delimited listing shows each directory below the prefix once.
pub async fn delimited_listings_roll_up(store: &Arc<dyn Store>) {
    plant(store, &TREE).await;
    let list = |prefix| async move {
        let page = store.list(delimited(prefix)).await.expect("it lists");
        let objects: Vec<String> = page.objects.into_iter().map(|object| object.key).collect();
        (objects, page.common_prefixes)
    };
    let (objects, prefixes) = list("").await;
    assert_eq!(
        objects,
        ["B", "a", "a b", "a!", "a-b", "a.b", "a0", "b", "é"]
    );
    assert_eq!(prefixes, ["a/"]);
    let (objects, prefixes) = list("a").await;
    assert_eq!(objects, ["a", "a b", "a!", "a-b", "a.b", "a0"]);
    assert_eq!(prefixes, ["a/"]);
    let (objects, prefixes) = list("a/").await;
    assert_eq!(objects, ["a/", "a/b", "a/b-c"]);
    assert_eq!(prefixes, ["a/b/"]);
    let (objects, prefixes) = list("a/b/d").await;
    assert_eq!((objects.len(), prefixes), (0, vec!["a/b/d/".to_owned()]));
    put(store, "s//t", b"x").await;
    assert_eq!(list("s").await.1, ["s/"]);
    assert_eq!(list("s/").await.1, ["s//"]);
    store.delete(&key("s//t")).await.expect("deleting works");
    assert_eq!(
        list("s").await,
        (vec![], vec![]),
        "an empty directory is no prefix"
    );
}

/// Small pages add up to the whole listing, each key once.
pub async fn listings_page_without_gaps(store: &Arc<dyn Store>) {
    plant(store, &TREE).await;
    for max_keys in [1, 2, 3, 13, 14, 15] {
        let options = ListOptions {
            max_keys: Some(max_keys),
            ..ListOptions::default()
        };
        let pages = pages(store, &options).await;
        assert!(
            pages
                .iter()
                .all(|page| page.objects.len() <= max_keys as usize)
        );
        assert_eq!(merged(&pages), TREE, "pages of {max_keys}");
    }
}

/// Small pages of a delimited listing show each prefix once.
pub async fn delimited_listings_page_without_gaps(store: &Arc<dyn Store>) {
    let names = [
        "a", "d/1", "d/2", "d/3", "d/e/4", "d0", "f", "g/1", "g/2", "h",
    ];
    plant(store, &names).await;
    for max_keys in [1, 2, 3, 6, 7] {
        let options = ListOptions {
            max_keys: Some(max_keys),
            ..delimited("")
        };
        let pages = pages(store, &options).await;
        let fits = |page: &ListPage| page.objects.len() + page.common_prefixes.len();
        assert!(pages.iter().all(|page| fits(page) <= max_keys as usize));
        assert_eq!(
            merged(&pages),
            ["a", "d/", "d0", "f", "g/", "h"],
            "pages of {max_keys}"
        );
    }
}

/// `start_after` leaves out everything up to and including it, whether or not it is a key.
pub async fn listings_start_after_a_key(store: &Arc<dyn Store>) {
    plant(store, &TREE).await;
    for after in [
        "",
        "A",
        "a",
        "a,",
        "a/",
        "a/b",
        "a/b/",
        "a/b/c",
        "a/zzz",
        "é",
        "\u{10ffff}",
    ] {
        for max_keys in [None, Some(2)] {
            let options = ListOptions {
                start_after: Some(after.to_owned()).filter(|after| !after.is_empty()),
                max_keys,
                ..ListOptions::default()
            };
            let expected: Vec<&str> = TREE.into_iter().filter(|name| *name > after).collect();
            assert_eq!(keys(store, &options).await, expected, "after `{after}`");
        }
    }
    let options = ListOptions {
        start_after: Some("a!".to_owned()),
        ..delimited("")
    };
    let shown = merged(&pages(store, &options).await);
    assert_eq!(shown, ["a-b", "a.b", "a/", "a0", "b", "é"]);
    let options = ListOptions {
        start_after: Some("a/b".to_owned()),
        ..delimited("a/")
    };
    assert_eq!(merged(&pages(store, &options).await), ["a/b-c", "a/b/"]);
}

/// An object and the directory of its name are both shown, the object first.
pub async fn a_key_is_listed_next_to_its_prefix(store: &Arc<dyn Store>) {
    plant(store, &["name", "name-1", "name/below", "name/below/more"]).await;
    assert_eq!(
        keys_under(store, "").await,
        ["name", "name-1", "name/below", "name/below/more"]
    );
    let top = pages(store, &delimited("")).await;
    assert_eq!(merged(&top), ["name", "name-1", "name/"]);
    let below = pages(store, &delimited("name/")).await;
    assert_eq!(merged(&below), ["name/below", "name/below/"]);
    store
        .delete(&key("name/below/more"))
        .await
        .expect("deleting works");
    store
        .delete(&key("name/below"))
        .await
        .expect("deleting works");
    assert_eq!(
        merged(&pages(store, &delimited("")).await),
        ["name", "name-1"]
    );
}

/// A listing may delete what it has shown before it asks for the next page.
pub async fn a_listing_goes_on_when_its_last_key_is_gone(store: &Arc<dyn Store>) {
    let names: Vec<String> = (0..10).map(|index| format!("dir/{index}")).collect();
    for name in &names {
        put(store, name, b"x").await;
    }
    let mut options = ListOptions {
        max_keys: Some(3),
        ..ListOptions::default()
    };
    let mut seen = Vec::new();
    loop {
        let page = store.list(options.clone()).await.expect("it lists");
        for object in page.objects {
            store
                .delete(&key(&object.key))
                .await
                .expect("deleting works");
            seen.push(object.key);
        }
        options.continuation = page.continuation;
        if options.continuation.is_none() {
            break;
        }
    }
    assert_eq!(seen, names);
    assert!(keys_under(store, "").await.is_empty());
}
