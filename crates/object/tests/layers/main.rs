//! Layers around stores that work and stores that fail.

mod bounds;
mod prefixed;
mod retries;
mod split;
mod stacks;
mod storms;
mod sums;

use std::{sync::Arc, time::Duration};

use penstock_base::{Payload, clock, metrics::Registry};

use penstock_object::{layers::*, *};
use penstock_object_testing::{Fault, Faults, Faulty, MemoryStore};

fn key(text: &str) -> Key {
    Key::new(text).expect("tests use valid keys")
}

fn body(bytes: &[u8]) -> Payload {
    Payload::from(bytes.to_vec())
}

fn only_if_absent() -> PutOptions {
    PutOptions {
        condition: WriteCondition::IfAbsent,
        ..PutOptions::default()
    }
}

async fn put(store: &dyn Store, name: &str, bytes: &[u8]) -> Stored {
    let stored = store
        .put(&key(name), body(bytes), PutOptions::default())
        .await;
    stored.expect("the put succeeds")
}

async fn read(store: &dyn Store, name: &str) -> ObjectResult<Vec<u8>> {
    let mut bytes = Vec::new();
    store
        .get(&key(name), GetOptions::default(), &mut bytes)
        .await?;
    Ok(bytes)
}

/// A store in memory that suffers the faults, and the same store without them.
fn faulty() -> (Arc<dyn Store>, Arc<Faults>, Arc<dyn Store>) {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let faults = Faults::new(1);
    let store = Arc::new(Faulty::new(Arc::clone(&memory), Arc::clone(&faults)));
    (store, faults, memory)
}

/// The value of a metric, labels as `name=value`.
fn metric(registry: &Registry, name: &str, labels: &[&str]) -> u64 {
    let fits = |sample: &&penstock_base::metrics::Sample| {
        let shown = sample
            .labels
            .iter()
            .map(|(label, value)| format!("{label}={value}"));
        let shown: Vec<String> = shown.collect();
        sample.name == name && shown == labels
    };
    let samples = registry.samples();
    samples
        .iter()
        .find(fits)
        .expect("there is such a metric")
        .value
}
