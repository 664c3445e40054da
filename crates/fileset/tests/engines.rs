//! What every engine must do: one suite for all of them, and what a crash must not do to those that keep something.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod database;
mod keys;
mod suite;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    sync::Arc,
};

use bytes::Bytes;
use penstock_fileset::engine::{
    EmbeddedEngine, Engine, EngineError, MemoryEngine, MemorySession, ShippedEngine,
    ShippedSettings, counter, query, transact,
};
use penstock_object_testing::MemoryStore;
use proptest::prelude::*;

use keys::{Outcome, all, bytes, put, settings};

macro_rules! suite_tests {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    suite::$test(Arc::new(MemoryEngine::default())).await;
                }
            )+
        }
        mod memory_session {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    suite::$test(Arc::new(MemorySession::first())).await;
                }
            )+
        }
        mod embedded {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    let directory = tempfile::tempdir().unwrap();
                    let engine = EmbeddedEngine::open(&settings(directory.path())).unwrap();
                    suite::$test(Arc::new(engine)).await;
                }
            )+
        }
        mod shipped {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    let directory = tempfile::tempdir().unwrap();
                    let settings = ShippedSettings {
                        local: settings(directory.path()),
                        store: Arc::new(MemoryStore::new()),
                        identity: 1,
                    };
                    let engine = ShippedEngine::create(&settings).await.unwrap();
                    suite::$test(Arc::new(engine)).await;
                }
            )+
        }
        mod postgres {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    let directory = tempfile::tempdir().unwrap();
                    if let Some(engine) = database::new_engine(directory.path()).await {
                        suite::$test(engine).await;
                    }
                }
            )+
        }
        mod postgres_shared {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    let places = [(); 2].map(|()| tempfile::tempdir().unwrap());
                    if let Some([first, second]) = database::new_engines(&places).await {
                        suite::$test(Arc::new(database::Turns::new([first, second]))).await;
                    }
                }
            )+
        }
    };
}

suite_tests!(
    keys_are_put_got_scanned_and_deleted,
    an_operation_that_fails_leaves_nothing,
    counters_add_up_and_marks_go_forward,
    conditional_changes_are_made_if_all_checks_hold,
    no_two_operations_build_on_what_the_other_changes,
    a_look_sees_one_state,
    many_keys_are_in_order,
);

#[tokio::test]
async fn an_embedded_engine_is_opened_once_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let engine = EmbeddedEngine::open(&settings(directory.path())).unwrap();
    let second = EmbeddedEngine::open(&settings(directory.path()));
    let own = std::process::id();
    assert!(matches!(second, Err(EngineError::InUse { pid }) if pid == own));
    put(&engine, "k", "v").await;
    engine.close().await.unwrap();
    let again = EmbeddedEngine::open(&settings(directory.path())).unwrap();
    assert_eq!(query(&again, |reads| all(reads)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_engine_that_is_closed_refuses_changes_and_waits_for_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let engine = EmbeddedEngine::open(&settings(directory.path())).unwrap();
    put(&engine, "k", "v").await;
    engine.close().await.unwrap();
    let refused = transact(&engine, |transaction| -> Outcome<()> {
        transaction.put(b"late", bytes("v"));
        Ok(())
    });
    assert!(matches!(refused.await, Err(EngineError::Io(_))));
    assert!(engine.sync().await.is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Random operations on both engines and on a map; the embedded one is now and then closed and opened again.
    #[test]
    fn engines_do_what_a_map_does(
        steps in prop::collection::vec((0u8..10, "[a-d]{1,3}", "[x-z]{0,4}"), 1..60)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let directory = tempfile::tempdir().unwrap();
            let memory = MemoryEngine::default();
            let mut embedded = EmbeddedEngine::open(&settings(directory.path())).unwrap();
            let mut model = BTreeMap::new();
            for (kind, key, value) in steps {
                match kind {
                    0..=5 => {
                        model.insert(key.clone(), value.clone());
                        put(&memory, &key, &value).await;
                        put(&embedded, &key, &value).await;
                    }
                    6..=8 => {
                        model.remove(&key);
                        for engine in [&memory as &dyn Engine, &embedded] {
                            let key = bytes(&key);
                            let gone = transact(engine, move |transaction| -> Outcome<()> {
                                transaction.delete(&key);
                                Ok(())
                            });
                            gone.await.unwrap();
                        }
                    }
                    _ => {
                        embedded.close().await.unwrap();
                        drop(embedded);
                        embedded = EmbeddedEngine::open(&settings(directory.path())).unwrap();
                    }
                }
            }
            let expected: Vec<_> = model.into_iter().collect();
            assert_eq!(query(&memory, |reads| all(reads)).await.unwrap(), expected);
            assert_eq!(query(&embedded, |reads| all(reads)).await.unwrap(), expected);
        });
    }
}

