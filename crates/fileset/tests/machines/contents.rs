//! Bytes of files: close-to-open.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, poll};
use penstock_base::{FsError, clock};
use penstock_fileset::engine::transact;
use penstock_object::ErrorKind;
use penstock_object_testing::Fault;
use penstock_vfs::{Identity, Inode, OpenOptions, Opened, Volume, WritePlace};

use crate::{
    database::on_each_engine,
    ground::{Ground, Machine, Told},
    support::ROOT,
};

on_each_engine!(
    an_open_sees_what_was_closed_on_another_machine,
    an_open_says_that_the_content_is_another_one_until_that_arrived,
    an_open_file_shows_what_another_machine_saved,
    a_file_that_was_cut_elsewhere_ends_there,
    what_was_made_elsewhere_is_opened_with_its_bytes,
);

pub async fn open(machine: &Machine, inode: Inode, options: OpenOptions) -> Opened {
    let by = Identity::root();
    machine
        .place
        .volume
        .open(&by, inode, options)
        .await
        .unwrap()
}

/// Opens a file, reads it whole and closes it again. Returns whether the open said that it is unchanged, too.
pub async fn content(machine: &Machine, inode: Inode) -> (bool, Vec<u8>) {
    let opened = open(machine, inode, OpenOptions::READ).await;
    let read = machine.place.read(opened.handle, 0, u32::MAX).await;
    machine.place.close(opened.handle).await.unwrap();
    (opened.is_unchanged, read.unwrap())
}

/// The file that both have found.
pub async fn found(machines: &[Machine], text: &str) -> Inode {
    let mut inode = ROOT;
    for machine in machines {
        machine.catch_up().await;
        inode = machine.place.find(ROOT, text).await.unwrap().inode;
    }
    inode
}

async fn an_open_sees_what_was_closed_on_another_machine(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "file", &[0; 3000]).await.unwrap();
    let inode = found(&machines, "file").await;
    for round in 0..20_u8 {
        let (writer, reader) = match round % 2 {
            0 => (one, other),
            _ => (other, one),
        };
        let length = 3000 - 100 * usize::from(round % 5);
        let bytes = vec![round + 1; length];
        writer.place.store(ROOT, "file", &bytes).await.unwrap();
        let (is_unchanged, read) = content(reader, inode).await;
        assert!(!is_unchanged);
        assert!(read == bytes, "{round}: {} bytes", read.len());
    }
    one.place.is_whole().await;
}

async fn an_open_says_that_the_content_is_another_one_until_that_arrived(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "file", b"first").await.unwrap();
    let inode = found(&machines, "file").await;
    content(other, inode).await;
    assert!(content(other, inode).await.0);
    one.place.store(ROOT, "file", b"other").await.unwrap();
    // Whoever opened it never heard of it.
    let opened = open(other, inode, OpenOptions::READ).await;
    assert!(!opened.is_unchanged);
    other.place.volume.undo_open(opened.handle).await;
    // Two that are opened at once may be answered in any order.
    let first = open(other, inode, OpenOptions::READ).await;
    let second = open(other, inode, OpenOptions::READ).await;
    assert!(!first.is_unchanged && !second.is_unchanged);
    for opened in [first, second] {
        let read = other.place.read(opened.handle, 0, 100).await.unwrap();
        assert_eq!(read, b"other");
        other.place.close(opened.handle).await.unwrap();
    }
    assert!(content(other, inode).await.0);
    // What this machine itself writes its doors know.
    other.place.store(ROOT, "file", b"third").await.unwrap();
    assert!(content(other, inode).await.0);
}

