//! Several machines that have the same keys at once: what each sees of the others, and what becomes of those that are
//! slow, cut off, evicted or dead.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod answers;
#[path = "../database/mod.rs"]
mod database;
#[path = "../keys/mod.rs"]
mod keys;
mod leases;
mod put_back;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use penstock_base::random;
use penstock_fileset::engine::{
    Engine, EngineError, MemorySession, Moment, Peers, PostgresEngine, PostgresSettings, SessionId,
    Transaction, transact,
};
use proptest::prelude::*;
use tempfile::TempDir;

use database::{Server, Turns, relay::Relay, settings as settings_on, settings_at};
use keys::{Outcome, block_on, count, get, model, put, put_value, random_steps, step};

/// Machines that have a file system of their own.
struct Machines {
    directories: Vec<TempDir>,
    settings: PostgresSettings,
}

impl Machines {
    async fn new(server: &Server) -> (Self, PostgresEngine) {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = settings_on(server, directory.path(), random::number());
        settings.lease = Duration::from_secs(2);
        let first = PostgresEngine::create(&settings).await.unwrap();
        let directories = vec![directory];
        (
            Self {
                directories,
                settings,
            },
            first,
        )
    }

    fn another(&mut self) -> PostgresSettings {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = self.settings.clone();
        settings.directory = directory.path().to_owned();
        self.directories.push(directory);
        settings
    }

    async fn join(&mut self) -> PostgresEngine {
        PostgresEngine::open(&self.another()).await.unwrap()
    }
}

async fn check_whole(engine: &PostgresEngine, expected: u64) {
    engine.catch_up().await.unwrap();
    assert_eq!(count(engine).await, expected);
    assert_eq!(model(engine).await.len() as u64, expected + 1);
}

/// An operation as its caller saw it.
#[derive(Debug, Clone, Default)]
struct Seen {
    begun: u64,
    ended: u64,
    /// How many had changed a key before.
    reads: BTreeMap<u8, usize>,
    /// Keys that it was added to.
    writes: BTreeSet<u8>,
}

/// Each key holds the operations that changed it, in their order. Returns what the operation with this number saw.
async fn append(engine: &dyn Engine, number: u64, (reads, writes): (Vec<u8>, Vec<u8>)) -> Seen {
    let work = move |transaction: &mut dyn Transaction| -> Outcome<Seen> {
        let mut seen = Seen::default();
        for key in &reads {
            let list = transaction.get(&[*key])?.unwrap_or_default();
            seen.reads.insert(*key, list.len() / 8);
        }
        for key in &writes {
            let list = transaction.get(&[*key])?.unwrap_or_default();
            seen.reads.entry(*key).or_insert(list.len() / 8);
            let longer = [&list[..], &number.to_be_bytes()].concat();
            transaction.put(&[*key], Bytes::from(longer));
            seen.writes.insert(*key);
        }
        Ok(seen)
    };
    transact(engine, work).await.unwrap()
}

/// Finds an order of all operations in which each saw what those before it had done, and none is before one that had
/// ended when it began.
fn check_order(history: &BTreeMap<u64, Seen>, found: &BTreeMap<u8, Vec<u64>>) {
    let mut before: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for (number, seen) in history {
        let earlier = before.entry(*number).or_default();
        let ended = history.iter().filter(|(_, other)| other.ended < seen.begun);
        earlier.extend(ended.map(|(other, _)| *other));
        for (key, length) in &seen.reads {
            earlier.extend(found.get(key).into_iter().flatten().take(*length));
        }
    }
    for (number, seen) in history {
        for (key, length) in &seen.reads {
            let later = found.get(key).into_iter().flatten().skip(*length);
            for other in later.filter(|other| *other != number) {
                before.get_mut(other).unwrap().insert(*number);
            }
        }
    }
    let mut left: BTreeSet<u64> = history.keys().copied().collect();
    while !left.is_empty() {
        let is_free = |number: &&u64| before[*number].is_disjoint(&left);
        let free: Vec<u64> = left.iter().filter(is_free).copied().collect();
        assert!(!free.is_empty(), "no order explains {left:?}");
        left.retain(|number| !free.contains(number));
    }
}

