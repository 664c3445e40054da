//! The life of an index: built, kept, taken again, compared.

// Helpers of tests may panic.
#![allow(clippy::panic)]

use std::{path::Path, sync::Arc, time::Duration};

use penstock_base::Payload;
use penstock_object::{Key, PutOptions, Store};
use penstock_object_testing::MemoryStore;
use penstock_stream::{
    Changes, Index, IndexError, IndexProgress, IndexRequest, IndexStage, Layout, ListingSettings,
    Manifest, ManifestLocation, ManifestSettings, Permissions, Refresh,
};

async fn put(store: &Arc<dyn Store>, key: &str) {
    let key = Key::new(key).expect("a key");
    let body = Payload::from(b"content".to_vec());
    let put = store.put(&key, body, PutOptions::default()).await;
    put.expect("stored");
}

fn request(store: &Arc<dyn Store>, folder: &Path) -> IndexRequest {
    IndexRequest {
        store: Arc::clone(store),
        identity: "s3://bucket/".to_owned(),
        folder: folder.to_owned(),
        spool: folder.join("listings/one"),
        manifest: None,
        listing: ListingSettings::default(),
        layout: Layout::Erofs { disks: 1 },
        permissions: Permissions::with_umask(0, 0, 0o022),
        progress: Arc::new(IndexProgress::default()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_is_built_once_and_taken_again_until_it_is_refreshed() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let store: Arc<dyn Store> = Arc::new(MemoryStore::like_s3());
    put(&store, "a").await;
    let request = request(&store, folder.path());
    assert!(matches!(request.progress.stage(), IndexStage::Looking));

    let built = Index::get(&request, Refresh::Never).await.expect("built");
    assert!(built.image.exists() && built.objects.exists());
    assert_eq!(built.changes, None);
    let stage = request.progress.stage();
    assert!(
        matches!(stage, IndexStage::Building { total: 1, .. }),
        "{stage:?}"
    );

    put(&store, "b").await;
    let young = Refresh::OlderThan(Duration::from_secs(3600));
    let again = Index::get(&request, young).await.expect("kept");
    assert_eq!((&again.image, again.changes), (&built.image, None));

    let taken = Index::again(folder.path(), built.layout, &built.image).expect("kept");
    assert_eq!(taken.objects, built.objects);

    let new = Index::get(&request, Refresh::Always).await.expect("built");
    let changes = Changes {
        added: 1,
        unchanged: 1,
        ..Changes::default()
    };
    assert_eq!(new.changes, Some(changes));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_missing_is_named() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let store: Arc<dyn Store> = Arc::new(MemoryStore::like_s3());
    let path = folder.path().join("missing.csv");
    let request = IndexRequest {
        manifest: Some(Manifest {
            name: path.display().to_string(),
            location: ManifestLocation::File(path),
            settings: ManifestSettings::default(),
        }),
        ..request(&store, folder.path())
    };
    let Err(error) = Index::get(&request, Refresh::Never).await else {
        panic!("there is no manifest");
    };
    assert!(matches!(error, IndexError::ManifestFile { .. }), "{error}");
    assert!(error.to_string().contains("missing.csv"), "{error}");
}
