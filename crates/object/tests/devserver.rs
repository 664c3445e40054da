//! The S3 and OSS backends against the development server, over a real socket, with signatures
//! checked by code that shares nothing with ours.

use std::{sync::Arc, time::Duration};

use penstock_base::{MIB, Payload, Secret, clock, metrics::Registry};
use penstock_devserver::{Fault, FaultRule, Faults, Lack, Operation as Served, Server, Settings};
use penstock_object::{
    ChecksumChoice, CompleteOptions, CopyOptions, Description, ErrorKind, GetOptions, HeadOptions,
    Key, ObjectResult, PutOptions, Store, StoreSettings, Stored, WriteCondition,
    credentials::{CredentialSettings, Credentials},
    open, open_backend,
};

const BUCKET: &str = "test-bucket";

fn key(text: &str) -> Key {
    Key::new(text).expect("valid")
}

/// A server that checks signatures, for temporary credentials too.
fn server() -> Server {
    let permanent = penstock_devserver::Credentials::new("key", "secret");
    let temporary = penstock_devserver::Credentials {
        token: Some("token+/=".to_owned()),
        ..penstock_devserver::Credentials::new("temporary", "secret")
    };
    Server::start(Settings {
        credentials: vec![permanent, temporary],
        verify_signatures: true,
        region: Some("test-region".to_owned()),
        ..Settings::with_bucket(BUCKET)
    })
    .expect("a port is free")
}

fn credentials(key_id: &str, token: Option<&str>) -> CredentialSettings {
    CredentialSettings {
        fixed: Some(Credentials {
            key_id: key_id.to_owned(),
            secret: Secret::new("secret"),
            token: token.map(Secret::new),
            expires: None,
        }),
        ..CredentialSettings::default()
    }
}

fn settings(server: &Server) -> StoreSettings {
    StoreSettings {
        endpoint: Some(server.url()),
        region: Some("test-region".to_owned()),
        credentials: credentials("key", None),
        ..StoreSettings::default()
    }
}

/// Settings for servers that hang: shorter than [`HANG`], long enough for a busy machine.
fn impatient(server: &Server) -> StoreSettings {
    let mut settings = settings(server);
    settings.timeouts.first_byte = Duration::from_secs(3);
    settings
}

const HANG: Fault = Fault::Hang { duration_ms: 5000 };

fn connect(scheme: &str, settings: &StoreSettings) -> Arc<dyn Store> {
    let url = format!("{scheme}://{BUCKET}").parse().expect("valid");
    open_backend(&url, settings, &Registry::new()).expect("valid settings")
}

async fn s3() -> (Server, Arc<dyn Store>) {
    let server = server();
    let store = connect("s3", &settings(&server));
    (server, store)
}

/// With a known region signatures are of version 4.
async fn oss() -> (Server, Arc<dyn Store>) {
    let server = server();
    let store = connect("oss", &settings(&server));
    (server, store)
}

/// Without one they are of version 1.
async fn oss_v1() -> (Server, Arc<dyn Store>) {
    let server = server();
    let settings = StoreSettings {
        region: None,
        ..settings(&server)
    };
    let store = connect("oss", &settings);
    (server, store)
}

async fn s3_with_first_listings() -> (Server, Arc<dyn Store>) {
    let server = server();
    let settings = StoreSettings {
        listing: penstock_object::ListVersion::V1,
        ..settings(&server)
    };
    let store = connect("s3", &settings);
    (server, store)
}

mod s3_contracts {
    penstock_object_testing::conformance_tests!(super::s3);
}

// OSS takes no keys that begin with a slash, which these try.
mod oss_contracts {
    penstock_object_testing::conformance_tests!(
        super::oss,
        except empty_components_are_kept, long_keys_are_kept
    );
}

mod first_listing_contracts {
    penstock_object_testing::conformance_tests!(super::s3_with_first_listings =>
        listings_are_in_byte_order,
        listings_describe_objects,
        listings_keep_to_the_prefix,
        delimited_listings_roll_up,
        listings_page_without_gaps,
        listings_start_after_a_key,
    );
}

