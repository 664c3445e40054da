//! What an engine on a database must not lose, and must not do twice, whatever comes between.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod bounds;
#[path = "../database/mod.rs"]
mod database;
#[path = "../keys/mod.rs"]
mod keys;
mod refusals;

use std::{
    io::{BufRead, BufReader, Write},
    ops::ControlFlow,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use penstock_base::{Secret, random};
use penstock_fileset::engine::{
    DatabaseEngine, DatabaseSessions, Engine, EngineError, PostgresAddress, PostgresSettings,
    Transaction, query, remove_database, transact,
};
use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use database::{
    Server, fail_changes, place, relay::Relay, settings as settings_on, settings_at, stop_failing,
};
use keys::{Model, Outcome, block_on, count, model, put, put_value, random_steps, step};

/// Operations of several callers, each synced, until `ends`. Returns how many there were.
async fn load(engine: &Arc<DatabaseEngine>, ends: &Arc<AtomicBool>) -> u64 {
    let done = Arc::new(AtomicU64::new(0));
    let tasks = (0..8).map(|task| {
        let (engine, ends, done) = (Arc::clone(engine), Arc::clone(ends), Arc::clone(&done));
        tokio::spawn(async move {
            for number in 0.. {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                step(&*engine, format!("{task}-{number:06}")).await.unwrap();
                engine.sync().await.unwrap();
                done.fetch_add(1, Ordering::SeqCst);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    done.load(Ordering::SeqCst)
}

/// Shuts all others out and begins a session.
async fn taken_over(settings: &PostgresSettings) -> Result<DatabaseEngine, EngineError> {
    let sessions = DatabaseSessions::of(settings)?;
    for session in sessions.list().await? {
        sessions.evict(session.id).await?;
    }
    DatabaseEngine::open(settings).await
}

/// Fails unless the database has `expected` operations, each of them once.
async fn check_whole(settings: &PostgresSettings, expected: u64) {
    let engine = DatabaseEngine::open(settings).await.unwrap();
    assert_eq!(count(&engine).await, expected);
    assert_eq!(model(&engine).await.len() as u64, expected + 1);
    engine.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_under_load_loses_nothing_and_halves_nothing() {
    let Some(server) = Server::start() else {
        return;
    };
    let server = Arc::new(server);
    let directory = place();
    let settings = settings_on(&server, directory.path(), 1);
    let engine = Arc::new(DatabaseEngine::create(&settings).await.unwrap());
    let ends = Arc::new(AtomicBool::new(false));
    let killer = {
        let (server, ends) = (Arc::clone(&server), Arc::clone(&ends));
        tokio::task::spawn_blocking(move || {
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(400));
                server.kill();
                server.run();
            }
            std::thread::sleep(Duration::from_millis(400));
            ends.store(true, Ordering::SeqCst);
        })
    };
    let done = load(&engine, &ends).await;
    killer.await.unwrap();
    engine.close().await.unwrap();
    println!("{done} operations over three kills of the server");
    check_whole(&settings, done).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_anywhere_applies_nothing_twice() {
    let Some(server) = Server::shared() else {
        return;
    };
    let directory = place();
    let relay = Relay::new(server.port).await;
    let calm = settings_on(server, directory.path(), random::number());
    let settings = settings_at(relay.port, directory.path(), calm.identity);
    DatabaseEngine::create(&calm)
        .await
        .unwrap()
        .close()
        .await
        .unwrap();
    let engine = loop {
        match DatabaseEngine::open(&settings).await {
            Err(EngineError::Database(_)) => {}
            opened => break Arc::new(opened.unwrap()),
        }
    };
    let ends = Arc::new(AtomicBool::new(false));
    let (cut, end) = (Arc::clone(&relay.cut), Arc::clone(&ends));
    tokio::spawn(async move {
        while cut.load(Ordering::SeqCst) < 12 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        end.store(true, Ordering::SeqCst);
    });
    let done = load(&engine, &ends).await;
    relay.calm();
    engine.close().await.unwrap();
    let cut = relay.cut.load(Ordering::SeqCst);
    println!("{done} operations over {cut} cuts");
    check_whole(&calm, done).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_a_file_system_over_shuts_the_other_machine_out() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (here, there) = (place(), place());
    let mut first = settings_on(server, here.path(), random::number());
    let mut second = settings_on(server, there.path(), first.identity);
    for settings in [&mut first, &mut second] {
        (settings.is_shared, settings.lease) = (false, Duration::from_secs(3));
    }
    let old = DatabaseEngine::create(&first).await.unwrap();
    put(&old, "k", "v").await;
    old.sync().await.unwrap();
    let refused = DatabaseEngine::open(&second).await;
    assert!(
        matches!(refused, Err(EngineError::Fenced(_))),
        "{refused:?}"
    );
    let new = taken_over(&second).await.unwrap();
    let late = put_value(&old, "late", vec![1]).await;
    let late = late.and(old.sync().await);
    assert!(matches!(late, Err(EngineError::Fenced(_))), "{late:?}");
    let look = query(&old, |reads| -> Outcome<Option<Bytes>> { reads.get(b"k") });
    assert!(look.await.is_err(), "it may look no more");
    // All that was acknowledged is there.
    let _ = old.close().await;
    assert_eq!(model(&new).await.len(), 1);
    let refused = DatabaseEngine::open(&first).await;
    assert!(
        matches!(refused, Err(EngineError::Fenced(_))),
        "{refused:?}"
    );
    new.close().await.unwrap();
    let again = DatabaseEngine::open(&first).await.unwrap();
    assert_eq!(model(&again).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_only_reads_hears_that_it_was_shut_out() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (here, there) = (place(), place());
    let first = settings_on(server, here.path(), random::number());
    let second = settings_on(server, there.path(), first.identity);
    let old = DatabaseEngine::create(&first).await.unwrap();
    let _new = taken_over(&second).await.unwrap();
    let look = query(&old, |reads| -> Outcome<Option<Bytes>> { reads.get(b"k") });
    let look = look.await;
    assert!(matches!(look, Err(EngineError::Fenced(_))), "{look:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_put_back_is_not_gone_on_with() {
    let Some(server) = Server::shared() else {
        return;
    };
    let directory = place();
    let settings = settings_on(server, directory.path(), random::number());
    let engine = DatabaseEngine::create(&settings).await.unwrap();
    put(&engine, "k", "v").await;
    engine.sync().await.unwrap();
    let schema = format!("penstock_{:016x}", settings.identity);
    server.sql(&format!(
        "UPDATE {schema}.head SET sequence = 0; UPDATE {schema}.session SET batch = 0"
    ));
    put(&engine, "k", "w").await;
    let late = engine.sync().await;
    assert!(matches!(late, Err(EngineError::Fenced(_))), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_system_is_opened_once_at_a_time_and_closed_for_good() {
    let Some(server) = Server::shared() else {
        return;
    };
    let directory = place();
    let settings = settings_on(server, directory.path(), random::number());
    let engine = DatabaseEngine::create(&settings).await.unwrap();
    let second = DatabaseEngine::open(&settings).await;
    let own = std::process::id();
    assert!(matches!(second, Err(EngineError::InUse { pid }) if pid == own));
    put(&engine, "k", "v").await;
    engine.close().await.unwrap();
    assert!(put_value(&engine, "late", vec![1]).await.is_err());
    assert!(engine.sync().await.is_err());
    let again = DatabaseEngine::open(&settings).await.unwrap();
    assert_eq!(model(&again).await.len(), 1);
    again.close().await.unwrap();
    remove_database(&settings).await.unwrap();
    assert!(DatabaseEngine::open(&settings).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_is_told_in_time_and_gone_on_with() {
    let Some(server) = Server::start() else {
        return;
    };
    let directory = place();
    let mut settings = settings_on(&server, directory.path(), 1);
    settings.patience = Duration::from_millis(500);
    let engine = DatabaseEngine::create(&settings).await.unwrap();
    put(&engine, "k", "v").await;
    engine.sync().await.unwrap();
    server.kill();
    put(&engine, "k", "w").await;
    let told = engine.sync().await;
    assert!(matches!(told, Err(EngineError::Database(_))), "{told:?}");
    let look = query(&engine, |reads| -> Outcome<Option<Bytes>> {
        reads.get(b"other")
    });
    assert!(matches!(look.await, Err(EngineError::Database(_))));
    server.run();
    while engine.sync().await.is_err() {}
    engine.close().await.unwrap();
    settings.patience = PostgresSettings::PATIENCE;
    let again = DatabaseEngine::open(&settings).await.unwrap();
    assert_eq!(model(&again).await[&b"k"[..]], b"w");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_told_and_never_shown() {
    let Some(server) = Server::shared() else {
        return;
    };
    let directory = place();
    let mut settings = settings_on(server, directory.path(), random::number());
    settings.password = Some(Secret::new("not-this-one"));
    let error = DatabaseEngine::create(&settings).await.unwrap_err();
    let text = format!("{error} {settings:?}");
    assert!(text.contains("28P01"), "{text}");
    assert!(!text.contains("not-this-one"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_keys_than_fit_in_memory_are_looked_at_in_one_state() {
    let Some(server) = Server::shared() else {
        return;
    };
    let directory = place();
    let mut settings = settings_on(server, directory.path(), random::number());
    settings.memory = 32 << 10;
    let engine = DatabaseEngine::create(&settings).await.unwrap();
    for first in (0..20_000_u32).step_by(1000) {
        let fill = move |transaction: &mut dyn Transaction| -> Outcome<()> {
            for number in first..first + 1000 {
                transaction.put(&number.to_be_bytes(), Bytes::from_static(b"x"));
            }
            Ok(())
        };
        transact(&engine, fill).await.unwrap();
    }
    let (mut seen, mut last) = (0, Vec::new());
    let scan = query(&engine, |reads| -> Outcome<Option<Bytes>> {
        (seen, last) = (0, Vec::new());
        reads.scan(&[]..&[0xff; 8], &mut |key, _| {
            assert!(seen == 0 || last.as_slice() < key);
            (seen, last) = (seen + 1, key.to_vec());
            ControlFlow::Continue(())
        })?;
        reads.get(&7_u32.to_be_bytes())
    });
    assert_eq!(scan.await.unwrap(), Some(Bytes::from_static(b"x")));
    assert_eq!(seen, 20_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_of_the_server_is_told_and_gone_on_with() {
    let Some(server) = Server::shared() else {
        return;
    };
    let directory = place();
    let mut settings = settings_on(server, directory.path(), random::number());
    settings.patience = Duration::from_millis(500);
    let engine = DatabaseEngine::create(&settings).await.unwrap();
    fail_changes(server, &settings, ("kv", "53100", 1.0));
    put(&engine, "k", "v").await;
    let told = engine.sync().await;
    assert!(matches!(told, Err(EngineError::Full(_))), "{told:?}");
    stop_failing(server, &settings);
    while engine.sync().await.is_err() {}
    engine.close().await.unwrap();
    settings.patience = PostgresSettings::PATIENCE;
    let again = DatabaseEngine::open(&settings).await.unwrap();
    assert_eq!(model(&again).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_gave_up_for_others_is_tried_again() {
    let Some(server) = Server::shared() else {
        return;
    };
    for code in ["40001", "40P01"] {
        let directory = place();
        let settings = settings_on(server, directory.path(), random::number());
        let engine = DatabaseEngine::create(&settings).await.unwrap();
        fail_changes(server, &settings, ("kv", code, 0.5));
        for number in 0..20 {
            step(&engine, format!("key-{number}")).await.unwrap();
            engine.sync().await.unwrap();
        }
        engine.close().await.unwrap();
        check_whole(&settings, 20).await;
    }
}

/// Whether a server is reached with these parameters of the address.
async fn is_reached(server: &Server, parameters: &str) -> bool {
    let directory = place();
    let mut settings = settings_on(server, directory.path(), random::number());
    let text = format!("{}?{parameters}", settings.address);
    settings.address = PostgresAddress::parse(&text).unwrap();
    match DatabaseEngine::create(&settings).await {
        Ok(engine) => {
            remove_later(engine, &settings).await;
            true
        }
        Err(EngineError::Database(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

/// A certificate for `name`, its key, and the one of the authority that vouches for it.
fn certificate(name: &str) -> [String; 3] {
    let mut authority = CertificateParams::new([]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let root = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new([name.to_owned()]).unwrap();
    let own = own.signed_by(&key, &issuer).unwrap();
    [own.pem(), key.serialize_pem(), root.pem()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_trusted_as_sslmode_says() {
    let Some(server) = Server::start() else {
        return;
    };
    assert!(is_reached(&server, "sslmode=prefer").await);
    assert!(!is_reached(&server, "sslmode=require").await, "it has none");
    let directory = place();
    let root = directory.path().join("root.pem");
    for (name, is_its_own) in [("127.0.0.1", true), ("other.example", false)] {
        let [own, key, authority] = certificate(name);
        std::fs::write(&root, authority).unwrap();
        server.encrypt(&own, &key);
        let trusted = |mode: &str| format!("sslmode={mode}&sslrootcert={}", root.display());
        while !is_reached(&server, "sslmode=require").await {}
        while !is_reached(&server, &trusted("verify-ca")).await {}
        assert_eq!(
            is_reached(&server, &trusted("verify-full")).await,
            is_its_own
        );
        assert!(
            !is_reached(&server, "sslmode=verify-full").await,
            "nobody vouches"
        );
        assert!(is_reached(&server, "sslmode=disable").await);
    }
}

/// With so little memory that what was known is forgotten all the time.
async fn forgetful(server: &Server, steps: Vec<(u8, u8, u8)>) {
    let directory = place();
    let mut settings = settings_on(server, directory.path(), random::number());
    settings.memory = 1500;
    let engine = DatabaseEngine::create(&settings).await.unwrap();
    let expected = random_steps(&engine, steps).await;
    assert_eq!(model(&engine).await, expected);
    engine.close().await.unwrap();
    let again = DatabaseEngine::open(&settings).await.unwrap();
    assert_eq!(model(&again).await, expected);
    remove_later(again, &settings).await;
}

async fn remove_later(engine: DatabaseEngine, settings: &PostgresSettings) {
    engine.close().await.unwrap();
    remove_database(settings).await.unwrap();
}

/// Keys as they were after each operation since the last opening, and up to which of them a sync promised.
struct History {
    states: Vec<Model>,
    synced: usize,
}

impl History {
    /// Somebody opened it and found this.
    fn found(&mut self, found: &Model) {
        let at = self.states.iter().rposition(|state| state == found);
        let at = at.expect("a state that was there once");
        assert!(
            at >= self.synced,
            "{at}, although {} was synced",
            self.synced
        );
        self.states.drain(..at);
        self.states.truncate(1);
        self.synced = 0;
    }
}

async fn random_life(server: &Server, steps: Vec<(u8, u8, u8)>) {
    let mut machine = place();
    let relay = Relay::new(server.port).await;
    let calm = settings_on(server, machine.path(), random::number());
    let settings =
        |machine: &tempfile::TempDir| settings_at(relay.port, machine.path(), calm.identity);
    let mut engine = DatabaseEngine::create(&calm).await.unwrap();
    let mut history = History {
        states: vec![Model::new()],
        synced: 0,
    };
    for (kind, key, value) in steps {
        match kind {
            0..=11 => {
                let mut state = history.states.last().unwrap().clone();
                state.insert(format!("key-{key}").into_bytes(), vec![value; 10]);
                history.states.push(state);
                put_value(&engine, &format!("key-{key}"), vec![value; 10])
                    .await
                    .unwrap();
            }
            12..=15 => {
                engine.sync().await.unwrap();
                history.synced = history.states.len() - 1;
            }
            _ => {
                let attaches = kind > 16;
                drop(engine);
                if attaches {
                    machine = place();
                }
                engine = loop {
                    let settings = settings(&machine);
                    let opened = match attaches {
                        true => taken_over(&settings).await,
                        false => DatabaseEngine::open(&settings).await,
                    };
                    match opened {
                        Err(EngineError::Database(_)) => {}
                        opened => break opened.unwrap(),
                    }
                };
                history.found(&model(&engine).await);
            }
        }
    }
    drop(engine);
    remove_database(&calm).await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn what_is_known_is_what_is_there(
        steps in prop::collection::vec((0_u8..12, any::<u8>(), any::<u8>()), 1..200),
    ) {
        if let Some(server) = Server::shared() {
            block_on(forgetful(server, steps));
        }
    }

    /// Whatever happens, who opens it finds a state that was there, with all that was synced.
    #[test]
    fn a_random_life_keeps_what_was_synced(
        steps in prop::collection::vec((0_u8..19, 0_u8..20, any::<u8>()), 1..60),
    ) {
        if let Some(server) = Server::shared() {
            block_on(random_life(server, steps));
        }
    }
}

/// Set for the process that is killed: where its engine is, and the port of its server.
const VICTIM: &str = "PENSTOCK_TEST_POSTGRES_VICTIM";
const PORT: &str = "PENSTOCK_TEST_POSTGRES_PORT";

/// Not a test of its own: the process that [`a_killed_process_loses_nothing_that_was_acknowledged`] kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victim_of_kills() {
    let (Ok(directory), Ok(port)) = (std::env::var(VICTIM), std::env::var(PORT)) else {
        return;
    };
    let settings = settings_at(port.parse().unwrap(), directory.as_ref(), 7);
    let engine = Arc::new(DatabaseEngine::open(&settings).await.unwrap());
    let first = count(&*engine).await;
    let tasks = (0..8).map(|task| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            for number in 0_u64.. {
                let key = format!("{first:06}-{task}-{number:08}");
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
    let Some(server) = Server::start() else {
        return;
    };
    let directory = place();
    let settings = settings_on(&server, directory.path(), 7);
    let engine = DatabaseEngine::create(&settings).await.unwrap();
    engine.close().await.unwrap();
    let mut durable = Vec::new();
    for round in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim_of_kills", "--nocapture"])
            .env(VICTIM, directory.path())
            .env(PORT, server.port.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let lines = lines.map_while(Result::ok);
        let whole = |line: &String| line.len() == "durable 000000-0-00000000".len();
        let mut keys = lines
            .filter(whole)
            .filter_map(|line| Some(line.strip_prefix("durable ")?.to_owned()));
        durable.extend(keys.by_ref().take(200 + round * 331));
        child.kill().unwrap();
        child.wait().unwrap();
        durable.extend(keys);
        let engine = DatabaseEngine::open(&settings).await.unwrap();
        let found = model(&engine).await;
        let is_missing = |key: &&String| !found.contains_key(key.as_bytes());
        assert_eq!(durable.iter().find(is_missing), None);
        assert_eq!(count(&engine).await, found.len() as u64 - 1, "none is half");
        engine.close().await.unwrap();
    }
}
