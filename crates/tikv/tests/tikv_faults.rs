//! What a cluster in trouble must not lose, and must not do twice.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]

mod database;
#[path = "../../fileset/tests/keys/mod.rs"]
mod keys;

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use penstock_base::random;
use penstock_fileset::engine::{
    DatabaseEngine, DatabaseSettings, Engine, EngineError, Peers, has_database, remove_database,
};

use database::{Server, cluster::Member, settings};
use keys::{count, model, put, put_value, step};

/// Operations of several callers on each engine, each synced, until `ends`. Returns how many were acknowledged.
async fn load(engines: &[Arc<DatabaseEngine>], ends: &Arc<AtomicBool>) -> u64 {
    let done = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for (machine, engine) in engines.iter().enumerate() {
        for task in 0..4 {
            let (engine, ends, done) = (Arc::clone(engine), Arc::clone(ends), Arc::clone(&done));
            tasks.push(tokio::spawn(async move {
                for number in 0.. {
                    if ends.load(Ordering::SeqCst) {
                        return;
                    }
                    let key = format!("{machine}-{task}-{number:06}");
                    step(&*engine, key).await.unwrap();
                    engine.sync().await.unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    done.load(Ordering::SeqCst)
}

/// Fails unless the keys have `expected` operations, each of them once.
async fn check_whole(engine: &DatabaseEngine, expected: u64) {
    engine.catch_up().await.unwrap();
    assert_eq!(count(engine).await, expected);
    assert_eq!(model(engine).await.len() as u64, expected + 1);
}

/// Load of two machines while something is done to the cluster.
async fn survives(trouble: impl FnOnce(&Server) + Send + 'static) {
    let Some(server) = Server::shared() else {
        return;
    };
    let places = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let identity = random::number();
    let at = |place: usize| settings(server, places[place].path(), identity);
    let first = Arc::new(DatabaseEngine::create(&at(0)).await.unwrap());
    let second = Arc::new(DatabaseEngine::open(&at(1)).await.unwrap());
    let ends = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&ends);
    let troubled = tokio::task::spawn_blocking(move || {
        std::thread::sleep(Duration::from_secs(2));
        trouble(server);
        std::thread::sleep(Duration::from_secs(3));
        end.store(true, Ordering::SeqCst);
    });
    let done = load(&[first.clone(), second.clone()], &ends).await;
    troubled.await.unwrap();
    println!("{done} operations");
    for engine in [first, second] {
        engine.close().await.unwrap();
    }
    let last = DatabaseEngine::open(&at(2)).await.unwrap();
    check_whole(&last, done).await;
    last.close().await.unwrap();
}

/// One after the other: they do it to the same cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_killed_stopped_and_away_lose_nothing_and_double_nothing() {
    for round in 0..rounds() {
        println!("round {round}: the busiest TiKV is killed");
        survives(|server| {
            server.kill(&server.busiest());
            std::thread::sleep(Duration::from_secs(5));
            server.start_again();
        })
        .await;
        println!("round {round}: the busiest TiKV is stopped for 8 s");
        survives(|server| {
            let busiest = server.busiest();
            server.stop(&busiest);
            std::thread::sleep(Duration::from_secs(8));
            server.go_on(&busiest);
        })
        .await;
        println!("round {round}: PD is stopped for 12 s");
        survives(|server| {
            server.stop(&Member::pd());
            std::thread::sleep(Duration::from_secs(12));
            server.go_on(&Member::pd());
        })
        .await;
        println!("round {round}: PD and the busiest TiKV are killed");
        survives(|server| {
            let busiest = server.busiest();
            server.kill(&Member::pd());
            server.kill(&busiest);
            std::thread::sleep(Duration::from_secs(2));
            server.start_again();
        })
        .await;
    }
}

/// Rounds of trouble; `PENSTOCK_TIKV_ROUNDS` for more.
fn rounds() -> u32 {
    let given = std::env::var("PENSTOCK_TIKV_ROUNDS").ok();
    given.and_then(|given| given.parse().ok()).unwrap_or(1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_system_is_made_once_opened_once_and_removed() {
    let Some(server) = Server::shared() else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let settings = settings(server, place.path(), random::number());
    assert!(!has_database(&settings).await.unwrap());
    assert!(DatabaseEngine::open(&settings).await.is_err());
    let engine = DatabaseEngine::create(&settings).await.unwrap();
    let second = DatabaseEngine::open(&settings).await;
    assert!(matches!(second, Err(EngineError::InUse { .. })));
    put(&engine, "k", "v").await;
    engine.close().await.unwrap();
    assert!(put_value(&engine, "late", vec![1]).await.is_err());
    let again = DatabaseEngine::create(&settings).await;
    assert!(matches!(again, Err(EngineError::Fenced(_))), "{again:?}");
    let engine = DatabaseEngine::open(&settings).await.unwrap();
    assert_eq!(model(&engine).await.len(), 1);
    engine.close().await.unwrap();
    remove_database(&settings).await.unwrap();
    assert!(!has_database(&settings).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_was_evicted_changes_nothing_and_sees_nothing() {
    let places = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let Some([first, second]) = database::new_engines(&places).await else {
        return;
    };
    assert!(first.evict(second.session()).await.unwrap());
    assert!(!first.evict(second.session()).await.unwrap());
    let late = second.catch_up().await;
    assert!(matches!(late, Err(EngineError::Fenced(_))), "{late:?}");
    let late = put_value(&*second, "late", vec![1]).await;
    assert!(matches!(late, Err(EngineError::Fenced(_))), "{late:?}");
    put(&*first, "k", "v").await;
    assert_eq!(model(&*first).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_is_too_large_is_refused_and_the_largest_is_made() {
    let Some(server) = Server::shared() else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let settings = settings(server, place.path(), random::number());
    let engine = DatabaseEngine::create(&settings).await.unwrap();
    let refused = put_value(&engine, "large", vec![7; 3 << 20]).await;
    assert!(
        matches!(refused, Err(EngineError::TooLarge(_))),
        "{refused:?}"
    );
    for key in ["a", "b"] {
        let value = vec![7; (2 << 20) - 100];
        put_value(&engine, key, value).await.unwrap();
    }
    engine.sync().await.unwrap();
    engine.close().await.unwrap();
    let again = DatabaseEngine::open(&settings).await.unwrap();
    let found = model(&again).await;
    assert_eq!(found.len(), 2);
    assert!(found.values().all(|value| value.len() == (2 << 20) - 100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_not_there_is_told_in_time() {
    let Some(server) = Server::shared() else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let mut settings = settings(server, place.path(), random::number());
    settings.address = penstock_tikv::TikvAddress::parse("tikv://127.0.0.1:1/tests").unwrap();
    let begun = Instant::now();
    let failed = DatabaseEngine::open(&settings).await;
    assert!(
        matches!(failed, Err(EngineError::Database(_))),
        "{failed:?}"
    );
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_keys_said_long_ago_is_given_up() {
    let Some(server) = Server::shared() else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let mut settings = settings(server, place.path(), random::number());
    let address = format!("tikv://{}/garbage", server.address());
    settings.address = penstock_tikv::TikvAddress::parse(&address).unwrap();
    let database = settings.database().unwrap();
    database.create().await.unwrap();
    let own = database.begin(1, "a test").await.unwrap();
    assert_eq!(server.safe_point(), 0);
    database.trim(own).await.unwrap();
    while server.safe_point() == 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // It goes on with what is there.
    assert!(database.beat(own, 0).await.unwrap());
    database.remove().await.unwrap();
}

/// Set for the process that is killed: where its engine is, the cluster, and which file system.
const VICTIM: &str = "PENSTOCK_TEST_TIKV_VICTIM";

/// Not a test of its own: the process that [`a_killed_process_loses_nothing_that_was_acknowledged`] kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victim_of_kills() {
    let Ok(victim) = std::env::var(VICTIM) else {
        return;
    };
    let parts: Vec<&str> = victim.split(' ').collect();
    let settings = penstock_tikv::TikvSettings {
        directory: parts[0].into(),
        address: penstock_tikv::TikvAddress::parse(parts[1]).unwrap(),
        identity: parts[2].parse().unwrap(),
        memory: 8 << 20,
        patience: Duration::from_secs(60),
        lease: Duration::from_secs(5),
        is_shared: true,
    };
    let engine = Arc::new(DatabaseEngine::open(&settings).await.unwrap());
    let round = random::number();
    let tasks = (0..4).map(|task| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            for number in 0_u64.. {
                let key = format!("{round:016x}-{task}-{number:08}");
                step(&*engine, key.clone()).await.unwrap();
                engine.sync().await.unwrap();
                let line = format!("durable {key}\n");
                std::io::stdout().write_all(line.as_bytes()).unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_loses_nothing_that_was_acknowledged() {
    let Some(server) = Server::shared() else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let settings = settings(server, place.path(), random::number());
    let engine = DatabaseEngine::create(&settings).await.unwrap();
    engine.close().await.unwrap();
    let mut durable = Vec::new();
    for round in 0..3 {
        let (address, identity) = (&settings.address, settings.identity);
        let victim = format!("{} {address} {identity}", place.path().display());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim_of_kills", "--nocapture"])
            .env(VICTIM, victim)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let wanted = durable.len() + 100 + round * 37;
        while durable.len() < wanted {
            let line = lines.next().unwrap().unwrap();
            durable.extend(line.strip_prefix("durable ").map(str::to_owned));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let whole = |line: &String| line.len() == "durable 0123456789abcdef-0-00000000".len();
        let rest = lines.map_while(Result::ok).filter(whole);
        durable.extend(rest.filter_map(|line| Some(line.strip_prefix("durable ")?.to_owned())));
        let engine = DatabaseEngine::open(&settings).await.unwrap();
        let found = model(&engine).await;
        let missing = durable
            .iter()
            .filter(|key| !found.contains_key(key.as_bytes()));
        assert_eq!(missing.count(), 0, "of {}", durable.len());
        assert_eq!(count(&engine).await, found.len() as u64 - 1);
        engine.close().await.unwrap();
    }
}
