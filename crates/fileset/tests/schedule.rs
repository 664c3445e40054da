//! Snapshots and dumps that a file system makes by itself: once in a period, with what was written, and so many stay.

#![allow(clippy::unwrap_used)]

mod support;

use std::{collections::BTreeMap, time::Duration};

use penstock_base::clock;
use penstock_fileset::{
    Durability, Label,
    dumps::{self, DumpObjectSource, Making, NewDump, Reading, carry},
    engine::{MemoryEngine, query, transact},
    format_of,
    schedule::{self, Job, Keep},
    snapshots,
};
use penstock_object::{ErrorKind, Operation as Request};
use penstock_object_testing::Fault;
use penstock_vfs::{OpenOptions, Volume, WritePlace};

use support::{Place, ROOT, file, name};

/// A job that no test lives through two periods of, but for one minute in a month.
const JOB: Job = Job::Monthly;

fn keep(count: u32) -> Keep {
    BTreeMap::from([(JOB, count)])
}

/// The snapshots of the job that are there.
async fn taken(place: &Place) -> Vec<String> {
    taken_by(place, JOB).await
}

async fn taken_by(place: &Place, job: Job) -> Vec<String> {
    let listed = snapshots::list(&*place.engine).await.unwrap();
    let there = listed.into_iter().filter(|one| !one.is_removed);
    there
        .map(|one| one.name)
        .filter(|name| name.starts_with(job.name()))
        .collect()
}

async fn until_taken(place: &Place, job: Job) {
    let is_taken = || async { !taken_by(place, job).await.is_empty() };
    place.until(is_taken).await;
}

async fn is_taken(place: &Place) -> String {
    place
        .until(|| async { !taken(place).await.is_empty() })
        .await;
    taken(place).await.remove(0)
}

