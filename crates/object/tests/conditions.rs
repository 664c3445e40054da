//! Conditions of writes, at a store that respects them and at one that passes over them: what a proof costs,
//! and what is told of what is there then.

use std::{sync::Arc, time::Duration};

use penstock_base::{KIB, Payload, Secret, clock, metrics::Registry};
use penstock_devserver::{
    EtagPolicy, Fault, FaultRule, Faults, Lack, Operation as Served, Server, Settings,
};
use penstock_object::{
    ETag, ErrorKind, Key, ObjectResult, PutOptions, Store, StoreSettings, Stored, WriteCondition,
    credentials::{CredentialSettings, Credentials},
    open, open_backend,
};

const BUCKET: &str = "test-bucket";

/// Writes in a row.
const WRITES: u64 = 6;

const PASSES_OVER: &[Lack] = &[Lack::WriteConditions];

fn key(text: &str) -> Key {
    Key::new(text).expect("valid")
}

/// A store, each version of an object with another tag, and a client that knows nothing of it yet.
struct Bed {
    server: Server,
    store: Arc<dyn Store>,
}

impl Bed {
    fn new(lacks: &[Lack]) -> Self {
        Self::with_layers(lacks, false)
    }

    fn retrying(lacks: &[Lack]) -> Self {
        Self::with_layers(lacks, true)
    }

    fn tagging(etag: EtagPolicy) -> Self {
        Self::of(
            Settings {
                etag,
                ..Settings::with_bucket(BUCKET)
            },
            false,
        )
    }

    fn with_layers(lacks: &[Lack], retries: bool) -> Self {
        let settings = Settings {
            etag: EtagPolicy::Opaque,
            faults: Faults::lacking(lacks),
            ..Settings::with_bucket(BUCKET)
        };
        Self::of(settings, retries)
    }

    fn of(settings: Settings, retries: bool) -> Self {
        let server = Server::start(settings).expect("a port is free");
        let credentials = Credentials {
            key_id: "key".to_owned(),
            secret: Secret::new("secret"),
            token: None,
            expires: None,
        };
        let mut settings = StoreSettings {
            endpoint: Some(server.url()),
            region: Some("test-region".to_owned()),
            credentials: CredentialSettings {
                fixed: Some(credentials),
                ..CredentialSettings::default()
            },
            ..StoreSettings::default()
        };
        settings.timeouts.first_byte = Duration::from_secs(3);
        let url = format!("s3://{BUCKET}").parse().expect("valid");
        let open = if retries { open } else { open_backend };
        let store = open(&url, &settings, &Registry::new()).expect("valid settings");
        Self { server, store }
    }

    async fn put(&self, name: &str, size: u64, condition: WriteCondition) -> ObjectResult<Stored> {
        let options = PutOptions {
            condition,
            ..PutOptions::default()
        };
        let body = Payload::from(vec![b'x'; size as usize]);
        self.store.put(&key(name), body, options).await
    }

    async fn create(&self, name: &str) -> ObjectResult<Stored> {
        self.put(name, 10, WriteCondition::IfAbsent).await
    }

    /// Creates an object and returns its tag, which is that of the object that is there.
    async fn create_well(&self, name: &str) -> ETag {
        let stored = self.create(name).await.expect("the key is free");
        self.expect_tag(name, &stored.etag);
        stored.etag
    }

    fn expect_tag(&self, name: &str, told: &ETag) {
        let there = self.server.data().etag(BUCKET, name).expect("it is there");
        assert_eq!(told.as_str(), there, "another version than is there");
    }

    /// Lets the second of the next two PUTs fail, or more from there on.
    fn fail_second(&self, fault: Fault, count: u64) {
        let rule = FaultRule::new(fault).on(&[Served::PutObject]);
        self.server.faults().add(rule.skip(1).next(count));
    }

    /// PUTs and HEADs so far.
    fn requests(&self) -> [u64; 2] {
        let counters = self.server.counters();
        [Served::PutObject, Served::HeadObject].map(|served| counters.operation(served))
    }

    fn is_believed(&self) -> bool {
        self.store.capabilities().write_if_absent
    }
}

