//! Which requests writes lead to, what the store has afterwards, and what is left behind.

mod support;

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use penstock_base::{GIB, KIB, MIB, clock};
use penstock_object::{Capabilities, ErrorKind, Operation, PutOptions, Store, WriteCondition};
use penstock_object_testing::MemoryStore;
use penstock_transfer::{TransferError, TransferSettings, WriteStart, Writer};
use support::{Bench, Fault, Network, TestStore, key, kind, pattern, write_all};

fn writer(bench: &Bench, start: WriteStart) -> Writer {
    bench
        .transfer
        .writer(key("a"), start, PutOptions::default())
}

/// Memory that the transfer keeps apart once something was written to an S3-like store.
const SET_ASIDE: u64 = 16 * MIB;

async fn assert_content(bench: &Bench, expected: &[u8]) {
    let content = bench.store.content(&key("a")).await.expect("there");
    assert!(
        content == expected,
        "{} instead of {} bytes, or others",
        content.len(),
        expected.len()
    );
    assert_eq!(bench.store.uploads().await, 0);
}

#[tokio::test]
async fn a_small_object_is_one_put() {
    for size in [0, 1, 100 << 10, 5 << 20, (8 << 20) - 1] {
        let bench = Bench::plain();
        let data = pattern(0..size);
        let mut writer = writer(&bench, WriteStart::Empty);
        write_all(&mut writer, &data, 128 << 10)
            .await
            .expect("written");
        let finished = writer.finish().await.expect("finished");
        assert_eq!(finished.size, size);
        assert_content(&bench, &data).await;
        assert_eq!(
            (bench.store.count(Operation::Put), bench.store.total()),
            (1, 1)
        );
    }
}

#[tokio::test]
async fn a_large_object_is_an_upload_of_equal_parts() {
    for piece in [4 << 10, 300 << 10, 700 << 10, 1 << 20, 20 << 20] {
        let bench = Bench::plain();
        let data = pattern(0..(27 * MIB + 17));
        let mut writer = writer(&bench, WriteStart::Empty);
        write_all(&mut writer, &data, piece).await.expect("written");
        assert!(
            bench.store.content(&key("a")).await.is_none(),
            "visible too early"
        );
        let finished = writer.finish().await.expect("finished");
        assert_eq!(finished.size, data.len() as u64);
        let mut sizes = bench.store.part_sizes.lock().unwrap().clone();
        sizes.sort_unstable();
        assert_eq!(sizes, [3 * MIB + 17, 8 * MIB, 8 * MIB, 8 * MIB]);
        assert_content(&bench, &data).await;
        assert_eq!(bench.budget().used(), SET_ASIDE);
    }
}

#[tokio::test]
async fn nothing_is_sent_before_the_first_part_is_full() {
    let bench = Bench::plain();
    let mut writer = writer(&bench, WriteStart::Empty);
    write_all(&mut writer, &pattern(0..8 * MIB - 1), 1 << 20)
        .await
        .expect("written");
    assert_eq!(bench.store.total(), 0);
    writer.abort().await;
    assert_eq!(bench.store.total(), 0);
}