/// Dumps that are made on a schedule.
async fn is_dumped(place: &Place) -> String {
    let dumps = || async { dumps::list(&*place.bucket).await.unwrap() };
    place.until(|| async { !dumps().await.is_empty() }).await;
    dumps().await.remove(0).name
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduled_snapshot_has_what_was_written_and_not_saved() {
    let place = Place::new().await;
    let inode = place.make(ROOT, "a", file(0o644)).await.unwrap();
    let open = place.open(inode, OpenOptions::READ_WRITE).await.unwrap();
    place
        .write(open, WritePlace::At(0), b"hello")
        .await
        .unwrap();
    assert_eq!(place.volume.set_schedule(keep(2)).await.unwrap(), keep(2));
    let snapshot = is_taken(&place).await;
    place.close(open).await.unwrap();
    place.store(ROOT, "b", b"later").await.unwrap();
    let shelf = place.find(ROOT, ".snapshot").await.unwrap().inode;
    let tree = place.find(shelf, &snapshot).await.unwrap().inode;
    assert_eq!(place.content(tree, "a").await.unwrap(), b"hello");
    assert!(place.find(tree, "b").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduled_snapshot_that_somebody_removed_is_not_taken_again() {
    let mut place = Place::new().await;
    place.volume.set_schedule(keep(2)).await.unwrap();
    let snapshot = is_taken(&place).await;
    place
        .volume
        .remove_snapshot(&name(&snapshot))
        .await
        .unwrap();
    // It looks when it is told something, and when it is opened; another job is seen to have been done by then.
    let daily = BTreeMap::from([(Job::Daily, 1)]);
    place.volume.set_schedule(daily.clone()).await.unwrap();
    until_taken(&place, Job::Daily).await;
    assert!(taken(&place).await.is_empty());
    assert!(place.volume.shut_down().await.is_empty());
    place.crash().await;
    assert!(
        schedule::get(&*place.engine)
            .await
            .unwrap()
            .contains_key(&JOB)
    );
    let weekly = BTreeMap::from([(Job::Weekly, 1)]);
    place.volume.set_schedule(weekly).await.unwrap();
    until_taken(&place, Job::Weekly).await;
    assert!(taken(&place).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_scheduled_snapshots_stay_as_are_kept_and_those_of_others() {
    let place = Place::new().await;
    for snapshot in [
        "monthly-2020-01",
        "monthly-2020-02",
        "monthly-of-mine",
        "daily-2020-01-01",
    ] {
        place.volume.take_snapshot(&name(snapshot)).await.unwrap();
    }
    place.volume.set_schedule(keep(2)).await.unwrap();
    let is_done = || async {
        let there = taken(&place).await;
        there.len() == 3 && !there.contains(&"monthly-2020-01".to_owned())
    };
    place.until(is_done).await;
    let there = taken(&place).await;
    assert_eq!(there[..2], ["monthly-2020-02", "monthly-of-mine"]);
    let listed = snapshots::list(&*place.engine).await.unwrap();
    assert!(listed.iter().any(|one| one.name == "daily-2020-01-01"));
    assert!(place.volume.set_schedule(keep(0)).await.unwrap().is_empty());
    assert_eq!(taken(&place).await, there);
    place.is_whole().await;
}

#[tokio::test]
async fn a_schedule_keeps_no_more_than_it_can() {
    let place = Place::new().await;
    assert!(place.volume.set_schedule(keep(10_001)).await.is_err());
    assert!(schedule::get(&*place.engine).await.unwrap().is_empty());
}

async fn labelled(place: &Place) -> Label {
    let format = format_of(&*place.engine).await.unwrap();
    let label = Label::new("home", &format, Durability::Local);
    label.write(&*place.bucket).await.unwrap();
    label
}

/// A file system beside it, of a dump.
async fn loaded(place: &Place, dump: &str) -> Place {
    let mut source = DumpObjectSource::open(&place.bucket, dump).unwrap();
    let mut reading = Reading::begin(&mut source).await.unwrap();
    let target = MemoryEngine::default();
    let of = reading.head().dump;
    let carried = carry(&mut reading, (&target, of), &|_| {}).await.unwrap();
    carried.publish(&target, 1).await.unwrap();
    Place::sharing(
        std::sync::Arc::new(target),
        std::sync::Arc::clone(&place.bucket),
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduled_dump_is_seen_once_the_bucket_has_what_it_refers_to() {
    let place = Place::spooled().await;
    labelled(&place).await;
    place.store(ROOT, "small", b"on this disk").await.unwrap();
    assert_ne!(place.waiting(), (0, 0));
    let dumps = BTreeMap::from([(Job::Dumps, 3)]);
    place.volume.set_schedule(dumps).await.unwrap();
    let dump = is_dumped(&place).await;
    let copy = loaded(&place, &dump).await;
    assert_eq!(copy.content(ROOT, "small").await.unwrap(), b"on this disk");
    let snapshots = snapshots::list(&*place.engine).await.unwrap();
    assert_eq!(snapshots[0].name, format!("dump-{dump}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_dump_is_made_into_the_bucket_of_another_file_system() {
    let place = Place::new().await;
    let mut label = labelled(&place).await;
    label.generation = 7;
    let (_, read) = Label::read_tagged(&*place.bucket).await.unwrap();
    label.replace(&*place.bucket, read).await.unwrap();
    let both = BTreeMap::from([(Job::Dumps, 3), (JOB, 1)]);
    place.volume.set_schedule(both).await.unwrap();
    // Dumps are looked after beside it.
    is_taken(&place).await;
    let daily = BTreeMap::from([(Job::Daily, 1)]);
    place.volume.set_schedule(daily).await.unwrap();
    until_taken(&place, Job::Daily).await;
    assert!(place.volume.shut_down().await.is_empty());
    assert!(dumps::list(&*place.bucket).await.unwrap().is_empty());
}

/// Makes a dump under a name, and removes older ones but for `keep`. Returns which.
async fn dumped(place: &Place, called: &str, keep: u64) -> Vec<String> {
    let format = format_of(&*place.engine).await.unwrap();
    let mut new = NewDump::now(Label::new("home", &format, Durability::Local));
    new.name = called.to_owned();
    let making = Making::begin(&*place.engine, &place.transfer(), (&new, &|_| {})).await;
    making.unwrap().publish(&*place.engine).await.unwrap();
    let removed = dumps::remove_older(&*place.engine, &*place.bucket, keep).await;
    removed.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_dump_that_was_never_ended_goes_with_a_later_one() {
    let place = Place::new().await;
    for called in ["2026-01-01T00-00-00Z", "2026-01-02T00-00-00Z"] {
        dumped(&place, called, 9).await;
    }
    for lonely in ["dump-2025-01-01T00-00-00Z", "dump-of-mine"] {
        place.volume.take_snapshot(&name(lonely)).await.unwrap();
    }
    // Its dump may be under way still.
    let removed = dumped(&place, "2026-01-03T00-00-00Z", 2).await;
    assert_eq!(removed, ["2026-01-01T00-00-00Z"]);
    let names = || async {
        let listed = snapshots::list(&*place.engine).await.unwrap();
        listed.into_iter().map(|one| one.name).collect::<Vec<_>>()
    };
    let all = [
        "dump-2026-01-02T00-00-00Z",
        "dump-2025-01-01T00-00-00Z",
        "dump-of-mine",
        "dump-2026-01-03T00-00-00Z",
    ];
    assert_eq!(names().await, all);
    age(&place, "dump-2025-01-01T00-00-00Z").await;
    dumped(&place, "2026-01-04T00-00-00Z", 9).await;
    let there = names().await;
    assert!(!there.contains(&all[1].to_owned()), "{there:?}");
    assert!(there.contains(&all[2].to_owned()) && there.len() == 4);
}

/// Lets a snapshot have been taken in 1970.
async fn age(place: &Place, snapshot: &str) {
    let find = |one: &snapshots::Snapshot| one.name == snapshot;
    let listed = snapshots::list(&*place.engine).await.unwrap();
    let number = listed.into_iter().find(find).unwrap().number;
    let key = [&b"V"[..], &number.to_be_bytes()].concat();
    let value = query(&*place.engine, |reads| reads.get(&key))
        .await
        .unwrap();
    // Version, whether it was removed, and the last file come before the time.
    let mut value = value.unwrap().to_vec();
    value[10..18].fill(0);
    transact(&*place.engine, move |transaction| {
        transaction.put(&key, value.clone().into());
        Ok::<_, penstock_fileset::engine::EngineError>(())
    })
    .await
    .unwrap();
}

/// A file system that has what is on this disk alone, and a bucket that takes nothing, so that a dump of it goes on.
async fn dumping() -> Place {
    let place = Place::spooled().await;
    labelled(&place).await;
    place.store(ROOT, "small", b"on this disk").await.unwrap();
    let never = Fault::Delay(Duration::from_secs(3600));
    place.faults.rate(Some(Request::Put), 1.0, never);
    let dumps = BTreeMap::from([(Job::Dumps, 3)]);
    place.volume.set_schedule(dumps).await.unwrap();
    place
        .until(|| async { has_snapshot(&place, "dump-").await })
        .await;
    place
}

/// Whether there is a snapshot whose name begins so.
async fn has_snapshot(place: &Place, beginning: &str) -> bool {
    let listed = snapshots::list(&*place.engine).await.unwrap();
    let mut there = listed.into_iter().filter(|one| !one.is_removed);
    there.any(|one| one.name.starts_with(beginning))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_taken_while_a_dump_is_under_way() {
    let place = dumping().await;
    let daily = BTreeMap::from([(Job::Daily, 1)]);
    place.volume.set_schedule(daily).await.unwrap();
    place
        .until(|| async { has_snapshot(&place, "daily-").await })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unmount_leaves_no_snapshot_of_a_dump_that_it_gives_up() {
    let place = dumping().await;
    let ending = place.volume.shut_down();
    tokio::pin!(ending);
    let is_given_up = place.until(|| async { !has_snapshot(&place, "dump-").await });
    tokio::select! {
        _ = &mut ending => {}
        () = is_given_up => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_is_made_once_where_older_ones_cannot_be_removed() {
    let place = Place::new().await;
    labelled(&place).await;
    dumped(&place, "2026-01-01T00-00-00Z", 9).await;
    let refused = Fault::fail(ErrorKind::PermissionDenied);
    place.faults.rate(Some(Request::Delete), 1.0, refused);
    let dumps = BTreeMap::from([(Job::Dumps, 1)]);
    place.volume.set_schedule(dumps.clone()).await.unwrap();
    let count = || async { dumps::list(&*place.bucket).await.unwrap().len() };
    place.until(|| async { count().await == 2 }).await;
    // Names of dumps have seconds.
    clock::sleep(Duration::from_secs(2)).await;
    place.volume.set_schedule(dumps).await.unwrap();
    clock::sleep(Duration::from_secs(2)).await;
    assert_eq!(count().await, 2);
}