#[tokio::test]
async fn a_store_that_respects_creation_is_looked_at_once() {
    let bed = Bed::new(&[]);
    for name in 0..WRITES {
        bed.create_well(&name.to_string()).await;
    }
    assert_eq!(bed.requests(), [WRITES + 1, 1]);
    assert!(bed.is_believed());
    let refused = bed.create("0").await.expect_err("the key is taken");
    assert_eq!(refused.kind, ErrorKind::AlreadyExists);
    assert_eq!(bed.requests(), [WRITES + 2, 1], "the store itself says so");
}

#[tokio::test]
async fn a_store_that_passes_over_creation_is_looked_at_each_time() {
    let bed = Bed::new(PASSES_OVER);
    for name in 0..WRITES {
        bed.create_well(&name.to_string()).await;
    }
    assert_eq!(bed.requests(), [WRITES + 1, WRITES]);
    assert!(!bed.is_believed());
    let before = bed.server.data().etag(BUCKET, "0");
    let refused = bed.create("0").await.expect_err("the key is taken");
    assert_eq!(refused.kind, ErrorKind::AlreadyExists);
    assert_eq!(bed.server.data().etag(BUCKET, "0"), before);
}

/// Replaces an object again and again, each time the version that the last time told.
async fn replace_in_a_row(bed: &Bed) -> [u64; 2] {
    let first = bed.put("a", 10, WriteCondition::Always).await;
    let mut tag = first.expect("it is written").etag;
    let before = bed.requests();
    for _ in 0..WRITES {
        let replaced = bed.put("a", 10, WriteCondition::IfMatch(tag)).await;
        tag = replaced.expect("that is the version").etag;
        bed.expect_tag("a", &tag);
    }
    let requests = bed.requests();
    let gone = WriteCondition::IfMatch(ETag::new("gone"));
    let refused = bed.put("a", 10, gone).await.expect_err("another version");
    assert_eq!(refused.kind, ErrorKind::PreconditionFailed);
    bed.expect_tag("a", &tag);
    [0, 1].map(|index| requests[index] - before[index])
}

#[tokio::test]
async fn a_store_that_respects_replacement_is_looked_at_once() {
    assert_eq!(replace_in_a_row(&Bed::new(&[])).await, [WRITES + 1, 1]);
}

#[tokio::test]
async fn a_store_that_passes_over_replacement_is_looked_at_each_time() {
    let requests = replace_in_a_row(&Bed::new(PASSES_OVER)).await;
    assert_eq!(requests, [WRITES + 1, WRITES]);
}

#[tokio::test]
async fn large_bodies_and_markers_are_sent_once() {
    let bed = Bed::new(&[]);
    let large = 256 * KIB + 1;
    let put = bed.put("large", large, WriteCondition::IfAbsent).await;
    put.expect("the key is free");
    bed.create("marker/").await.expect("the key is free");
    assert_eq!(bed.requests(), [2, 2]);
    let put = bed.put("b", large - 1, WriteCondition::IfAbsent).await;
    put.expect("the key is free");
    assert_eq!(bed.requests(), [4, 3]);
}

#[tokio::test]
async fn a_trial_that_fails_is_no_failed_write_and_is_tried_again() {
    let slow_down = Fault::SlowDown { retry_after: None };
    let code = "AccessDenied".to_owned();
    let denied = Fault::Status { status: 403, code };
    for lacks in [&[][..], PASSES_OVER] {
        for fault in [
            Fault::InternalError,
            slow_down.clone(),
            denied.clone(),
            Fault::Reset { after: 0 },
            Fault::Hang { duration_ms: 4000 },
        ] {
            let bed = Bed::new(lacks);
            bed.fail_second(fault.clone(), 1);
            bed.create_well("a").await;
            assert!(!bed.is_believed(), "{fault:?} tells nothing");
            bed.create_well("b").await;
            assert_eq!(bed.is_believed(), lacks.is_empty(), "{fault:?}");
        }
    }
}

#[tokio::test]
async fn after_three_trials_that_told_nothing_there_is_none() {
    let bed = Bed::new(&[]);
    let slow_down = FaultRule::new(Fault::SlowDown { retry_after: None });
    for name in ["a", "b", "c"] {
        let second = slow_down.clone().on(&[Served::PutObject]).below(name);
        bed.server.faults().add(second.skip(1).next(1));
        bed.create_well(name).await;
    }
    let before = bed.requests();
    bed.create_well("d").await;
    assert_eq!(bed.requests(), [before[0] + 1, before[1] + 1]);
}

