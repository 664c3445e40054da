//! The metadata of a file system on a disk that loses what was not synced.
//!
//! The engine of a process is the one in memory; what it changed is on the disk as far as it was synced, and what comes behind
//! that is a tail of operations, of which a crash leaves any number of the first.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    ops::Range,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use fastrand::Rng;
use penstock_base::{Mutex, clock};
use penstock_fileset::engine::{
    Engine, EngineResult, MemoryEngine, Operation, Query, Reads, Transaction, Verdict, Visitor,
    transact,
};

use crate::power::Power;

/// Keys with what they became; `None` for those that went.
type Changes = BTreeMap<Bytes, Option<Bytes>>;

#[derive(Debug, Default)]
struct Kept {
    synced: BTreeMap<Bytes, Bytes>,
    tail: VecDeque<Changes>,
    /// Operations in both.
    applied: u64,
}

impl Kept {
    fn sync(&mut self, until: u64) {
        while self.applied - (self.tail.len() as u64) < until
            && let Some(changes) = self.tail.pop_front()
        {
            for (key, value) in changes {
                match value {
                    Some(value) => self.synced.insert(key, value),
                    None => self.synced.remove(&key),
                };
            }
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Disk(Mutex<Kept>);

impl Disk {
    /// Operations that were applied, ever, but for those that crashes took away.
    pub fn applied(&self) -> u64 {
        self.0.lock().applied
    }

    /// The power went: of the operations that were not synced none are left, or all, or some.
    pub fn lose(&self, chance: &mut Rng) {
        let mut kept = self.0.lock();
        let unsynced = kept.tail.len() as u64;
        let left = match chance.u8(0..4) {
            0 => unsynced,
            1 => chance.u64(0..=unsynced),
            _ => 0,
        };
        let until = kept.applied - unsynced + left;
        kept.sync(until);
        kept.tail.clear();
        kept.applied = until;
    }
}

/// The engine of a process.
pub struct DiskEngine {
    live: MemoryEngine,
    disk: Arc<Disk>,
    power: Arc<Power>,
    chance: Mutex<Rng>,
}

impl DiskEngine {
    /// Reads what is on the disk.
    pub async fn open(disk: Arc<Disk>, power: Arc<Power>, seed: u64) -> Arc<dyn Engine> {
        let (live, synced) = (MemoryEngine::default(), disk.0.lock().synced.clone());
        let filled = transact(&live, move |transaction| -> EngineResult<()> {
            let mut keys = synced.iter();
            keys.try_for_each(|(key, value)| {
                transaction.put(key, value.clone());
                Ok(())
            })
        });
        filled.await.expect("it is in memory");
        Arc::new(Self {
            live,
            disk,
            power,
            chance: Mutex::new(Rng::with_seed(seed)),
        })
    }

    /// Waits, mostly for nothing.
    async fn wait(&self) {
        let milliseconds = {
            let mut chance = self.chance.lock();
            match chance.u8(0..16) {
                0 => Some(chance.u64(1..10)),
                1..4 => Some(0),
                _ => None,
            }
        };
        match milliseconds {
            Some(0) => tokio::task::yield_now().await,
            Some(milliseconds) => clock::sleep(Duration::from_millis(milliseconds)).await,
            None => {}
        }
        self.power.step().await;
    }
}

impl fmt::Debug for DiskEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskEngine").finish_non_exhaustive()
    }
}

#[async_trait]
impl Engine for DiskEngine {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        self.wait().await;
        self.live.run_query(query).await
    }

    async fn run(&self, mut operation: Operation) -> EngineResult<()> {
        self.wait().await;
        let disk = Arc::clone(&self.disk);
        let noted = self.live.run(Box::new(move |transaction| {
            let mut noting = Noting {
                transaction,
                changes: Changes::new(),
            };
            let verdict = operation(&mut noting);
            let changes = noting.changes;
            if verdict == Verdict::Keep && !changes.is_empty() {
                let mut kept = disk.0.lock();
                kept.tail.push_back(changes);
                kept.applied += 1;
            }
            verdict
        }));
        noted.await?;
        self.wait().await;
        Ok(())
    }

    async fn sync(&self) -> EngineResult<()> {
        let until = self.disk.applied();
        let milliseconds = self.chance.lock().u64(0..8);
        clock::sleep(Duration::from_millis(milliseconds)).await;
        self.wait().await;
        self.disk.0.lock().sync(until);
        self.wait().await;
        Ok(())
    }

    async fn close(&self) -> EngineResult<()> {
        self.sync().await
    }
}

/// An operation at work, whose changes are noted.
struct Noting<'a> {
    transaction: &'a mut dyn Transaction,
    changes: Changes,
}

impl Reads for Noting<'_> {
    fn get(&self, key: &[u8]) -> EngineResult<Option<Bytes>> {
        self.transaction.get(key)
    }

    fn scan(&self, range: Range<&[u8]>, visit: Visitor<'_>) -> EngineResult<()> {
        self.transaction.scan(range, visit)
    }
}

impl Transaction for Noting<'_> {
    fn put(&mut self, key: &[u8], value: Bytes) {
        let key = Bytes::copy_from_slice(key);
        self.transaction.put(&key, value.clone());
        self.changes.insert(key, Some(value));
    }

    fn delete(&mut self, key: &[u8]) {
        self.transaction.delete(key);
        self.changes.insert(Bytes::copy_from_slice(key), None);
    }
}
