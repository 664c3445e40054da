//! What every engine must do: each function takes an engine without keys.

#![allow(unreachable_pub, clippy::unwrap_used)]

use std::{ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use penstock_fileset::engine::{
    Conditional, Engine, EngineError, Transaction, counter, mark, query, transact,
};

use crate::keys::{Outcome, all, bytes, put};

pub async fn keys_are_put_got_scanned_and_deleted(engine: Arc<dyn Engine>) {
    for key in ["b", "a", "ab", "c"] {
        put(&*engine, key, key).await;
    }
    let found = query(&*engine, |reads| all(reads)).await.unwrap();
    let keys: Vec<_> = found.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["a", "ab", "b", "c"]);
    let deleted = transact(&*engine, |transaction| -> Outcome<Option<Bytes>> {
        transaction.delete(b"ab");
        assert_eq!(transaction.get(b"ab")?, None, "its own change is seen");
        assert_eq!(all(transaction)?.len(), 3);
        transaction.get(b"b")
    });
    assert_eq!(deleted.await.unwrap(), Some(bytes("b")));
    assert_eq!(query(&*engine, |reads| all(reads)).await.unwrap().len(), 3);
}

pub async fn an_operation_that_fails_leaves_nothing(engine: Arc<dyn Engine>) {
    let failed = transact(&*engine, |transaction| -> Outcome<()> {
        transaction.put(b"a", bytes("1"));
        Err(EngineError::Corrupt("as it was told".to_owned()))
    });
    assert!(failed.await.is_err());
    assert_eq!(query(&*engine, |reads| all(reads)).await.unwrap(), []);
}

pub async fn counters_add_up_and_marks_go_forward(engine: Arc<dyn Engine>) {
    let tasks = (0..8).map(|_| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            for _ in 0..50 {
                let step = |transaction: &mut dyn Transaction| {
                    transaction.add(b"count", 3)?;
                    transaction.advance(b"mark", 100)
                };
                transact(&*engine, step).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let read = query(&*engine, |reads| -> Outcome<(i64, u64)> {
        Ok((
            counter(reads.get(b"count")?.as_ref()),
            mark(reads.get(b"mark")?.as_ref()),
        ))
    });
    assert_eq!(read.await.unwrap(), (8 * 50 * 3, 100 + 8 * 50 - 1));
}

pub async fn conditional_changes_are_made_if_all_checks_hold(engine: Arc<dyn Engine>) {
    let swap = |from: Option<&str>, to: &str| Conditional {
        checks: vec![(bytes("k"), from.map(bytes)), (bytes("other"), None)],
        puts: vec![(bytes("k"), bytes(to))],
        adds: vec![(bytes("n"), 1)],
        ..Conditional::default()
    };
    assert!(engine.commit(swap(None, "1")).await.unwrap());
    assert!(!engine.commit(swap(None, "2")).await.unwrap());
    assert!(engine.commit(swap(Some("1"), "2")).await.unwrap());
    put(&*engine, "other", "x").await;
    assert!(!engine.commit(swap(Some("2"), "3")).await.unwrap());
    let count = query(&*engine, |reads| -> Outcome<i64> {
        Ok(counter(reads.get(b"n")?.as_ref()))
    });
    assert_eq!(count.await.unwrap(), 2);
}

/// Write skew: two that each look at both keys and change one must not both find the rule kept.
pub async fn no_two_operations_build_on_what_the_other_changes(engine: Arc<dyn Engine>) {
    for round in 0..100 {
        put(&*engine, "on-call-a", "1").await;
        put(&*engine, "on-call-b", "1").await;
        let leave = |own: &'static str, other: &'static str| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                let leave = transact(&*engine, move |transaction| -> Outcome<bool> {
                    let may = transaction.get(other.as_bytes())? == Some(bytes("1"));
                    if may {
                        transaction.put(own.as_bytes(), bytes("0"));
                    }
                    Ok(may)
                });
                leave.await.unwrap()
            })
        };
        let (first, second) = (
            leave("on-call-a", "on-call-b"),
            leave("on-call-b", "on-call-a"),
        );
        let left = [first.await.unwrap(), second.await.unwrap()];
        assert_eq!(
            left.iter().filter(|left| **left).count(),
            1,
            "round {round}"
        );
    }
}

/// Transfers between accounts while others sum all of them up: each look is at one state.
pub async fn a_look_sees_one_state(engine: Arc<dyn Engine>) {
    for account in 0..10 {
        put(&*engine, &format!("account-{account}"), "100").await;
    }
    let movers = (0..4_u64).map(|mover| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            for step in 0..200_u64 {
                let from = format!("account-{}", (mover + step) % 10);
                let to = format!("account-{}", (mover * 3 + step * 7) % 10);
                let moved = transact(&*engine, move |transaction| -> Outcome<()> {
                    for (key, change) in [(&from, -1), (&to, 1)] {
                        let value = transaction.get(key.as_bytes())?.unwrap();
                        let value: i64 = String::from_utf8_lossy(&value).parse().unwrap();
                        transaction.put(key.as_bytes(), bytes(&(value + change).to_string()));
                    }
                    Ok(())
                });
                moved.await.unwrap();
            }
        })
    });
    let movers: Vec<_> = movers.collect();
    for _ in 0..100 {
        let found = query(&*engine, |reads| all(reads)).await.unwrap();
        let sum: i64 = found
            .iter()
            .map(|(_, value)| value.parse::<i64>().unwrap())
            .sum();
        assert_eq!(sum, 1000);
        tokio::task::yield_now().await;
    }
    for mover in movers {
        mover.await.unwrap();
    }
}

/// More than an engine keeps in memory before it goes elsewhere.
pub async fn many_keys_are_in_order(engine: Arc<dyn Engine>) {
    const COUNT: u32 = 20_000;
    for first in (0..COUNT).step_by(100) {
        let filled = transact(&*engine, move |transaction| -> Outcome<()> {
            for number in first..first + 100 {
                let key = number.wrapping_mul(2_654_435_761).to_be_bytes();
                transaction.put(&key, Bytes::from(vec![7; 100]));
            }
            Ok(())
        });
        filled.await.unwrap();
    }
    engine.sync().await.unwrap();
    let scan = query(&*engine, |reads| -> Outcome<(u32, bool)> {
        let (mut count, mut last, mut in_order) = (0, Vec::new(), true);
        reads.scan(&b""[..]..&[0xff; 16][..], &mut |key, _| {
            in_order &= count == 0 || last.as_slice() < key;
            last = key.to_vec();
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok((count, in_order))
    });
    assert_eq!(scan.await.unwrap(), (COUNT, true));
}
