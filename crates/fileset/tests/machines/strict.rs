//! Strict coherence: each operation sees what ended before it, on whatever machine.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use penstock_base::{FsError, clock};
use penstock_fileset::engine::Peers;
use penstock_object::ErrorKind;
use penstock_object_testing::Fault;
use penstock_vfs::{
    Allocation, AttributeChanges, Detail, HandleId, Inode, ListFrom, OpenOptions, Position,
    RemoveKind, RenameMode, Seek, Volume, WritePlace, XattrMode,
};

use crate::{
    ground::{Ground, Machine, on_each_engine},
    orphans::keys,
    register::{Deed, contradiction},
    support::{ROOT, file},
};

/// Files of which there are many leases.
const MANY: usize = 600;

on_each_engine!(
    a_read_sees_a_write_that_ended_on_another_machine,
    attributes_are_those_of_the_last_write_on_any_machine,
    machines_that_append_at_once_lose_nothing,
    names_are_seen_as_soon_as_they_are_made,
    a_cut_and_a_hole_take_what_another_machine_wrote,
    a_copy_has_what_another_machine_wrote,
    the_next_place_is_one_that_another_machine_wrote,
    what_reads_and_writes_of_three_machines_saw_can_have_happened_in_an_order,
    a_machine_that_writes_all_the_time_keeps_nobody_from_reading,
    a_machine_that_left_holds_up_nobody,
    doors_are_told_to_keep_nothing,
    a_read_sees_a_write_whose_lease_ended_while_it_looked,
    who_looks_all_the_time_keeps_nobody_from_writing,
    many_small_files_of_another_machine_are_looked_at_in_time,
);

async fn two(ground: &Ground) -> [Machine; 2] {
    [ground.strict_machine().await, ground.strict_machine().await]
}

async fn three(ground: &Ground) -> [Machine; 3] {
    let [one, other] = two(ground).await;
    [one, other, ground.strict_machine().await]
}

/// A file that all machines have open.
async fn opened<const N: usize>(machines: &[Machine; N]) -> (Inode, [HandleId; N]) {
    let inode = machines[0].place.make(ROOT, "file", file(0o644)).await;
    let inode = inode.unwrap();
    let open = machines.iter().map(|machine| async {
        machine.place.find(ROOT, "file").await.unwrap();
        let opened = machine.place.open(inode, OpenOptions::READ_WRITE).await;
        opened.unwrap()
    });
    let handles: Vec<_> = join_all(open).await;
    (inode, handles.try_into().unwrap())
}

async fn write(machine: &Machine, handle: HandleId, at: u64, data: &[u8]) {
    let written = machine.place.write(handle, WritePlace::At(at), data).await;
    written.unwrap();
}

async fn read(machine: &Machine, handle: HandleId) -> Vec<u8> {
    machine.place.read(handle, 0, 1 << 20).await.unwrap()
}

async fn a_read_sees_a_write_that_ended_on_another_machine(ground: Ground) {
    let machines = two(&ground).await;
    let (_, handles) = opened(&machines).await;
    for round in 0..6_u8 {
        let writer = usize::from(round % 2);
        let bytes = vec![round; 3000 + usize::from(round)];
        write(&machines[writer], handles[writer], 0, &bytes).await;
        for reader in [1 - writer, writer] {
            assert!(
                read(&machines[reader], handles[reader]).await == bytes,
                "{round}"
            );
        }
    }
    // Nobody saved or closed anything.
    for (machine, handle) in machines.iter().zip(handles) {
        machine.place.close(handle).await.unwrap();
    }
    machines[0].place.is_whole().await;
}

async fn attributes_are_those_of_the_last_write_on_any_machine(ground: Ground) {
    let [one, other] = two(&ground).await;
    let (inode, [writing, _]) = opened(&[one.clone(), other.clone()]).await;
    let before = other.place.attributes(inode).await;
    write(&one, writing, 0, &[1; 777]).await;
    let after = other.place.attributes(inode).await;
    assert_eq!(after.size, 777);
    assert!(after.modified > before.modified);
    let changes = AttributeChanges {
        permissions: Some(0o600),
        ..AttributeChanges::default()
    };
    write(&one, writing, 777, &[1; 1]).await;
    let changed = other.place.change(inode, changes).await.unwrap();
    assert_eq!((changed.size, changed.permissions), (778, 0o600));
    assert_eq!(one.place.attributes(inode).await.permissions, 0o600);
    write(&one, writing, 778, &[1; 1]).await;
    assert_eq!(other.place.find(ROOT, "file").await.unwrap().size, 779);
}

