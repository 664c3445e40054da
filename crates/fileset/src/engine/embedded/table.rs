//! The B-tree below the log: everything up to a certain change, in one file.
//!
//! Each value is kept behind a sum of it and of its key, so that no damaged one is taken for what was written.
//! A key that is not found where it is looked for is told from one that is not there by [`TreeState::verify`] alone,
//! which reads all. What reads a damaged file may panic. Nothing of that leaves this module: it is `Corrupt` to whoever asked.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    iter,
    ops::Range,
    os::unix::fs::OpenOptionsExt,
    panic::AssertUnwindSafe,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use bytes::Bytes;
use redb::{
    Builder, Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase,
    ReadableTableMetadata, TableDefinition, backends::FileBackend,
};

use super::{
    disk::{Disk, TreeFile, is_full},
    log,
};
use crate::engine::{
    EngineError, EngineResult, KEY_LENGTH_MAX,
    layers::{Changes, Layer, Said, in_order},
    record::{self, Tip},
};

const KEYS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("summed keys");
/// What the tree says of itself.
const FACTS: TableDefinition<'_, &str, u64> = TableDefinition::new("facts");
/// The last change that is in the tree, and the history that led to it.
const SEQUENCE: &str = "sequence";
const HISTORY: &str = "history";

/// A number that the tree keeps beside the keys, under a name.
pub(in crate::engine) type Fact = (&'static str, u64);

/// The tree's file.
#[derive(Debug)]
pub(in crate::engine) struct Tree {
    /// Until it is closed.
    database: RwLock<Option<Database>>,
}

/// One state of the tree. Its pages are kept as long as this lives.
pub(in crate::engine) struct TreeState(ReadOnlyTable<&'static [u8], &'static [u8]>);

/// Bytes with which the file of every tree begins, and which redb writes last when it makes one.
const MAGIC: usize = 9;

impl Tree {
    /// Whether there is a file at `path` in which a tree was begun to be made, and never was one.
    pub(super) fn was_never_made(path: &Path) -> EngineResult<bool> {
        let mut magic = [0; MAGIC];
        match File::open(path).and_then(|mut file| file.read_exact(&mut magic)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(true),
            Err(error) => Err(log::failure(path, &error)),
            Ok(()) => Ok(magic == [0; MAGIC]),
        }
    }

    /// Opens the tree at `path` on `disk`, or makes an empty one; `cache` bytes of it are kept in memory.
    pub(super) fn open(path: &Path, cache: usize, disk: Arc<Disk>) -> EngineResult<Self> {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(path);
        let file = file.map_err(|error| log::failure(path, &error))?;
        let file = FileBackend::new(file).map_err(failure)?;
        let mut builder = Builder::new();
        builder.set_cache_size(cache);
        let open = || builder.create_with_backend(TreeFile::new(file, disk));
        let database = guarded(|| open().map_err(failure))?;
        Ok(Self {
            database: RwLock::new(Some(database)),
        })
    }

    /// Closes the file, once nobody does anything with it. States of the tree that are left cannot be read then.
    pub(super) fn close(&self) {
        let mut database = self
            .database
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let closed = guarded(|| {
            drop(database.take());
            Ok(())
        });
        if let Err(error) = closed {
            tracing::error!(%error, "the tree was not closed");
        }
    }

    /// Does something with the file, which is not closed meanwhile.
    fn with<T>(&self, work: impl FnOnce(&Database) -> EngineResult<T>) -> EngineResult<T> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let closed = || EngineError::Io("the engine is closed".to_owned());
        let database = database.as_ref().ok_or_else(closed)?;
        guarded(|| work(database))
    }

    /// Behind the last change that is in it.
    pub(in crate::engine) fn tip(&self) -> EngineResult<Tip> {
        self.with(|database| tip_in(&database.begin_read().map_err(failure)?))
    }

    /// What is kept under a name, if anything is.
    pub(in crate::engine) fn fact(&self, name: &str) -> EngineResult<Option<u64>> {
        self.with(|database| fact_in(&database.begin_read().map_err(failure)?, name))
    }

    /// Makes all changes up to `tip` at once, durably.
    pub(in crate::engine) fn merge(&self, changes: &Changes, tip: Tip) -> EngineResult<()> {
        let facts = [(SEQUENCE, tip.sequence), (HISTORY, tip.history)];
        self.merge_with(changes, &facts)
    }

    /// Makes changes and keeps facts, at once and durably.
    pub(in crate::engine) fn merge_with(
        &self,
        changes: &Changes,
        kept: &[Fact],
    ) -> EngineResult<()> {
        self.with(|database| merge_into(database, changes, kept))
    }

    /// Removes all keys and facts.
    pub(in crate::engine) fn clear(&self) -> EngineResult<()> {
        self.with(|database| {
            let mut transaction = database.begin_write().map_err(failure)?;
            transaction.set_quick_repair(true);
            transaction.delete_table(KEYS).map_err(failure)?;
            transaction.delete_table(FACTS).map_err(failure)?;
            transaction.commit().map_err(failure)
        })
    }

    /// The state now with the place behind the last change in it.
    pub(in crate::engine) fn snapshot(&self) -> EngineResult<(TreeState, Tip)> {
        self.with(|database| {
            let transaction = database.begin_read().map_err(failure)?;
            let tip = tip_in(&transaction)?;
            let keys = transaction.open_table(KEYS).map_err(failure)?;
            Ok((TreeState(keys), tip))
        })
    }

    /// The state now.
    pub(super) fn state(&self) -> EngineResult<TreeState> {
        self.snapshot().map(|(state, _)| state)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.close();
    }
}

