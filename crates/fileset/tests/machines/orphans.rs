//! Files without a name, and objects that somebody may read: nothing goes that a machine needs, and nothing stays that none
//! does.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use penstock_base::{FsError, FsResult, clock};
use penstock_fileset::{
    check::check,
    engine::{Engine, query, transact},
    garbage::{Sweep, collect_garbage},
};
use penstock_object::ListOptions;
use penstock_vfs::{
    AttributeChanges, HandleId, Identity, Inode, OpenOptions, RemoveKind, Volume, WritePlace,
};

use crate::{
    contents::{content, found},
    ground::{Ground, Machine, Told, on_each_engine},
    support::{ROOT, file},
};

on_each_engine!(
    a_file_that_is_open_elsewhere_outlives_its_last_name,
    a_machine_that_died_holds_nothing,
    what_a_dead_machine_removed_is_collected_by_the_living,
    a_file_that_was_replaced_elsewhere_is_not_opened_by_its_old_name,
    what_a_machine_that_left_had_open_is_collected,
);

const BYTES: [u8; 5000] = [7; 5000];

async fn objects(ground: &Ground) -> usize {
    let listed = ground.bucket.list(ListOptions::default()).await;
    listed.unwrap().objects.len()
}

/// A file that `other` alone holds and has open.
async fn held_by_other([one, other]: &[Machine; 2]) -> (Inode, HandleId) {
    one.place.store(ROOT, "file", &BYTES).await.unwrap();
    let inode = one.place.find(ROOT, "file").await.unwrap().inode;
    other.catch_up().await;
    other.place.find(ROOT, "file").await.unwrap();
    let handle = other.place.open(inode, OpenOptions::READ).await.unwrap();
    one.place.forget_all(inode);
    (inode, handle)
}

async fn remove(machine: &Machine, text: &str) {
    let removed = machine.place.remove(ROOT, text, RemoveKind::File);
    removed.await.unwrap();
}

/// Waits until `one` has cleared something away that it removed later.
async fn collects_later([one, _]: &[Machine; 2]) {
    let inode = one.place.make(ROOT, "later", file(0o644));
    let inode = inode.await.unwrap();
    remove(one, "later").await;
    one.place.forget_all(inode);
    one.place
        .until(|| async { one.place.is_gone(inode).await })
        .await;
}

async fn is_read(machine: &Machine, handle: HandleId) {
    let read = machine.place.read(handle, 0, 10_000).await.unwrap();
    assert!(read == BYTES);
}

async fn is_collected(ground: &Ground, machine: &Machine, inode: Inode) {
    machine
        .place
        .until(|| async { machine.place.is_gone(inode).await && objects(ground).await == 0 })
        .await;
    machine.place.is_whole().await;
}

/// Keys that begin with one of these bytes.
pub async fn keys(machine: &Machine, kinds: &[u8]) -> usize {
    let mut count = 0;
    for kind in kinds {
        let counted = query(&*machine.session, |reads| -> FsResult<usize> {
            let mut count = 0;
            reads.scan(&[*kind]..&[*kind + 1], &mut |_, _| {
                count += 1;
                std::ops::ControlFlow::Continue(())
            })?;
            Ok(count)
        });
        count += counted.await.unwrap();
    }
    count
}

async fn a_file_that_is_open_elsewhere_outlives_its_last_name(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, handle) = held_by_other(&machines).await;
    remove(one, "file").await;
    collects_later(&machines).await;
    assert_eq!(objects(&ground).await, 1);
    is_read(other, handle).await;
    assert!(!other.place.is_gone(inode).await);
    other.place.forget_all(inode);
    is_collected(&ground, one, inode).await;
    other.catch_up().await;
    assert_eq!(keys(other, b"RO").await, 0);
}

async fn a_machine_that_died_holds_nothing(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, _) = held_by_other(&machines).await;
    remove(one, "file").await;
    collects_later(&machines).await;
    assert_eq!(objects(&ground).await, 1);
    other.is_evicted_by(one).await;
    is_collected(&ground, one, inode).await;
}

async fn what_a_dead_machine_removed_is_collected_by_the_living(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, _) = held_by_other(&machines).await;
    // Whoever removed it has it open still.
    remove(other, "file").await;
    one.catch_up().await;
    other.is_evicted_by(one).await;
    is_collected(&ground, one, inode).await;
}

