//! Copies by reference: the copy is the source as it was, no byte of it moves, and both go their own ways from then on.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod carried;
mod ground;
mod random;
#[path = "../support/mod.rs"]
mod support;

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use bytes::Bytes;
use penstock_base::{FsError, KIB, MIB, clock};
use penstock_fileset::{
    check::{apply, check, plan},
    engine::{Transaction, transact},
    quotas::{Change, LimitChange, Subject},
};
use penstock_object::Operation as Request;
use penstock_vfs::{Allocation, AttributeChanges, OpenOptions, Seek, WritePlace};

use ground::{
    collect, content, copied, copy, copy_all, copy_by, counted, drop_snapshot, ends_empty, extents,
    opened, remove, snapshot,
};
use support::{Place, ROOT};

const CHUNK: u64 = 4 * MIB;

#[tokio::test]
async fn a_copy_is_the_source_and_moves_no_byte() {
    for place in [
        Place::new().await,
        Place::encrypted_and_spooled().await,
        Place::inlined().await,
    ] {
        let bytes = counted(9_000_000);
        place.store(ROOT, "source", &bytes).await.unwrap();
        let is_sent = || async { place.waiting().0 == 0 };
        place.until(is_sent).await;
        let before = place.objects().await;
        let requests = || [Request::Put, Request::Get].map(|it| place.faults.calls(it));
        let asked = requests();
        let (source, target) = (
            opened(&place, "source").await,
            opened(&place, "target").await,
        );
        assert_eq!(copy_all(&place, source, target).await, 1);
        place.sync(target).await.unwrap();
        assert_eq!((requests(), place.objects().await), (asked, before));
        assert!(content(&place, target, "target").await == bytes);
        let both = [place.find(ROOT, "source"), place.find(ROOT, "target")];
        let [one, other] = futures_util::future::join_all(both)
            .await
            .try_into()
            .unwrap();
        let sizes = |found: Result<penstock_vfs::Attributes, FsError>| {
            let found = found.unwrap();
            (found.size, found.allocated)
        };
        assert_eq!(sizes(one), sizes(other));
        place.is_whole().await;
    }
}

#[tokio::test]
async fn a_range_is_copied_from_anywhere_to_anywhere() {
    let place = Place::new().await;
    let (mut expected, source, target) = copied(&place).await;
    let whole = expected.clone();
    // Over the ends of chunks of both, behind the end, and with what is written over still pending.
    let moves = [
        (1_000_001, 3_999_999, 4_500_003),
        (5, 8_999_000, 700_000),
        (CHUNK - 1, CHUNK, 2),
        (4_000_000, 12_345_678, 1_000_000),
    ];
    for (from, to, length) in moves {
        let pending = place.write(target, WritePlace::At(to), &[7; 1000]).await;
        pending.unwrap();
        let made = copy(&place, (source, from), (target, to), length).await;
        assert_eq!(made, Ok(length));
        let (from, to, length) = (from as usize, to as usize, length as usize);
        expected.resize(expected.len().max(to + length.max(1000)), 0);
        expected[to..to + 1000].fill(7);
        expected[to..to + length].copy_from_slice(&whole[from..from + length]);
        assert!(
            content(&place, target, "target").await == expected,
            "{from}"
        );
    }
    assert!(content(&place, source, "source").await == whole);
    place.is_whole().await;
}

#[tokio::test]
async fn what_is_not_saved_of_a_source_is_copied_too() {
    let place = Place::new().await;
    let (source, target) = (
        opened(&place, "source").await,
        opened(&place, "target").await,
    );
    place
        .write(source, WritePlace::At(3), b"fresh")
        .await
        .unwrap();
    assert_eq!(copy(&place, (source, 0), (target, 0), 100).await, Ok(8));
    place
        .write(source, WritePlace::At(3), b"later")
        .await
        .unwrap();
    place
        .write(target, WritePlace::At(0), b"own")
        .await
        .unwrap();
    assert_eq!(content(&place, target, "target").await, b"ownfresh");
    assert_eq!(content(&place, source, "source").await, b"\0\0\0later");
    place.is_whole().await;
}

