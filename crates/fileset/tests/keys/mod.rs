//! Keys of an engine under test.

#![allow(unreachable_pub, dead_code, reason = "each test file uses some of it")]

use std::{collections::BTreeMap, ops::ControlFlow};

use bytes::Bytes;
use penstock_fileset::engine::{
    EmbeddedSettings, Engine, EngineError, Reads, Transaction, counter, query, transact,
};

pub type Outcome<T> = Result<T, EngineError>;
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn settings(directory: &std::path::Path) -> EmbeddedSettings {
    EmbeddedSettings {
        directory: directory.to_owned(),
        memory: 8 << 20,
    }
}

pub fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub async fn get(engine: &dyn Engine, key: &str) -> Outcome<Option<Bytes>> {
    let key = key.as_bytes().to_vec();
    query(engine, move |reads| reads.get(&key)).await
}

/// Puts a letter behind those that a key has.
pub async fn append_to(
    engine: &dyn Engine,
    key: &'static str,
    letter: &'static str,
) -> Outcome<()> {
    let work = move |transaction: &mut dyn Transaction| -> Outcome<()> {
        let list = transaction.get(key.as_bytes())?.unwrap_or_default();
        let longer = [&list[..], letter.as_bytes()].concat();
        transaction.put(key.as_bytes(), Bytes::from(longer));
        Ok(())
    };
    transact(engine, work).await
}

pub async fn put(engine: &dyn Engine, key: &str, value: &str) {
    let (key, value) = (bytes(key), bytes(value));
    let put = transact(engine, move |transaction| -> Outcome<()> {
        transaction.put(&key, value.clone());
        Ok(())
    });
    put.await.unwrap();
}

pub fn all(reads: &dyn Reads) -> Outcome<Vec<(String, String)>> {
    let mut found = Vec::new();
    reads.scan(&b""[..]..&[0xff; 16][..], &mut |key, value| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        found.push((text(key), text(value)));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

pub fn copy_files(from: &std::path::Path, to: &std::path::Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

pub async fn put_value(engine: &dyn Engine, key: &str, value: Vec<u8>) -> Outcome<()> {
    let (key, value) = (key.as_bytes().to_vec(), Bytes::from(value));
    let put = move |transaction: &mut dyn Transaction| -> Outcome<()> {
        transaction.put(&key, value.clone());
        Ok(())
    };
    transact(engine, put).await
}

/// All keys with their values.
pub async fn model(engine: &dyn Engine) -> Model {
    let look = |reads: &dyn Reads| -> Outcome<Model> {
        let mut found = Model::new();
        reads.scan(&b""[..]..&[0xff; 16][..], &mut |key, value| {
            found.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(found)
    };
    query(engine, look).await.unwrap()
}

pub async fn count(engine: &dyn Engine) -> u64 {
    let count = query(engine, |reads| -> Outcome<i64> {
        Ok(counter(reads.get(b"count")?.as_ref()))
    });
    count.await.unwrap() as u64
}

/// A key that no other operation has, and one more in the counter.
pub async fn step(engine: &dyn Engine, key: String) -> Outcome<()> {
    let step = move |transaction: &mut dyn Transaction| -> Outcome<()> {
        assert_eq!(transaction.get(key.as_bytes())?, None, "applied twice");
        transaction.put(key.as_bytes(), Bytes::from_static(&[9; 100]));
        transaction.add(b"count", 1)
    };
    transact(engine, step).await
}

/// Steps of random operations, after each of which the engine has what a map has. Returns the map.
pub async fn random_steps(engine: &dyn Engine, steps: Vec<(u8, u8, u8)>) -> Model {
    let mut expected = Model::new();
    for (kind, one, other) in steps {
        let key = format!("k{:03}", one % 64).into_bytes();
        match kind {
            0..=3 => {
                expected.insert(key.clone(), vec![other; 5]);
                put_value(engine, std::str::from_utf8(&key).unwrap(), vec![other; 5])
                    .await
                    .unwrap();
            }
            4 | 5 => {
                expected.remove(&key);
                let delete = move |transaction: &mut dyn Transaction| -> Outcome<()> {
                    transaction.delete(&key);
                    Ok(())
                };
                transact(engine, delete).await.unwrap();
            }
            6 | 7 => {
                let found = query(engine, |reads| reads.get(&key));
                let found: Outcome<Option<Bytes>> = found.await;
                assert_eq!(
                    found.unwrap().as_deref(),
                    expected.get(&key).map(|value| &**value)
                );
            }
            8 => engine.sync().await.unwrap(),
            _ => {
                let end = format!("k{:03}", one % 64 + other % 32).into_bytes();
                let found = query(engine, |reads: &dyn Reads| -> Outcome<Vec<Vec<u8>>> {
                    let mut found = Vec::new();
                    reads.scan(&key..&end, &mut |key, _| {
                        found.push(key.to_vec());
                        ControlFlow::Continue(())
                    })?;
                    Ok(found)
                });
                let range = expected.range(key.clone()..end.clone());
                let there: Vec<_> = range.map(|(key, _)| key.clone()).collect();
                assert_eq!(found.await.unwrap(), there);
            }
        }
    }
    expected
}

/// Runs work on two threads.
pub fn block_on(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(work);
}
