//! What imitations of S3 pass over or do not tell, and must be noticed: whoever takes another client's
//! bytes for a version of his own mixes both with the next save.

use std::{sync::Arc, time::Duration};

use penstock_base::{Payload, Secret, clock, metrics::Registry};
use penstock_devserver::{Fault, FaultRule, Faults, Lack, Operation as Served, Server, Settings};
use penstock_object::{
    CompleteOptions, CopyOptions, Description, ETag, ErrorKind, Key, ObjectResult, Part, PartCopy,
    PutOptions, Store, StoreSettings, Stored, UploadId, WriteCondition,
    credentials::{CredentialSettings, Credentials},
    open, open_backend,
};

const BUCKET: &str = "test-bucket";

/// More than what the server sums up for a tag.
const LARGE: usize = 2 << 20;

fn key(text: &str) -> Key {
    Key::new(text).expect("valid")
}

/// A store that lacks something, and a client that knows nothing of that yet.
struct Bed {
    server: Server,
    store: Arc<dyn Store>,
}

impl Bed {
    fn lacking(lacks: &[Lack]) -> Self {
        Self::new(lacks, false)
    }

    fn retrying() -> Self {
        Self::new(&[], true)
    }

    fn new(lacks: &[Lack], retries: bool) -> Self {
        let server = Server::start(Settings::with_bucket(BUCKET)).expect("a port is free");
        server.faults().set(Faults::lacking(lacks));
        let credentials = Credentials {
            key_id: "key".to_owned(),
            secret: Secret::new("secret"),
            token: None,
            expires: None,
        };
        let settings = StoreSettings {
            endpoint: Some(server.url()),
            region: Some("test-region".to_owned()),
            credentials: CredentialSettings {
                fixed: Some(credentials),
                ..CredentialSettings::default()
            },
            ..StoreSettings::default()
        };
        let url = format!("s3://{BUCKET}").parse().expect("valid");
        let open = if retries { open } else { open_backend };
        let store = open(&url, &settings, &Registry::new()).expect("valid settings");
        Self { server, store }
    }

    async fn put(&self, name: &str, byte: u8, size: usize) -> ETag {
        let body = Payload::from(vec![byte; size]);
        let put = self
            .store
            .put(&key(name), body, PutOptions::default())
            .await;
        put.expect("it is written").etag
    }

    async fn begin(&self, name: &str) -> UploadId {
        let (name, options) = (key(name), PutOptions::default());
        let begun = self.store.create_upload(&name, options).await;
        begun.expect("an upload can be begun")
    }

    /// Copies the first byte of `source`, as of the version `tag`, as a part of `name`.
    async fn copy_part(
        &self,
        (source, tag): (&str, &ETag),
        (name, upload): (&str, &UploadId),
    ) -> ObjectResult<Part> {
        let copy = PartCopy {
            source: key(source),
            range: 0..1,
            if_match: Some(tag.clone()),
        };
        self.store.copy_part(&key(name), upload, 1, copy).await
    }

    /// Makes an object of a part that was copied from `source`, as of the version `tag`.
    async fn complete(
        &self,
        (source, tag): (&str, &ETag),
        (name, upload): (&str, &UploadId),
        part: Part,
    ) -> ObjectResult<Stored> {
        let options = CompleteOptions {
            copied: Some((key(source), tag.clone())),
            ..CompleteOptions::default()
        };
        let (name, parts) = (key(name), [part]);
        let complete = self.store.complete_upload(&name, upload, &parts, options);
        complete.await
    }

    fn looks(&self) -> u64 {
        self.server.counters().operation(Served::HeadObject)
    }
}

fn kind_of<T: std::fmt::Debug>(outcome: ObjectResult<T>) -> ErrorKind {
    outcome.expect_err("it is refused").kind
}

fn as_of(tag: &ETag) -> CopyOptions {
    CopyOptions {
        if_match: Some(tag.clone()),
        ..CopyOptions::default()
    }
}

#[tokio::test]
async fn parts_that_were_copied_from_another_version_become_no_object() {
    let bed = Bed::lacking(&[Lack::CopyConditions]);
    let ours = bed.put("source", b'o', LARGE).await;
    let upload = bed.begin("target").await;
    bed.put("source", b't', LARGE).await;
    let part = bed.copy_part(("source", &ours), ("target", &upload)).await;
    let part = part.expect("the store looks at no version");
    let completed = bed.complete(("source", &ours), ("target", &upload), part);
    assert_eq!(kind_of(completed.await), ErrorKind::PreconditionFailed);
    assert_eq!(bed.server.data().get(BUCKET, "target"), None);
}

