//! Changes of a machine that does not know yet what another one did.

use std::time::Duration;

use penstock_base::{FsError, clock};
use penstock_vfs::{
    Allocation, AttributeChanges, Dentry, HandleId, Identity, Inode, Lookup, OpenOptions,
    RemoveKind, RenameMode, Volume, WritePlace, XattrMode,
};

use crate::{
    contents::{content, found},
    ground::{Ground, Machine, Told, on_each_engine},
    support::{ROOT, directory, file, name, user},
    trees,
};

on_each_engine!(
    a_save_cuts_nothing_that_another_machine_appended,
    a_save_brings_nothing_back_that_another_machine_cut,
    a_cut_takes_what_another_machine_wrote_meanwhile,
    files_of_two_machines_have_numbers_of_their_own,
    doors_are_told_of_what_another_machine_does,
    a_snapshot_of_another_machine_keeps_what_is_overwritten,
    a_name_that_another_machine_just_made_is_found,
    changes_of_two_machines_in_one_directory_do_not_meet,
    an_access_list_of_another_machine_holds_here,
);

async fn write(machine: &Machine, handle: HandleId, (at, bytes): (u64, &[u8])) {
    let written = machine.place.write(handle, WritePlace::At(at), bytes);
    written.await.unwrap();
}

/// A file of 1000 bytes that both know, and which the first one has open.
async fn shared(machines: &[Machine; 2]) -> (Inode, HandleId) {
    let [one, _] = machines;
    one.place.store(ROOT, "file", &[1; 1000]).await.unwrap();
    let inode = found(machines, "file").await;
    let options = OpenOptions::READ_WRITE;
    (inode, one.place.open(inode, options).await.unwrap())
}

/// The other one writes without the first one's hearing of it.
async fn write_unheard(machines: &[Machine; 2], inode: Inode, at: (u64, &[u8])) {
    let [one, other] = machines;
    one.session.hear(false);
    let handle = other.place.open(inode, OpenOptions::WRITE).await.unwrap();
    write(other, handle, at).await;
    other.place.close(handle).await.unwrap();
}

async fn cut(machine: &Machine, inode: Inode, size: u64) -> Result<u64, FsError> {
    let changes = AttributeChanges {
        size: Some(size),
        ..AttributeChanges::default()
    };
    let changed = machine.place.change(inode, changes).await?;
    Ok(changed.size)
}

async fn a_save_cuts_nothing_that_another_machine_appended(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, handle) = shared(&machines).await;
    write(one, handle, (0, &[2; 10])).await;
    write_unheard(&machines, inode, (1000, &[3; 500])).await;
    one.place.sync(handle).await.unwrap();
    one.session.hear(true);
    let expected = [vec![2; 10], vec![1; 990], vec![3; 500]].concat();
    for machine in [one, other] {
        assert_eq!(content(machine, inode).await.1, expected);
    }
    one.place.is_whole().await;
}

async fn a_save_brings_nothing_back_that_another_machine_cut(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, handle) = shared(&machines).await;
    write(one, handle, (0, &[2; 10])).await;
    one.session.hear(false);
    assert_eq!(cut(other, inode, 5).await, Ok(5));
    one.place.sync(handle).await.unwrap();
    one.session.hear(true);
    for machine in [one, other] {
        assert_eq!(content(machine, inode).await.1, [2; 10]);
        assert_eq!(machine.place.attributes(inode).await.size, 10);
    }
    one.place.is_whole().await;
}

async fn a_cut_takes_what_another_machine_wrote_meanwhile(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, handle) = shared(&machines).await;
    write(one, handle, (0, &[2; 10])).await;
    write_unheard(&machines, inode, (9_000_000, &[3; 500])).await;
    cut(one, inode, 100).await.unwrap();
    one.session.hear(true);
    one.catch_up().await;
    assert_eq!(one.place.attributes(inode).await.size, 100);
    one.place.sync(handle).await.unwrap();
    one.place.is_whole().await;
    // What was cut does not come back when the file grows again.
    cut(other, inode, 9_001_000).await.unwrap();
    let handle = other.place.open(inode, OpenOptions::READ).await.unwrap();
    let read = other.place.read(handle, 9_000_000, 500).await.unwrap();
    assert_eq!(read, [0; 500]);
}