#[tokio::test]
async fn a_copy_outlives_its_source_and_the_last_one_takes_the_bytes_along() {
    let place = Place::new().await;
    let (bytes, source, target) = copied(&place).await;
    let objects = place.objects().await.len();
    // Overwritten, cut and removed.
    let over = counted(5_000_000);
    place
        .write(source, WritePlace::At(0), &over[4..])
        .await
        .unwrap();
    place.sync(source).await.unwrap();
    let cut = AttributeChanges {
        size: Some(10),
        ..AttributeChanges::default()
    };
    let inode = place.find(ROOT, "source").await.unwrap().inode;
    place.change(inode, cut).await.unwrap();
    place.close(source).await.unwrap();
    remove(&place, "source").await;
    place
        .until(|| async { place.objects().await.len() == objects })
        .await;
    collect(&place).await;
    assert!(content(&place, target, "target").await == bytes);
    place.is_whole().await;
    place.close(target).await.unwrap();
    remove(&place, "target").await;
    ends_empty(&place).await;
}

#[tokio::test]
async fn holes_stay_holes_and_make_holes() {
    let place = Place::new().await;
    let (source, target) = (
        opened(&place, "source").await,
        opened(&place, "target").await,
    );
    place
        .write(source, WritePlace::At(CHUNK + 10), b"data")
        .await
        .unwrap();
    let changes = AttributeChanges {
        size: Some(1 << 40),
        ..AttributeChanges::default()
    };
    let inode = place.find(ROOT, "source").await.unwrap().inode;
    place.change(inode, changes).await.unwrap();
    place
        .write(target, WritePlace::At(100), &[1; 5000])
        .await
        .unwrap();
    assert_eq!(copy_all(&place, source, target).await, 1);
    let found = place.find(ROOT, "target").await.unwrap();
    assert_eq!((found.size, found.allocated), (1 << 40, 4));
    assert_eq!(place.seek(target, 0, Seek::Data).await, Ok(CHUNK + 10));
    assert_eq!(
        place.seek(target, CHUNK + 11, Seek::Hole).await,
        Ok(CHUNK + 14)
    );
    assert_eq!(place.read(target, 100, 5000).await.unwrap(), [0; 5000]);
    place.is_whole().await;
}

#[tokio::test]
async fn a_file_is_copied_into_itself_but_not_over_itself() {
    let place = Place::new().await;
    place.store(ROOT, "file", b"0123456789").await.unwrap();
    let handle = opened(&place, "file").await;
    for (from, to) in [(0, 4), (4, 0), (2, 2)] {
        let refused = copy(&place, (handle, from), (handle, to), 5).await;
        assert!(
            matches!(refused, Err(FsError::InvalidArgument(_))),
            "{refused:?}"
        );
    }
    assert_eq!(copy(&place, (handle, 0), (handle, 5), 5).await, Ok(5));
    assert_eq!(content(&place, handle, "file").await, b"0123401234");
    // Only what is there counts.
    assert_eq!(copy(&place, (handle, 8), (handle, 0), 100).await, Ok(2));
    assert_eq!(copy(&place, (handle, 4), (handle, 10), 6).await, Ok(6));
    assert_eq!(content(&place, handle, "file").await, b"3423401234401234");
    place.is_whole().await;
}

#[tokio::test]
async fn what_cannot_be_copied_is_refused_and_changes_nothing() {
    let place = Place::new().await;
    place.store(ROOT, "source", b"bytes").await.unwrap();
    let inode = place.find(ROOT, "source").await.unwrap().inode;
    let reading = place.open(inode, OpenOptions::READ).await.unwrap();
    let writing = place.open(inode, OpenOptions::WRITE).await.unwrap();
    let target = opened(&place, "target").await;
    let before = place.find(ROOT, "target").await.unwrap();
    assert_eq!(
        copy(&place, (target, 0), (reading, 0), 1).await,
        Err(FsError::BadHandle)
    );
    assert_eq!(
        copy(&place, (writing, 0), (target, 0), 1).await,
        Err(FsError::BadHandle)
    );
    let longest = i64::MAX as u64;
    let too_far = copy(&place, (reading, 0), (target, longest), 1).await;
    assert_eq!(too_far, Err(FsError::FileTooLarge));
    assert_eq!(copy(&place, (reading, 5), (target, 0), 9).await, Ok(0));
    assert_eq!(place.find(ROOT, "target").await.unwrap(), before);
    // As much as a file can hold.
    assert_eq!(
        copy(&place, (reading, 0), (target, longest - 2), 5).await,
        Ok(2)
    );
}

