//! Reads that go elsewhere.

use super::*;

/// A main store and a read endpoint that fails on request, both empty.
struct Pair {
    split: Split,
    main: Arc<dyn Store>,
    reads: Arc<dyn Store>,
    faults: Arc<Faults>,
    registry: Arc<Registry>,
}

fn pair() -> Pair {
    let main: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (failing, faults, reads) = faulty();
    let registry = Registry::new();
    Pair {
        split: Split::new(Arc::clone(&main), failing, &registry),
        main,
        reads,
        faults,
        registry,
    }
}

impl Pair {
    fn bypassed(&self) -> u64 {
        metric(&self.registry, "object_read_endpoint_bypassed_total", &[])
    }
}

async fn tag(store: &dyn Store, name: &str) -> ETag {
    let info = store.head(&key(name), HeadOptions::default()).await;
    info.expect("it is there").etag
}

#[tokio::test]
async fn only_objects_are_read_there() {
    let pair = pair();
    put(&*pair.main, "a", b"main").await;
    put(&*pair.reads, "a", b"copy").await;
    put(&*pair.reads, "only-there", b"").await;
    assert_eq!(read(&pair.split, "a").await.expect("read"), b"copy");
    assert_eq!(pair.bypassed(), 0);

    let listed = pair.split.list(ListOptions::default()).await;
    assert_eq!(listed.expect("listed").objects.len(), 1);
    assert_eq!(tag(&pair.split, "a").await, tag(&*pair.main, "a").await);
    put(&pair.split, "b", b"written").await;
    assert_eq!(read(&*pair.main, "b").await.expect("written"), b"written");
    assert!(read(&*pair.reads, "b").await.is_err());
}

#[tokio::test]
async fn what_the_copy_lacks_or_has_otherwise_is_read_from_the_main_store() {
    let pair = pair();
    put(&*pair.main, "new", b"main").await;
    assert_eq!(read(&pair.split, "new").await.expect("read"), b"main");
    put(&*pair.reads, "new", b"older version").await;
    let pinned = GetOptions {
        if_match: Some(tag(&*pair.main, "new").await),
        ..GetOptions::default()
    };
    let mut bytes = Vec::new();
    let got = pair.split.get(&key("new"), pinned, &mut bytes).await;
    got.expect("the main store has it");
    assert_eq!(bytes, b"main");
    assert_eq!(pair.bypassed(), 2);
    // Both have the version, but only one can prove that it is the present one.
    put(&*pair.reads, "same", b"same").await;
    put(&*pair.main, "same", b"same").await;
    let fresh = GetOptions {
        if_match: Some(tag(&*pair.main, "same").await),
        fresh: true,
        ..GetOptions::default()
    };
    let before = pair.faults.calls(Operation::Get);
    let got = pair.split.get(&key("same"), fresh, &mut Vec::new()).await;
    got.expect("the main store has it");
    assert_eq!(pair.faults.calls(Operation::Get), before);
    let gone = read(&pair.split, "nowhere")
        .await
        .expect_err("nobody has it");
    assert_eq!(gone.kind, ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_fails_is_left_alone_for_a_while() {
    let pair = pair();
    put(&*pair.main, "a", b"main").await;
    put(&*pair.reads, "a", b"copy").await;
    let fault = Fault::fail(ErrorKind::Unavailable);
    pair.faults.queue(Operation::Get, [fault]);
    assert_eq!(read(&pair.split, "a").await.expect("read"), b"main");
    assert_eq!(read(&pair.split, "a").await.expect("read"), b"main");
    clock::sleep(REST + Duration::from_secs(1)).await;
    assert_eq!(read(&pair.split, "a").await.expect("read"), b"copy");
    assert_eq!(pair.bypassed(), 2);
}

#[tokio::test]
async fn an_endpoint_that_asks_for_patience_is_given_it() {
    let pair = pair();
    put(&*pair.main, "a", b"main").await;
    put(&*pair.reads, "a", b"copy").await;
    let fault = Fault::fail(ErrorKind::Throttled);
    pair.faults.queue(Operation::Get, [fault]);
    let error = read(&pair.split, "a").await.expect_err("throttled");
    assert_eq!(error.kind, ErrorKind::Throttled);
    assert_eq!(read(&pair.split, "a").await.expect("read"), b"copy");
}

#[tokio::test]
async fn a_body_that_breaks_goes_on_from_the_main_store() {
    let pair = pair();
    put(&*pair.main, "a", b"the same bytes").await;
    put(&*pair.reads, "a", b"the same bytes").await;
    assert_eq!(tag(&*pair.main, "a").await, tag(&*pair.reads, "a").await);
    let fault = Fault::Cut { after: 4 };
    pair.faults.queue(Operation::Get, [fault]);
    let retrying = Retry::new(Arc::new(pair.split), 5, &pair.registry);
    assert_eq!(read(&retrying, "a").await.expect("read"), b"the same bytes");
    assert_eq!(
        metric(&pair.registry, "object_read_endpoint_bypassed_total", &[]),
        1
    );
}