async fn what_a_machine_that_left_had_open_is_collected(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, _) = held_by_other(&machines).await;
    remove(one, "file").await;
    collects_later(&machines).await;
    assert_eq!(keys(one, b"M").await, 2);
    assert!(other.place.volume.shut_down().await.is_empty());
    is_collected(&ground, one, inode).await;
    assert_eq!(keys(one, b"M").await, 1);
    assert_eq!(keys(one, b"R").await, 0);
}

async fn a_file_that_was_replaced_elsewhere_is_not_opened_by_its_old_name(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "file", b"old").await.unwrap();
    one.place.store(ROOT, "new", b"new").await.unwrap();
    let inode = found(&machines, "file").await;
    assert_eq!(content(other, inode).await.1, b"old");
    let (from, to) = ((ROOT, "new"), (ROOT, "file"));
    let mode = penstock_vfs::RenameMode::Replace;
    one.place.rename(from, to, mode).await.unwrap();
    let opened = other.place.open(inode, OpenOptions::READ).await;
    assert_eq!(opened.err(), Some(FsError::Stale));
    assert_eq!(other.place.content(ROOT, "file").await.unwrap(), b"new");
    other.place.forget_all(inode);
    one.place.forget_all(inode);
    one.place
        .until(|| async { one.place.is_gone(inode).await })
        .await;
}

#[tokio::test]
async fn what_dead_machines_removed_is_collected_by_who_comes() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, _) = held_by_other(&machines).await;
    remove(other, "file").await;
    other.is_evicted_by(one).await;
    let comes = ground.machine().await;
    one.is_evicted_by(&comes).await;
    is_collected(&ground, &comes, inode).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_stays_until_who_holds_it_has_heard_that_it_has_no_name() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, handle) = held_by_other(&machines).await;
    other.session.hear(false);
    remove(one, "file").await;
    clock::sleep(Duration::from_secs(60)).await;
    assert_eq!(objects(&ground).await, 1);
    is_read(other, handle).await;
    other.session.hear(true);
    other.catch_up().await;
    clock::sleep(Duration::from_secs(60)).await;
    is_read(other, handle).await;
    assert_eq!(keys(other, b"R").await, 1);
    other.place.forget_all(inode);
    is_collected(&ground, one, inode).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_stays_until_nobody_reads_by_an_older_map() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let big: Vec<u8> = (0..6_u32 << 20).map(|at| (at >> 12) as u8).collect();
    one.place.store(ROOT, "file", &big).await.unwrap();
    let inode = found(&machines, "file").await;
    let before = objects(&ground).await;
    let handle = other.place.open(inode, OpenOptions::READ).await.unwrap();
    let at = |at: usize| at..at + 100;
    let first = other.place.read(handle, 0, 100).await.unwrap();
    assert!(first == big[at(0)]);
    other.session.hear(false);
    one.place.store(ROOT, "file", b"short").await.unwrap();
    clock::sleep(Duration::from_secs(60)).await;
    assert_eq!(objects(&ground).await, before + 1);
    for place in [3 << 20, 5 << 20] {
        let read = other.place.read(handle, place as u64, 100).await.unwrap();
        assert!(read == big[at(place)]);
    }
    other.session.hear(true);
    other.catch_up().await;
    other
        .place
        .until(|| async { objects(&ground).await == 1 })
        .await;
    assert_eq!(other.place.read(handle, 0, 100).await.unwrap(), b"short");
    one.place.is_whole().await;
}

const ANY_AGE: Sweep = Sweep {
    grace: Duration::ZERO,
    dry_run: false,
};

/// `other` has stored an object, and the operation that is to refer to it waits.
async fn stored_by_other([one, other]: &[Machine; 2]) -> (Inode, tokio::task::JoinHandle<()>) {
    let inode = other.place.make(ROOT, "file", file(0o644));
    let inode = inode.await.unwrap();
    let handle = other.place.open(inode, OpenOptions::WRITE).await.unwrap();
    let written = other.place.write(handle, WritePlace::At(0), &BYTES);
    written.await.unwrap();
    other.session.operate(false);
    let saving = other.place.clone();
    let saving = tokio::spawn(async move { drop(saving.sync(handle).await) });
    one.place
        .until(|| async { !one.place.objects().await.is_empty() })
        .await;
    (inode, saving)
}

