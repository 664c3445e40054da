//! The trash where several machines have the file system.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use penstock_base::{FsError, clock};
use penstock_vfs::{Inode, OpenOptions, RemoveKind, RenameMode};

use crate::{
    contents::found,
    database::on_each_engine,
    ground::{Ground, Machine},
    support::ROOT,
};

on_each_engine!(
    what_one_machine_removes_the_other_one_finds_in_the_trash,
    a_setting_holds_for_the_next_removal_on_each_machine,
    a_file_that_is_open_elsewhere_goes_on_in_the_trash,
    a_file_that_came_to_the_trash_elsewhere_is_not_opened_by_its_old_name,
    one_machine_empties_the_trash,
    machines_remove_into_the_same_hour_at_once,
    one_machine_empties_the_trash_while_the_other_one_fills_it,
);

const BYTES: [u8; 5000] = [7; 5000];

async fn remove(machine: &Machine, text: &str) {
    let removed = machine.place.remove(ROOT, text, RemoveKind::File);
    removed.await.unwrap();
}

/// The only file in the trash: its directory there and its name.
async fn kept(machine: &Machine) -> (Inode, String) {
    machine.catch_up().await;
    let item = machine
        .place
        .volume
        .list_trash(None)
        .await
        .unwrap()
        .remove(0);
    let (hour, name) = item.entry.split_once('/').unwrap();
    let trash = machine.place.find(ROOT, ".trash").await.unwrap().inode;
    let hour = machine.place.find(trash, hour).await.unwrap().inode;
    (hour, name.to_owned())
}

async fn files(machine: &Machine) -> u64 {
    machine.catch_up().await;
    machine.place.volume.trash().await.unwrap().files
}

/// A file that both know.
async fn shared(machines: &[Machine; 2]) -> Inode {
    machines[0].place.store(ROOT, "file", &BYTES).await.unwrap();
    found(machines, "file").await
}

async fn what_one_machine_removes_the_other_one_finds_in_the_trash(ground: Ground) {
    let [one, other] = ground.two().await;
    one.place.volume.set_trash(7).await.unwrap();
    one.place.store(ROOT, "file", &BYTES).await.unwrap();
    remove(&one, "file").await;
    let (hour, name) = kept(&other).await;
    assert_eq!(other.place.find(hour, &name).await.unwrap().links, 1);
    assert!(other.place.content(hour, &name).await.unwrap() == BYTES);
    other
        .place
        .rename((hour, &name), (ROOT, "back"), RenameMode::NoReplace)
        .await
        .unwrap();
    one.catch_up().await;
    assert!(one.place.content(ROOT, "back").await.unwrap() == BYTES);
    assert_eq!(files(&one).await, 0);
    one.place.is_whole().await;
}

async fn a_setting_holds_for_the_next_removal_on_each_machine(ground: Ground) {
    let [one, other] = ground.two().await;
    for text in ["a", "b", "c"] {
        one.place.store(ROOT, text, &BYTES).await.unwrap();
    }
    other.catch_up().await;
    remove(&other, "a").await;
    // It hears of nothing, and an operation looks at what is so.
    other.session.hear(false);
    one.place.volume.set_trash(7).await.unwrap();
    remove(&other, "b").await;
    one.place.volume.set_trash(0).await.unwrap();
    remove(&other, "c").await;
    other.session.hear(true);
    for machine in [&one, &other] {
        assert_eq!(files(machine).await, 1);
        assert!(kept(machine).await.1.ends_with("-b"));
    }
    one.place.is_whole().await;
}

async fn a_file_that_is_open_elsewhere_goes_on_in_the_trash(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.volume.set_trash(7).await.unwrap();
    let inode = shared(&machines).await;
    let handle = other
        .place
        .open(inode, OpenOptions::READ_WRITE)
        .await
        .unwrap();
    remove(one, "file").await;
    other.catch_up().await;
    assert_eq!(other.place.attributes(inode).await.links, 0);
    assert!(other.place.read(handle, 0, 10_000).await.unwrap() == BYTES);
    other
        .place
        .write(handle, penstock_vfs::WritePlace::At(5000), b"more")
        .await
        .unwrap();
    other.place.close(handle).await.unwrap();
    let (hour, name) = kept(one).await;
    assert_eq!(one.place.content(hour, &name).await.unwrap().len(), 5004);
    // It goes when nobody has it any more.
    let handle = other.place.open(inode, OpenOptions::READ).await;
    assert_eq!(handle.err(), Some(FsError::Stale));
    other.place.find(hour, &name).await.unwrap();
    let handle = other.place.open(inode, OpenOptions::READ).await.unwrap();
    assert!(one.place.volume.purge_some(None).await.unwrap().is_done);
    one.place.forget_all(inode);
    other.catch_up().await;
    assert_eq!(
        other.place.read(handle, 0, 10_000).await.unwrap().len(),
        5004
    );
    other.place.close(handle).await.unwrap();
    other.place.forget_all(inode);
    one.place
        .until(|| async { one.place.is_gone(inode).await })
        .await;
    one.place.is_whole().await;
}

