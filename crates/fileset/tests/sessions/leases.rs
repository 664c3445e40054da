//! Who lives, who is taken for dead, and who knows that it may be.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use penstock_base::random;
use penstock_fileset::engine::{DatabaseEngine, Engine, Peers, PostgresSettings};
use tokio::time::{sleep, timeout};

use crate::database::gate::Gate;
use crate::database::{Server, fail_changes, place, settings_at, settings_of, stop_failing};
use crate::keys::{get, put, put_value, step};

/// A machine loses its power, its network or is stopped while a group is half way to the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_goes_silent_within_a_trip_stops_nobody_for_longer_than_its_lease() {
    let Some(server) = Server::start() else {
        return;
    };
    let (here, there) = (place(), place());
    let (gate, port) = Gate::new(server.port).await;
    let mut own = settings_of(&server, &there, 1);
    own.lease = Duration::from_secs(2);
    let b = DatabaseEngine::create(&own).await.unwrap();
    let mut through = settings_at(port, here.path(), 1);
    through.lease = Duration::from_secs(2);
    let a = Arc::new(DatabaseEngine::open(&through).await.unwrap());
    step(&b, "before".to_owned()).await.unwrap();
    gate.freeze_after.store(1 << 20, Ordering::SeqCst);
    let silent = Arc::clone(&a);
    tokio::spawn(async move { put_value(&*silent, "large", vec![7; 4 << 20]).await });
    while !gate.is_frozen.load(Ordering::SeqCst) {
        sleep(Duration::from_millis(5)).await;
    }
    sleep(Duration::from_millis(200)).await;
    let began = Instant::now();
    let done = timeout(Duration::from_secs(20), step(&b, "meanwhile".to_owned())).await;
    println!("{done:?} after {:?}", began.elapsed());
    let evicted = timeout(Duration::from_secs(5), b.evict(a.session())).await;
    println!("evicting it: {evicted:?}");
    let held = server.sql(
        "SELECT state || ', ' || wait_event || ', ' || left(query, 60) FROM pg_stat_activity \
         WHERE application_name = 'penstock' AND state LIKE '%transaction%' OR wait_event_type = 'Lock'",
    );
    println!("{held}");
    assert!(matches!(done, Ok(Ok(()))), "ten leases are over");
}

/// Two machines are started after the one that had the keys alone lost its power.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_machines_that_come_after_one_that_died_do_not_end_each_other() {
    let Some(server) = Server::shared() else {
        return;
    };
    let places = [place(), place(), place()];
    let identity = random::number();
    let settings = places.each_ref().map(|place| {
        let mut settings = settings_of(server, place, identity);
        settings.lease = Duration::from_secs(2);
        settings
    });
    drop(DatabaseEngine::create(&settings[0]).await.unwrap());
    let open = |settings: &PostgresSettings, later: u64| {
        let settings = settings.clone();
        async move {
            sleep(Duration::from_millis(later)).await;
            DatabaseEngine::open(&settings).await
        }
    };
    let (b, c) = tokio::join!(open(&settings[1], 0), open(&settings[2], 0));
    let (b, c) = (b.unwrap(), c.unwrap());
    sleep(Duration::from_millis(1500)).await;
    let sessions = c.sessions().await;
    println!("{sessions:?}");
    let (one, other) = (
        step(&b, "b".to_owned()).await,
        step(&c, "c".to_owned()).await,
    );
    assert_eq!((one, other), (Ok(()), Ok(())));
}

