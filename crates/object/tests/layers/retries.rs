//! What is repeated, how often, and what is not.

use super::*;

const ATTEMPTS: u32 = 5;

fn retrying() -> (Retry, Arc<Faults>, Arc<dyn Store>) {
    let (store, faults, memory) = faulty();
    (
        Retry::new(store, ATTEMPTS, &Registry::default()),
        faults,
        memory,
    )
}

fn unavailable() -> Fault {
    Fault::fail(ErrorKind::Unavailable)
}

fn lost() -> Fault {
    Fault::LoseAnswer(ErrorKind::Timeout)
}

#[tokio::test(start_paused = true)]
async fn what_fails_in_passing_is_repeated() {
    let (store, faults, _) = retrying();
    let passing = [
        ErrorKind::Throttled,
        ErrorKind::Unavailable,
        ErrorKind::Timeout,
    ];
    faults.queue(Operation::Put, passing.map(Fault::fail));
    put(&store, "a", b"content").await;
    assert_eq!(faults.calls(Operation::Put), 4);
    assert_eq!(read(&store, "a").await.expect("it is there"), b"content");
}

#[tokio::test(start_paused = true)]
async fn what_fails_for_good_is_not() {
    let (store, faults, _) = retrying();
    faults.queue(Operation::Head, [Fault::fail(ErrorKind::PermissionDenied)]);
    let error = store
        .head(&key("a"), HeadOptions {})
        .await
        .expect_err("refused");
    assert_eq!(error.kind, ErrorKind::PermissionDenied);
    assert_eq!(faults.calls(Operation::Head), 1);
}