#[tokio::test]
async fn anothers_object_is_not_taken_for_parts_of_another_version() {
    let bed = Bed::new(&[Lack::CopyConditions], true);
    let ours = bed.put("source", b'o', LARGE).await;
    let upload = bed.begin("target").await;
    let part = bed.copy_part(("source", &ours), ("target", &upload)).await;
    bed.put("source", b't', LARGE).await;
    bed.put("target", b't', 1).await;
    let fails = FaultRule::new(Fault::InternalError).on(&[Served::HeadObject]);
    bed.server.faults().add(fails.next(1));
    let part = part.expect("it is copied");
    let completed = bed.complete(("source", &ours), ("target", &upload), part);
    assert_eq!(kind_of(completed.await), ErrorKind::PreconditionFailed);
}

/// How often the store is looked at to complete an upload of a part that is copied from "source".
async fn looks_at_a_completion(bed: &Bed, source: &ETag, upload: &UploadId) -> u64 {
    let part = bed.copy_part(("source", source), ("target", upload)).await;
    let part = part.expect("it is this version");
    let before = bed.looks();
    let completed = bed.complete(("source", source), ("target", upload), part);
    completed.await.expect("it is this version");
    bed.looks() - before
}

#[tokio::test]
async fn a_store_that_was_seen_to_refuse_another_version_is_believed() {
    let bed = Bed::lacking(&[]);
    let theirs = bed.put("source", b't', LARGE).await;
    let upload = bed.begin("target").await;
    let looked = looks_at_a_completion(&bed, &theirs, &upload).await;

    let upload = bed.begin("target").await;
    let gone = ETag::new("gone");
    let refused = bed.copy_part(("source", &gone), ("target", &upload)).await;
    assert_eq!(kind_of(refused), ErrorKind::PreconditionFailed);
    let looks = looks_at_a_completion(&bed, &theirs, &upload).await;
    assert_eq!((looked, looks), (2, 0), "one at the source, one at the tag");
}