/// The same where one machine at a time may have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_that_come_after_one_that_died_gets_it() {
    let Some(server) = Server::shared() else {
        return;
    };
    let places = [place(), place(), place()];
    let identity = random::number();
    let settings = places.each_ref().map(|place| {
        let mut settings = settings_of(server, place, identity);
        settings.lease = Duration::from_secs(2);
        settings.is_shared = false;
        settings
    });
    drop(DatabaseEngine::create(&settings[0]).await.unwrap());
    let open = |settings: &PostgresSettings, later: u64| {
        let settings = settings.clone();
        async move {
            sleep(Duration::from_millis(later)).await;
            DatabaseEngine::open(&settings).await
        }
    };
    let (b, c) = tokio::join!(open(&settings[1], 0), open(&settings[2], 100));
    println!("{b:?} {c:?}");
    let mut works = Vec::new();
    for (name, engine) in [("b", b), ("c", c)] {
        if let Ok(engine) = engine {
            let stepped = step(&engine, name.to_owned()).await;
            works.push((name, stepped.and(engine.sync().await)));
            std::mem::forget(engine);
        }
    }
    println!("{works:?}");
    assert!(
        works.iter().any(|(_, worked)| worked.is_ok()),
        "nobody has it"
    );
    assert!(
        works.iter().all(|(_, worked)| worked.is_ok()),
        "who was let in has it"
    );
}

/// A full disk holds up the groups of one machine, whose session lives meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_whose_group_is_refused_for_a_while_is_not_taken_for_dead() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (here, there) = (place(), place());
    let identity = random::number();
    let mut settings = settings_of(server, &here, identity);
    settings.lease = Duration::from_secs(2);
    let a = Arc::new(DatabaseEngine::create(&settings).await.unwrap());
    let mut other = settings_of(server, &there, identity);
    other.lease = Duration::from_secs(2);
    let _b = DatabaseEngine::open(&other).await.unwrap();
    fail_changes(server, &settings, ("kv", "53100", 1.0));
    let late = tokio::spawn({
        let a = Arc::clone(&a);
        async move { put_value(&*a, "k", vec![1]).await }
    });
    sleep(Duration::from_secs(6)).await;
    stop_failing(server, &settings);
    let late = late.await.unwrap();
    assert_eq!(late, Ok(()));
}

/// The same of a machine that had the keys alone and answered: another one that comes does not find it dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_alone_whose_group_is_refused_for_a_while_does_not_lose_what_it_answered() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (here, there) = (place(), place());
    let identity = random::number();
    let mut settings = settings_of(server, &here, identity);
    settings.lease = Duration::from_secs(2);
    settings.is_shared = false;
    let a = DatabaseEngine::create(&settings).await.unwrap();
    fail_changes(server, &settings, ("kv", "53100", 1.0));
    put(&a, "k", "v").await;
    let mut other = settings_of(server, &there, identity);
    (other.lease, other.is_shared) = (settings.lease, false);
    let opened = DatabaseEngine::open(&other).await;
    stop_failing(server, &settings);
    let synced = a.sync().await;
    println!("the other: {opened:?}; this one: {synced:?}");
    assert_eq!(synced, Ok(()), "it was connected all the time");
}

/// Who is cut off for longer than its lease, by its own clock, answers nothing any more: others have the keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_alone_that_is_cut_off_past_its_lease_answers_no_more() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (here, there) = (place(), place());
    let identity = random::number();
    let (gate, port) = Gate::new(server.port).await;
    let mut calm = settings_of(server, &here, identity);
    calm.lease = Duration::from_secs(2);
    DatabaseEngine::create(&calm)
        .await
        .unwrap()
        .close()
        .await
        .unwrap();
    let mut through = settings_at(port, here.path(), identity);
    through.lease = Duration::from_secs(2);
    through.patience = Duration::from_secs(3);
    let a = DatabaseEngine::open(&through).await.unwrap();
    put(&a, "k", "v").await;
    a.sync().await.unwrap();
    gate.is_frozen.store(true, Ordering::SeqCst);
    let mut other = settings_of(server, &there, identity);
    other.lease = Duration::from_secs(2);
    let b = DatabaseEngine::open(&other).await.unwrap();
    put(&b, "k", "w").await;
    b.sync().await.unwrap();
    sleep(Duration::from_secs(4)).await;
    let look = get(&a, "k").await;
    let late = put_value(&a, "late", vec![1]).await;
    println!("look: {look:?}, change: {late:?}");
    assert!(
        late.is_err(),
        "answered two leases after another machine has the keys"
    );
}