#[tokio::test(start_paused = true)]
async fn parts_go_up_at_the_same_time_up_to_the_limit() {
    let network = Network {
        latency: Duration::from_millis(100),
        bandwidth: None,
    };
    let settings = TransferSettings {
        uploads_in_flight: 3,
        ..TransferSettings::default()
    };
    let bench = Bench::new(TestStore::new(network), 512 * MIB, settings);
    let mut writer = writer(&bench, WriteStart::Empty);
    write_all(&mut writer, &vec![0; 64 << 20], 1 << 20)
        .await
        .expect("written");
    writer.finish().await.expect("finished");
    assert_eq!(bench.store.in_flight_max.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn latency_costs_a_writer_no_throughput() {
    let mut rates = Vec::new();
    for latency in [0, 30] {
        let network = Network {
            latency: Duration::from_millis(latency),
            bandwidth: Some(1000.0 * MIB as f64),
        };
        let bench = Bench::new(
            TestStore::new(network),
            512 * MIB,
            TransferSettings::default(),
        );
        bench.store.discards.store(true, Ordering::SeqCst);
        let start = clock::now();
        let mut writer = writer(&bench, WriteStart::Empty);
        write_all(&mut writer, &vec![0; 400 << 20], 1 << 20)
            .await
            .expect("written");
        writer.finish().await.expect("finished");
        rates.push(400.0 / start.elapsed().as_secs_f64());
    }
    assert!(rates[0] > 900.0 && rates[1] > 0.75 * rates[0], "{rates:?}");
}

#[tokio::test]
async fn a_failed_part_fails_every_later_call_and_leaves_no_upload() {
    let bench = Bench::plain();
    bench.store.fail_next(
        Operation::UploadPart,
        Fault::Refuse(ErrorKind::PermissionDenied),
    );
    let mut failing = writer(&bench, WriteStart::Empty);
    let data = pattern(0..100 * MIB);
    let failed = write_all(&mut failing, &data, 1 << 20).await;
    assert_eq!(kind(failed), ErrorKind::PermissionDenied);
    assert_eq!(
        kind(failing.write(Bytes::from_static(b"x")).await),
        ErrorKind::PermissionDenied
    );
    assert_eq!(kind(failing.sync().await), ErrorKind::PermissionDenied);
    assert_eq!(kind(failing.finish().await), ErrorKind::PermissionDenied);
    bench.transfer.settle().await;
    assert_eq!(bench.store.uploads().await, 0);
    assert!(bench.store.content(&key("a")).await.is_none());
    assert_eq!(bench.budget().used(), SET_ASIDE);
}

#[tokio::test]
async fn a_failure_of_the_last_step_leaves_no_upload() {
    for operation in [
        Operation::CreateUpload,
        Operation::UploadPart,
        Operation::CompleteUpload,
    ] {
        let bench = Bench::plain();
        bench
            .store
            .fail_next(operation, Fault::Refuse(ErrorKind::Unavailable));
        let mut writer = writer(&bench, WriteStart::Empty);
        let written = write_all(&mut writer, &pattern(0..9 * MIB), 1 << 20).await;
        let result = match written {
            Ok(()) => writer.finish().await.map(|_| ()),
            Err(error) => Err(error),
        };
        assert_eq!(kind(result), ErrorKind::Unavailable);
        bench.transfer.settle().await;
        assert_eq!(bench.store.uploads().await, 0, "{operation:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_writer_leaves_nothing_behind() {
    for millis in [0, 3, 15, 40] {
        let network = Network {
            latency: Duration::from_millis(10),
            bandwidth: None,
        };
        let bench = Bench::new(
            TestStore::new(network),
            64 * MIB,
            TransferSettings::default(),
        );
        let mut dropped = writer(&bench, WriteStart::Empty);
        write_all(&mut dropped, &pattern(0..20 * MIB), 1 << 20)
            .await
            .expect("written");
        clock::sleep(Duration::from_millis(millis)).await;
        drop(dropped);
        bench.transfer.settle().await;
        assert_eq!(bench.store.count(Operation::CreateUpload), 1);
        assert_eq!(bench.store.uploads().await, 0, "after {millis} ms");
        assert_eq!(bench.budget().used(), SET_ASIDE);
    }
}

#[tokio::test]
async fn an_aborted_writer_leaves_nothing_behind() {
    let bench = Bench::plain();
    let mut aborted = writer(&bench, WriteStart::Empty);
    write_all(&mut aborted, &pattern(0..20 * MIB), 1 << 20)
        .await
        .expect("written");
    aborted.abort().await;
    assert_eq!(
        (
            bench.store.uploads().await,
            bench.store.count(Operation::AbortUpload)
        ),
        (0, 1)
    );
}

#[tokio::test]
async fn an_existing_large_object_is_continued_inside_the_store() {
    let bench = Bench::plain();
    let version = bench.store.fill("a", 40 * MIB).await;
    let mut writer = writer(&bench, WriteStart::After(version));
    assert_eq!(writer.size(), 40 * MIB);
    writer
        .write(Bytes::from_static(b"the end"))
        .await
        .expect("written");
    let finished = writer.finish().await.expect("finished");
    let expected = [pattern(0..40 * MIB), b"the end".to_vec()].concat();
    assert_eq!(finished.size, expected.len() as u64);
    assert_content(&bench, &expected).await;
    assert_eq!(
        (
            bench.store.count(Operation::Get),
            bench.store.count(Operation::CopyPart)
        ),
        (0, 1)
    );
}

#[tokio::test]
async fn a_very_large_object_is_copied_in_parts_that_the_store_takes() {
    let limits = Capabilities {
        part_size_min: MIB,
        part_size_max: 3 * MIB,
        ..MemoryStore::like_s3().capabilities().clone()
    };
    let store = TestStore::around(MemoryStore::with_capabilities(limits), Network::default());
    let bench = Bench::new(store, 64 * MIB, TransferSettings::default());
    let version = bench.store.fill("a", 20 * MIB + 1).await;
    let mut writer = writer(&bench, WriteStart::After(version));
    let more = pattern(20 * MIB + 1..27 * MIB);
    write_all(&mut writer, &more, 1 << 20)
        .await
        .expect("written");
    writer.finish().await.expect("finished");
    assert_content(&bench, &pattern(0..27 * MIB)).await;
    assert_eq!(bench.store.count(Operation::CopyPart), 7);
}

#[tokio::test]
async fn an_existing_small_object_is_read_back() {
    let bench = Bench::plain();
    let version = bench.store.fill("a", 3 * MIB).await;
    let mut writer = writer(&bench, WriteStart::After(version));
    let more = pattern(3 * MIB..20 * MIB);
    write_all(&mut writer, &more, 100 << 10)
        .await
        .expect("written");
    writer.finish().await.expect("finished");
    assert_content(&bench, &pattern(0..20 * MIB)).await;
    assert_eq!(
        (
            bench.store.count(Operation::Get),
            bench.store.count(Operation::CopyPart)
        ),
        (1, 0)
    );
}

#[tokio::test]
async fn continuing_an_object_without_writing_makes_no_request() {
    let bench = Bench::plain();
    for size in [0, 10, 40 * MIB] {
        let version = bench.store.fill("a", size).await;
        let etag = version.etag.clone();
        let finished = writer(&bench, WriteStart::After(version))
            .finish()
            .await
            .expect("finished");
        assert_eq!((finished.size, finished.stored.etag), (size, etag));
    }
    assert_eq!(bench.store.total(), 0);
}

#[tokio::test]
async fn continuing_an_object_that_was_replaced_fails() {
    for size in [10, 40 * MIB] {
        let bench = Bench::plain();
        let version = bench.store.fill("a", size).await;
        bench.store.fill("a", size + 1).await;
        let mut writer = writer(&bench, WriteStart::After(version));
        let result = match writer.write(Bytes::from_static(b"x")).await {
            Ok(()) => writer.finish().await.map(|_| ()),
            Err(error) => Err(error),
        };
        assert_eq!(kind(result), ErrorKind::PreconditionFailed);
        bench.transfer.settle().await;
        assert_eq!(bench.store.uploads().await, 0);
    }
}

#[tokio::test]
async fn sync_makes_visible_what_was_written_and_goes_on() {
    let bench = Bench::plain();
    let mut writer = writer(&bench, WriteStart::Empty);
    let mut size = 0;
    for step in [10, 500 << 10, 3 << 20, 3 << 20, 9 << 20, 100, 20 << 20] {
        let more = pattern(size..size + step);
        write_all(&mut writer, &more, 1 << 20)
            .await
            .expect("written");
        size += step;
        let synced = writer.sync().await.expect("synced");
        assert_eq!(synced.size, size);
        assert_content(&bench, &pattern(0..size)).await;
        let before = bench.store.total();
        assert_eq!(writer.sync().await.expect("synced"), synced);
        assert_eq!(
            bench.store.total(),
            before,
            "a second sync has nothing to do"
        );
    }
    assert_eq!(
        bench.store.count(Operation::Get),
        0,
        "small objects are kept in memory"
    );
    assert_eq!(writer.finish().await.expect("finished").size, size);
}

#[tokio::test]
async fn what_somebody_else_wrote_after_a_sync_is_not_overwritten() {
    for size in [10, 9 * MIB] {
        let bench = Bench::plain();
        let mut writer = writer(&bench, WriteStart::Empty);
        write_all(&mut writer, &pattern(0..size), 1 << 20)
            .await
            .expect("written");
        writer.sync().await.expect("synced");
        let theirs = bench.store.fill("a", 7).await;
        let result = match writer.write(Bytes::from_static(b"x")).await {
            Ok(()) => writer.finish().await.map(|_| ()),
            Err(error) => Err(error),
        };
        assert_eq!(kind(result), ErrorKind::PreconditionFailed, "{size}");
        bench.transfer.settle().await;
        assert_content(&bench, &pattern(0..theirs.size)).await;
    }
}

#[tokio::test]
async fn what_somebody_else_wrote_after_an_object_was_read_back_or_copied_is_not_overwritten() {
    for size in [0, 10, 40 * MIB] {
        let bench = Bench::plain();
        let version = bench.store.fill("a", size).await;
        let mut writer = writer(&bench, WriteStart::After(version));
        writer
            .write(Bytes::from_static(b"x"))
            .await
            .expect("written");
        while bench.store.count(Operation::CopyPart) < size / (40 * MIB) {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        let theirs = bench.store.fill("a", 7).await;
        assert_eq!(
            kind(writer.finish().await),
            ErrorKind::PreconditionFailed,
            "{size}"
        );
        bench.transfer.settle().await;
        assert_content(&bench, &pattern(0..theirs.size)).await;
    }
}

#[tokio::test]
async fn a_condition_holds_for_the_first_time_only() {
    let bench = Bench::plain();
    let options = PutOptions {
        condition: WriteCondition::IfAbsent,
        ..PutOptions::default()
    };
    let mut first = bench
        .transfer
        .writer(key("a"), WriteStart::Empty, options.clone());
    first
        .write(Bytes::from_static(b"one"))
        .await
        .expect("written");
    first.sync().await.expect("the key is free");
    first
        .write(Bytes::from_static(b"two"))
        .await
        .expect("written");
    first
        .finish()
        .await
        .expect("it is our own object that is there");
    assert_content(&bench, b"onetwo").await;
    for size in [1, 9 * MIB] {
        let mut second = bench
            .transfer
            .writer(key("a"), WriteStart::Empty, options.clone());
        write_all(&mut second, &pattern(0..size), 1 << 20)
            .await
            .expect("written");
        assert_eq!(kind(second.finish().await), ErrorKind::AlreadyExists);
    }
    bench.transfer.settle().await;
    assert_content(&bench, b"onetwo").await;
}

#[tokio::test]
async fn an_object_that_would_be_too_large_is_refused_at_the_write() {
    let limits = Capabilities {
        object_size_max: 10 * MIB,
        ..MemoryStore::like_s3().capabilities().clone()
    };
    let store = TestStore::around(MemoryStore::with_capabilities(limits), Network::default());
    let bench = Bench::new(store, 64 * MIB, TransferSettings::default());
    let mut writer = writer(&bench, WriteStart::Empty);
    write_all(&mut writer, &pattern(0..10 * MIB), 1 << 20)
        .await
        .expect("exactly the limit");
    let refused = writer.write(Bytes::from_static(b"x")).await;
    assert!(matches!(refused, Err(TransferError::TooLarge(limit)) if limit == 10 * MIB));
    bench.transfer.settle().await;
    assert_eq!(bench.store.uploads().await, 0);
}

#[tokio::test]
async fn small_writes_do_not_pin_the_memory_they_came_in() {
    let bench = Bench::plain();
    let mut writer = writer(&bench, WriteStart::Empty);
    let block = Bytes::from(vec![7; 1 << 20]);
    for _ in 0..100 {
        writer.write(block.slice(..4 << 10)).await.expect("written");
    }
    let held = bench.budget().used() - SET_ASIDE;
    assert!(held <= 2 * MIB, "{} KiB", held / KIB);
    drop(writer);
    assert!(block.try_into_mut().is_ok(), "nobody else holds the block");
}

#[tokio::test]
async fn a_kept_write_is_paid_for_by_the_block_that_it_pins() {
    let bench = Bench::plain();
    let mut writer = writer(&bench, WriteStart::Empty);
    for _ in 0..4 {
        writer
            .write(Bytes::from(vec![7; 600 << 10]))
            .await
            .expect("written");
    }
    assert_eq!(bench.budget().used() - SET_ASIDE, 4 * MIB);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_stays_exhausted_fails_the_write_in_time() {
    let bench = Bench::plain();
    let _held = bench
        .budget()
        .try_reserve(bench.budget().total())
        .expect("free");
    let start = clock::now();
    let mut writer = writer(&bench, WriteStart::Empty);
    let refused = writer.write(Bytes::from_static(b"x")).await;
    assert!(
        matches!(refused, Err(TransferError::OutOfMemory)),
        "{refused:?}"
    );
    assert_eq!(start.elapsed().as_secs(), 60);
}

#[tokio::test]
async fn parts_grow_when_the_object_does() {
    let limits = Capabilities {
        parts_max: 20,
        part_size_min: MIB,
        object_size_max: GIB,
        ..MemoryStore::like_s3().capabilities().clone()
    };
    let store = TestStore::around(MemoryStore::with_capabilities(limits), Network::default());
    let settings = TransferSettings {
        upload_part_size: MIB,
        ..TransferSettings::default()
    };
    let bench = Bench::new(store, 64 * MIB, settings);
    let mut writer = writer(&bench, WriteStart::Empty);
    write_all(&mut writer, &pattern(0..90 * MIB), 1 << 20)
        .await
        .expect("written");
    writer.finish().await.expect("finished");
    let sizes = bench.store.part_sizes.lock().unwrap().clone();
    assert!(
        sizes.len() <= 20 && sizes[0] == MIB && sizes.contains(&(8 * MIB)),
        "{sizes:?}"
    );
    assert_content(&bench, &pattern(0..90 * MIB)).await;
}