#[tokio::test]
async fn a_copy_of_another_version_is_refused() {
    for lacks in [&[][..], &[Lack::CopyConditions]] {
        for condition in [WriteCondition::Always, WriteCondition::IfAbsent] {
            let bed = Bed::lacking(lacks);
            let ours = bed.put("source", b'o', LARGE).await;
            let options = CopyOptions {
                condition,
                ..as_of(&ours)
            };
            let copy = |target: &'static str| {
                let (store, options) = (Arc::clone(&bed.store), options.clone());
                async move { store.copy(&key("source"), &key(target), options).await }
            };
            copy("first").await.expect("it is this version");
            bed.put("source", b't', LARGE).await;
            let refused = copy("second").await;
            assert_eq!(kind_of(refused), ErrorKind::PreconditionFailed, "{lacks:?}");
            let is_made = bed.server.data().get(BUCKET, "second").is_some();
            assert_eq!(is_made, !lacks.is_empty(), "a store that looks makes none");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anothers_object_in_place_of_a_refused_copy_stays() {
    let bed = Bed::lacking(&[Lack::CopyConditions]);
    let ours = bed.put("source", b'o', LARGE).await;
    bed.put("source", b't', LARGE).await;
    let hang = FaultRule::new(Fault::Hang { duration_ms: 1500 });
    let faults = bed.server.faults();
    faults.add(hang.on(&[Served::DeleteObject]));
    let replace = async {
        while bed.server.counters().operation(Served::CopyObject) == 0 {
            clock::sleep(Duration::from_millis(10)).await;
        }
        clock::sleep(Duration::from_millis(500)).await;
        bed.put("target", b'x', 1000).await
    };
    let options = CopyOptions {
        condition: WriteCondition::IfAbsent,
        ..as_of(&ours)
    };
    let (source, target) = (key("source"), key("target"));
    let copy = bed.store.copy(&source, &target, options);
    let (copied, _) = tokio::join!(copy, replace);
    assert_eq!(kind_of(copied), ErrorKind::PreconditionFailed);
    assert!(bed.server.data().get(BUCKET, "target").is_some());
}

/// Copies `source` onto another key as of the version `tag`; the first answer is lost.
async fn copy_losing_an_answer(bed: &Bed, tag: &ETag, target: &str) -> ObjectResult<Stored> {
    let lost = FaultRule::new(Fault::LoseAnswer).on(&[Served::CopyObject]);
    bed.server.faults().add(lost.next(1));
    let options = CopyOptions {
        condition: WriteCondition::IfAbsent,
        ..as_of(tag)
    };
    bed.store.copy(&key("source"), &key(target), options).await
}

#[tokio::test]
async fn a_copy_of_another_version_is_not_recognised_when_its_answer_was_lost() {
    for size in [1000, LARGE] {
        let bed = Bed::new(&[Lack::CopyConditions], true);
        let ours = bed.put("source", b'o', size).await;
        let copied = copy_losing_an_answer(&bed, &ours, "first").await;
        copied.expect("it is this version");
        bed.put("source", b't', size).await;
        let copied = copy_losing_an_answer(&bed, &ours, "second").await;
        assert_eq!(kind_of(copied), ErrorKind::AlreadyExists);
    }
}

/// Describes `source` as of the version `tag` anew, while another client replaces it after the copy and
/// before the look at it.
async fn describe_while_it_is_replaced(bed: &Bed, tag: &ETag, size: usize) -> ObjectResult<Stored> {
    let hang = FaultRule::new(Fault::Hang { duration_ms: 1500 });
    let looks = hang.on(&[Served::HeadObject]).skip(1).next(1);
    bed.server.faults().add(looks);
    let replace = async {
        while bed.server.counters().operation(Served::CopyObject) == 0 {
            clock::sleep(Duration::from_millis(10)).await;
        }
        clock::sleep(Duration::from_millis(200)).await;
        bed.put("source", b't', size).await
    };
    let options = CopyOptions {
        condition: WriteCondition::IfMatch(tag.clone()),
        description: Some(Description::default()),
        ..as_of(tag)
    };
    let source = key("source");
    let copy = bed.store.copy(&source, &source, options);
    let (copied, theirs) = tokio::join!(copy, replace);
    if let Ok(copied) = &copied {
        assert_ne!(copied.etag, theirs, "another's version is not the copy");
    }
    copied
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anothers_object_is_not_taken_for_a_copy_whose_tag_is_not_told() {
    for size in [LARGE, LARGE + 1] {
        let bed = Bed::lacking(&[Lack::AnswerToCopy]);
        let ours = bed.put("source", b'o', LARGE).await;
        let copied = describe_while_it_is_replaced(&bed, &ours, size).await;
        assert_eq!(kind_of(copied), ErrorKind::PreconditionFailed);
    }
}

#[tokio::test]
async fn a_copy_whose_tag_is_not_told_is_looked_up() {
    let bed = Bed::lacking(&[Lack::AnswerToCopy]);
    let ours = bed.put("source", b'o', LARGE).await;
    let copied = bed
        .store
        .copy(&key("source"), &key("target"), as_of(&ours))
        .await;
    assert_eq!(copied.expect("it is a copy").etag, ours);
    assert_eq!(bed.looks(), 1, "the copy has its source's tag");
}

/// Appends `tail` to "source" as of the version `tag`, in parts whose tags tell nothing.
async fn append_in_parts(bed: &Bed, tag: &ETag, tail: u8) -> ObjectResult<Stored> {
    let source = key("source");
    let upload = bed.begin("source").await;
    let copy = PartCopy {
        source: source.clone(),
        range: 0..APPENDED_TO as u64,
        if_match: Some(tag.clone()),
    };
    let copied = bed.store.copy_part(&source, &upload, 1, copy).await;
    let body = Payload::from(vec![tail; LARGE]);
    let sent = bed.store.upload_part(&source, &upload, 2, body).await;
    let parts = [copied.expect("it is copied"), sent.expect("it is sent")];
    let options = CompleteOptions {
        condition: WriteCondition::IfMatch(tag.clone()),
        copied: Some((source.clone(), tag.clone())),
        sent_tells: true,
        ..CompleteOptions::default()
    };
    let fault = match tail {
        b'l' => Fault::LoseAnswer,
        _ => Fault::Reset { after: 0 },
    };
    if tail != b'l' {
        bed.put("source", b't', APPENDED_TO + LARGE).await;
    }
    let fails = FaultRule::new(fault).on(&[Served::CompleteUpload]);
    bed.server.faults().add(fails.next(1));
    let complete = bed.store.complete_upload(&source, &upload, &parts, options);
    complete.await
}

/// The smallest part that is not the last.
const APPENDED_TO: usize = 5 << 20;

#[tokio::test]
async fn what_was_sent_tells_whose_object_it_is_where_no_tag_does() {
    let bed = Bed::retrying();
    let before = bed.put("source", b'o', APPENDED_TO).await;
    let appended = append_in_parts(&bed, &before, b'l').await;
    appended.expect("it is ours, its answer was lost");
    let before = bed.put("source", b'o', APPENDED_TO).await;
    let refused = append_in_parts(&bed, &before, b'r').await;
    assert_eq!(kind_of(refused), ErrorKind::PreconditionFailed);
}

#[tokio::test]
async fn copies_of_parts_that_are_refused_at_once_are_all_told_as_unsupported() {
    let bed = Bed::lacking(&[]);
    let tag = bed.put("source", b'o', LARGE).await;
    let upload = bed.begin("target").await;
    let refusal = Fault::Status {
        status: 411,
        code: "MissingContentLength".to_owned(),
    };
    // Each is on its way before the first has its answer.
    bed.server.faults().set(Faults {
        latency_ms: 100,
        ..Faults::rule(FaultRule::new(refusal).on(&[Served::UploadPartCopy]))
    });
    let copy = || bed.copy_part(("source", &tag), ("target", &upload));
    let (first, second) = tokio::join!(copy(), copy());
    let kinds = [first, second].map(kind_of);
    assert_eq!(kinds, [ErrorKind::Unsupported; 2]);
}
