//! Locks hold on all machines.

use std::{ops::Range, time::Duration};

use futures_util::{FutureExt, poll};
use penstock_base::{FsError, FsResult, clock};
use penstock_fileset::engine::{query, transact};
use penstock_object::ErrorKind;
use penstock_object_testing::Fault;
use penstock_vfs::{
    Given, HandleId, Inode, Lock, LockFamily, LockMode, LockOwner, Locks, OpenOptions, RemoveKind,
    Volume, Waiting, WritePlace,
};

use crate::{
    contents::{content, found},
    database::on_each_engine,
    ground::{Ground, Machine},
    support::{ROOT, file},
};

on_each_engine!(
    an_exclusive_lock_keeps_other_machines_out_until_it_is_given_back,
    shared_locks_are_held_on_several_machines,
    locks_of_an_evicted_machine_count_for_nothing,
    many_machines_that_lock_exclude_each_other,
);

const END: u64 = u64::MAX;

fn lock(mode: LockMode, of: u64, range: Range<u64>) -> Lock {
    Lock {
        mode,
        range,
        owner: LockOwner {
            client: 1,
            owner: of,
        },
        process: 4711,
    }
}

fn exclusive(of: u64, range: Range<u64>) -> Lock {
    lock(LockMode::Exclusive, of, range)
}

fn shared(of: u64, range: Range<u64>) -> Lock {
    lock(LockMode::Shared, of, range)
}

fn locks(machine: &Machine) -> &dyn Locks {
    machine.place.volume.locks().unwrap()
}

type At = (Inode, LockFamily);

async fn acquire(machine: &Machine, at: At, wanted: Lock, waiting: Waiting) -> FsResult<()> {
    let given = locks(machine).acquire(at.0, at.1, wanted, waiting);
    given.await.map(Given::keep)
}

async fn try_to(machine: &Machine, at: At, wanted: Lock) -> FsResult<()> {
    acquire(machine, at, wanted, Waiting::No).await
}

async fn release(machine: &Machine, at: At, (of, range): (u64, Range<u64>)) {
    let owner = exclusive(of, 0..END).owner;
    locks(machine).release(at.0, at.1, (owner, range)).await;
}

async fn made(machine: &Machine) -> Inode {
    let made = machine.place.make(ROOT, "file", file(0o644)).await;
    made.unwrap()
}

async fn made_in(machine: &Machine, family: LockFamily) -> Inode {
    let name = format!("{family:?}");
    let made = machine.place.make(ROOT, &name, file(0o644)).await;
    made.unwrap()
}