#[tokio::test]
async fn a_trial_whose_answer_is_lost_tells_the_tag_of_what_is_there() {
    let bed = Bed::new(&[]);
    bed.fail_second(Fault::LoseAnswer, 1);
    bed.create_well("a").await;
    assert_eq!(bed.requests(), [2, 2], "a look tells that it is there");

    let bed = Bed::retrying(PASSES_OVER);
    bed.fail_second(Fault::LoseAnswer, 1);
    bed.create_well("a").await;
}

#[tokio::test]
async fn a_trial_that_is_damaged_on_its_way_leaves_what_was_stored() {
    let bed = Bed::new(PASSES_OVER);
    bed.fail_second(Fault::FlipByte { at: 0 }, 1);
    bed.create_well("a").await;
    let there = bed.server.data().get(BUCKET, "a");
    assert_eq!(there.as_deref(), Some(&[b'x'; 10][..]));
    assert_eq!(bed.requests(), [2, 2], "a look tells that it is there");
}

#[tokio::test]
async fn without_retries_a_trial_that_left_another_version_is_doubtful() {
    let bed = Bed::new(PASSES_OVER);
    bed.fail_second(Fault::LoseAnswer, 1);
    let created = bed.create("a").await.expect_err("nobody knows its tag");
    assert!(created.kind.is_doubtful(), "{created}");
}

#[tokio::test]
async fn anothers_object_is_not_taken_for_ours_after_a_doubtful_trial() {
    let bed = Bed::retrying(PASSES_OVER);
    bed.fail_second(Fault::Hang { duration_ms: 4000 }, 1);
    let replace = async {
        while bed.requests()[0] < 2 {
            clock::sleep(Duration::from_millis(10)).await;
        }
        let data = bed.server.data();
        data.put(BUCKET, "a", b"theirs").expect("there is room");
    };
    let (created, ()) = tokio::join!(bed.create("a"), replace);
    let created = created.expect_err("it is another's now");
    assert_eq!(created.kind, ErrorKind::AlreadyExists);
}

#[tokio::test]
async fn others_look_first_while_a_trial_is_under_way() {
    let bed = Bed::new(&[]);
    bed.fail_second(Fault::Hang { duration_ms: 1500 }, 1);
    let others = async {
        while bed.requests()[0] < 2 {
            clock::sleep(Duration::from_millis(10)).await;
        }
        for name in 0..WRITES {
            bed.create_well(&name.to_string()).await;
        }
        assert!(!bed.is_believed(), "the trial is under way");
        bed.requests()
    };
    let (_, requests) = tokio::join!(bed.create_well("a"), others);
    assert_eq!(requests, [WRITES + 2, WRITES + 1]);
    assert!(bed.is_believed());
}

#[tokio::test]
async fn a_trial_that_nobody_waits_for_any_more_is_over() {
    let bed = Bed::new(&[]);
    bed.fail_second(Fault::Hang { duration_ms: 1500 }, 1);
    let given_up = clock::deadline(Duration::from_millis(500), bed.create("a")).await;
    assert!(given_up.is_err(), "the second PUT hangs");
    bed.create_well("b").await;
    assert!(bed.is_believed());
}

#[tokio::test]
async fn a_store_that_refuses_by_chance_is_believed_without_a_trial() {
    let bed = Bed::new(&[]);
    bed.put("a", 10, WriteCondition::Always)
        .await
        .expect("it is written");
    // As if another client had been there between the look and the write.
    let code = "NoSuchKey".to_owned();
    let missing = FaultRule::new(Fault::Status { status: 404, code });
    let looks = missing.on(&[Served::HeadObject]);
    bed.server.faults().add(looks.next(1));
    let refused = bed.create("a").await.expect_err("the key is taken");
    assert_eq!(refused.kind, ErrorKind::AlreadyExists);
    assert!(bed.is_believed());
    bed.create_well("b").await;
    assert_eq!(bed.requests(), [3, 1]);
}

#[tokio::test]
async fn a_replacement_that_changes_no_tag_proves_nothing() {
    let bed = Bed::tagging(EtagPolicy::Md5);
    let first = bed.create_well("a").await;
    let same = bed
        .put("a", 10, WriteCondition::IfMatch(first.clone()))
        .await;
    assert_eq!(same.expect("that is the version").etag, first);
    assert_eq!(bed.requests(), [3, 2], "the creation was sent twice");
}