async fn an_open_file_shows_what_another_machine_saved(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "file", b"first").await.unwrap();
    let inode = found(&machines, "file").await;
    let handle = other.place.open(inode, OpenOptions::READ).await.unwrap();
    assert_eq!(other.place.read(handle, 0, 100).await.unwrap(), b"first");
    one.place.store(ROOT, "file", b"and longer").await.unwrap();
    other.hears(Told::Content(inode)).await;
    other.catch_up().await;
    let read = other.place.read(handle, 0, 100).await.unwrap();
    assert_eq!(read, b"and longer");
    // The same where its size stays.
    let writing = one.place.open(inode, OpenOptions::WRITE).await.unwrap();
    let written = one.place.write(writing, WritePlace::At(4), b"LONGER");
    written.await.unwrap();
    one.place.close(writing).await.unwrap();
    other.catch_up().await;
    let read = other.place.read(handle, 0, 100).await.unwrap();
    assert_eq!(read, b"and LONGER");
}

async fn a_file_that_was_cut_elsewhere_ends_there(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "file", &[1; 1000]).await.unwrap();
    let inode = found(&machines, "file").await;
    let handle = other
        .place
        .open(inode, OpenOptions::READ_WRITE)
        .await
        .unwrap();
    let written = other.place.write(handle, WritePlace::At(0), &[2; 10]);
    written.await.unwrap();
    one.place.store(ROOT, "file", &[3; 50]).await.unwrap();
    other.catch_up().await;
    let read = other.place.read(handle, 0, 2000).await.unwrap();
    assert_eq!(read, [vec![2; 10], vec![3; 40]].concat());
    assert_eq!(other.place.attributes(inode).await.size, 50);
}

async fn what_was_made_elsewhere_is_opened_with_its_bytes(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "file", b"content").await.unwrap();
    other.catch_up().await;
    assert_eq!(other.place.content(ROOT, "file").await.unwrap(), b"content");
    let inode = found(&machines, "file").await;
    other.place.store(ROOT, "file", b"newer").await.unwrap();
    one.catch_up().await;
    assert_eq!(content(one, inode).await.1, b"newer");
}

/// Polls what waits until it would wait for ever.
async fn waits<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
    for _ in 0..50 {
        if poll!(&mut *future).is_ready() {
            return false;
        }
        clock::sleep(Duration::from_millis(1)).await;
    }
    true
}

#[tokio::test]
async fn an_open_waits_until_its_machine_has_heard_of_what_was_done_before() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "file", b"first").await.unwrap();
    let inode = found(&machines, "file").await;
    assert_eq!(content(other, inode).await.1, b"first");
    other.session.hear(false);
    one.place.store(ROOT, "file", b"other one").await.unwrap();
    let mut opening = Box::pin(open(other, inode, OpenOptions::READ));
    assert!(waits(&mut opening).await);
    let mut asking = other.catch_up().boxed();
    assert!(waits(&mut asking).await);
    other.session.hear(true);
    let opened = opening.await;
    assert!(!opened.is_unchanged);
    let read = other.place.read(opened.handle, 0, 100).await.unwrap();
    assert_eq!(read, b"other one");
    asking.await;
}

#[tokio::test]
async fn a_machine_that_is_not_told_which_keys_changed_believes_nothing() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "file", b"first").await.unwrap();
    let inode = found(&machines, "file").await;
    let handle = other.place.open(inode, OpenOptions::READ).await.unwrap();
    assert_eq!(other.place.read(handle, 0, 100).await.unwrap(), b"first");
    other.session.forget();
    one.place.store(ROOT, "file", b"and longer").await.unwrap();
    for told in [
        Told::Content(inode),
        Told::Attributes(inode),
        Told::Attributes(ROOT),
    ] {
        other.hears(told).await;
    }
    let (is_unchanged, read) = content(other, inode).await;
    assert!(!is_unchanged);
    assert_eq!(read, b"and longer");
    let read = other.place.read(handle, 0, 100).await.unwrap();
    assert_eq!(read, b"and longer");
}