#[tokio::test]
async fn a_copy_is_a_change_of_its_target_as_a_write_is() {
    let place = Place::new().await;
    place.store(ROOT, "source", b"bytes").await.unwrap();
    let (source, target) = (
        opened(&place, "source").await,
        opened(&place, "target").await,
    );
    let inode = place.find(ROOT, "target").await.unwrap().inode;
    let set_id = AttributeChanges {
        permissions: Some(0o6777),
        ..AttributeChanges::default()
    };
    let before = place.change(inode, set_id).await.unwrap();
    let by_root = copy(&place, (source, 0), (target, 0), 2).await;
    assert_eq!(by_root, Ok(2));
    let after = place.attributes(inode).await;
    assert_eq!((after.size, after.permissions), (2, 0o6777));
    assert!(after.modified > before.modified && after.changed > before.changed);
    // What was pending of it does not set the time back.
    place.write(target, WritePlace::At(0), b"x").await.unwrap();
    let written = place.attributes(inode).await.modified;
    let by_user = copy_by(&place, 7, ((source, 0), (target, 1)), 5).await;
    assert_eq!(by_user, Ok(5));
    let after = place.attributes(inode).await;
    assert_eq!((after.size, after.permissions), (6, 0o777));
    assert!(after.modified >= written);
    assert_eq!(content(&place, target, "target").await, b"xbytes");
}

#[tokio::test]
async fn a_long_copy_goes_in_steps_each_of_which_is_whole() {
    let place = Place::new().await;
    let source = opened(&place, "source").await;
    // More chunks than one operation changes, of a byte each.
    for chunk in 0..1500 {
        let at = WritePlace::At(chunk * CHUNK + chunk);
        place.write(source, at, &[chunk as u8]).await.unwrap();
    }
    let target = opened(&place, "target").await;
    let first = copy(&place, (source, 0), (target, 0), u64::MAX).await;
    let first = first.unwrap();
    assert_eq!(first, 1000 * CHUNK);
    assert_eq!(place.find(ROOT, "target").await.unwrap().size, first);
    place.is_whole().await;
    assert!(copy_all(&place, source, target).await > 1);
    for chunk in [0, 999, 1000, 1499] {
        let read = place.read(target, chunk * CHUNK + chunk, 1).await;
        assert_eq!(read.unwrap(), [chunk as u8]);
    }
    place.is_whole().await;
}

#[tokio::test]
async fn what_is_copied_byte_by_byte_is_as_short_as_what_is_copied_at_once() {
    let place = Place::new().await;
    place.store(ROOT, "source", &counted(2000)).await.unwrap();
    let (source, target) = (
        opened(&place, "source").await,
        opened(&place, "target").await,
    );
    for at in 0..2000 {
        copy(&place, (source, at), (target, at), 1).await.unwrap();
    }
    let inode = place.find(ROOT, "target").await.unwrap().inode;
    assert_eq!(extents(&place, inode).await, 1);
    assert!(content(&place, target, "target").await == counted(2000));
    place.is_whole().await;
}

/// Copies of single bytes that do not follow each other cannot be joined, and are folded as writes are.
#[tokio::test]
async fn a_chunk_of_many_copied_parts_is_folded() {
    let place = Place::new().await;
    place.store(ROOT, "source", &counted(5000)).await.unwrap();
    let (source, target) = (
        opened(&place, "source").await,
        opened(&place, "target").await,
    );
    for at in 0..2500 {
        copy(&place, (source, 2 * at), (target, at), 1)
            .await
            .unwrap();
    }
    let inode = place.find(ROOT, "target").await.unwrap().inode;
    place
        .until(|| async { extents(&place, inode).await < 300 })
        .await;
    let every_other: Vec<_> = counted(5000).into_iter().step_by(2).collect();
    assert!(content(&place, target, "target").await == every_other);
    assert!(content(&place, source, "source").await == counted(5000));
    place.is_whole().await;
}

#[tokio::test]
async fn a_snapshot_is_copied_into_the_live_tree_and_goes_without_it() {
    let place = Place::new().await;
    let bytes = counted(5_000_000);
    place.store(ROOT, "source", &bytes).await.unwrap();
    let then = snapshot(&place, "then").await;
    // Nothing live needs the objects any more, which are held.
    remove(&place, "source").await;
    collect(&place).await;
    let kept = place.find(then, "source").await.unwrap().inode;
    let source = place.open(kept, OpenOptions::READ).await.unwrap();
    let before = place.objects().await;
    let target = opened(&place, "clone").await;
    assert_eq!(copy_all(&place, source, target).await, 1);
    place.is_whole().await;
    assert_eq!(place.objects().await, before);
    place.close(source).await.unwrap();
    drop_snapshot(&place, "then").await;
    collect(&place).await;
    assert!(content(&place, target, "clone").await == bytes);
    // A writable one.
    place
        .write(target, WritePlace::At(0), b"own")
        .await
        .unwrap();
    place.sync(target).await.unwrap();
    place.is_whole().await;
    place.close(target).await.unwrap();
    remove(&place, "clone").await;
    ends_empty(&place).await;
}

