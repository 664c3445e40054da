//! Keys of an engine under test.

#![allow(unreachable_pub, dead_code, reason = "each test file uses some of it")]

use std::{collections::BTreeMap, ops::ControlFlow};

use bytes::Bytes;
use penstock_fileset::engine::{
    EmbeddedSettings, Engine, EngineError, Reads, Transaction, query, transact,
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
