//! Histories of operations, and whether an order explains them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use penstock_base::random;
use penstock_fileset::engine::{Engine, MemorySession, Transaction, transact};

use crate::keys::{Outcome, model};

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

pub async fn histories(engines: Vec<Arc<dyn Engine>>) {
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