fn merge_into(database: &Database, changes: &Changes, kept: &[Fact]) -> EngineResult<()> {
    let mut transaction = database.begin_write().map_err(failure)?;
    transaction
        .set_durability(Durability::Immediate)
        .map_err(failure)?;
    // A tree that was not closed is opened without a walk over it.
    transaction.set_quick_repair(true);
    {
        let mut keys = transaction.open_table(KEYS).map_err(failure)?;
        for (key, value) in changes {
            match value {
                Some(value) => keys
                    .insert(&key[..], &summed(key, value)[..])
                    .map_err(failure)?,
                None => keys.remove(&key[..]).map_err(failure)?,
            };
        }
        let mut facts = transaction.open_table(FACTS).map_err(failure)?;
        for (name, value) in kept {
            facts.insert(name, value).map_err(failure)?;
        }
    }
    transaction.commit().map_err(failure)
}

/// Does something with the file, which a damaged one may make panic.
fn guarded<T>(work: impl FnOnce() -> EngineResult<T>) -> EngineResult<T> {
    let worked = std::panic::catch_unwind(AssertUnwindSafe(work));
    worked.unwrap_or_else(|_| Err(damaged()))
}

fn fact_in(transaction: &ReadTransaction, name: &str) -> EngineResult<Option<u64>> {
    let facts = match transaction.open_table(FACTS) {
        Ok(facts) => facts,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(failure(error)),
    };
    let value = facts.get(name).map_err(failure)?;
    Ok(value.map(|value| value.value()))
}

fn tip_in(transaction: &ReadTransaction) -> EngineResult<Tip> {
    Ok(Tip {
        sequence: fact_in(transaction, SEQUENCE)?.unwrap_or_default(),
        history: fact_in(transaction, HISTORY)?.unwrap_or_default(),
    })
}

impl Layer for TreeState {
    fn says(&self, key: &[u8]) -> EngineResult<Option<Option<Bytes>>> {
        guarded(|| {
            let value = self.0.get(key).map_err(failure)?;
            let value = value.map(|value| compared(key, value.value()));
            value.map(|value| value.map(Some)).transpose()
        })
    }

    fn says_all<'a>(
        &'a self,
        range: Range<&[u8]>,
    ) -> EngineResult<Box<dyn Iterator<Item = Said> + 'a>> {
        let range = in_order(range);
        let mut found = guarded(|| self.0.range(range).map_err(failure))?;
        let mut next = move || {
            let Some(entry) = found.next() else {
                return Ok(None);
            };
            let (key, value) = entry.map_err(failure)?;
            let key = Bytes::copy_from_slice(key.value());
            let value = compared(&key, value.value())?;
            Ok(Some((key, Some(value))))
        };
        let mut is_over = false;
        Ok(Box::new(iter::from_fn(move || {
            let said = if is_over {
                None
            } else {
                guarded(&mut next).transpose()
            };
            is_over = !matches!(said, Some(Ok(_)));
            said
        })))
    }
}

impl TreeState {
    /// Reads all keys. Fails unless each is what was written, none is missing, and each is found by who looks for it.
    pub(in crate::engine) fn verify(&self) -> EngineResult<()> {
        let mut count = 0;
        for said in self.says_all(&[]..&[u8::MAX; KEY_LENGTH_MAX + 1])? {
            let (key, _) = said?;
            if self.says(&key)?.is_none() {
                return Err(damaged());
            }
            count += 1;
        }
        let length = guarded(|| self.0.len().map_err(failure))?;
        (length == count).then_some(()).ok_or_else(damaged)
    }
}

/// A value as the file has it.
fn summed(key: &[u8], value: &[u8]) -> Vec<u8> {
    let sum = record::checksum([key, value]);
    [&sum.to_le_bytes()[..], value].concat()
}

/// The value that the file has for a key, if it is what was written.
fn compared(key: &[u8], summed: &[u8]) -> EngineResult<Bytes> {
    let (sum, value) = summed.split_first_chunk().ok_or_else(damaged)?;
    match u32::from_le_bytes(*sum) == record::checksum([key, value]) {
        true => Ok(Bytes::copy_from_slice(value)),
        false => Err(damaged()),
    }
}

fn damaged() -> EngineError {
    EngineError::Corrupt("the file `tree` is not what was written there".to_owned())
}

fn failure(error: impl Into<redb::Error>) -> EngineError {
    match error.into() {
        redb::Error::Corrupted(text) => EngineError::Corrupt(text),
        redb::Error::TableDoesNotExist(table) => EngineError::Corrupt(format!(
            "the file `tree` has no {table}, or is of an older version"
        )),
        redb::Error::Io(error) if is_full(&error) => EngineError::Full(error.to_string()),
        error => EngineError::Io(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use penstock_base::clock;

    use super::*;

    #[test]
    fn a_tree_is_closed_once_nobody_looks_at_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let tree = Tree::open(&directory.path().join("tree"), 1 << 20, Arc::default());
        let tree = Arc::new(tree.expect("it is new"));
        let ((begun, begins), (tell, told)) = (mpsc::channel(), mpsc::channel());
        let (looked_at, looked) = (Arc::clone(&tree), tell.clone());
        let look = thread::spawn(move || {
            looked_at.with(|_| {
                begun.send(()).expect("the test waits");
                clock::pause(Duration::from_millis(100));
                looked.send("looked").expect("the test waits");
                Ok(())
            })
        });
        begins.recv().expect("it looks");
        tree.close();
        tell.send("closed").expect("the test waits");
        assert_eq!(look.join().expect("it looked"), Ok(()));
        assert_eq!(
            told.iter().take(2).collect::<Vec<_>>(),
            ["looked", "closed"]
        );
        assert!(tree.tip().is_err());
    }
}
