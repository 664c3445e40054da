//! Copies by reference where others change the source, and where others stored what is referred to.

use std::time::Duration;

use penstock_base::{FsError, clock};
use penstock_fileset::garbage::Sweep;
use penstock_object::ListOptions;
use penstock_vfs::{HandleId, Identity, Inode, OpenOptions, Position, RemoveKind, Volume};

use crate::{
    contents::{content, found, open},
    database::on_each_engine,
    ground::{Ground, Machine, Told},
    support::{ROOT, file},
};

on_each_engine!(
    a_copy_is_seen_by_other_machines_as_a_write_is,
    what_another_machine_copied_outlives_what_it_was_copied_of,
    what_a_dead_machine_stored_is_copied_and_goes_with_its_last_copy,
    copies_beside_changes_of_their_source_are_what_it_was_at_once,
);

const LENGTH: usize = 50_000;

async fn copy(machine: &Machine, source: HandleId, target: HandleId) -> Result<u64, FsError> {
    let at = |handle| Position { handle, offset: 0 };
    let (by, volume) = (Identity::root(), &machine.place.volume);
    let copied = volume.copy_range(&by, at(source), at(target), u64::MAX);
    copied.await
}

/// Copies a file to another name, and closes both.
async fn copy_named(machine: &Machine, from: Inode, to: &str) -> Result<u64, FsError> {
    let source = machine.place.open(from, OpenOptions::READ).await?;
    let made = machine.place.make(ROOT, to, file(0o644)).await;
    let target = machine.place.open(made.unwrap(), OpenOptions::WRITE).await;
    let target = target.unwrap();
    let copied = copy(machine, source, target).await;
    machine.place.close(source).await.unwrap();
    machine.place.close(target).await.unwrap();
    copied
}

async fn remove(machine: &Machine, name: &str) {
    let inode = machine.place.find(ROOT, name).await.unwrap().inode;
    let removed = machine.place.remove(ROOT, name, RemoveKind::File);
    removed.await.unwrap();
    machine.place.forget_all(inode);
}

async fn objects(ground: &Ground) -> usize {
    let listed = ground.bucket.list(ListOptions::default()).await;
    listed.unwrap().objects.len()
}

/// Waits until no machine has anything to clear away of `left` objects.
async fn is_left(ground: &Ground, machine: &Machine, left: usize) {
    let is_so = || async { objects(ground).await == left };
    machine.place.until(is_so).await;
    machine.place.is_whole().await;
}

async fn a_copy_is_seen_by_other_machines_as_a_write_is(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "source", &[1; LENGTH]).await.unwrap();
    one.place.store(ROOT, "target", b"before").await.unwrap();
    let (source, target) = (
        found(&machines, "source").await,
        found(&machines, "target").await,
    );
    assert_eq!(content(other, target).await.1, b"before");
    let reading = open(other, target, OpenOptions::READ).await.handle;
    let handles = [
        one.place.open(source, OpenOptions::READ).await.unwrap(),
        one.place.open(target, OpenOptions::WRITE).await.unwrap(),
    ];
    assert_eq!(copy(one, handles[0], handles[1]).await, Ok(LENGTH as u64));
    other.hears(Told::Content(target)).await;
    other.catch_up().await;
    let read = other.place.read(reading, 0, u32::MAX).await.unwrap();
    assert!(read == [1; LENGTH]);
    let (is_unchanged, read) = content(other, target).await;
    assert!(!is_unchanged && read == [1; LENGTH]);
    one.place.is_whole().await;
}

async fn what_another_machine_copied_outlives_what_it_was_copied_of(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "source", &[1; LENGTH]).await.unwrap();
    let source = found(&machines, "source").await;
    assert_eq!(copy_named(other, source, "copy").await, Ok(LENGTH as u64));
    other.place.forget_all(source);
    assert_eq!(objects(&ground).await, 1);
    remove(one, "source").await;
    let is_gone = || async { one.place.is_gone(source).await };
    one.place.until(is_gone).await;
    let now = Sweep {
        grace: Duration::ZERO,
        dry_run: false,
    };
    let swept = one.place.volume.sweep(now).await.unwrap();
    assert_eq!((swept.live.objects, swept.deleted), (1, 0));
    let copied = found(&machines, "copy").await;
    assert!(content(one, copied).await.1 == [1; LENGTH]);
    // Its writer deletes it, once nobody refers to it.
    one.place.forget_all(copied);
    remove(other, "copy").await;
    is_left(&ground, one, 0).await;
}