#[tokio::test]
async fn a_save_after_a_cut_brings_nothing_back_that_another_machine_cut() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, handle) = shared(&machines).await;
    write(one, handle, (0, &[2; 10])).await;
    assert_eq!(cut(one, inode, 500).await, Ok(500));
    one.session.hear(false);
    assert_eq!(cut(other, inode, 20).await, Ok(20));
    one.place.sync(handle).await.unwrap();
    one.session.hear(true);
    let expected = [vec![2; 10], vec![1; 10]].concat();
    for machine in [one, other] {
        assert_eq!(content(machine, inode).await.1, expected);
    }
}

#[tokio::test]
async fn a_change_is_answered_with_the_size_that_another_machine_made() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, _] = &machines;
    let (inode, handle) = shared(&machines).await;
    write(one, handle, (0, &[2; 10])).await;
    write_unheard(&machines, inode, (1000, &[3; 500])).await;
    let private = AttributeChanges {
        permissions: Some(0o600),
        ..AttributeChanges::default()
    };
    let changed = one.place.change(inode, private).await.unwrap();
    assert_eq!((changed.size, changed.permissions), (1500, 0o600));
}

#[tokio::test]
async fn a_hole_is_made_in_what_another_machine_wrote_meanwhile() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, handle) = shared(&machines).await;
    write_unheard(&machines, inode, (9_000_000, &[3; 500])).await;
    let punched = one
        .place
        .allocate(handle, 100..9_000_100, Allocation::PunchHole);
    punched.await.unwrap();
    one.session.hear(true);
    let read = content(other, inode).await.1;
    assert_eq!(read.len(), 9_000_500);
    assert!(read[..100] == [1; 100] && read[100..9_000_100].iter().all(|byte| *byte == 0));
    assert_eq!(read[9_000_100..], [3; 400]);
    one.place.is_whole().await;
}

#[tokio::test]
async fn room_is_made_in_a_file_that_another_machine_cut_meanwhile() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, handle) = shared(&machines).await;
    one.session.hear(false);
    cut(other, inode, 10).await.unwrap();
    let keep_size = false;
    let reserved = one
        .place
        .allocate(handle, 0..500, Allocation::Reserve { keep_size });
    reserved.await.unwrap();
    one.session.hear(true);
    let expected = [vec![1; 10], vec![0; 490]].concat();
    assert_eq!(content(other, inode).await.1, expected);
    assert_eq!(content(one, inode).await.1, expected);
}

#[tokio::test]
async fn a_condition_is_judged_by_what_another_machine_did_meanwhile() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, _) = shared(&machines).await;
    let before = one.place.attributes(inode).await;
    one.session.hear(false);
    let private = AttributeChanges {
        permissions: Some(0o600),
        ..AttributeChanges::default()
    };
    clock::sleep(Duration::from_millis(2)).await;
    other.place.change(inode, private).await.unwrap();
    let guarded = AttributeChanges {
        size: Some(0),
        only_if_changed_at: Some(before.changed),
        ..AttributeChanges::default()
    };
    let changed = one.place.change(inode, guarded).await;
    assert_eq!(changed.err(), Some(FsError::NotSynchronized));
    assert_eq!(other.place.attributes(inode).await.size, 1000);
}

#[tokio::test]
async fn who_may_cut_is_judged_by_what_another_machine_did_meanwhile() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, _) = shared(&machines).await;
    let mode = |permissions| AttributeChanges {
        permissions: Some(permissions),
        ..AttributeChanges::default()
    };
    other.place.change(inode, mode(0o666)).await.unwrap();
    one.catch_up().await;
    one.session.hear(false);
    other.place.change(inode, mode(0o644)).await.unwrap();
    let cut = AttributeChanges {
        size: Some(0),
        ..AttributeChanges::default()
    };
    let changed = one.place.by(user(7)).change(inode, cut).await;
    assert_eq!(changed.err(), Some(FsError::PermissionDenied));
    assert_eq!(other.place.attributes(inode).await.size, 1000);
}

#[tokio::test]
async fn a_write_by_somebody_takes_bits_away_that_another_machine_set_meanwhile() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    let (inode, _) = shared(&machines).await;
    let mode = |permissions| AttributeChanges {
        permissions: Some(permissions),
        ..AttributeChanges::default()
    };
    other.place.change(inode, mode(0o777)).await.unwrap();
    one.catch_up().await;
    let somebody = one.place.by(user(7));
    let handle = somebody.open(inode, OpenOptions::WRITE).await.unwrap();
    one.session.hear(false);
    other.place.change(inode, mode(0o4777)).await.unwrap();
    let written = somebody.write(handle, WritePlace::At(0), b"x");
    written.await.unwrap();
    somebody.close(handle).await.unwrap();
    other.catch_up().await;
    assert_eq!(other.place.attributes(inode).await.permissions, 0o777);
}

