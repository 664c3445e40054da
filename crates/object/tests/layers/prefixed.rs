//! One prefix of a bucket looks like a bucket.

use super::*;

async fn open() -> ((), Arc<dyn Store>) {
    let bucket: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let neighbours = ["mounted", "mounted-too", "mounted/", "mountee/a", "a"];
    for neighbour in neighbours {
        let key = Key::new(neighbour).expect("valid");
        let body = Payload::from(b"neighbour".to_vec());
        bucket
            .put(&key, body, PutOptions::default())
            .await
            .expect("a plain put succeeds");
    }
    ((), Arc::new(Prefixed::new(bucket, "mounted/")))
}

penstock_object_testing::conformance_tests!(open);

#[tokio::test]
async fn errors_and_links_speak_of_keys_without_the_prefix() {
    let bucket: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (inside, outside) = (
        Key::new("p/a").expect("valid"),
        Key::new("q").expect("valid"),
    );
    let linked = bucket
        .put_symlink(&inside, &outside, PutOptions::default())
        .await;
    linked.expect("links can be made");
    let part = Prefixed::new(bucket, "p/");
    let missing = Key::new("missing").expect("valid");
    let error = part
        .head(&missing, HeadOptions {})
        .await
        .expect_err("missing");
    assert_eq!(error.key, Some(missing));
    let link = part.get_symlink(&Key::new("a").expect("valid")).await;
    assert_eq!(link.expect_err("it leads out").kind, ErrorKind::NotFound);
}

#[tokio::test]
async fn keys_must_fit_together_with_the_prefix() {
    let part = Prefixed::new(Arc::new(MemoryStore::new()), "p/");
    let key = Key::new("x".repeat(penstock_object::KEY_LENGTH_MAX)).expect("valid");
    let error = part.delete(&key).await.expect_err("too long");
    assert_eq!(error.kind, ErrorKind::InvalidRequest);
}