#[tokio::test]
async fn what_another_machine_has_stored_is_not_leaked_as_long_as_it_lives() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, saving) = stored_by_other(&machines).await;
    let swept = one.place.volume.sweep(ANY_AGE).await.unwrap();
    assert_eq!((swept.pending.objects, swept.deleted), (1, 0));
    other.session.operate(true);
    saving.await.unwrap();
    one.catch_up().await;
    assert!(content(one, inode).await.1 == BYTES);
}

#[tokio::test]
async fn what_a_dead_machine_has_stored_is_leaked() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (_, saving) = stored_by_other(&machines).await;
    other.is_evicted_by(one).await;
    let swept = one.place.volume.sweep(ANY_AGE).await.unwrap();
    assert_eq!((swept.leaked.objects, swept.deleted), (1, 1));
    other.session.operate(true);
    saving.await.unwrap();
    one.place.is_whole().await;
}

#[tokio::test(start_paused = true)]
async fn garbage_of_a_writer_is_deleted_by_its_session_or_after_that_is_over() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    other.place.store(ROOT, "file", &BYTES).await.unwrap();
    let inode = found(&machines, "file").await;
    other.place.forget_all(inode);
    // Nobody deletes what it stored but itself, and it cannot.
    other.session.operate(false);
    remove(one, "file").await;
    one.place.forget_all(inode);
    one.place
        .until(|| async { one.place.is_gone(inode).await })
        .await;
    clock::sleep(Duration::from_secs(60)).await;
    assert_eq!(keys(one, b"G").await, 1);
    other.is_evicted_by(one).await;
    is_collected(&ground, one, inode).await;
    one.catch_up().await;
    one.place
        .until(|| async { keys(one, b"G").await == 0 })
        .await;
}

#[tokio::test]
async fn what_is_not_saved_of_a_file_that_was_removed_elsewhere_is_given_up() {
    tokio::time::pause();
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "file", &BYTES).await.unwrap();
    let inode = found(&machines, "file").await;
    let handle = other.place.open(inode, OpenOptions::WRITE).await.unwrap();
    let written = other.place.write(handle, WritePlace::At(0), b"unsaved");
    written.await.unwrap();
    other.place.volume.release(handle).await;
    other.place.forget_all(inode);
    assert_eq!(other.place.volume.unsaved().files, 1);
    other.session.operate(false);
    remove(one, "file").await;
    one.place.forget_all(inode);
    one.place
        .until(|| async { one.place.is_gone(inode).await })
        .await;
    other.session.operate(true);
    other
        .place
        .until(|| async { other.place.volume.unsaved().files == 0 })
        .await;
}

#[tokio::test]
async fn a_file_without_a_name_is_held_by_nobody_who_did_not_hold_it_before() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, handle) = held_by_other(&machines).await;
    remove(other, "file").await;
    one.catch_up().await;
    let by = Identity::root();
    let held = one.place.volume.hold(&by, inode).await;
    assert_eq!(held.err(), Some(FsError::Stale));
    assert!(other.place.volume.hold(&by, inode).await.is_ok());
    is_read(other, handle).await;
    other.place.forget_all(inode);
    is_collected(&ground, one, inode).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_how_far_he_is_while_nothing_waits() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, _) = held_by_other(&machines).await;
    remove(one, "file").await;
    clock::sleep(Duration::from_secs(60)).await;
    other.place.forget_all(inode);
    is_collected(&ground, one, inode).await;
    clock::sleep(Duration::from_secs(60)).await;
    let before = [one.session.asked(), other.session.asked()];
    clock::sleep(Duration::from_secs(600)).await;
    assert_eq!([one.session.asked(), other.session.asked()], before);
}

#[tokio::test]
async fn garbage_is_collected_beside_living_machines_without_touching_what_is_theirs() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, handle) = held_by_other(&machines).await;
    remove(one, "file").await;
    let session = ground.session().await;
    let found = collect_garbage(Arc::clone(&session), one.place.transfer(), ANY_AGE);
    assert_eq!(found.await.unwrap().live.objects, 1);
    session.close().await.unwrap();
    is_read(other, handle).await;
    other.place.forget_all(inode);
    is_collected(&ground, one, inode).await;
}