async fn what_a_dead_machine_stored_is_copied_and_goes_with_its_last_copy(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "source", &[1; LENGTH]).await.unwrap();
    let source = found(&machines, "source").await;
    one.is_evicted_by(other).await;
    assert_eq!(copy_named(other, source, "copy").await, Ok(LENGTH as u64));
    other.place.forget_all(source);
    remove(other, "source").await;
    let is_gone = || async { other.place.is_gone(source).await };
    other.place.until(is_gone).await;
    assert!(other.place.content(ROOT, "copy").await.unwrap() == [1; LENGTH]);
    remove(other, "copy").await;
    is_left(&ground, other, 0).await;
}

/// One overwrites a file, removes it and makes it anew; the other copies it all the time.
async fn copies_beside_changes_of_their_source_are_what_it_was_at_once(ground: Ground) {
    let machines = ground.two().await;
    let [one, other] = &machines;
    let until = clock::now() + Duration::from_secs(3);
    let changing = async {
        let mut version = 0u8;
        while clock::now() < until {
            version = version % 250 + 1;
            let bytes = [version; LENGTH];
            one.place.store(ROOT, "source", &bytes).await.unwrap();
            if version.is_multiple_of(5) {
                remove(one, "source").await;
            }
        }
    };
    let copying = async {
        let mut names = Vec::new();
        while clock::now() < until {
            other.catch_up().await;
            let Ok(source) = other.place.find(ROOT, "source").await else {
                continue;
            };
            let name = format!("copy {}", names.len());
            match copy_named(other, source.inode, &name).await {
                Ok(_) => names.push(name),
                // It was removed since.
                Err(FsError::Stale) => {}
                Err(error) => panic!("{error:?}"),
            }
            other.place.forget_all(source.inode);
        }
        names
    };
    let ((), names) = tokio::join!(changing, copying);
    assert!(names.len() > 2, "{}", names.len());
    for name in &names {
        let copied = found(&machines, name).await;
        let (_, shown) = content(one, copied).await;
        // A source that was just cut, or is there whole.
        assert!(shown.is_empty() || shown.len() == LENGTH);
        assert!(shown.iter().all(|byte| *byte == shown[0]), "{name}");
        assert!(content(other, copied).await.1 == shown);
    }
    one.place.is_whole().await;
    for name in &names {
        let copied = found(&machines, name).await;
        one.place.forget_all(copied);
        remove(other, name).await;
    }
    if one.place.find(ROOT, "source").await.is_ok() {
        let source = found(&machines, "source").await;
        other.place.forget_all(source);
        remove(one, "source").await;
    }
    is_left(&ground, one, 0).await;
}

/// The copy waits while what it is of is overwritten elsewhere, and the object deleted that it would have referred to.
#[tokio::test]
async fn a_copy_refers_to_nothing_that_went_while_it_waited() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "source", &[1; LENGTH]).await.unwrap();
    let source = found(&machines, "source").await;
    let made = other.place.make(ROOT, "copy", file(0o644)).await.unwrap();
    let target = other.place.open(made, OpenOptions::READ_WRITE).await;
    let (target, from) = (
        target.unwrap(),
        other.place.open(source, OpenOptions::READ).await.unwrap(),
    );
    other.session.operate(false);
    let copier = other.clone();
    let copying = tokio::spawn(async move { copy(&copier, from, target).await });
    let before = one.place.objects().await;
    one.place.store(ROOT, "source", &[2; LENGTH]).await.unwrap();
    let is_deleted = || async { !one.place.objects().await.contains(&before[0]) };
    one.place.until(is_deleted).await;
    assert!(!copying.is_finished());
    other.session.operate(true);
    assert_eq!(copying.await.unwrap(), Ok(LENGTH as u64));
    let read = other.place.read(target, 0, u32::MAX).await.unwrap();
    assert!(read == [2; LENGTH]);
    one.place.is_whole().await;
}

/// The database was not heard of in time, and made the copy.
#[tokio::test]
async fn a_copy_whose_answer_was_lost_is_whole_or_not_there() {
    let ground = Ground::in_memory().await;
    let machines = ground.two().await;
    let [one, other] = &machines;
    one.place.store(ROOT, "source", &[1; LENGTH]).await.unwrap();
    let source = found(&machines, "source").await;
    let made = other.place.make(ROOT, "copy", file(0o644)).await.unwrap();
    let target = other.place.open(made, OpenOptions::READ_WRITE).await;
    let (target, from) = (
        target.unwrap(),
        other.place.open(source, OpenOptions::READ).await.unwrap(),
    );
    other.session.lose_answers(true);
    assert!(matches!(
        copy(other, from, target).await,
        Err(FsError::Io(_))
    ));
    other.session.lose_answers(false);
    other.catch_up().await;
    let read = other.place.read(target, 0, u32::MAX).await.unwrap();
    assert!(read == [1; LENGTH]);
    one.place.is_whole().await;
}