#[tokio::test(start_paused = true)]
async fn attempts_come_to_an_end() {
    let (store, faults, _) = retrying();
    faults.rate(None, 1.0, unavailable());
    let started = clock::now();
    let error = store
        .head(&key("a"), HeadOptions {})
        .await
        .expect_err("it always fails");
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert_eq!(faults.calls(Operation::Head), u64::from(ATTEMPTS));
    // Pauses of at most 1, 2, 4 and 8 times the base.
    assert!(started.elapsed() <= 15 * BACKOFF_BASE);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_tried_for_as_long_as_it_may_take() {
    let (store, faults, _) = faulty();
    let total = Duration::from_secs(120);
    let store = Retry::new(store, ATTEMPTS, &Registry::default()).riding_out(total);
    faults.rate(None, 1.0, unavailable());
    for _ in 0..20 {
        let started = clock::now();
        let error = store.head(&key("a"), HeadOptions {}).await;
        assert_eq!(error.expect_err("gone").kind, ErrorKind::Unavailable);
        let took = started.elapsed();
        assert!(total.mul_f64(0.99) <= took && took < total, "{took:?}");
    }
    assert!(faults.calls(Operation::Head) > 20 * u64::from(ATTEMPTS));
}

/// The deadline is for what hangs: who gives up tells what the store said last.
#[tokio::test(start_paused = true)]
async fn the_error_of_the_store_is_told_when_the_time_is_up() {
    let total = Duration::from_secs(6);
    let settings = RetrySettings {
        attempts_max: 100,
        total,
        ride_out: true,
    };
    for fault in [
        unavailable(),
        Fault::fail(ErrorKind::Interrupted),
        Fault::Answer { status: 503 },
        Fault::Answer { status: 500 },
        Fault::Fail {
            kind: ErrorKind::Throttled,
            retry_after: Some(Duration::from_secs(4)),
        },
    ] {
        let (store, faults, _) = faulty();
        let store = standard(store, 4, &settings, &Registry::default());
        faults.rate(None, 1.0, fault);
        let (key, upload) = (key("a"), UploadId::new("u"));
        let part = body(&[7; 1 << 20]);
        for _ in 0..20 {
            let started = clock::now();
            let errors = [
                store.head(&key, HeadOptions {}).await.err(),
                store.list(ListOptions::default()).await.err(),
                store.put(&key, body(b"x"), only_if_absent()).await.err(),
                store
                    .upload_part(&key, &upload, 1, part.clone())
                    .await
                    .err(),
                read(&*store, "a").await.err(),
            ];
            assert!(started.elapsed() < 5 * total + Duration::from_secs(2));
            for error in errors {
                let error = error.expect("it never succeeds");
                assert_ne!(error.kind, ErrorKind::Timeout, "{fault:?}: {error}");
            }
        }
    }
}

/// What takes long for its bytes is repeated for as long as it may take.
#[tokio::test(start_paused = true)]
async fn a_long_body_is_sent_again_while_there_is_time() {
    let total = Duration::from_secs(6);
    let (store, faults, _) = faulty();
    let store = Retry::new(store, ATTEMPTS, &Registry::default()).riding_out(total);
    let store = Deadline::new(Arc::new(store), total);
    let upload = store.create_upload(&key("a"), PutOptions::default()).await;
    let upload = upload.expect("begun");
    faults.rate(None, 1.0, unavailable());
    let part = body(&vec![7; 16 << 20]);
    let back = async {
        clock::sleep(Duration::from_secs(10)).await;
        faults.clear();
    };
    let (number, name) = (1, key("a"));
    let sent = tokio::join!(store.upload_part(&name, &upload, number, part), back).0;
    sent.expect("there was time");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_is_not() {
    let (store, faults, _) = faulty();
    let total = Duration::from_secs(120);
    let store = Retry::new(store, ATTEMPTS, &Registry::default()).riding_out(total);
    faults.rate(None, 1.0, Fault::Answer { status: 500 });
    let failed = store.head(&key("a"), HeadOptions {}).await;
    assert_eq!(failed.expect_err("it fails").status, Some(500));
    assert_eq!(faults.calls(Operation::Head), u64::from(ATTEMPTS));
    faults.clear();
    let away = [503, 502, 429, 503, 504, 503, 503];
    faults.queue(Operation::Put, away.map(|status| Fault::Answer { status }));
    put(&store, "a", b"content").await;
}

#[tokio::test(start_paused = true)]
async fn who_wants_nothing_repeated_gets_the_first_error() {
    let (store, faults, _) = faulty();
    let store = Retry::new(store, 1, &Registry::default()).riding_out(Duration::from_secs(120));
    faults.queue(Operation::Head, [unavailable()]);
    let failed = store.head(&key("a"), HeadOptions {}).await;
    assert_eq!(failed.expect_err("gone").kind, ErrorKind::Unavailable);
    assert_eq!(faults.calls(Operation::Head), 1);
}

#[tokio::test(start_paused = true)]
async fn the_store_says_how_long_to_wait() {
    let (store, faults, _) = retrying();
    let asked = |retry_after| Fault::Fail {
        kind: ErrorKind::Throttled,
        retry_after: Some(retry_after),
    };
    faults.queue(
        Operation::Put,
        [
            asked(Duration::from_secs(7)),
            asked(Duration::from_secs(9999)),
        ],
    );
    let started = clock::now();
    put(&store, "a", b"x").await;
    let least = Duration::from_secs(7) + RETRY_AFTER_MAX;
    assert!(started.elapsed() >= least && started.elapsed() <= least + 3 * BACKOFF_BASE);
}

#[tokio::test(start_paused = true)]
async fn a_mismatched_checksum_is_tried_once_more() {
    let (store, faults, _) = retrying();
    let mismatch = Fault::fail(ErrorKind::ChecksumMismatch);
    faults.queue(Operation::Put, [mismatch]);
    put(&store, "a", b"x").await;
    faults.queue(Operation::Put, [mismatch; 3]);
    let stored = store
        .put(&key("a"), body(b"x"), PutOptions::default())
        .await;
    assert_eq!(
        stored.expect_err("no accident").kind,
        ErrorKind::ChecksumMismatch
    );
    assert_eq!(faults.calls(Operation::Put), 2 + 2);
}

#[tokio::test(start_paused = true)]
async fn many_that_fail_together_do_not_multiply_the_load() {
    let (store, faults, _) = retrying();
    let store = Arc::new(store);
    faults.rate(None, 1.0, unavailable());
    let clients = (0..1000).map(|_| {
        let store = Arc::clone(&store);
        async move { store.head(&key("a"), HeadOptions {}).await.is_err() }
    });
    let started = clock::now();
    let failed = futures_util::future::join_all(clients).await;
    assert!(failed.into_iter().all(|failed| failed));
    let calls = faults.calls(Operation::Head) as f64;
    assert_eq!(calls, 5000.0);
    // 4000 retries, of which 256 are free and 16 a second after that.
    let least = (4000.0 - 256.0) / 16.0 * 0.9;
    let passed = started.elapsed().as_secs_f64();
    assert!(passed > least, "{passed} s for {calls} requests");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_cut_goes_on_where_it_stopped() {
    let (store, faults, memory) = retrying();
    let content: Vec<u8> = (0..100_000_u32).map(|number| (number / 13) as u8).collect();
    put(&*memory, "a", &content).await;
    let cuts = [0, 1, 70_000, 5].map(|after| Fault::Cut { after });
    faults.queue(
        Operation::Get,
        [cuts[0], unavailable(), cuts[1], cuts[2], cuts[3]],
    );
    assert!(read(&store, "a").await.expect("it is whole in the end") == content);
    assert_eq!(faults.calls(Operation::Get), 6);
    faults.queue(Operation::Get, cuts);
    let mut bytes = b"before".to_vec();
    let options = GetOptions {
        range: Some(10..80_000),
        ..GetOptions::default()
    };
    let got = store
        .get(&key("a"), options, &mut bytes)
        .await
        .expect("it is whole in the end");
    assert_eq!((got.range, got.info.size), (10..80_000, 100_000));
    assert!(bytes[..6] == *b"before" && bytes[6..] == content[10..80_000]);
}

#[tokio::test(start_paused = true)]
async fn a_whole_object_that_came_in_pieces_is_verified() {
    let (store, faults, memory) = retrying();
    put(&*memory, "a", &[7; 100_000]).await;
    faults.queue(
        Operation::Get,
        [Fault::Cut { after: 50_000 }, Fault::Flip { at: 10 }],
    );
    let error = read(&store, "a").await.expect_err("a byte is wrong");
    assert_eq!(error.kind, ErrorKind::ChecksumMismatch);
    assert!(read(&store, "a").await.expect("whole") == [7; 100_000]);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_gets_further_is_not_given_up() {
    let (store, faults, memory) = retrying();
    put(&*memory, "a", &[7; 1000]).await;
    faults.rate(Some(Operation::Get), 1.0, Fault::Cut { after: 10 });
    assert_eq!(
        read(&store, "a").await.expect("it is whole in the end"),
        [7; 1000]
    );
    assert!(faults.calls(Operation::Get) >= 100);
}

/// Cuts a read, lets `meddle` happen before it goes on, and returns how it ends.
async fn cut_and(meddle: impl AsyncFnOnce(&dyn Store)) -> ObjectResult<Vec<u8>> {
    let (store, faults, memory) = retrying();
    put(&*memory, "a", &[7; 1000]).await;
    let late = Fault::Fail {
        kind: ErrorKind::Unavailable,
        retry_after: Some(Duration::from_secs(2)),
    };
    faults.queue(Operation::Get, [Fault::Cut { after: 10 }, late]);
    let meddling = async {
        clock::sleep(Duration::from_secs(1)).await;
        meddle(&*memory).await;
    };
    tokio::join!(read(&store, "a"), meddling).0
}

#[tokio::test(start_paused = true)]
async fn a_read_does_not_go_on_in_another_version() {
    let whole = cut_and(async |_| {}).await;
    assert_eq!(whole.expect("nobody meddled"), [7; 1000]);
    let replaced = cut_and(async |store| drop(put(store, "a", &[8; 1000]).await)).await;
    assert_eq!(
        replaced.expect_err("replaced").kind,
        ErrorKind::PreconditionFailed
    );
    let deleted = cut_and(async |store| {
        store.delete(&key("a")).await.expect("deleting works");
    });
    assert_eq!(
        deleted.await.expect_err("deleted").kind,
        ErrorKind::PreconditionFailed
    );
}

#[tokio::test(start_paused = true)]
async fn a_missing_object_stays_missing() {
    let (store, faults, _) = retrying();
    faults.queue(Operation::Get, [unavailable()]);
    let error = read(&store, "a").await.expect_err("it is not there");
    assert_eq!(
        (error.kind, faults.calls(Operation::Get)),
        (ErrorKind::NotFound, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_answer_was_lost_succeeds_and_is_done_once() {
    let (store, faults, _) = retrying();
    faults.queue(Operation::Put, [lost(), lost()]);
    let created = store.put(&key("a"), body(b"mine"), only_if_absent()).await;
    let info = store
        .head(&key("a"), HeadOptions {})
        .await
        .expect("it is there");
    assert_eq!(created.expect("it was ours").etag, info.etag);
    let again = store.put(&key("a"), body(b"mine"), only_if_absent()).await;
    assert_eq!(again.expect_err("taken").kind, ErrorKind::AlreadyExists);
}

#[tokio::test(start_paused = true)]
async fn a_create_that_never_happened_does_not_claim_the_work_of_others() {
    let (store, faults, memory) = retrying();
    let mine = vec![7; 200_000];
    let mut theirs = mine.clone();
    theirs[150_000] = 8;
    put(&*memory, "a", &theirs).await;
    faults.queue(Operation::Put, [unavailable()]);
    let created = store.put(&key("a"), body(&mine), only_if_absent()).await;
    assert_eq!(created.expect_err("taken").kind, ErrorKind::AlreadyExists);
    assert!(read(&store, "a").await.expect("it is there") == theirs);
}

#[tokio::test]
async fn a_create_does_not_claim_what_is_older_than_itself() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let local = LocalStore::open(directory.path(), LocalSettings::default());
    let local: Arc<dyn Store> = Arc::new(local.expect("the bucket opens"));
    put(&*local, "a", b"same").await;
    let file = std::fs::File::open(directory.path().join("a")).expect("it is there");
    let hour_ago = clock::wall_time() - Duration::from_secs(3600);
    file.set_modified(hour_ago).expect("it can be set");
    let faults = Faults::new(1);
    let store = Arc::new(Faulty::new(local, Arc::clone(&faults)));
    let store = Retry::new(store, ATTEMPTS, &Registry::default());
    faults.queue(Operation::Put, [unavailable()]);
    let created = store.put(&key("a"), body(b"same"), only_if_absent()).await;
    assert_eq!(created.expect_err("taken").kind, ErrorKind::AlreadyExists);
}

#[tokio::test(start_paused = true)]
async fn an_append_whose_answer_was_lost_is_done_once() {
    let (store, faults, _) = retrying();
    for (position, piece) in [(0, b"one"), (3, b"two")] {
        faults.queue(Operation::Append, [lost()]);
        let appended = store
            .append(&key("a"), position, body(piece), PutOptions::default())
            .await;
        assert_eq!(appended.expect("it was ours").next_position, position + 3);
    }
    assert_eq!(read(&store, "a").await.expect("it is there"), b"onetwo");
}

#[tokio::test(start_paused = true)]
async fn an_append_does_not_claim_the_work_of_others() {
    let (store, faults, memory) = retrying();
    let theirs = memory
        .append(&key("a"), 0, body(b"one"), PutOptions::default())
        .await;
    theirs.expect("it begins");
    faults.queue(Operation::Append, [unavailable()]);
    let appended = store
        .append(&key("a"), 0, body(b"two"), PutOptions::default())
        .await;
    assert_eq!(
        appended.expect_err("elsewhere").kind,
        ErrorKind::PositionMismatch
    );
    assert_eq!(read(&store, "a").await.expect("it is there"), b"one");
}

#[tokio::test(start_paused = true)]
async fn a_copy_whose_answer_was_lost_is_recognised() {
    let (store, faults, memory) = retrying();
    put(&*memory, "a", b"content").await;
    put(&*memory, "taken", b"another").await;
    let options = CopyOptions {
        condition: WriteCondition::IfAbsent,
        ..CopyOptions::default()
    };
    faults.queue(Operation::Copy, [lost()]);
    let copied = store.copy(&key("a"), &key("b"), options.clone()).await;
    copied.expect("it was ours");
    faults.queue(Operation::Copy, [unavailable()]);
    let copied = store.copy(&key("a"), &key("taken"), options).await;
    assert_eq!(copied.expect_err("taken").kind, ErrorKind::AlreadyExists);
}

#[tokio::test(start_paused = true)]
async fn a_copy_over_a_version_whose_answer_was_lost_is_recognised() {
    let (store, faults, memory) = retrying();
    put(&*memory, "a", b"content").await;
    let over = |tag: ETag| CopyOptions {
        condition: WriteCondition::IfMatch(tag),
        ..CopyOptions::default()
    };
    let replaced = put(&*memory, "b", b"replaced").await;
    faults.queue(Operation::Copy, [lost()]);
    let copied = store.copy(&key("a"), &key("b"), over(replaced.etag)).await;
    let copied = copied.expect("it was ours");
    put(&*memory, "b", b"theirs").await;
    faults.queue(Operation::Copy, [unavailable()]);
    let refused = store.copy(&key("a"), &key("b"), over(copied.etag)).await;
    assert_eq!(
        refused.expect_err("not ours").kind,
        ErrorKind::PreconditionFailed
    );
    assert_eq!(read(&store, "b").await.expect("it is there"), b"theirs");
}

#[tokio::test(start_paused = true)]
async fn an_upload_whose_last_answer_was_lost_is_complete() {
    let (store, faults, _) = retrying();
    let upload = store.create_upload(&key("a"), PutOptions::default()).await;
    let upload = upload.expect("it begins");
    let mut parts = Vec::new();
    for number in [1, 2] {
        faults.queue(Operation::UploadPart, [lost()]);
        let part = store
            .upload_part(&key("a"), &upload, number, body(b"part"))
            .await;
        parts.push(part.expect("sending it twice is harmless"));
    }
    faults.queue(Operation::CompleteUpload, [lost()]);
    let options = CompleteOptions::default();
    let completed = store
        .complete_upload(&key("a"), &upload, &parts, options.clone())
        .await;
    let info = store
        .head(&key("a"), HeadOptions {})
        .await
        .expect("it is there");
    assert_eq!(completed.expect("it was ours").etag, info.etag);
    let again = store
        .complete_upload(&key("a"), &upload, &parts, options)
        .await;
    assert_eq!(again.expect_err("it is over").kind, ErrorKind::NoSuchUpload);
}

#[tokio::test(start_paused = true)]
async fn a_write_on_condition_of_a_version_whose_answer_was_lost_is_recognised() {
    let (store, faults, memory) = retrying();
    let on = |tag: &ETag| PutOptions {
        condition: WriteCondition::IfMatch(tag.clone()),
        ..PutOptions::default()
    };
    let first = put(&*memory, "a", b"first").await;
    faults.queue(Operation::Put, [lost()]);
    let second = store
        .put(&key("a"), body(b"second"), on(&first.etag))
        .await
        .expect("it was ours");
    put(&*memory, "a", b"theirs").await;
    faults.queue(Operation::Put, [unavailable()]);
    let refused = store.put(&key("a"), body(b"third"), on(&second.etag)).await;
    assert_eq!(
        refused.expect_err("not ours").kind,
        ErrorKind::PreconditionFailed
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_recognised_though_what_is_compared_arrives_damaged() {
    let (store, faults, memory) = retrying();
    let first = put(&*memory, "a", b"first").await;
    let options = PutOptions {
        condition: WriteCondition::IfMatch(first.etag),
        ..PutOptions::default()
    };
    faults.queue(Operation::Put, [lost()]);
    faults.queue(Operation::Get, [Fault::Flip { at: 3 }]);
    // So long that the comparison ends before the body does.
    let second = store.put(&key("a"), body(&[2; 300_000]), options).await;
    second.expect("it was ours");
}

/// As OSS does: the body is stored as it arrived, and then compared.
#[tokio::test(start_paused = true)]
async fn a_damaged_version_that_the_store_kept_is_replaced() {
    let (store, faults, memory) = retrying();
    let first = put(&*memory, "a", b"first").await;
    for condition in [
        WriteCondition::IfMatch(first.etag),
        WriteCondition::IfAbsent,
    ] {
        if condition == WriteCondition::IfAbsent {
            memory.delete(&key("a")).await.expect("deleted");
        }
        let options = PutOptions {
            condition,
            ..PutOptions::default()
        };
        faults.queue(Operation::Put, [Fault::Damage { at: 3 }]);
        let stored = store.put(&key("a"), body(b"second"), options).await;
        stored.expect("what an attempt left is replaced");
        assert_eq!(read(&*memory, "a").await.expect("there"), b"second");
    }
}

/// As S3 does: the body is refused, and what is there is what another client stored meanwhile.
#[tokio::test(start_paused = true)]
async fn anothers_version_is_not_taken_for_what_a_refused_body_left() {
    let (store, faults, memory) = retrying();
    let first = put(&*memory, "a", b"first").await;
    put(&*memory, "a", b"theirs").await;
    for (condition, expected) in [
        (
            WriteCondition::IfMatch(first.etag),
            ErrorKind::PreconditionFailed,
        ),
        (WriteCondition::IfAbsent, ErrorKind::AlreadyExists),
    ] {
        let options = PutOptions {
            condition,
            ..PutOptions::default()
        };
        faults.queue(Operation::Put, [Fault::fail(ErrorKind::ChecksumMismatch)]);
        let stored = store.put(&key("a"), body(b"second"), options).await;
        assert_eq!(stored.expect_err("a conflict").kind, expected);
        assert_eq!(read(&*memory, "a").await.expect("there"), b"theirs");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_was_aborted_is_not_complete() {
    let (store, faults, memory) = retrying();
    let upload = store.create_upload(&key("a"), PutOptions::default()).await;
    let upload = upload.expect("it begins");
    let part = store
        .upload_part(&key("a"), &upload, 1, body(b"part"))
        .await;
    memory
        .abort_upload(&key("a"), &upload)
        .await
        .expect("aborting works");
    put(&*memory, "a", b"something else").await;
    faults.queue(Operation::CompleteUpload, [unavailable()]);
    let parts = [part.expect("it is taken")];
    let completed = store
        .complete_upload(&key("a"), &upload, &parts, CompleteOptions::default())
        .await;
    assert_eq!(
        completed.expect_err("aborted").kind,
        ErrorKind::NoSuchUpload
    );
}

/// Another client's object of the same size, which is there when the end of an upload is repeated.
#[tokio::test(start_paused = true)]
async fn anothers_object_is_not_taken_for_an_upload_that_ended() {
    let (store, faults, memory) = retrying();
    let base = put(&*memory, "a", b"base").await.etag;
    let conditions = [WriteCondition::IfMatch(base), WriteCondition::Always];
    for (condition, aborted) in [
        (&conditions[0], true),
        (&conditions[0], false),
        (&conditions[1], true),
    ] {
        let upload = store.create_upload(&key("a"), PutOptions::default()).await;
        let upload = upload.expect("it begins");
        let part = store
            .upload_part(&key("a"), &upload, 1, body(b"ours"))
            .await;
        if aborted {
            let ended = memory.abort_upload(&key("a"), &upload).await;
            ended.expect("aborting works");
        }
        put(&*memory, "a", b"his!").await;
        faults.queue(Operation::CompleteUpload, [unavailable()]);
        let options = CompleteOptions {
            condition: condition.clone(),
            ..CompleteOptions::default()
        };
        let parts = [part.expect("it is taken")];
        let completed = store
            .complete_upload(&key("a"), &upload, &parts, options)
            .await;
        let error = completed.expect_err("not ours").kind;
        let expected = [ErrorKind::NoSuchUpload, ErrorKind::PreconditionFailed];
        assert!(expected.contains(&error), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pinned_read_stays_pinned_when_it_goes_on() {
    let (store, faults, memory) = retrying();
    put(&*memory, "a", &[7; 100]).await;
    faults.queue(Operation::Get, [Fault::Cut { after: 10 }]);
    let options = GetOptions {
        if_match: Some(ETag::new("another version")),
        ..GetOptions::default()
    };
    let mut bytes = Vec::new();
    let got = store.get(&key("a"), options, &mut bytes).await;
    assert_eq!(
        got.expect_err("another version").kind,
        ErrorKind::PreconditionFailed
    );
}

#[tokio::test(start_paused = true)]
async fn keys_whose_deletion_fails_in_passing_are_deleted_again() {
    let (store, faults, _) = retrying();
    let names = ["a", "b", "c"].map(key);
    for name in &names {
        put(&store, name.as_str(), b"x").await;
    }
    let faults_in_a_row = [
        Fault::Spare(ErrorKind::Throttled),
        unavailable(),
        Fault::Spare(ErrorKind::Unavailable),
    ];
    faults.queue(Operation::DeleteMany, faults_in_a_row);
    let failures = store.delete_many(&names).await;
    assert_eq!(failures.expect("it gets through"), []);
    let left = store.list(ListOptions::default()).await;
    assert_eq!(left.expect("it lists").objects, []);
    put(&store, "a", b"x").await;
    faults.queue(
        Operation::DeleteMany,
        [Fault::Spare(ErrorKind::PermissionDenied)],
    );
    let failures = store.delete_many(&names).await.expect("it answers");
    assert_eq!((failures.len(), &failures[0].key), (1, &names[0]));
    faults.rate(
        Some(Operation::DeleteMany),
        1.0,
        Fault::Spare(ErrorKind::Throttled),
    );
    let failures = store.delete_many(&names).await.expect("it answers");
    assert_eq!(
        (failures.len(), failures[0].kind),
        (1, ErrorKind::Throttled)
    );
}
