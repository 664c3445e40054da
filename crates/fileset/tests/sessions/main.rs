//! Several machines that have the same keys at once: what each sees of the others, and what becomes of those that are
//! slow, cut off, evicted or dead.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    unreachable_pub
)]

mod answers;
#[path = "../database/mod.rs"]
mod database;
mod histories;
#[path = "../keys/mod.rs"]
mod keys;
mod leases;
mod put_back;
mod several;
mod together;

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use penstock_fileset::engine::{
    DatabaseEngine, Engine, EngineError, Peers, PostgresSettings, SessionId,
};
use proptest::prelude::*;

use database::{Server, Turns, relay::Relay, settings_at};
use keys::{block_on, count, model, put, put_value, random_steps, step};
use several::{Machines, check_whole};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_was_evicted_changes_nothing_and_sees_nothing() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (mut machines, first) = Machines::new(server).await;
    let second = machines.join().await;
    let sessions = first.sessions().await.unwrap();
    let ids: Vec<SessionId> = sessions.iter().map(|record| record.id).collect();
    assert_eq!(ids, [first.session(), second.session()]);
    assert!(sessions[1].name.contains(&std::process::id().to_string()));
    assert!(first.evict(second.session()).await.unwrap());
    assert!(!first.evict(second.session()).await.unwrap());
    let late = second.catch_up().await;
    assert!(matches!(late, Err(EngineError::Fenced(_))), "{late:?}");
    let late = put_value(&second, "late", vec![1]).await;
    assert!(matches!(late, Err(EngineError::Fenced(_))), "{late:?}");
    put(&first, "k", "v").await;
    assert_eq!(model(&first).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_of_two_machines_connections_apply_nothing_twice() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (mut machines, first) = Machines::new(server).await;
    first.close().await.unwrap();
    // Whose connections are cut so often is not heard of for seconds.
    machines.settings.lease = PostgresSettings::LEASE;
    let relay = Relay::new(server.port).await;
    let mut engines = Vec::new();
    for _ in 0..2 {
        let settings = machines.another();
        let directory: &Path = &settings.directory;
        let through = settings_at(relay.port, directory, settings.identity);
        engines.push(loop {
            match DatabaseEngine::open(&through).await {
                Err(EngineError::Database(_)) => {}
                opened => break Arc::new(opened.unwrap()),
            }
        });
    }
    let done = Arc::new(AtomicU64::new(0));
    let ends = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for (machine, engine) in engines.iter().enumerate() {
        for caller in 0..4 {
            let (engine, done, ends) = (Arc::clone(engine), Arc::clone(&done), Arc::clone(&ends));
            tasks.push(tokio::spawn(async move {
                for number in 0.. {
                    if ends.load(Ordering::SeqCst) {
                        return;
                    }
                    let key = format!("{machine}-{caller}-{number}");
                    step(&*engine, key).await.unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }));
        }
    }
    while relay.cut.load(Ordering::SeqCst) < 12 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ends.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    let done = done.load(Ordering::SeqCst);
    println!(
        "{done} operations over {} cuts",
        relay.cut.load(Ordering::SeqCst)
    );
    relay.calm();
    for engine in engines {
        engine.close().await.unwrap();
    }
    check_whole(&machines.join().await, done).await;
}

/// Set for the process that is stopped or killed: where its engine is, which file system, and the port of its server.
const VICTIM: &str = "PENSTOCK_TEST_SESSIONS_VICTIM";

/// Not a test of its own: the process that others stop and kill. Says which keys are durable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victim_of_others() {
    let Ok(victim) = std::env::var(VICTIM) else {
        return;
    };
    let parts: Vec<&str> = victim.split(' ').collect();
    let mut settings = settings_at(
        parts[1].parse().unwrap(),
        parts[0].as_ref(),
        parts[2].parse().unwrap(),
    );
    settings.lease = Duration::from_secs(2);
    let engine = Arc::new(DatabaseEngine::open(&settings).await.unwrap());
    let own = engine.session().0;
    let tasks = (0..4).map(|task| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            for number in 0_u64.. {
                let key = format!("{own}-{task}-{number}");
                let mut out = std::io::stdout();
                match step(&*engine, key.clone()).await {
                    Ok(()) => writeln!(out, "durable {key}.").unwrap(),
                    Err(EngineError::Fenced(_)) => return writeln!(out, "over").unwrap(),
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

fn victim(settings: &PostgresSettings, port: u16) -> Child {
    let place = format!(
        "{} {port} {}",
        settings.directory.display(),
        settings.identity
    );
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "victim_of_others", "--nocapture"])
        .env(VICTIM, place)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([format!("-{name}"), child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// What a victim says, as it says it.
struct Words(std::sync::mpsc::Receiver<String>);

impl Words {
    fn of(child: &mut Child) -> Self {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        Self(receive)
    }

    /// The first keys that were durable.
    fn first(&self, count: usize) -> Vec<String> {
        let lines = self.0.iter();
        let keys = lines.filter_map(|line| durable(&line));
        keys.take(count).collect()
    }

    /// The others, and whether it heard that its session is over.
    fn rest(self) -> (Vec<String>, bool) {
        let lines: Vec<String> = self.0.iter().collect();
        let is_over = lines.iter().any(|line| line == "over");
        (
            lines.iter().filter_map(|line| durable(line)).collect(),
            is_over,
        )
    }
}

/// The key in a whole line.
fn durable(line: &str) -> Option<String> {
    let key = line.strip_prefix("durable ")?.strip_suffix('.')?;
    Some(key.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_dies_or_sleeps_past_its_lease_harms_nobody() {
    let Some(server) = Server::shared() else {
        return;
    };
    for stops in [false, true] {
        let (mut machines, first) = Machines::new(server).await;
        let settings = machines.another();
        let mut child = victim(&settings, server.port);
        let words = Words::of(&mut child);
        let mut durable = tokio::task::block_in_place(|| words.first(50));
        signal(&child, if stops { "STOP" } else { "KILL" });
        let began = Instant::now();
        step(&first, "meanwhile".to_owned()).await.unwrap();
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "nobody waits for it"
        );
        while first.sessions().await.unwrap().len() > 1 {
            assert!(began.elapsed() < Duration::from_secs(20));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if stops {
            signal(&child, "CONT");
        }
        let (late, is_over) = tokio::task::block_in_place(|| {
            child.wait().unwrap();
            words.rest()
        });
        durable.extend(late);
        assert_eq!(is_over, stops, "a sleeper hears that it lost its session");
        let found = model(&first).await;
        let is_missing = |key: &&String| !found.contains_key(key.as_bytes());
        assert_eq!(durable.iter().find(is_missing), None);
        assert_eq!(count(&first).await, found.len() as u64 - 1, "none is half");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_dies_while_it_has_the_keys_alone_does_not_keep_them() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (mut machines, first) = Machines::new(server).await;
    first.close().await.unwrap();
    let settings = machines.another();
    let mut child = victim(&settings, server.port);
    let words = Words::of(&mut child);
    tokio::task::block_in_place(|| words.first(2000));
    signal(&child, "KILL");
    child.wait().unwrap();
    let next = machines.join().await;
    let found = model(&next).await;
    println!("{} keys are there", found.len());
    assert_eq!(
        count(&next).await,
        found.len().saturating_sub(1) as u64,
        "none is half"
    );
}

/// Two machines in turn, with so little memory that what was known is forgotten all the
/// time.
async fn forgetful(server: &Server, steps: Vec<(u8, u8, u8)>) {
    let (mut machines, first) = Machines::new(server).await;
    first.close().await.unwrap();
    machines.settings.memory = 1500;
    let engines = [
        Arc::new(machines.join().await),
        Arc::new(machines.join().await),
    ];
    let turns = Turns::new(engines);
    let expected = random_steps(&turns, steps).await;
    turns.close().await.unwrap();
    let last = machines.join().await;
    assert_eq!(model(&last).await, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn what_two_machines_know_is_what_is_there(
        steps in prop::collection::vec((0_u8..12, any::<u8>(), any::<u8>()), 1..200),
    ) {
        if let Some(server) = Server::shared() {
            block_on(forgetful(server, steps));
        }
    }
}