async fn histories(engines: Vec<Arc<dyn Engine>>) {
    let clock = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for (machine, engine) in engines.iter().enumerate() {
        for caller in 0..3_u64 {
            let (engine, clock) = (Arc::clone(engine), Arc::clone(&clock));
            tasks.push(tokio::spawn(async move {
                let mut seen = Vec::new();
                for turn in 0..40_u64 {
                    let number = turn * 100 + machine as u64 * 10 + caller;
                    let some = |most: u64| -> Vec<u8> {
                        let count = random::number() % most;
                        (0..=count).map(|_| (random::number() % 6) as u8).collect()
                    };
                    let begun = clock.fetch_add(1, Ordering::SeqCst);
                    let saw = append(&*engine, number, (some(3), some(2))).await;
                    let ended = clock.fetch_add(1, Ordering::SeqCst);
                    seen.push((
                        number,
                        Seen {
                            begun,
                            ended,
                            ..saw
                        },
                    ));
                }
                seen
            }));
        }
    }
    let mut history = BTreeMap::new();
    for task in tasks {
        history.extend(task.await.unwrap());
    }
    let last = &engines[0];
    if let Some(peers) = last.peers() {
        peers.catch_up().await.unwrap();
    }
    let found = model(&**last).await.into_iter().map(|(key, list)| {
        let numbers = list.chunks(8).map(|number| number.try_into().unwrap());
        (key[0], numbers.map(u64::from_be_bytes).collect())
    });
    check_order(&history, &found.collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_of_sessions_in_memory_have_one_order() {
    let first = MemorySession::first();
    let second = first.another();
    histories(vec![Arc::new(first), Arc::new(second)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_of_three_machines_have_one_order() {
    let Some(server) = Server::shared() else {
        return;
    };
    for _ in 0..3 {
        let (mut machines, first) = Machines::new(server).await;
        let mut engines: Vec<Arc<dyn Engine>> = vec![Arc::new(first)];
        for _ in 0..2 {
            engines.push(Arc::new(machines.join().await));
        }
        histories(engines).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_machine_changes_the_others_see_soon_and_when_they_ask_at_once() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (mut machines, first) = Machines::new(server).await;
    let second = machines.join().await;
    assert_eq!(get(&second, "k").await.unwrap(), None);
    let mut waits = Vec::new();
    for number in 0..20_u8 {
        let began = Instant::now();
        put_value(&first, "k", vec![number]).await.unwrap();
        while get(&second, "k").await.unwrap().as_deref() != Some(&[number]) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        waits.push(began.elapsed());
    }
    waits.sort();
    println!("seen after {:?}, at most {:?}", waits[10], waits[19]);
    for number in 0..20_u8 {
        put_value(&second, "k", vec![number]).await.unwrap();
        first.catch_up().await.unwrap();
        assert_eq!(
            get(&first, "k").await.unwrap().as_deref(),
            Some(&[number][..])
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_told_and_who_took_them_in_is_known() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (mut machines, first) = Machines::new(server).await;
    let second = machines.join().await;
    let any = second.changes().await.unwrap();
    assert_eq!(any.keys, None, "what came before");
    second.took_in(any.until);
    put(&first, "k", "v").await;
    let changed = second.changes().await.unwrap();
    assert_eq!(changed.keys, Some(vec![Bytes::from_static(b"k")]));
    assert_eq!(get(&second, "k").await.unwrap().as_deref(), Some(&b"v"[..]));
    let reached = |moment: Moment| {
        let first = &first;
        async move {
            tokio::time::sleep(Duration::from_millis(700)).await;
            first.taken_in_by_all().await.unwrap() >= moment
        }
    };
    assert!(!reached(changed.until).await, "not taken in yet");
    second.took_in(changed.until);
    while !reached(changed.until).await {}
    // Of its own changes nobody keeps anything older.
    put(&second, "k", "w").await;
    let until = first.catch_up().await.unwrap();
    while !reached(until).await {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_come_and_go_under_load_and_nothing_is_lost() {
    let Some(server) = Server::shared() else {
        return;
    };
    let (mut machines, first) = Machines::new(server).await;
    let first = Arc::new(first);
    let ends = Arc::new(AtomicBool::new(false));
    let load = {
        let (first, ends) = (Arc::clone(&first), Arc::clone(&ends));
        tokio::spawn(async move {
            let mut done = 0;
            while !ends.load(Ordering::SeqCst) {
                step(&*first, format!("first-{done}")).await.unwrap();
                done += 1;
            }
            done
        })
    };
    let mut total = 0;
    for round in 0..3 {
        let other = machines.join().await;
        for number in 0..50 {
            step(&other, format!("{round}-{number}")).await.unwrap();
        }
        total += 50;
        other.close().await.unwrap();
        // Long enough for the first one to have the keys alone again.
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    ends.store(true, Ordering::SeqCst);
    total += load.await.unwrap();
    let last = machines.join().await;
    check_whole(&last, total).await;
}

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
            match PostgresEngine::open(&through).await {
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
    let engine = Arc::new(PostgresEngine::open(&settings).await.unwrap());
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