/// The node of one open file is damaged.
#[tokio::test(start_paused = true)]
async fn a_damaged_file_keeps_nobody_from_opening_others() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "file", b"bytes").await.unwrap();
    one.place.store(ROOT, "whole", b"bytes").await.unwrap();
    let inode = found(&machines, "file").await;
    let whole = found(&machines, "whole").await;
    let _open = one.place.open(inode, OpenOptions::READ).await.unwrap();
    let damage = transact(&*other.session, move |transaction| {
        let mut key = b"I".to_vec();
        key.extend(inode.0.to_be_bytes());
        assert!(transaction.get(&key)?.is_some());
        transaction.put(&key, Bytes::from_static(b"damaged"));
        Ok::<_, FsError>(())
    });
    damage.await.unwrap();
    let opened = clock::deadline(Duration::from_secs(600), content(one, whole)).await;
    assert!(opened.is_ok(), "an open of another file waits for ever");
}

/// A save that fails is told. Another machine writes the file then, and closes it.
#[tokio::test(start_paused = true)]
async fn what_was_closed_elsewhere_is_not_overwritten_by_a_save_that_had_failed_before() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "file", b"first").await.unwrap();
    let inode = found(&machines, "file").await;
    let handle = one.place.open(inode, OpenOptions::WRITE).await.unwrap();
    let written = one.place.write(handle, WritePlace::At(0), b"ONE!!");
    written.await.unwrap();
    one.place
        .faults
        .rate(None, 1.0, Fault::fail(ErrorKind::Unavailable));
    assert!(one.place.close(handle).await.is_err());
    other.place.store(ROOT, "file", b"OTHER").await.unwrap();
    assert_eq!(content(other, inode).await.1, b"OTHER");
    one.place.faults.clear();
    clock::sleep(Duration::from_secs(60)).await;
    assert_eq!(content(other, inode).await.1, b"OTHER");
    let (is_unchanged, read) = content(one, inode).await;
    assert!(!is_unchanged);
    assert_eq!(read, b"OTHER");
}

/// It is not what a door has of the file.
#[tokio::test(start_paused = true)]
async fn what_a_close_said_is_not_saved_is_given_up() {
    let ground = Ground::in_memory().await;
    let one = ground.machine().await;
    one.place.store(ROOT, "file", b"first").await.unwrap();
    let inode = one.place.find(ROOT, "file").await.unwrap().inode;
    let options = OpenOptions::READ_WRITE;
    let handle = one.place.open(inode, options).await.unwrap();
    let written = one.place.write(handle, WritePlace::At(0), b"and longer");
    written.await.unwrap();
    let fails = Fault::fail(ErrorKind::Unavailable);
    one.place.faults.rate(None, 1.0, fails);
    assert!(one.place.close(handle).await.is_err());
    one.place.faults.clear();
    let (is_unchanged, read) = content(&one, inode).await;
    assert!(!is_unchanged);
    assert_eq!(read, b"first");
    assert_eq!(one.place.volume.unsaved().files, 0);
}

/// Somebody else has the file open and writes.
#[tokio::test(start_paused = true)]
async fn what_a_close_said_is_not_saved_is_kept_for_who_has_the_file_open() {
    let ground = Ground::in_memory().await;
    let one = ground.machine().await;
    one.place.store(ROOT, "file", b"first").await.unwrap();
    let inode = one.place.find(ROOT, "file").await.unwrap().inode;
    let mut handles = Vec::new();
    for text in [b"AB", b"CD"] {
        let handle = one.place.open(inode, OpenOptions::WRITE).await.unwrap();
        let place = WritePlace::At(2 * handles.len() as u64);
        one.place.write(handle, place, text).await.unwrap();
        handles.push(handle);
    }
    let fails = Fault::fail(ErrorKind::Unavailable);
    one.place.faults.rate(None, 1.0, fails);
    assert!(one.place.close(handles[0]).await.is_err());
    one.place.faults.clear();
    one.place.close(handles[1]).await.unwrap();
    assert_eq!(content(&one, inode).await.1, b"ABCDt");
}