async fn files_of_two_machines_have_numbers_of_their_own(ground: Ground) {
    let machines = ground.two().await;
    let mut inodes = std::collections::BTreeSet::new();
    let making = machines
        .iter()
        .enumerate()
        .map(|(index, machine)| async move {
            let mut made = Vec::new();
            for number in 0..30 {
                let text = format!("{index}-{number}");
                made.push(machine.place.make(ROOT, &text, file(0o644)).await.unwrap());
            }
            made
        });
    for made in futures_util::future::join_all(making).await {
        inodes.extend(made);
    }
    assert_eq!(inodes.len(), 60);
    machines[0].place.is_whole().await;
}

async fn doors_are_told_of_what_another_machine_does(ground: Ground) {
    let [one, other] = ground.two().await;
    let below = one.place.make(ROOT, "below", directory(0o755)).await;
    let below = below.unwrap();
    one.place.store(below, "file", b"content").await.unwrap();
    other.catch_up().await;
    assert_eq!(other.place.find(ROOT, "below").await.unwrap().inode, below);
    let inode = other.place.find(below, "file").await.unwrap().inode;
    let user = XattrMode::Set;
    one.place
        .set_xattr(inode, "user.key", b"value", user)
        .await
        .unwrap();
    other.hears(Told::Attributes(inode)).await;
    one.place.store(below, "new", b"content").await.unwrap();
    other.hears(Told::Name(below, "new".to_owned())).await;
    other.hears(Told::Attributes(below)).await;
    let (from, to) = ((below, "file"), (ROOT, "moved"));
    one.place
        .rename(from, to, RenameMode::Replace)
        .await
        .unwrap();
    other.hears(Told::Name(below, "file".to_owned())).await;
    other.hears(Told::Name(ROOT, "moved".to_owned())).await;
    let removed = one.place.remove(ROOT, "moved", RemoveKind::File);
    removed.await.unwrap();
    one.place.store(below, "new", b"written").await.unwrap();
    // Of what nobody here has, nobody is told.
    let new = one.place.find(below, "new").await.unwrap().inode;
    other.catch_up().await;
    assert!(!other.door.heard(&Told::Content(new)));
    assert!(!one.door.heard(&Told::Content(new)));
    assert!(one.place.volume.features().changes_elsewhere);
}

async fn a_snapshot_of_another_machine_keeps_what_is_overwritten(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "file", b"before").await.unwrap();
    let inode = found(&machines, "file").await;
    // Both know that there is no snapshot.
    one.place.store(ROOT, "other", b"1").await.unwrap();
    other.place.store(ROOT, "other", b"2").await.unwrap();
    let handle = one.place.open(inode, OpenOptions::WRITE).await.unwrap();
    write(one, handle, (0, b"later!")).await;
    one.session.hear(false);
    let taken = other.place.volume.take_snapshot(&name("taken")).await;
    let taken = taken.unwrap();
    one.place.close(handle).await.unwrap();
    one.session.hear(true);
    let root = Inode(taken.number << 42 | ROOT.0);
    for machine in &machines {
        machine.catch_up().await;
        let kept = machine.place.content(root, "file").await.unwrap();
        assert_eq!(kept, b"before");
        assert_eq!(content(machine, inode).await.1, b"later!");
    }
    one.place.is_whole().await;
}

async fn has_size(machine: &Machine, inode: Inode, size: u64) {
    machine
        .place
        .until(|| async {
            machine.catch_up().await;
            machine.place.attributes(inode).await.size == size
        })
        .await;
}

/// A save is made, and its answer comes after the news of a cut that another machine made behind it.
#[tokio::test]
async fn a_cut_that_is_heard_of_before_the_answer_to_an_earlier_save_is_a_cut() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "file", b"0123456789").await.unwrap();
    let inode = found(&machines, "file").await;
    let handle = one
        .place
        .open(inode, OpenOptions::READ_WRITE)
        .await
        .unwrap();
    write(one, handle, (10, b"more")).await;
    one.session.answer(false);
    let place = one.place.clone();
    let saving = tokio::spawn(async move { place.sync(handle).await });
    has_size(other, inode, 14).await;
    cut(other, inode, 0).await.unwrap();
    one.catch_up().await;
    one.session.answer(true);
    saving.await.unwrap().unwrap();
    one.catch_up().await;
    assert_eq!(one.place.attributes(inode).await.size, 0);
    let (_, reopened) = content(one, inode).await;
    let read = one.place.read(handle, 0, 100).await.unwrap();
    assert!(
        read.is_empty() && reopened.is_empty(),
        "an open file shows {read:?}, and one that is opened now {reopened:?}"
    );
}