async fn a_file_that_came_to_the_trash_elsewhere_is_not_opened_by_its_old_name(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.volume.set_trash(7).await.unwrap();
    let inode = shared(&machines).await;
    one.place.store(ROOT, "new", b"new").await.unwrap();
    one.place
        .rename((ROOT, "new"), (ROOT, "file"), RenameMode::Replace)
        .await
        .unwrap();
    let opened = other.place.open(inode, OpenOptions::READ).await;
    assert_eq!(opened.err(), Some(FsError::Stale));
    assert_eq!(other.place.content(ROOT, "file").await.unwrap(), b"new");
    // Who removed it may open it, as long as it is held.
    let handle = one.place.open(inode, OpenOptions::READ).await.unwrap();
    one.place.close(handle).await.unwrap();
}

async fn one_machine_empties_the_trash(ground: Ground) {
    let [one, other] = ground.two().await;
    one.place.volume.set_trash(1).await.unwrap();
    one.place.store(ROOT, "file", &BYTES).await.unwrap();
    let inode = one.place.find(ROOT, "file").await.unwrap().inode;
    remove(&one, "file").await;
    one.place.forget_all(inode);
    other.catch_up().await;
    let later = clock::wall_time() + Duration::from_secs(26 * 60 * 60);
    other.place.volume.expire_trash(later).await.unwrap();
    assert_eq!(files(&other).await, 1);
    one.place.volume.expire_trash(later).await.unwrap();
    assert_eq!(files(&one).await, 0);
    one.place
        .until(|| async { one.place.is_gone(inode).await })
        .await;
    one.place.is_whole().await;
}

async fn machines_remove_into_the_same_hour_at_once(ground: Ground) {
    let machines = ground.two().await;
    machines[0].place.volume.set_trash(7).await.unwrap();
    for number in 0..60 {
        let text = format!("file-{number}");
        machines[0]
            .place
            .store(ROOT, &text, b"12345")
            .await
            .unwrap();
    }
    machines[1].catch_up().await;
    let machines = Arc::new(machines);
    let removing = (0..2).map(|who| {
        let machines = Arc::clone(&machines);
        tokio::spawn(async move {
            for number in (0..60).filter(|number| number % 2 == who) {
                remove(&machines[who], &format!("file-{number}")).await;
            }
        })
    });
    for task in removing.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(files(&machines[1]).await, 60);
    machines[0].catch_up().await;
    machines[0].place.is_whole().await;
}

async fn one_machine_empties_the_trash_while_the_other_one_fills_it(ground: Ground) {
    let [one, other] = ground.two().await;
    one.place.volume.set_trash(7).await.unwrap();
    let mut inodes = Vec::new();
    for number in 0..60 {
        let text = format!("file-{number}");
        other.place.store(ROOT, &text, b"12345").await.unwrap();
        inodes.push(other.place.find(ROOT, &text).await.unwrap().inode);
    }
    let is_filled = Arc::new(AtomicBool::new(false));
    let emptying = {
        let (place, is_filled) = (one.place.clone(), Arc::clone(&is_filled));
        tokio::spawn(async move {
            let mut files = 0;
            while !is_filled.load(Ordering::Relaxed) {
                files += place.volume.purge_some(None).await.unwrap().files;
                tokio::task::yield_now().await;
            }
            files
        })
    };
    for number in 0..60 {
        remove(&other, &format!("file-{number}")).await;
        tokio::task::yield_now().await;
    }
    is_filled.store(true, Ordering::Relaxed);
    let emptied = emptying.await.unwrap();
    assert_eq!(emptied + files(&one).await, 60);
    assert!(one.place.volume.purge_some(None).await.unwrap().is_done);
    assert_eq!(files(&other).await, 0);
    for inode in inodes {
        other.place.forget_all(inode);
    }
    one.place
        .until(|| async { one.place.objects().await.is_empty() })
        .await;
    one.place.is_whole().await;
}
