//! Contracts of `list_uploads`.

use std::{sync::Arc, time::Duration};

use penstock_base::clock;

use super::{multipart::begin, support::key};
use penstock_object::{Store, Upload};

/// Pages that the contract follows before it gives up.
const PAGES_MAX: usize = 1000;

async fn listed(store: &Arc<dyn Store>, prefix: &str) -> Vec<Upload> {
    let mut uploads = Vec::new();
    let mut continuation: Option<String> = None;
    for _ in 0..PAGES_MAX {
        let page = store.list_uploads(prefix, continuation.as_deref()).await;
        let page = page.expect("uploads can be listed");
        uploads.extend(page.uploads);
        continuation = page.continuation;
        if continuation.is_none() {
            return uploads;
        }
    }
    assert!(continuation.is_none(), "the listing never ends");
    uploads
}

/// Unfinished uploads are listed by key, several for one key too, until they end.
pub async fn unfinished_uploads_are_listed(store: &Arc<dyn Store>) {
    assert_eq!(listed(store, "").await, []);
    let mut begun = Vec::new();
    for name in ["a/1", "a/2", "a/2", "b 1+%", "c"] {
        begun.push((key(name), begin(store, name).await));
    }
    let uploads = listed(store, "").await;
    let names: Vec<&str> = uploads.iter().map(|upload| upload.key.as_str()).collect();
    assert_eq!(names, ["a/1", "a/2", "a/2", "b 1+%", "c"]);
    for (name, id) in &begun {
        let listed = uploads
            .iter()
            .any(|upload| upload.key == *name && upload.id == *id);
        assert!(listed, "the upload of `{name}` is missing");
    }
    let hour = Duration::from_secs(3600);
    let now = clock::wall_time();
    let plausible =
        |upload: &Upload| upload.initiated > now - hour && upload.initiated < now + hour;
    assert!(uploads.iter().all(plausible), "{uploads:?}");
    assert_eq!(listed(store, "a/").await.len(), 3);
    assert_eq!(listed(store, "missing").await, []);
    for (name, id) in begun {
        store
            .abort_upload(&name, &id)
            .await
            .expect("aborting works");
    }
    assert_eq!(listed(store, "").await, []);
}