async fn a_name_that_another_machine_just_made_is_found(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.session.hear(false);
    let (by, name) = (Identity::root(), name("new"));
    let missing = one.place.volume.lookup(&by, Dentry::new(ROOT, &name));
    let Lookup::Absent(believed) = missing.await.unwrap() else {
        panic!("nobody made it");
    };
    assert!(believed.is_zero(), "a door asks again");
    other.place.store(ROOT, "new", b"new").await.unwrap();
    let inode = one.place.find(ROOT, "new").await.unwrap().inode;
    one.session.hear(true);
    assert_eq!(content(one, inode).await.1, b"new");
}

async fn an_access_list_of_another_machine_holds_here(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "file", b"x").await.unwrap();
    let inode = found(&machines, "file").await;
    let (named, mode) = (other.place.by(user(7)), XattrMode::Set);
    one.place
        .change(
            inode,
            AttributeChanges {
                permissions: Some(0o600),
                ..AttributeChanges::default()
            },
        )
        .await
        .unwrap();
    let refused = named.open(inode, OpenOptions::READ).await;
    assert_eq!(refused, Err(FsError::PermissionDenied));
    let list = trees::list(&[(7, 4)]);
    one.place
        .set_xattr(inode, trees::ACCESS, &list, mode)
        .await
        .unwrap();
    let opened = named.open(inode, OpenOptions::READ).await.unwrap();
    named.close(opened).await.unwrap();
    assert_eq!(other.place.attributes(inode).await.permissions, 0o740);
    other
        .place
        .change(
            inode,
            AttributeChanges {
                permissions: Some(0o700),
                ..AttributeChanges::default()
            },
        )
        .await
        .unwrap();
    let masked = one.place.by(user(7)).open(inode, OpenOptions::READ).await;
    assert_eq!(masked, Err(FsError::PermissionDenied));
    one.place.is_whole().await;
}

/// Names that each of two machines makes, links, moves and removes.
const NAMES: u64 = 10;

/// They did: what a directory says of its entries was part of each answer, and each change is one of it.
async fn changes_of_two_machines_in_one_directory_do_not_meet(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    let made = one.place.make(ROOT, "busy", directory(0o755));
    let busy = made.await.unwrap();
    assert_eq!(found(&machines, "busy").await, busy);
    let before = one.session.ran();
    for number in 0..NAMES {
        let name = format!("more-{number}");
        other.place.make(busy, &name, file(0o644)).await.unwrap();
        let permissions = Some(0o700 + number as u16 % 8);
        let changes = AttributeChanges {
            permissions,
            ..AttributeChanges::default()
        };
        one.place.change(busy, changes).await.unwrap();
    }
    let ran = one.session.ran() - before;
    assert!(ran < NAMES * 5 / 4, "{NAMES}: {ran}");
    for (machine, name) in [(one, "first"), (other, "second")] {
        change_names(machine, busy, name).await;
    }
    let before = one.session.ran() + other.session.ran();
    for number in 0..NAMES {
        change_names(one, busy, &format!("one-{number}")).await;
        change_names(other, busy, &format!("other-{number}")).await;
    }
    let (changes, ran) = (2 * NAMES * 5, one.session.ran() + other.session.ran());
    assert!(
        ran - before < changes * 5 / 4,
        "{changes}: {}",
        ran - before
    );
    one.place.is_whole().await;
}

/// Makes, links, moves and removes a file: five changes.
async fn change_names(machine: &Machine, parent: Inode, prefix: &str) {
    let place = &machine.place;
    let [made, linked, moved] = ["made", "linked", "moved"].map(|verb| format!("{prefix}-{verb}"));
    let inode = place.make(parent, &made, file(0o644)).await.unwrap();
    place.link(inode, (parent, &linked)).await.unwrap();
    let renamed = place.rename((parent, &made), (parent, &moved), RenameMode::Replace);
    renamed.await.unwrap();
    for name in [&linked, &moved] {
        let removed = place.remove(parent, name, RemoveKind::File);
        removed.await.unwrap();
    }
    place.forget_all(inode);
}