mod oss_v1_contracts {
    penstock_object_testing::conformance_tests!(super::oss_v1 =>
        get_returns_what_was_put,
        metadata_comes_back,
        printable_keys_are_kept,
        many_are_deleted_at_once,
        listings_page_without_gaps,
        parts_become_an_object,
        parts_can_be_copied,
        copies_have_content_and_metadata,
        copies_can_be_described_anew,
        unfinished_uploads_are_listed,
        appends_grow_an_object,
        links_lead_to_their_target,
    );
}

async fn put(store: &Arc<dyn Store>, name: &str, size: u64) -> ObjectResult<()> {
    let body = Payload::from(vec![7; size as usize]);
    store.put(&key(name), body, PutOptions::default()).await?;
    Ok(())
}

fn only_if_absent() -> PutOptions {
    PutOptions {
        condition: WriteCondition::IfAbsent,
        ..PutOptions::default()
    }
}

async fn read(store: &Arc<dyn Store>, name: &str) -> ObjectResult<Vec<u8>> {
    let mut body = Vec::new();
    store
        .get(&key(name), GetOptions::default(), &mut body)
        .await?;
    Ok(body)
}

fn kind_of<T: std::fmt::Debug>(outcome: ObjectResult<T>) -> ErrorKind {
    outcome.expect_err("it fails").kind
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn temporary_credentials_are_accepted() {
    let server = server();
    for (scheme, region) in [("s3", true), ("oss", true), ("oss", false)] {
        let settings = StoreSettings {
            credentials: credentials("temporary", Some("token+/=")),
            region: region.then(|| "test-region".to_owned()),
            ..settings(&server)
        };
        let store = connect(scheme, &settings);
        put(&store, "a b+c", 10).await.expect("signed right");
        read(&store, "a b+c").await.expect("signed right");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials_say_so() {
    let server = server();
    for scheme in ["s3", "oss"] {
        let mut unknown = settings(&server);
        unknown.credentials = credentials("nobody", None);
        let outcome = read(&connect(scheme, &unknown), "x").await;
        assert_eq!(kind_of(outcome), ErrorKind::BadCredentials, "{scheme}");
        let mut anonymous = settings(&server);
        anonymous.anonymous = true;
        let outcome = read(&connect(scheme, &anonymous), "x").await;
        assert_eq!(kind_of(outcome), ErrorKind::PermissionDenied, "{scheme}");
        let mut none = settings(&server);
        none.credentials = CredentialSettings::default();
        none.credentials.order = vec![penstock_object::credentials::CredentialPlace::Environment];
        let outcome = read(&connect(scheme, &none), "x").await;
        assert_eq!(kind_of(outcome), ErrorKind::NoCredentials, "{scheme}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_region_is_named() {
    let server = server();
    let mut settings = settings(&server);
    settings.region = Some("elsewhere".to_owned());
    let outcome = read(&connect("s3", &settings), "x").await;
    let error = outcome.expect_err("the region is wrong");
    assert_eq!(error.kind, ErrorKind::WrongEndpoint, "{error}");
    assert!(error.to_string().contains("test-region"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_bucket_is_no_missing_object() {
    let server = server();
    for scheme in ["s3", "oss"] {
        let url = format!("{scheme}://missing-bucket").parse().expect("valid");
        let store = open_backend(&url, &settings(&server), &Registry::new()).expect("valid");
        assert_eq!(kind_of(read(&store, "x").await), ErrorKind::NoSuchBucket);
        let listed = store.list(Default::default()).await;
        assert_eq!(kind_of(listed), ErrorKind::NoSuchBucket);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_the_network_have_their_kinds() {
    for (fault, expected) in [
        (Fault::InternalError, ErrorKind::Unavailable),
        (Fault::SlowDown { retry_after: None }, ErrorKind::Throttled),
        (
            Fault::TooManyRequests { retry_after: None },
            ErrorKind::Throttled,
        ),
        (Fault::Reset { after: 0 }, ErrorKind::Unavailable),
        (Fault::Reset { after: 70_000 }, ErrorKind::Interrupted),
        (Fault::CutBody { after: 100_000 }, ErrorKind::Interrupted),
        (Fault::FlipByte { at: 1000 }, ErrorKind::ChecksumMismatch),
        (HANG, ErrorKind::Timeout),
    ] {
        for scheme in ["s3", "oss"] {
            let server = server();
            let store = connect(scheme, &impatient(&server));
            put(&store, "object", MIB).await.expect("nothing fails yet");
            let rule = FaultRule::new(fault.clone()).on(&[Served::GetObject]);
            server.faults().add(rule);
            let outcome = read(&store, "object").await;
            assert_eq!(kind_of(outcome), expected, "{fault:?}");
            server.faults().clear();
            let body = read(&store, "object")
                .await
                .expect("nothing fails any more");
            assert_eq!(body.len() as u64, MIB);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_byte_that_flips_on_the_way_in_is_noticed() {
    for (server, store) in [s3().await, oss().await] {
        let rule = FaultRule::new(Fault::FlipByte { at: 1000 }).on(&[Served::PutObject]);
        server.faults().add(rule);
        let outcome = put(&store, "object", MIB).await;
        assert_eq!(kind_of(outcome), ErrorKind::ChecksumMismatch);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_oss_keeps_of_a_damaged_body_is_replaced() {
    let server = server();
    let url = format!("oss://{BUCKET}").parse().expect("valid");
    let store = open(&url, &settings(&server), &Registry::new()).expect("valid settings");
    let rule = FaultRule::new(Fault::FlipByte { at: 1000 }).on(&[Served::PutObject]);
    server.faults().add(rule.next(1));
    let (object, body) = (key("object"), vec![7; 2000]);
    let created = store.put(&object, Payload::from(body.clone()), only_if_absent());
    created.await.expect("what the first attempt left is ours");
    assert!(read(&store, "object").await.expect("it is there") == body);
    let attempts = server.counters().operation(Served::PutObject);
    assert_eq!(attempts, 2, "the first was kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_checksums_nobody_notices() {
    let server = server();
    let mut settings = settings(&server);
    settings.checksum = ChecksumChoice::Off;
    for scheme in ["s3", "oss"] {
        let store = connect(scheme, &settings);
        let rule = FaultRule::new(Fault::FlipByte { at: 1000 }).next(1);
        server.faults().add(rule);
        put(&store, "object", MIB).await.expect("taken as it came");
        let body = read(&store, "object").await.expect("given as it is");
        assert_eq!(body.iter().filter(|byte| **byte != 7).count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_may_say_how_long_to_wait() {
    let (server, store) = s3().await;
    let fault = Fault::SlowDown {
        retry_after: Some(3),
    };
    server.faults().add(FaultRule::new(fault));
    let error = read(&store, "x").await.expect_err("throttled");
    assert_eq!(error.retry_after, Some(Duration::from_secs(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_is_found_again() {
    let (server, store) = s3().await;
    put(&store, "object", 1000).await.expect("the server is up");
    let (address, mut settings) = (server.address(), server.settings().clone());
    let data = server.stop();
    assert_eq!(
        kind_of(read(&store, "object").await),
        ErrorKind::Unavailable
    );
    settings.address = address;
    let server = Server::start_with(data, settings).expect("the port is free again");
    assert_eq!(read(&store, "object").await.expect("back").len(), 1000);
    drop(server);
}

/// With its layers a store gets over all that passes, and a prefix is a bucket of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layers_get_over_passing_faults() {
    for scheme in ["s3", "oss"] {
        let server = server();
        let url = format!("{scheme}://{BUCKET}/some/prefix")
            .parse()
            .expect("valid");
        let registry = Registry::new();
        let store = open(&url, &impatient(&server), &registry).expect("valid settings");
        for fault in [
            Fault::InternalError,
            Fault::SlowDown { retry_after: None },
            Fault::Reset { after: 70_000 },
            Fault::CutBody { after: 100_000 },
            HANG,
            Fault::LoseAnswer,
        ] {
            server.faults().add(FaultRule::new(fault.clone()).next(1));
            put(&store, "object", MIB)
                .await
                .unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            server.faults().clear();
            server.faults().add(FaultRule::new(fault.clone()).next(1));
            let body = read(&store, "object").await;
            let body = body.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            assert!(body == vec![7; MIB as usize], "{fault:?}");
            server.faults().clear();
        }
        assert_eq!(server.data().keys(BUCKET), ["some/prefix/object"]);
        let retries = registry.samples().into_iter();
        let retries = retries.filter(|sample| sample.name == "object_retries_total");
        assert!(retries.map(|sample| sample.value).sum::<u64>() > 5);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_read_from_an_endpoint_of_their_own() {
    let main = server();
    let reads = Server::start_with(main.data().clone(), main.settings().clone());
    let reads = reads.expect("a port is free");
    for scheme in ["s3", "oss"] {
        main.reset_counters();
        reads.reset_counters();
        let mut settings = settings(&main);
        settings.read_endpoint = Some(reads.url());
        let store = connect(scheme, &settings);
        put(&store, "a b+c", 10).await.expect("signed right");
        assert_eq!(read(&store, "a b+c").await.expect("signed right").len(), 10);
        let listed = store.list(penstock_object::ListOptions::default()).await;
        assert_eq!(listed.expect("listed").objects.len(), 1);
        let (there, here) = (reads.counters(), main.counters());
        assert_eq!(there.operation(Served::GetObject), 1, "{scheme}");
        assert_eq!((there.total(), here.operation(Served::GetObject)), (1, 0));
    }
    reads
        .faults()
        .add(FaultRule::new(Fault::Reset { after: 0 }).on(&[Served::GetObject]));
    let mut settings = settings(&main);
    settings.read_endpoint = Some(reads.url());
    let read_anyway = read(&connect("oss", &settings), "a b+c").await;
    assert_eq!(read_anyway.expect("the main endpoint answers").len(), 10);
    let local = format!("file://{}", std::env::temp_dir().display());
    let refused = open_backend(&local.parse().expect("valid"), &settings, &Registry::new());
    let refused = refused.expect_err("it has no endpoints");
    assert!(refused.message.contains("no meaning"), "{refused}");
}

/// Completes an upload that must make a new object while this fails.
async fn complete_new_while(fails: FaultRule) -> ObjectResult<Stored> {
    let server = server();
    let url = format!("s3://{BUCKET}").parse().expect("valid");
    let store = open(&url, &settings(&server), &Registry::new()).expect("valid settings");
    let options = PutOptions {
        condition: WriteCondition::IfAbsent,
        ..PutOptions::default()
    };
    let upload = store.create_upload(&key("new"), options.clone()).await;
    let upload = upload.expect("an upload can be begun");
    let body = Payload::from(b"content".to_vec());
    let part = store.upload_part(&key("new"), &upload, 1, body).await;
    server.faults().add(fails);
    let complete = CompleteOptions {
        condition: options.condition,
        ..CompleteOptions::default()
    };
    let parts = [part.expect("a part is sent")];
    store
        .complete_upload(&key("new"), &upload, &parts, complete)
        .await
}

#[tokio::test]
async fn a_lost_answer_to_a_completed_upload_is_no_conflict() {
    let lost = FaultRule::new(Fault::LoseAnswer).on(&[Served::CompleteUpload]);
    let completed = complete_new_while(lost.next(1)).await;
    completed.expect("it was ours");
}

#[tokio::test]
async fn a_refused_look_at_a_completed_upload_is_no_conflict() {
    for refusal in [
        Fault::TooManyRequests { retry_after: None },
        Fault::SlowDown { retry_after: None },
        Fault::InternalError,
    ] {
        // The first look is whether the key is free, the next at what was made.
        let refused = FaultRule::new(refusal).on(&[Served::HeadObject]);
        let completed = complete_new_while(refused.skip(1).next(1)).await;
        completed.expect("it was ours");
    }
}

/// A server that lacks something, and a store that knows nothing of that yet.
fn lacking(lacks: &[Lack]) -> (Server, Arc<dyn Store>) {
    let server = server();
    server.faults().set(Faults::lacking(lacks));
    let store = connect("s3", &settings(&server));
    (server, store)
}

/// No document can name them, so each is deleted by itself.
#[tokio::test]
async fn deleting_one_by_one_goes_on_where_it_stopped() {
    let server = server();
    let url = format!("s3://{BUCKET}").parse().expect("valid");
    let store = open(&url, &settings(&server), &Registry::new()).expect("valid settings");
    let names: Vec<String> = (0..8).map(|number| format!("{number}\u{2}")).collect();
    let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
    for name in &names {
        put(&store, name, 1).await.expect("it is written");
        let fails = FaultRule::new(Fault::InternalError).on(&[Served::DeleteObject]);
        server.faults().add(fails.below(name).next(2));
    }
    let failures = store.delete_many(&keys).await;
    assert_eq!(failures.expect("each attempt got further"), []);
    assert_eq!(server.data().keys(BUCKET), Vec::<String>::new());
    let requests = server.counters().operation(Served::DeleteObject);
    assert_eq!(requests, 8 * 3, "none was deleted twice");
}

#[tokio::test]
async fn a_copy_onto_itself_of_another_version_is_refused() {
    for lacks in [&[][..], &[Lack::CopyConditions]] {
        let (_server, store) = lacking(lacks);
        let put = |body: &'static [u8]| {
            let body = Payload::from(body.to_vec());
            let store = Arc::clone(&store);
            async move { store.put(&key("a"), body, PutOptions::default()).await }
        };
        let describe = |tag: &penstock_object::ETag| CopyOptions {
            if_match: Some(tag.clone()),
            condition: WriteCondition::IfMatch(tag.clone()),
            description: Some(Description::default()),
        };
        let ours = put(b"ours").await.expect("written").etag;
        let copied = store.copy(&key("a"), &key("a"), describe(&ours)).await;
        assert_eq!(copied.expect("it is this version").etag, ours, "{lacks:?}");
        put(b"their").await.expect("written");
        let refused = store.copy(&key("a"), &key("a"), describe(&ours)).await;
        assert_eq!(kind_of(refused), ErrorKind::PreconditionFailed, "{lacks:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anothers_object_is_not_taken_for_what_an_upload_made() {
    let (server, store) = s3().await;
    let options = PutOptions::default();
    let upload = store.create_upload(&key("a"), options).await;
    let upload = upload.expect("an upload can be begun");
    let body = Payload::from(b"ours!!".to_vec());
    let part = store.upload_part(&key("a"), &upload, 1, body).await;
    let hang = FaultRule::new(Fault::Hang { duration_ms: 1500 });
    server.faults().add(hang.on(&[Served::HeadObject]).next(1));
    let parts = [part.expect("a part is sent")];
    let theirs = async {
        while server.counters().operation(Served::HeadObject) == 0 {
            clock::sleep(Duration::from_millis(1)).await;
        }
        let body = Payload::from(b"theirs".to_vec());
        let put = store.put(&key("a"), body, PutOptions::default()).await;
        put.expect("it is written").etag
    };
    let (a, options) = (key("a"), CompleteOptions::default());
    let complete = store.complete_upload(&a, &upload, &parts, options);
    let (ours, theirs) = tokio::join!(complete, theirs);
    assert_ne!(ours.expect("it is complete").etag, theirs);
}

#[tokio::test]
async fn one_refused_look_does_not_end_the_comparison_of_checksums() {
    let (server, store) = s3().await;
    put(&store, "a", 1000).await.expect("it is written");
    let code = "RequestTimeout".to_owned();
    let passing = FaultRule::new(Fault::Status { status: 400, code });
    let passing = passing.on(&[Served::HeadObject]).next(1);
    server.faults().add(passing);
    store
        .head(&key("a"), HeadOptions::default())
        .await
        .expect("it passes");
    let flipped = FaultRule::new(Fault::FlipByte { at: 10 }).on(&[Served::GetObject]);
    server.faults().add(flipped.next(1));
    let read = read(&store, "a").await;
    let error = read.expect_err("the checksum tells");
    assert_eq!(error.kind, ErrorKind::ChecksumMismatch);
}