#[tokio::test]
async fn what_a_snapshot_has_of_a_target_stays_as_it_was() {
    let place = Place::new().await;
    place
        .store(ROOT, "source", &counted(5_000_000))
        .await
        .unwrap();
    place.store(ROOT, "target", b"before").await.unwrap();
    let then = snapshot(&place, "then").await;
    let (source, target) = (
        opened(&place, "source").await,
        opened(&place, "target").await,
    );
    copy_all(&place, source, target).await;
    snapshot(&place, "later").await;
    copy(&place, (source, 100), (target, 0), 1000)
        .await
        .unwrap();
    collect(&place).await;
    assert_eq!(place.content(then, "target").await.unwrap(), b"before");
    place.is_whole().await;
}

#[tokio::test]
async fn a_copy_of_a_snapshot_that_goes_meanwhile_is_refused() {
    let place = Place::new().await;
    place.store(ROOT, "source", b"bytes").await.unwrap();
    let then = snapshot(&place, "then").await;
    let kept = place.find(then, "source").await.unwrap().inode;
    let source = place.open(kept, OpenOptions::READ).await.unwrap();
    let target = opened(&place, "target").await;
    drop_snapshot(&place, "then").await;
    let refused = copy(&place, (source, 0), (target, 0), 5).await;
    assert_eq!(refused, Err(FsError::Stale));
    assert_eq!(place.find(ROOT, "target").await.unwrap().size, 0);
    place.is_whole().await;
}

#[tokio::test]
async fn a_copy_without_room_in_a_quota_changes_nothing() {
    for (subject, refusal) in [
        (Subject::User(7), FsError::QuotaExceeded),
        (Subject::FileSystem, FsError::NoSpace),
    ] {
        let place = Place::new().await;
        let owner = AttributeChanges {
            uid: Some(7),
            ..AttributeChanges::default()
        };
        place
            .store(ROOT, "source", &vec![1; 600 << 10])
            .await
            .unwrap();
        let (source, target) = (
            opened(&place, "source").await,
            opened(&place, "target").await,
        );
        for name in ["source", "target"] {
            let inode = place.find(ROOT, name).await.unwrap().inode;
            place.change(inode, owner).await.unwrap();
        }
        let hard = LimitChange {
            soft: Some(0),
            hard: Some(1000 * KIB),
        };
        let change = Change {
            bytes: hard,
            ..Change::default()
        };
        place.volume.set_quota(subject, change).await.unwrap();
        let counted = || async {
            let quotas = place.volume.list_quotas().await.unwrap();
            quotas.iter().all(|quota| quota.is_counted)
        };
        place.until(counted).await;
        let before = place.find(ROOT, "target").await.unwrap();
        let refused = copy_by(&place, 7, ((source, 0), (target, 0)), u64::MAX).await;
        assert_eq!(refused, Err(refusal));
        assert_eq!(place.find(ROOT, "target").await.unwrap(), before);
        // What fits does, and what is written over takes no room twice.
        let half = copy_by(&place, 7, ((source, 0), (target, 0)), 300 * KIB).await;
        assert_eq!(half, Ok(300 * KIB));
        let over = copy_by(&place, 7, ((source, 100), (target, 0)), 300 * KIB).await;
        assert_eq!(over, Ok(300 * KIB));
        // A hole gives room back.
        let range = 0..600 * KIB;
        let punched = place.allocate(source, range, Allocation::PunchHole).await;
        punched.unwrap();
        assert_eq!(
            copy_by(&place, 7, ((source, 0), (target, 0)), u64::MAX).await,
            Ok(600 * KIB)
        );
        let usage = place.volume.list_quotas().await.unwrap();
        assert_eq!(usage[0].used.bytes, 0);
        place.is_whole().await;
    }
}