async fn lock_keys(machine: &Machine) -> usize {
    machine.catch_up().await;
    let counted = query(&*machine.session, |reads| -> FsResult<usize> {
        let mut count = 0;
        reads.scan(b"A"..b"B", &mut |_, _| {
            count += 1;
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(count)
    });
    counted.await.unwrap()
}

async fn an_exclusive_lock_keeps_other_machines_out_until_it_is_given_back(ground: Ground) {
    let [one, other] = ground.two().await;
    let inode = made(&one).await;
    for family in [LockFamily::Record, LockFamily::Whole] {
        let at = (inode, family);
        try_to(&one, at, exclusive(1, 0..END)).await.unwrap();
        // The number of an owner means something on its machine alone.
        let wanted = exclusive(1, 0..END);
        let refused = try_to(&other, at, wanted.clone()).await;
        assert_eq!(refused, Err(FsError::WouldBlock));
        let conflict = locks(&other).conflict(inode, family, &wanted).await;
        assert_eq!(conflict.unwrap(), Some(wanted.clone()));
        let mut waiting = acquire(&other, at, wanted.clone(), Waiting::Yes).boxed();
        assert!(poll!(&mut waiting).is_pending());
        let waits = clock::deadline(Duration::from_millis(50), &mut waiting).await;
        assert!(waits.is_err());
        release(&one, at, (1, 0..END)).await;
        waiting.await.unwrap();
        let refused = try_to(&one, at, shared(1, 0..END)).await;
        assert_eq!(refused, Err(FsError::WouldBlock));
        release(&other, at, (1, 0..END)).await;
        let conflict = locks(&one).conflict(inode, family, &wanted).await;
        assert_eq!(conflict.unwrap(), None);
    }
    assert_eq!(lock_keys(&one).await, 0);
    one.place.is_whole().await;
}

async fn shared_locks_are_held_on_several_machines(ground: Ground) {
    let [one, other] = ground.two().await;
    let at = (made(&one).await, LockFamily::Record);
    try_to(&one, at, shared(1, 0..100)).await.unwrap();
    try_to(&other, at, shared(1, 50..150)).await.unwrap();
    try_to(&other, at, exclusive(2, 150..200)).await.unwrap();
    let refused = try_to(&one, at, exclusive(1, 60..70)).await;
    assert_eq!(refused, Err(FsError::WouldBlock));
    try_to(&one, at, exclusive(1, 0..50)).await.unwrap();
    release(&other, at, (1, 60..70)).await;
    try_to(&one, at, exclusive(1, 60..70)).await.unwrap();
    assert_eq!(lock_keys(&other).await, 1);
    one.place.is_whole().await;
    locks(&one).release_client(1).await;
    try_to(&other, at, exclusive(1, 0..100)).await.unwrap();
    // What a machine held goes with it.
    assert!(other.place.volume.shut_down().await.is_empty());
    try_to(&one, at, exclusive(1, 0..END)).await.unwrap();
}

async fn locks_of_an_evicted_machine_count_for_nothing(ground: Ground) {
    let [one, other] = ground.two().await;
    let at = (made(&one).await, LockFamily::Record);
    try_to(&other, at, exclusive(1, 0..100)).await.unwrap();
    let mut waiting = acquire(&one, at, exclusive(2, 50..60), Waiting::Yes).boxed();
    assert!(poll!(&mut waiting).is_pending());
    other.is_evicted_by(&one).await;
    let waited = clock::deadline(Duration::from_secs(30), waiting).await;
    waited.unwrap().unwrap();
    try_to(&one, at, exclusive(1, 0..50)).await.unwrap();
    assert!(try_to(&other, at, shared(7, 500..600)).await.is_err());
}

async fn many_machines_that_lock_exclude_each_other(ground: Ground) {
    let machines = ground.three().await;
    let at = (made(&machines[0]).await, LockFamily::Whole);
    let inside = std::sync::atomic::AtomicUsize::new(0);
    let work = machines
        .iter()
        .flat_map(|machine| [(machine, 1), (machine, 2)]);
    let work = work.map(|(machine, of)| {
        let inside = &inside;
        async move {
            for _ in 0..10 {
                let wanted = exclusive(of, 0..END);
                acquire(machine, at, wanted, Waiting::Yes).await.unwrap();
                use std::sync::atomic::Ordering::SeqCst;
                assert_eq!(inside.fetch_add(1, SeqCst), 0);
                clock::sleep(Duration::from_micros(300)).await;
                inside.fetch_sub(1, SeqCst);
                release(machine, at, (of, 0..END)).await;
            }
        }
    });
    futures_util::future::join_all(work).await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_woken_when_another_machine_gives_the_lock_back() {
    let ground = Ground::in_memory().await;
    let [one, other] = ground.two().await;
    let at = (made(&one).await, LockFamily::Record);
    try_to(&other, at, exclusive(1, 0..10)).await.unwrap();
    let mut waiting = acquire(&one, at, exclusive(1, 0..10), Waiting::Yes).boxed();
    let waits = clock::deadline(Duration::from_millis(50), &mut waiting).await;
    assert!(waits.is_err());
    let before = clock::now();
    release(&other, at, (1, 0..10)).await;
    waiting.await.unwrap();
    assert!(before.elapsed() < Duration::from_millis(100));
}

#[tokio::test]
async fn who_gives_up_waiting_holds_nothing() {
    let ground = Ground::in_memory().await;
    let [one, other] = ground.two().await;
    let at = (made(&one).await, LockFamily::Whole);
    try_to(&one, at, exclusive(1, 0..END)).await.unwrap();
    let waiting = acquire(&other, at, exclusive(1, 0..END), Waiting::Yes);
    assert!(
        clock::deadline(Duration::from_millis(20), waiting)
            .await
            .is_err()
    );
    release(&one, at, (1, 0..END)).await;
    // It is given in the moment in which nobody waits for it any more.
    other.session.operate(false);
    let mut late = try_to(&other, at, exclusive(1, 0..END)).boxed();
    assert!(poll!(&mut late).is_pending());
    drop(late);
    other.session.operate(true);
    let waited = clock::deadline(
        Duration::from_secs(30),
        acquire(&one, at, exclusive(1, 0..END), Waiting::Yes),
    );
    waited.await.unwrap().unwrap();
}

/// A signal ends a wait; the program asks again before the machine knows what became of it.
#[tokio::test]
async fn who_asks_again_for_a_lock_that_it_gave_up_keeps_it() {
    let ground = Ground::in_memory().await;
    let [one, other] = ground.two().await;
    for family in [LockFamily::Record, LockFamily::Whole] {
        let moment = Duration::from_millis(20);
        other.session.hear(false);
        let at = (made_in(&one, family).await, family);
        let given_up = try_to(&other, at, exclusive(1, 0..END));
        assert!(clock::deadline(moment, given_up).await.is_err());
        let mut again = try_to(&other, at, exclusive(1, 0..END)).boxed();
        assert!(clock::deadline(moment, &mut again).await.is_err());
        other.session.hear(true);
        again.await.unwrap();
        clock::sleep(10 * moment).await;
        let refused = try_to(&one, at, exclusive(1, 0..END)).await;
        assert_eq!(refused, Err(FsError::WouldBlock), "{family:?}");
    }
}

#[tokio::test]
async fn owners_on_a_machine_that_would_wait_for_each_other_are_told() {
    let ground = Ground::in_memory().await;
    let [one, _] = ground.two().await;
    let at = (made(&one).await, LockFamily::Record);
    try_to(&one, at, exclusive(1, 0..10)).await.unwrap();
    try_to(&one, at, exclusive(2, 10..20)).await.unwrap();
    let mut waiting = acquire(&one, at, exclusive(1, 10..20), Waiting::Yes).boxed();
    let waits = clock::deadline(Duration::from_millis(50), &mut waiting).await;
    assert!(waits.is_err());
    let other = acquire(&one, at, exclusive(2, 0..10), Waiting::Yes).await;
    assert_eq!(other, Err(FsError::Deadlock));
    release(&one, at, (2, 10..20)).await;
    waiting.await.unwrap();
}

#[tokio::test]
async fn who_takes_a_lock_in_another_mode_gives_it_back_first() {
    let ground = Ground::in_memory().await;
    let [one, other] = ground.two().await;
    let at = (made(&one).await, LockFamily::Whole);
    try_to(&one, at, shared(1, 0..END)).await.unwrap();
    try_to(&other, at, shared(1, 0..END)).await.unwrap();
    let refused = try_to(&one, at, exclusive(1, 0..END)).await;
    assert_eq!(refused, Err(FsError::WouldBlock));
    // As flock(2) says, the one that it had is gone.
    try_to(&other, at, exclusive(1, 0..END)).await.unwrap();
}

#[tokio::test]
async fn locks_go_with_their_machine() {
    let ground = Ground::in_memory().await;
    let [one, other] = ground.two().await;
    let at = (made(&one).await, LockFamily::Record);
    try_to(&other, at, exclusive(1, 0..10)).await.unwrap();
    assert_eq!(lock_keys(&one).await, 1);
    assert!(other.place.volume.shut_down().await.is_empty());
    assert_eq!(lock_keys(&one).await, 0);
    let third = ground.machine().await;
    try_to(&third, at, exclusive(1, 0..10)).await.unwrap();
    third.is_evicted_by(&one).await;
    // Whoever comes clears away what the dead left.
    assert_eq!(lock_keys(&one).await, 1);
    ground.machine().await;
    assert_eq!(lock_keys(&one).await, 0);
}

#[tokio::test]
async fn locks_go_with_their_file() {
    let ground = Ground::in_memory().await;
    let [one, other] = ground.two().await;
    let inode = made(&one).await;
    let at = (inode, LockFamily::Record);
    try_to(&one, at, exclusive(1, 0..10)).await.unwrap();
    let removed = one.place.remove(ROOT, "file", RemoveKind::File);
    removed.await.unwrap();
    one.place.forget_all(inode);
    one.place
        .until(|| async { one.place.is_gone(inode).await })
        .await;
    assert_eq!(lock_keys(&other).await, 0);
    let late = try_to(&other, at, exclusive(1, 0..10)).await;
    assert_eq!(late, Err(FsError::Stale));
}

/// A file of ten bytes that both have open, to be locked.
async fn logged(machines: &[Machine; 2]) -> (At, [HandleId; 2]) {
    let [one, other] = machines;
    one.place.store(ROOT, "file", b"0123456789").await.unwrap();
    let inode = found(machines, "file").await;
    let options = OpenOptions::READ_WRITE;
    let handles = [
        one.place.open(inode, options).await.unwrap(),
        other.place.open(inode, options).await.unwrap(),
    ];
    ((inode, LockFamily::Record), handles)
}

/// The place is what a kernel takes for the end.
async fn append(machine: &Machine, handle: HandleId, line: &[u8]) {
    let written = machine.place.write(handle, WritePlace::End(10), line);
    written.await.unwrap();
}

/// Locks order what programs do on several machines: what was saved before a lock was given back is there for who takes it.
#[tokio::test(start_paused = true)]
async fn who_gets_a_lock_sees_what_was_saved_before_it_was_given_back() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (at, [here, there]) = logged(&machines).await;
    try_to(one, at, exclusive(1, 0..END)).await.unwrap();
    // The other machine hears of what follows a moment later.
    other.session.hear(false);
    append(one, here, b"first\n").await;
    one.place.sync(here).await.unwrap();
    release(one, at, (1, 0..END)).await;
    let takes = other.clone();
    let appends = tokio::spawn(async move {
        let got = acquire(&takes, at, exclusive(1, 0..END), Waiting::Yes).await;
        got.unwrap();
        let read = takes.place.read(there, 0, 100).await.unwrap();
        append(&takes, there, b"other\n").await;
        takes.place.sync(there).await.unwrap();
        read
    });
    clock::sleep(Duration::from_secs(5)).await;
    assert!(
        !appends.is_finished(),
        "it has the lock and not heard of anything"
    );
    other.session.hear(true);
    assert_eq!(appends.await.unwrap(), b"0123456789first\n");
    assert_eq!(content(one, at.0).await.1, b"0123456789first\nother\n");
}

#[tokio::test]
async fn what_was_written_is_saved_before_a_lock_is_given_back() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (at, [here, there]) = logged(&machines).await;
    try_to(one, at, exclusive(1, 0..END)).await.unwrap();
    append(one, here, b"given back\n").await;
    release(one, at, (1, 0..END)).await;
    try_to(other, at, exclusive(1, 0..END)).await.unwrap();
    let read = other.place.read(there, 0, 100).await.unwrap();
    assert_eq!(read, b"0123456789given back\n");
    append(other, there, b"shared\n").await;
    // Who takes another mode lets others in.
    try_to(other, at, shared(1, 0..END)).await.unwrap();
    try_to(one, at, shared(1, 0..END)).await.unwrap();
    let read = one.place.read(here, 0, 100).await.unwrap();
    assert_eq!(read, b"0123456789given back\nshared\n");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_saved_keeps_no_lock_and_is_told_at_the_next_sync() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (at, [here, _]) = logged(&machines).await;
    try_to(one, at, exclusive(1, 0..END)).await.unwrap();
    append(one, here, b"more\n").await;
    let fails = Fault::fail(ErrorKind::Unavailable);
    one.place.faults.rate(None, 1.0, fails);
    release(one, at, (1, 0..END)).await;
    try_to(other, at, exclusive(1, 0..END)).await.unwrap();
    assert!(one.place.sync(here).await.is_err());
    one.place.faults.clear();
    one.place.sync(here).await.unwrap();
    assert_eq!(content(other, at.0).await.1, b"0123456789more\n");
}

/// A signal ends the wait in the moment in which the lock is given: of the range is held what was before.
#[tokio::test]
async fn a_lock_that_is_given_up_leaves_what_its_owner_held_before() {
    let ground = Ground::in_memory().await;
    let [one, other] = ground.two().await;
    let at = (made(&one).await, LockFamily::Record);
    let given_up = async |wanted: Lock| {
        other.session.answer(false);
        let late = try_to(&other, at, wanted);
        let moment = Duration::from_millis(20);
        assert!(clock::deadline(moment, late).await.is_err());
        other.session.answer(true);
        // Who asks next comes after what is given back.
        try_to(&other, at, shared(1, 900..901)).await.unwrap();
    };
    try_to(&other, at, exclusive(1, 0..10)).await.unwrap();
    try_to(&other, at, shared(1, 10..20)).await.unwrap();
    given_up(exclusive(1, 5..30)).await;
    try_to(&one, at, exclusive(1, 20..30)).await.unwrap();
    try_to(&one, at, shared(1, 10..20)).await.unwrap();
    given_up(shared(1, 0..10)).await;
    let refused = try_to(&one, at, shared(1, 0..10)).await;
    assert_eq!(refused, Err(FsError::WouldBlock));
}

#[tokio::test]
async fn what_is_not_locked_any_more_costs_nothing() {
    let ground = Ground::in_memory().await;
    let [one, _] = ground.two().await;
    let inode = made(&one).await;
    for family in [LockFamily::Record, LockFamily::Whole] {
        let at = (inode, family);
        try_to(&one, at, exclusive(1, 0..END)).await.unwrap();
        release(&one, at, (1, 0..END)).await;
        one.session.operate(false);
        let again = release(&one, at, (1, 0..END));
        let released = clock::deadline(Duration::from_secs(10), again).await;
        released.expect("nothing is remembered of it");
        one.session.operate(true);
    }
}

/// The database makes an operation and is not heard of in time.
#[tokio::test]
async fn a_lock_that_was_taken_and_not_told_is_given_back() {
    let ground = Ground::in_memory().await;
    let [one, other] = ground.two().await;
    let at = (made(&one).await, LockFamily::Record);
    try_to(&other, at, exclusive(1, 0..10)).await.unwrap();
    other.session.lose_answers(true);
    let lost = try_to(&other, at, exclusive(1, 5..20)).await;
    assert!(matches!(lost, Err(FsError::Io(_))), "{lost:?}");
    other.session.lose_answers(false);
    let waited = clock::deadline(
        Duration::from_secs(30),
        acquire(&one, at, exclusive(1, 10..20), Waiting::Yes),
    );
    waited.await.unwrap().unwrap();
    let refused = try_to(&one, at, exclusive(1, 0..10)).await;
    assert_eq!(refused, Err(FsError::WouldBlock));
}

#[tokio::test]
async fn who_gave_a_lock_back_waits_for_nobody_that_still_seems_to_wait_for_it() {
    let ground = Ground::in_memory().await;
    let [one, _] = ground.two().await;
    let at = (made(&one).await, LockFamily::Record);
    try_to(&one, at, exclusive(1, 0..10)).await.unwrap();
    try_to(&one, at, exclusive(2, 10..20)).await.unwrap();
    let mut first = acquire(&one, at, exclusive(1, 10..20), Waiting::Yes).boxed();
    let moment = Duration::from_millis(50);
    assert!(clock::deadline(moment, &mut first).await.is_err());
    release(&one, at, (2, 10..20)).await;
    // The first one has not looked again yet.
    let mut second = acquire(&one, at, exclusive(2, 0..10), Waiting::Yes).boxed();
    let waits = clock::deadline(moment, &mut second).await;
    assert!(waits.is_err(), "{waits:?}");
    first.await.unwrap();
    release(&one, at, (1, 0..10)).await;
    second.await.unwrap();
}

#[tokio::test]
async fn damaged_locks_of_a_file_hold_up_nobody_who_closes_it() {
    let ground = Ground::in_memory().await;
    let [one, _] = ground.two().await;
    let at = (made(&one).await, LockFamily::Record);
    try_to(&one, at, exclusive(1, 0..10)).await.unwrap();
    let damage = transact(&*one.session, |transaction| -> FsResult<()> {
        let mut found = Vec::new();
        transaction.scan(b"A"..b"B", &mut |key, _| {
            found.push(key.to_vec());
            std::ops::ControlFlow::Continue(())
        })?;
        let damaged = || bytes::Bytes::from_static(b"damaged");
        found.iter().for_each(|key| transaction.put(key, damaged()));
        Ok(())
    });
    damage.await.unwrap();
    let released = release(&one, at, (1, 0..10));
    let released = clock::deadline(Duration::from_secs(10), released).await;
    released.expect("it is not tried for ever");
}