async fn machines_that_append_at_once_lose_nothing(ground: Ground) {
    const EACH: u8 = 12;
    let machines = two(&ground).await;
    let (_, handles) = opened(&machines).await;
    let append = |who: usize| {
        let (machine, handle) = (machines[who].clone(), handles[who]);
        async move {
            for count in 0..EACH {
                let line = [who as u8, count];
                let appended = machine.place.write(handle, WritePlace::End(0), &line);
                appended.await.unwrap();
                clock::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    tokio::join!(append(0), append(1));
    let all = read(&machines[0], handles[0]).await;
    for who in 0..2 {
        let lines = all.chunks(2).filter(|line| line[0] == who);
        let counts: Vec<_> = lines.map(|line| line[1]).collect();
        assert_eq!(counts, (0..EACH).collect::<Vec<_>>(), "{who}");
    }
    assert_eq!(all.len(), 4 * usize::from(EACH));
}

async fn names_are_seen_as_soon_as_they_are_made(ground: Ground) {
    let [one, other] = two(&ground).await;
    // Nothing tells it: it has to ask.
    other.session.hear(false);
    let other = &other;
    let has = |text| async move { ground_has(other, text).await };
    let inode = one.place.make(ROOT, "first", file(0o644)).await.unwrap();
    assert!(has("first").await);
    let renamed = one
        .place
        .rename((ROOT, "first"), (ROOT, "second"), RenameMode::Replace);
    renamed.await.unwrap();
    assert!(!has("first").await && has("second").await);
    let set = one
        .place
        .set_xattr(inode, "user.x", b"value", XattrMode::Set);
    set.await.unwrap();
    assert_eq!(other.place.xattrs(inode).await.unwrap().len(), 1);
    let removed = one.place.remove(ROOT, "second", RemoveKind::File);
    removed.await.unwrap();
    assert!(!has("second").await);
}

/// Whether a machine finds a name, and lists it.
async fn ground_has(machine: &Machine, text: &str) -> bool {
    let is_found = machine.place.find(ROOT, text).await.is_ok();
    let directory = machine.place.open_directory(ROOT).await;
    let room = (100, Detail::Names);
    let listed = machine
        .place
        .list(directory, ListFrom::Position(0), room)
        .await;
    assert_eq!(
        is_found,
        listed.iter().any(|(name, _)| name == text),
        "{text}"
    );
    is_found
}

async fn a_cut_and_a_hole_take_what_another_machine_wrote(ground: Ground) {
    let [one, other] = two(&ground).await;
    let (inode, [writing, cutting]) = opened(&[one.clone(), other.clone()]).await;
    write(&one, writing, 0, &[1; 9000]).await;
    let cut = AttributeChanges {
        size: Some(6000),
        ..AttributeChanges::default()
    };
    assert_eq!(other.place.change(inode, cut).await.unwrap().size, 6000);
    assert_eq!(read(&one, writing).await, [1; 6000]);
    write(&one, writing, 4000, &[2; 1000]).await;
    let punched = other
        .place
        .allocate(cutting, 4500..6000, Allocation::PunchHole);
    punched.await.unwrap();
    let expected = [[1; 4000].as_slice(), &[2; 500], &[0; 1500]].concat();
    assert!(read(&one, writing).await == expected);
    write(&one, writing, 0, &[3; 10]).await;
    let emptied = OpenOptions {
        truncate: true,
        ..OpenOptions::READ_WRITE
    };
    let emptied = other.place.open(inode, emptied).await.unwrap();
    assert_eq!(read(&one, writing).await, b"");
    other.place.close(emptied).await.unwrap();
}

async fn a_copy_has_what_another_machine_wrote(ground: Ground) {
    let [one, other] = two(&ground).await;
    let (_, [writing, source]) = opened(&[one.clone(), other.clone()]).await;
    let inode = one.place.make(ROOT, "copy", file(0o644)).await.unwrap();
    other.place.find(ROOT, "copy").await.unwrap();
    let target = other.place.open(inode, OpenOptions::READ_WRITE).await;
    let target = target.unwrap();
    write(&one, writing, 0, &[7; 5000]).await;
    let places = [source, target].map(|handle| Position { handle, offset: 0 });
    let by = penstock_vfs::Identity::root();
    let copied = other
        .place
        .volume
        .copy_range(&by, places[0], places[1], 9000);
    assert_eq!(copied.await, Ok(5000));
    let reading = one.place.open(inode, OpenOptions::READ).await.unwrap();
    assert_eq!(read(&one, reading).await, [7; 5000]);
}

async fn the_next_place_is_one_that_another_machine_wrote(ground: Ground) {
    let [one, other] = two(&ground).await;
    let (_, [writing, seeking]) = opened(&[one.clone(), other.clone()]).await;
    write(&one, writing, 1 << 20, &[1; 9000]).await;
    let found = other.place.seek(seeking, 0, Seek::Data).await;
    assert!(matches!(found, Ok(1..)), "{found:?}");
}

fn now() -> u64 {
    static BEGAN: LazyLock<tokio::time::Instant> = LazyLock::new(clock::now);
    BEGAN.elapsed().as_nanos() as u64 + 1
}

/// A register is eight bytes of a file, each in a block of its own.
async fn live(
    machine: Machine,
    handle: HandleId,
    (values, seed): (Arc<AtomicU64>, u64),
) -> Vec<(u64, Deed)> {
    let (mut deeds, mut random) = (Vec::new(), seed);
    for _ in 0..40 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let (register, is_write) = ((random >> 40) % 2, (random >> 50) % 3 == 0);
        let (at, began) = (register * 4096, now());
        let value = match is_write {
            true => {
                let value = values.fetch_add(1, Ordering::SeqCst) + 1;
                write(&machine, handle, at, &value.to_le_bytes()).await;
                value
            }
            false => {
                let read = machine.place.read(handle, at, 8).await.unwrap();
                let read: [u8; 8] = read.try_into().unwrap();
                u64::from_le_bytes(read)
            }
        };
        deeds.push((
            register,
            Deed {
                value,
                is_write,
                began,
                ended: Some(now()),
            },
        ));
        clock::sleep(Duration::from_micros((random >> 30) % 4000)).await;
    }
    deeds
}

async fn what_reads_and_writes_of_three_machines_saw_can_have_happened_in_an_order(ground: Ground) {
    let machines = three(&ground).await;
    let (_, handles) = opened(&machines).await;
    write(&machines[0], handles[0], 0, &[0; 8192]).await;
    let values = Arc::new(AtomicU64::new(0));
    let lives = machines.iter().zip(handles).flat_map(|(machine, handle)| {
        let life = |seed| tokio::spawn(live(machine.clone(), handle, (Arc::clone(&values), seed)));
        [
            life(handle.0 * 7 + 1),
            life(machine.session.session().0 * 31),
        ]
    });
    let lives = join_all(lives.collect::<Vec<_>>()).await;
    let deeds: Vec<_> = lives.into_iter().flat_map(Result::unwrap).collect();
    for register in 0..2 {
        let of_it = deeds.iter().filter(|(of, _)| *of == register);
        let of_it: Vec<_> = of_it.map(|(_, deed)| *deed).collect();
        assert!(of_it.iter().any(|deed| deed.is_write) && of_it.iter().any(|deed| !deed.is_write));
        assert_eq!(contradiction(&of_it), None);
    }
}

async fn a_machine_that_writes_all_the_time_keeps_nobody_from_reading(ground: Ground) {
    let [one, other] = two(&ground).await;
    let (_, [writing, reading]) = opened(&[one.clone(), other.clone()]).await;
    write(&one, writing, 0, &[0; 8]).await;
    let writer = tokio::spawn(async move {
        for count in 1_u64.. {
            write(&one, writing, 0, &count.to_le_bytes()).await;
            tokio::task::yield_now().await;
        }
    });
    let mut last = Vec::new();
    for _ in 0..5 {
        clock::sleep(Duration::from_millis(100)).await;
        let read = clock::deadline(Duration::from_secs(10), read(&other, reading));
        let read = read.await.expect("it waits for one save at most");
        assert_ne!(read, last, "the writer went on");
        last = read;
    }
    writer.abort();
}

async fn a_machine_that_left_holds_up_nobody(ground: Ground) {
    let [one, other] = two(&ground).await;
    let (_, [writing, reading]) = opened(&[one.clone(), other.clone()]).await;
    write(&one, writing, 0, b"last words").await;
    assert!(one.place.volume.shut_down().await.is_empty());
    other.session.catch_up().await.unwrap();
    assert_eq!(keys(&other, b"w").await, 0);
    let began = clock::now();
    assert_eq!(read(&other, reading).await, b"last words");
    write(&other, reading, 0, b"next").await;
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(keys(&other, b"w").await, 1);
}

async fn doors_are_told_to_keep_nothing(ground: Ground) {
    let machine = ground.strict_machine().await;
    let inode = machine.place.make(ROOT, "file", file(0o644)).await.unwrap();
    let by = penstock_vfs::Identity::root();
    let volume = &machine.place.volume;
    let opened = volume.open(&by, inode, OpenOptions::READ).await.unwrap();
    assert!(opened.reads_through);
    let entry = volume.attributes(&by, inode).await.unwrap();
    assert_eq!(entry.attributes_ttl, Duration::ZERO);
    assert_eq!(entry.entry_ttl, Duration::ZERO);
    let close_to_open = ground.machine().await;
    close_to_open.place.find(ROOT, "file").await.unwrap();
    let volume = &close_to_open.place.volume;
    let opened = volume.open(&by, inode, OpenOptions::READ).await.unwrap();
    assert!(!opened.reads_through);
}

/// A machine that does not hear that its lease is wanted keeps others waiting, and nothing is shown that is not all.
#[tokio::test]
async fn who_looks_waits_until_the_holder_has_heard_of_it() {
    let ground = Ground::in_memory().await;
    let [one, other] = two(&ground).await;
    let (inode, [writing, reading]) = opened(&[one.clone(), other.clone()]).await;
    write(&one, writing, 0, b"written").await;
    one.session.hear(false);
    for looked in [
        clock::deadline(Duration::from_millis(300), async {
            drop(other.place.attributes(inode).await);
        })
        .await,
        clock::deadline(Duration::from_millis(300), async {
            drop(read(&other, reading).await);
        })
        .await,
    ] {
        assert!(looked.is_err(), "it showed what may not be all");
    }
    one.session.hear(true);
    assert_eq!(read(&other, reading).await, b"written");
}

#[tokio::test]
async fn who_looks_waits_until_the_holder_can_save() {
    let ground = Ground::in_memory().await;
    let [one, other] = two(&ground).await;
    let (_, [writing, reading]) = opened(&[one.clone(), other.clone()]).await;
    write(&one, writing, 0, &[5; 100_000]).await;
    let fails = Fault::fail(ErrorKind::Unavailable);
    one.place.faults.rate(None, 1.0, fails);
    let looked = clock::deadline(Duration::from_millis(1500), read(&other, reading)).await;
    assert!(looked.is_err(), "it showed what may not be all");
    one.place.faults.clear();
    assert_eq!(read(&other, reading).await, [5; 100_000]);
}

/// What it wrote and did not save is lost with it, as that of a machine that was switched off.
#[tokio::test]
async fn a_machine_whose_session_ended_holds_up_nobody_and_shows_nothing() {
    let ground = Ground::in_memory().await;
    let [one, other] = two(&ground).await;
    let (_, [writing, reading]) = opened(&[one.clone(), other.clone()]).await;
    write(&one, writing, 0, b"saved").await;
    one.place.sync(writing).await.unwrap();
    write(&one, writing, 0, b"taken").await;
    one.session.hear(false);
    one.is_evicted_by(&other).await;
    assert_eq!(read(&other, reading).await, b"saved");
    write(&other, reading, 0, b"other").await;
    one.session.hear(true);
    one.place
        .until(async || one.place.read(writing, 0, 9).await.is_err())
        .await;
    let written = one.place.write(writing, WritePlace::At(0), b"late").await;
    assert!(matches!(written, Err(FsError::Io(_))), "{written:?}");
    assert_eq!(read(&other, reading).await, b"other");
}

/// The engine made the operation, and its answer was lost.
#[tokio::test]
async fn a_lease_that_was_taken_and_not_told_is_given_back() {
    let ground = Ground::in_memory().await;
    let [one, other] = two(&ground).await;
    let (_, [writing, reading]) = opened(&[one.clone(), other.clone()]).await;
    one.session.lose_answers(true);
    let written = one.place.write(writing, WritePlace::At(0), b"lost").await;
    assert!(written.is_err());
    one.session.lose_answers(false);
    assert_eq!(keys(&other, b"w").await, 1);
    let began = clock::now();
    write(&other, reading, 0, b"other").await;
    assert!(began.elapsed() < Duration::from_secs(10));
    // And where it is not told which keys changed.
    other.place.close(reading).await.unwrap();
    one.session.forget();
    assert_eq!(read(&one, writing).await, b"other");
}

#[tokio::test]
async fn a_machine_that_is_not_told_which_keys_changed_gives_its_leases_back() {
    let ground = Ground::in_memory().await;
    let [one, other] = two(&ground).await;
    let (_, [writing, reading]) = opened(&[one.clone(), other.clone()]).await;
    one.session.forget();
    write(&one, writing, 0, b"written").await;
    assert_eq!(read(&other, reading).await, b"written");
}

#[tokio::test]
async fn leases_of_files_that_nobody_has_open_are_given_back() {
    let ground = Ground::in_memory().await;
    let machine = ground.strict_machine().await;
    for count in 0..MANY {
        let name = format!("file {count}");
        machine.place.store(ROOT, &name, b"x").await.unwrap();
    }
    let are_few = async || keys(&machine, b"w").await == 0;
    machine.place.until(are_few).await;
    machine.place.is_whole().await;
}

/// What a machine writes to a file that nobody else wants costs one operation for the lease.
#[tokio::test]
async fn a_lease_is_taken_once() {
    let ground = Ground::in_memory().await;
    let [one, other] = two(&ground).await;
    let (_, [writing, _]) = opened(&[one.clone(), other.clone()]).await;
    one.session.allow(1);
    for count in 0..100 {
        write(&one, writing, count, b"x").await;
        assert_eq!(read(&one, writing).await.len() as u64, count + 1);
    }
    one.session.allow(u64::MAX);
}

/// The lease ends, and this machine's engine hears of that, between what a read caught up with and its look at the lease. What
/// the follower has not taken in by then is not what the file holds.
async fn a_read_sees_a_write_whose_lease_ended_while_it_looked(ground: Ground) {
    let machines = three(&ground).await;
    let (_, [writing, reading, third]) = opened(&machines).await;
    let [one, other, another] = machines;
    write(&one, writing, 0, b"earlier").await;
    assert_eq!(read(&other, reading).await, b"earlier");
    write(&one, writing, 0, b"written").await;
    other.session.query(false);
    let looking = tokio::spawn({
        let other = other.clone();
        async move { read(&other, reading).await }
    });
    let session = &other.session;
    other.place.until(async || session.is_querying()).await;
    session.hear(false);
    assert_eq!(read(&another, third).await, b"written");
    session.catch_up().await.unwrap();
    session.query(true);
    clock::sleep(Duration::from_millis(100)).await;
    session.hear(true);
    assert_eq!(looking.await.unwrap(), b"written");
}

async fn who_looks_all_the_time_keeps_nobody_from_writing(ground: Ground) {
    let [one, other] = two(&ground).await;
    let (_, [writing, reading]) = opened(&[one.clone(), other.clone()]).await;
    write(&one, writing, 0, &[0; 8]).await;
    let readers = (0..2).map(|_| {
        let other = other.clone();
        tokio::spawn(async move {
            loop {
                read(&other, reading).await;
                tokio::task::yield_now().await;
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    for count in 1_u64..=5 {
        clock::sleep(Duration::from_millis(100)).await;
        let bytes = count.to_le_bytes();
        let written = write(&one, writing, 0, &bytes);
        let written = clock::deadline(Duration::from_secs(10), written);
        written.await.expect("who was granted the lease writes");
    }
    readers.iter().for_each(tokio::task::JoinHandle::abort);
}

async fn many_small_files_of_another_machine_are_looked_at_in_time(ground: Ground) {
    const FILES: usize = 200;
    let [one, other] = two(&ground).await;
    let name = |count| format!("small {count}");
    for count in 0..FILES {
        one.place.store(ROOT, &name(count), b"x").await.unwrap();
    }
    let began = clock::now();
    for count in 0..FILES {
        assert_eq!(other.place.find(ROOT, &name(count)).await.unwrap().size, 1);
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "closed long ago: {took:?}");
}

#[tokio::test]
async fn leases_whose_grant_was_not_told_are_given_back_too() {
    let ground = Ground::in_memory().await;
    let machine = ground.strict_machine().await;
    let place = &machine.place;
    for count in 0..MANY {
        let name = format!("file {count}");
        let inode = place.make(ROOT, &name, file(0o644)).await.unwrap();
        let handle = place.open(inode, OpenOptions::WRITE).await.unwrap();
        machine.session.lose_answers(true);
        let written = place.write(handle, WritePlace::At(0), b"x").await;
        machine.session.lose_answers(false);
        assert!(written.is_err());
        place.close(handle).await.unwrap();
    }
    for count in 0..10 {
        let name = format!("another {count}");
        place.store(ROOT, &name, b"x").await.unwrap();
    }
    let are_few = async || keys(&machine, b"w").await == 0;
    place.until(are_few).await;
}

/// A process that is killed while it cuts a file waits for nothing, and the cut goes on.
#[tokio::test]
async fn a_change_that_nobody_waits_for_any_more_keeps_the_lease() {
    let ground = Ground::in_memory().await;
    let [one, other] = two(&ground).await;
    let (_, [writing, reading]) = opened(&[one.clone(), other.clone()]).await;
    write(&one, writing, 0, &[1; 9000]).await;
    one.place.sync(writing).await.unwrap();
    one.session.answer(false);
    let zero = one.place.allocate(
        writing,
        0..20_000,
        Allocation::ZeroRange { keep_size: false },
    );
    assert!(
        clock::deadline(Duration::from_millis(100), zero)
            .await
            .is_err()
    );
    let looked = clock::deadline(Duration::from_millis(500), read(&other, reading)).await;
    let seen = looked.as_ref().map(Vec::len);
    one.session.answer(true);
    clock::sleep(Duration::from_millis(500)).await;
    let later = read(&other, reading).await.len();
    assert!(
        looked.is_err(),
        "it was shown {seen:?} zeros of a change that then went on to {later}"
    );
}

/// Nothing works for a volume that was shut down, though another machine waits for what could not be saved.
#[tokio::test]
async fn what_cannot_be_saved_for_others_is_given_up_with_the_volume() {
    let ground = Ground::in_memory().await;
    for is_wanted in [false, true] {
        let [one, other] = two(&ground).await;
        let inode = one
            .place
            .make(ROOT, &format!("{is_wanted}"), file(0o644))
            .await;
        let inode = inode.unwrap();
        let writing = one.place.open(inode, OpenOptions::WRITE).await.unwrap();
        write(&one, writing, 0, &[5; 100_000]).await;
        one.place
            .faults
            .rate(None, 1.0, Fault::fail(ErrorKind::Unavailable));
        if is_wanted {
            let by = penstock_vfs::Identity::root();
            let looked = other.place.volume.attributes(&by, inode);
            let looked = clock::deadline(Duration::from_millis(1500), looked).await;
            assert!(looked.is_err());
        }
        assert!(!one.place.volume.shut_down().await.is_empty());
        let session = Arc::downgrade(&one.session);
        drop(one);
        let gone = clock::deadline(Duration::from_secs(10), async {
            while session.upgrade().is_some() {
                clock::sleep(Duration::from_millis(10)).await;
            }
        });
        assert!(gone.await.is_ok(), "wanted: {is_wanted}");
    }
}

/// A lease that just came, of a file that is not open yet, is none that nobody needs.
#[tokio::test]
async fn a_machine_with_many_written_files_open_empties_others() {
    let ground = Ground::in_memory().await;
    let machine = ground.strict_machine().await;
    let place = &machine.place;
    for count in 0..MANY {
        let name = format!("open {count}");
        let inode = place.make(ROOT, &name, file(0o644)).await.unwrap();
        let handle = place.open(inode, OpenOptions::WRITE).await.unwrap();
        write(&machine, handle, 0, b"x").await;
    }
    for count in 0..10 {
        let name = format!("another {count}");
        let stored = place.store(ROOT, &name, b"x");
        let stored = clock::deadline(Duration::from_secs(10), stored).await;
        assert_eq!(stored, Ok(Ok(())), "{count}");
    }
}

/// Returns what was read while a machine heard of nothing, if that was answered, and what the read brought in the end.
async fn read_while_deaf(machine: &Machine, handle: HandleId) -> (Option<Vec<u8>>, Vec<u8>) {
    let mut reading = tokio::spawn({
        let machine = machine.clone();
        async move { read(&machine, handle).await }
    });
    let early = clock::deadline(Duration::from_millis(500), &mut reading).await;
    machine.session.hear(true);
    match early {
        Ok(read) => (Some(read.unwrap()), Vec::new()),
        Err(_) => (None, reading.await.unwrap()),
    }
}

/// Where the bytes lie that nobody has a lease of any more is known once the follower has taken that in.
#[tokio::test]
async fn a_read_waits_until_its_machine_has_taken_in_what_was_saved() {
    let ground = Ground::in_memory().await;
    let machines = three(&ground).await;
    let (_, [writing, reading, third]) = opened(&machines).await;
    let [one, other, another] = machines;
    write(&one, writing, 0, b"earlier").await;
    assert_eq!(read(&other, reading).await, b"earlier");
    // The lease is gone by the look.
    other.session.hear(false);
    write(&one, writing, 0, b"written").await;
    assert_eq!(read(&another, third).await, b"written");
    let seen = read_while_deaf(&other, reading).await;
    assert_eq!(seen, (None, b"written".to_vec()));
    // It goes behind the look.
    write(&one, writing, 0, b"another").await;
    other.session.query(false);
    let looking = tokio::spawn({
        let other = other.clone();
        async move { read_while_deaf(&other, reading).await }
    });
    let session = &other.session;
    other.place.until(async || session.is_querying()).await;
    session.hear(false);
    session.query(true);
    let seen = looking.await.unwrap();
    assert_eq!(seen, (None, b"another".to_vec()));
}

#[tokio::test]
async fn who_takes_a_lease_waits_until_its_machine_has_taken_in_what_was_saved() {
    let ground = Ground::in_memory().await;
    let [one, other] = two(&ground).await;
    let (_, [writing, appending]) = opened(&[one.clone(), other.clone()]).await;
    write(&one, writing, 0, b"one").await;
    other.session.hear(false);
    let appended = tokio::spawn({
        let other = other.clone();
        async move {
            let place = WritePlace::End(0);
            other.place.write(appending, place, b"other").await
        }
    });
    clock::sleep(Duration::from_millis(300)).await;
    assert!(!appended.is_finished(), "it knows no end yet");
    other.session.hear(true);
    appended.await.unwrap().unwrap();
    assert_eq!(read(&one, writing).await, b"oneother");
}

/// A lease says something as long as its session lives.
#[tokio::test]
async fn who_has_a_lease_asks_whether_its_session_lives() {
    let ground = Ground::in_memory().await;
    let [one, _] = two(&ground).await;
    let (_, [handle]) = opened(std::array::from_ref(&one)).await;
    write(&one, handle, 0, b"written").await;
    // So an engine answers that does not know whether its session lives.
    one.session.query(false);
    let patience = Duration::from_millis(300);
    assert!(clock::deadline(patience, read(&one, handle)).await.is_err());
    one.session.query(true);
    assert_eq!(read(&one, handle).await, b"written");
}

#[tokio::test]
async fn a_lease_is_kept_until_changes_under_way_have_ended() {
    let ground = Ground::in_memory().await;
    let [one, other] = two(&ground).await;
    let (_, [writing, reading]) = opened(&[one.clone(), other.clone()]).await;
    write(&one, writing, 0, &[1; 9000]).await;
    one.place.sync(writing).await.unwrap();
    one.session.answer(false);
    let grown = tokio::spawn({
        let one = one.clone();
        let zero = Allocation::ZeroRange { keep_size: false };
        async move { one.place.allocate(writing, 0..20_000, zero).await }
    });
    let looked = clock::deadline(Duration::from_millis(500), read(&other, reading)).await;
    assert!(looked.is_err(), "half of it was done");
    one.session.answer(true);
    grown.await.unwrap().unwrap();
    assert_eq!(read(&other, reading).await, [0; 20_000]);
}

/// The holder writes on with another grant, and does not hear any more: who began to look before that has seen enough.
#[tokio::test]
async fn who_looks_waits_for_the_end_of_the_grant_that_it_found() {
    let ground = Ground::in_memory().await;
    let machines = three(&ground).await;
    let (_, [writing, reading, third]) = opened(&machines).await;
    let [one, other, another] = machines;
    write(&one, writing, 0, b"written").await;
    other.session.operate(false);
    let looking = tokio::spawn({
        let other = other.clone();
        async move { read(&other, reading).await }
    });
    clock::sleep(Duration::from_millis(100)).await;
    assert_eq!(read(&another, third).await, b"written");
    write(&one, writing, 0, b"another").await;
    one.session.hear(false);
    other.session.operate(true);
    let looked = clock::deadline(Duration::from_secs(5), looking).await;
    assert_eq!(looked.expect("all was saved once").unwrap(), b"written");
}

#[tokio::test]
async fn who_comes_takes_the_leases_of_dead_machines_away() {
    let ground = Ground::in_memory().await;
    let [one, other] = two(&ground).await;
    let (_, [writing, _]) = opened(&[one.clone(), other.clone()]).await;
    write(&one, writing, 0, b"written").await;
    one.is_evicted_by(&other).await;
    other.session.catch_up().await.unwrap();
    assert_eq!(keys(&other, b"w").await, 1);
    let next = ground.strict_machine().await;
    assert_eq!(keys(&next, b"w").await, 0);
}

/// Nobody closes it later: what takes long is looked after by whoever took the lease.
#[tokio::test]
async fn a_lease_of_a_file_that_was_cut_slowly_by_its_name_is_given_back() {
    let ground = Ground::in_memory().await;
    let machine = ground.strict_machine().await;
    machine.place.store(ROOT, "file", b"content").await.unwrap();
    let none = async || keys(&machine, b"w").await == 0;
    let inode = machine.place.find(ROOT, "file").await.unwrap().inode;
    // The lease takes long, or the cut does.
    for (operations, size) in [(0, 5), (1, 3)] {
        machine.place.until(none).await;
        machine.session.allow(operations);
        let cut = tokio::spawn({
            let machine = machine.clone();
            let changes = AttributeChanges {
                size: Some(size),
                ..AttributeChanges::default()
            };
            async move { machine.place.change(inode, changes).await }
        });
        clock::sleep(Duration::from_millis(500)).await;
        machine.session.allow(u64::MAX);
        assert_eq!(cut.await.unwrap().unwrap().size, size);
    }
    machine.place.until(none).await;
}

/// Its process was killed in the close, and the save went on.
#[tokio::test]
async fn a_lease_of_a_file_that_was_saved_slowly_behind_its_close_is_given_back() {
    let ground = Ground::in_memory().await;
    let machine = ground.strict_machine().await;
    let inode = machine.place.make(ROOT, "file", file(0o644)).await;
    let opened = machine.place.open(inode.unwrap(), OpenOptions::WRITE).await;
    let handle = opened.unwrap();
    write(&machine, handle, 0, b"written").await;
    machine.session.answer(false);
    {
        let flushed = machine.place.volume.flush(handle);
        let flushed = clock::deadline(Duration::from_millis(100), flushed).await;
        assert!(flushed.is_err(), "it saves");
    }
    machine.place.volume.release(handle).await;
    clock::sleep(Duration::from_millis(500)).await;
    machine.session.answer(true);
    let none = async || keys(&machine, b"w").await == 0;
    machine.place.until(none).await;
}