#[tokio::test]
async fn a_copy_that_fails_has_changed_nothing_and_is_made_again() {
    let (place, gate) = Place::gated().await;
    let bytes = counted(5_000_000);
    place.store(ROOT, "source", &bytes).await.unwrap();
    let (source, target) = (
        opened(&place, "source").await,
        opened(&place, "target").await,
    );
    place
        .write(target, WritePlace::At(0), b"pending")
        .await
        .unwrap();
    // The save of what is pending goes through.
    gate.refuse(2);
    let refused = copy(&place, (source, 0), (target, 0), u64::MAX).await;
    assert_eq!(refused, Err(FsError::NoSpace));
    assert_eq!(content(&place, target, "target").await, b"pending");
    copy_all(&place, source, target).await;
    assert!(content(&place, target, "target").await == bytes);
    place.is_whole().await;
}

#[tokio::test]
async fn a_copy_of_what_waits_on_this_disk_outlives_a_kill_and_a_power_cut() {
    let mut place = Place::spooled().await;
    let bytes = counted(100_000);
    place.store(ROOT, "source", &bytes).await.unwrap();
    let (source, target) = (
        opened(&place, "source").await,
        opened(&place, "target").await,
    );
    copy_all(&place, source, target).await;
    place.sync(target).await.unwrap();
    remove(&place, "source").await;
    place.sync_directory(ROOT).await.unwrap();
    place.crash().await;
    assert!(place.content(ROOT, "target").await.unwrap() == bytes);
    place.is_whole_without_the_bucket().await;
    // What was not synced refers to bytes that the power took, as its source does: both are undone.
    place.store(ROOT, "lost", &counted(50_000)).await.unwrap();
    let (source, target) = (opened(&place, "lost").await, opened(&place, "copy").await);
    copy_all(&place, source, target).await;
    place.lose_power(0).await;
    for name in ["lost", "copy"] {
        let left = place.content(ROOT, name).await;
        assert!(
            left.is_err() || left.is_ok_and(|left| left.is_empty()),
            "{name}"
        );
    }
}

#[tokio::test]
async fn uses_of_objects_that_files_share_are_repaired() {
    let place = Place::new().await;
    let (bytes, _, target) = copied(&place).await;
    let damage = |transaction: &mut dyn Transaction| {
        let mut found = Vec::new();
        transaction.scan(b"B"..b"C", &mut |key, _| {
            found.push(key.to_vec());
            ControlFlow::Continue(())
        })?;
        for key in found {
            transaction.delete(&key);
            let garbage = [b"G", &key[1..]].concat();
            transaction.put(&garbage, Bytes::new());
        }
        Ok::<_, FsError>(())
    };
    transact(&*place.engine, damage).await.unwrap();
    let repairs = plan(&*place.engine).await.unwrap();
    let repaired = apply(Arc::clone(&place.engine), repairs, &|_| {});
    repaired.await.unwrap();
    let report = check(&*place.engine, &*place.bucket, None).await.unwrap();
    assert!(report.is_clean(), "{report:#?}");
    remove(&place, "source").await;
    assert!(content(&place, target, "target").await == bytes);
}

/// Writers, and who removes, beside who copies: each step of a copy shows what was there before or after a change of the source.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_beside_writes_and_removals_show_what_was_there_at_once() {
    let place = Place::new().await;
    place
        .store(ROOT, "source", &vec![1; 200_000])
        .await
        .unwrap();
    let until = clock::now() + Duration::from_secs(2);
    let writer = async {
        let source = opened(&place, "source").await;
        let mut version = 1u8;
        while clock::now() < until {
            version = version % 250 + 1;
            let data = vec![version; 200_000];
            place.write(source, WritePlace::At(0), &data).await.unwrap();
            place.sync(source).await.unwrap();
        }
    };
    let copier = async {
        let source = opened(&place, "source").await;
        let mut round = 0;
        while clock::now() < until {
            let name = format!("copy {}", round % 3);
            if round >= 3 {
                remove(&place, &name).await;
            }
            let target = opened(&place, &name).await;
            copy_all(&place, source, target).await;
            let shown = content(&place, target, &name).await;
            assert_eq!(shown.len(), 200_000);
            assert!(shown.iter().all(|byte| *byte == shown[0]));
            place.close(target).await.unwrap();
            round += 1;
        }
        assert!(round > 3);
    };
    tokio::join!(writer, copier);
    place.is_whole().await;
    collect(&place).await;
    for name in ["source", "copy 0", "copy 1", "copy 2"] {
        place.content(ROOT, name).await.unwrap();
    }
}