/// Set for the process that is killed: where its engine is.
const VICTIM: &str = "PENSTOCK_TEST_ENGINE_VICTIM";

/// Rounds of kills; `PENSTOCK_ENGINE_KILLS` for more.
fn kills() -> u64 {
    let given = std::env::var("PENSTOCK_ENGINE_KILLS").ok();
    given.and_then(|given| given.parse().ok()).unwrap_or(4)
}

/// Not a test of its own: the process that [`a_killed_process_loses_nothing_that_was_acknowledged`] kills. It commits
/// until then, syncs half of that, and says what was answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victim_of_kills() {
    let Ok(directory) = std::env::var(VICTIM) else {
        return;
    };
    let engine = EmbeddedEngine::open(&settings(directory.as_ref())).unwrap();
    let engine: Arc<dyn Engine> = Arc::new(engine);
    let first = query(&*engine, |reads| -> Outcome<i64> {
        Ok(counter(reads.get(b"rounds")?.as_ref()))
    });
    let first = first.await.unwrap();
    let tasks = (0..8).map(|task| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            for number in 0_u64.. {
                let key = format!("{first:04}-{task}-{number:08}");
                let written = key.clone();
                let committed = transact(&*engine, move |transaction| -> Outcome<()> {
                    transaction.put(written.as_bytes(), Bytes::from(vec![9; 200]));
                    transaction.add(b"count", 1)?;
                    transaction.add(b"rounds", i64::from(number == 0 && task == 0))
                });
                committed.await.unwrap();
                // A killed process takes no page of its log with it.
                if task % 2 == 0 {
                    engine.sync().await.unwrap();
                }
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
    let directory = tempfile::tempdir().unwrap();
    let mut durable = Vec::new();
    for round in 0..kills() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim_of_kills", "--nocapture"])
            .env(VICTIM, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let wanted = 300 + (round * 977) % 2_000;
        let mut count = 0;
        while count < wanted {
            let line = lines.next().unwrap().unwrap();
            if let Some(key) = line.strip_prefix("durable ") {
                durable.push(key.to_owned());
                count += 1;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let whole = |line: &String| line.len() == "durable 0000-0-00000000".len();
        let rest = lines.map_while(Result::ok).filter(whole);
        durable.extend(rest.filter_map(|line| Some(line.strip_prefix("durable ")?.to_owned())));
        let begun = std::time::Instant::now();
        let engine = EmbeddedEngine::open(&settings(directory.path())).unwrap();
        let took = begun.elapsed();
        let found = query(&engine, |reads| -> Outcome<(usize, u64)> {
            let mut missing = 0;
            for key in &durable {
                missing += usize::from(reads.get(key.as_bytes())?.is_none());
            }
            Ok((missing, counter(reads.get(b"count")?.as_ref()) as u64))
        });
        let (missing, count) = found.await.unwrap();
        println!(
            "round {round}: {} durable, {count} there, opened in {took:?}",
            durable.len()
        );
        assert_eq!(missing, 0, "of {} acknowledged", durable.len());
        assert!(count >= durable.len() as u64);
    }
}
