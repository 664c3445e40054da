//! Exports that change while calls for locks are under way.

use std::{sync::atomic::Ordering, time::Duration};

use nfs3_types::nfs3::nfs_fh3;
use penstock_nfs::{Authentication, Export, Rule};

use crate::{
    exports::{Served, export, open},
    support::{
        create,
        locks::{self, BLOCKED, DENIED, GRANTED, LOCK, LockClient, STALE, of},
        lookup, open_to_all, until,
    },
};

/// One file system under two paths, each at a target of its own.
fn both() -> [Export; 2] {
    [open("/home", "home", &["a"]), open("/same", "home", &["b"])]
}

/// A file as it is called in each of the exports.
async fn file_of(served: &Served) -> (nfs_fh3, nfs_fh3) {
    let home = served.mount("a", "/home").await.unwrap();
    let same = served.mount("b", "/same").await.unwrap();
    let file = create(&mut served.root("a").await, &home, "file").await;
    let seen = lookup(&mut served.root("b").await, &same, "file").await;
    (file, seen.unwrap())
}

/// The status of a lock that was asked for before.
async fn answered(client: &mut LockClient) -> u32 {
    *client.end().await.last().unwrap()
}

async fn begin(client: &mut LockClient, file: &nfs_fh3, asked: &locks::Asked) {
    client.xid += 1;
    let arguments = asked.arguments(LOCK, file);
    client.begin(client.xid, LOCK, &arguments).await;
}

/// Long enough for what was begun to come as far as it can.
async fn a_while() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_under_way_while_its_export_goes_is_not_given_for_ever() {
    let served = Served::new(both().to_vec()).await;
    let (file, seen) = file_of(&served).await;
    let (mut one, mut two) = (served.locks("a").await, served.locks("b").await);
    served.home.hold_resolves(true);
    begin(&mut one, &file, &of(1, (0, 10))).await;
    a_while().await;
    served.change(&both()[1..]);
    a_while().await;
    served.home.hold_resolves(false);
    assert_eq!(answered(&mut one).await, STALE);
    assert_eq!(two.lock(&seen, &of(2, (0, 10))).await, GRANTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_lock_in_an_export_that_went_while_it_was_asked_for() {
    let served = Served::new(both().to_vec()).await;
    let (file, seen) = file_of(&served).await;
    let (mut one, mut two) = (served.locks("a").await, served.locks("b").await);
    assert_eq!(two.lock(&seen, &of(2, (0, 10))).await, GRANTED);
    served.home.hold_locks(true);
    let waiting = locks::Asked {
        waits: true,
        ..of(1, (0, 10))
    };
    let before = served.home.begun.load(Ordering::SeqCst);
    begin(&mut one, &file, &waiting).await;
    until("the volume is asked", || {
        served.home.begun.load(Ordering::SeqCst) > before
    })
    .await;
    served.change(&both()[1..]);
    a_while().await;
    served.home.hold_locks(false);
    assert_eq!(answered(&mut one).await, STALE);
    served.change(&both());
    assert_eq!(one.lock(&file, &waiting).await, BLOCKED, "it is back");
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_that_change_often_while_a_volume_hangs_leave_no_tasks_behind() {
    let served = Served::new(both().to_vec()).await;
    let (file, seen) = file_of(&served).await;
    let (mut one, mut two) = (served.locks("a").await, served.locks("b").await);
    assert_eq!(one.lock(&file, &of(1, (0, 10))).await, GRANTED);
    served.home.hold_locks(true);
    let before = served.home.begun.load(Ordering::SeqCst);
    begin(&mut one, &file, &of(1, (20, 10))).await;
    until("the volume is asked", || {
        served.home.begun.load(Ordering::SeqCst) > before
    })
    .await;
    let tasks = || {
        let metrics = tokio::runtime::Handle::current().metrics();
        metrics.num_alive_tasks()
    };
    let before = tasks();
    for _ in 0..50 {
        served.change(&both()[1..]);
        served.change(&both());
    }
    served.change(&both()[1..]);
    a_while().await;
    assert!(tasks() <= before, "{before} became {}", tasks());
    served.home.hold_locks(false);
    answered(&mut one).await;
    // The newest state is what counts.
    let wanted = of(9, (0, 10));
    let begun = std::time::Instant::now();
    while two.lock(&seen, &wanted).await != GRANTED {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is kept");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_client_holds_that_is_busy_for_long_is_given_back_later() {
    let served = Served::new(both().to_vec()).await;
    let (file, seen) = file_of(&served).await;
    let (mut one, mut two) = (served.locks("a").await, served.locks("b").await);
    assert_eq!(one.lock(&file, &of(1, (0, 10))).await, GRANTED);
    served.home.hold_locks(true);
    begin(&mut one, &file, &of(1, (20, 10))).await;
    a_while().await;
    served.change(&both()[1..]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    served.home.hold_locks(false);
    let begun = tokio::time::Instant::now();
    let stranger = locks::Asked {
        caller: b"stranger",
        ..of(9, (0, 10))
    };
    while two.lock(&seen, &stranger).await != GRANTED {
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(begun.elapsed() < Duration::from_secs(60), "it is kept");
    }
}

fn only(path: &str, volume: &str, target: &str, authentication: Authentication) -> Export {
    let rule = Rule {
        authentication,
        ..open_to_all()
    };
    export(path, volume, &[target], vec![rule])
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_use_the_second_export_alone_gives_back_all_of_it_and_nothing_of_the_first() {
    let exports = |first| {
        vec![
            only("/data", "data", "a", first),
            only("/home", "home", "a", Authentication::System),
        ]
    };
    let served = Served::new(exports(Authentication::Both)).await;
    let mut client = served.root("a").await;
    let mut files = Vec::new();
    let mut one = served.locks("a").await;
    for path in ["/data", "/home"] {
        let root = served.mount("a", path).await.unwrap();
        let file = create(&mut client, &root, "file").await;
        assert_eq!(one.lock(&file, &of(1, (0, 10))).await, GRANTED);
        files.push(file);
    }
    // Of the first export users are refused now, and those of the machine keep what it gave them.
    served.change(&exports(Authentication::None));
    one.free_all(b"client").await;
    served.change(&exports(Authentication::Both));
    assert_eq!(one.lock(&files[1], &of(2, (0, 10))).await, GRANTED);
    assert_eq!(one.lock(&files[0], &of(2, (0, 10))).await, DENIED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_of_another_target_is_stale_for_who_may_use_the_second_export_alone() {
    let served = Served::new(vec![
        only("/data", "data", "a", Authentication::None),
        only("/home", "home", "a", Authentication::System),
        open("/other", "home", &["b"]),
    ])
    .await;
    let other = served.mount("b", "/other").await.unwrap();
    let found = crate::support::attributes(&mut served.root("a").await, &other).await;
    let stale = Some(nfs3_types::nfs3::nfsstat3::NFS3ERR_STALE);
    assert_eq!(found.err(), stale);
}