#[tokio::test]
async fn a_machine_that_is_not_told_which_keys_changed_collects_what_it_removed() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, handle) = held_by_other(&machines).await;
    other.session.forget();
    remove(other, "file").await;
    // Any key may have changed, that of its own file too.
    one.place.store(ROOT, "other", b"").await.unwrap();
    other.hears(Told::Content(inode)).await;
    is_read(other, handle).await;
    other.catch_up().await;
    assert_eq!(keys(other, b"R").await, 0);
    other.place.forget_all(inode);
    is_collected(&ground, one, inode).await;
}

#[tokio::test]
async fn a_check_finds_who_holds_a_file_that_has_a_name() {
    let ground = Ground::in_memory().await;
    let one = ground.machine().await;
    let inode = one.place.make(ROOT, "file", file(0o644));
    let inode = inode.await.unwrap();
    one.place.is_whole().await;
    let held = [&b"R"[..], &inode.0.to_be_bytes(), &9_u64.to_be_bytes()].concat();
    let wrong = transact(&*one.session, move |transaction| {
        transaction.put(&held, bytes::Bytes::new());
        Ok::<_, FsError>(())
    });
    wrong.await.unwrap();
    let report = check(&*one.session as &dyn Engine, &*ground.bucket, None);
    let report = report.await.unwrap();
    assert_eq!(report.findings.len(), 1, "{report:#?}");
}

/// An object that two files share: the one that has referred to it is cut before the other one refers to it.
#[tokio::test(start_paused = true)]
async fn an_object_that_was_garbage_for_a_moment_is_not_deleted() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (mut inodes, mut handles) = (Vec::new(), Vec::new());
    for text in ["alone", "a", "b"] {
        one.place.make(ROOT, text, file(0o644)).await.unwrap();
        let inode = found(&machines, text).await;
        let opened = one.place.open(inode, OpenOptions::READ_WRITE).await;
        handles.push(opened.unwrap());
        inodes.push(inode);
    }
    // The collector has asked what is under way, and looks for garbage: the database needs a moment.
    one.session.look(false);
    while !one.session.is_looking() {
        clock::sleep(Duration::from_millis(100)).await;
    }
    // The first file has an object of its own, the others come while that is stored and share one.
    one.session.allow(2);
    let saves: Vec<_> = handles
        .iter()
        .map(|handle| {
            let (place, handle) = (one.place.clone(), *handle);
            tokio::spawn(async move {
                let written = place.write(handle, WritePlace::At(0), &[7; 5000]);
                written.await.unwrap();
                place.sync(handle).await.unwrap();
            })
        })
        .collect();
    let mut first = None;
    while first.is_none() {
        clock::sleep(Duration::from_millis(10)).await;
        other.catch_up().await;
        for (at, inode) in inodes.iter().enumerate().skip(1) {
            if other.place.attributes(*inode).await.size == 5000 {
                first = Some(at);
            }
        }
    }
    let first = first.unwrap();
    assert_eq!(one.place.objects().await.len(), 2);
    // It hears of nothing from before the cut on, and so nothing is deleted before the last save is made.
    other.session.hear(false);
    let changes = AttributeChanges {
        size: Some(0),
        ..AttributeChanges::default()
    };
    let cut = other.place.change(inodes[first], changes).await;
    cut.unwrap();
    one.catch_up().await;
    one.session.look(true);
    while one.session.is_looking() {
        clock::sleep(Duration::from_millis(1)).await;
    }
    clock::sleep(Duration::from_millis(100)).await;
    one.session.allow(u64::MAX);
    for save in saves {
        save.await.unwrap();
    }
    clock::sleep(Duration::from_millis(100)).await;
    other.session.hear(true);
    clock::sleep(Duration::from_secs(60)).await;
    assert_eq!(one.place.objects().await.len(), 2, "it was deleted");
    assert!(content(other, inodes[3 - first]).await.1 == [7; 5000]);
    one.place.is_whole().await;
}

/// What another machine removed and what is damaged is heard of at once.
#[tokio::test]
async fn a_damaged_record_of_a_file_without_a_name_keeps_no_other_from_being_held() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (_, handle) = held_by_other(&machines).await;
    other.session.hear(false);
    let damage = transact(&*one.session, move |transaction| {
        let key = [b"O".as_slice(), &4711_u64.to_be_bytes()].concat();
        transaction.put(&key, Bytes::from_static(b"damaged"));
        Ok::<_, FsError>(())
    });
    damage.await.unwrap();
    remove(one, "file").await;
    other.session.hear(true);
    collects_later(&machines).await;
    is_read(other, handle).await;
}
