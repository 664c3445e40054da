//! The objects of the log and of checkpoints in the bucket, whole: written where none is, read, listed, deleted.

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::Payload;
use penstock_object::{
    DELETE_MANY_MAX, ErrorKind, GetOptions, Key, ListOptions, ObjectError, PutOptions, Store,
    WriteCondition,
};

use super::format::{OBJECT_MAX, damaged};
use crate::engine::{EngineError, EngineResult};

/// What became of an object that was to be new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Created {
    /// It is there, with these bytes.
    Done,
    /// Another one was there before, with these.
    Taken(Bytes),
}

/// The bucket of one file system.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    store: Arc<dyn Store>,
    pub(super) identity: u64,
}

impl Bucket {
    pub(super) fn new(store: Arc<dyn Store>, identity: u64) -> Self {
        Self { store, identity }
    }

    /// Whether the store is known to refuse a write where something is. Nothing is known before the first of them.
    pub(super) fn refuses_overwriting(&self) -> bool {
        self.store.capabilities().write_if_absent
    }

    /// Writes an object where none is. One that has these very bytes is the own one: an answer was lost.
    pub(super) async fn create(&self, name: &str, body: Payload) -> EngineResult<Created> {
        let options = PutOptions {
            condition: WriteCondition::IfAbsent,
            ..PutOptions::default()
        };
        let written = self.store.put(&key(name)?, body.clone(), options).await;
        match written {
            Ok(_) => return Ok(Created::Done),
            Err(error) if error.kind == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failure(&error)),
        }
        match self.read(name).await? {
            Some(there) if there[..] == body.to_vec()[..] => Ok(Created::Done),
            Some(there) => Ok(Created::Taken(there)),
            None => Err(EngineError::Store(format!(
                "{name} is there and then it is not"
            ))),
        }
    }

    /// Reads an object, if it is there.
    pub(super) async fn read(&self, name: &str) -> EngineResult<Option<Bytes>> {
        let mut bytes = Vec::new();
        let options = GetOptions {
            // No more, whatever its sender says.
            range: Some(0..OBJECT_MAX),
            ..GetOptions::default()
        };
        let got = self.store.get(&key(name)?, options, &mut bytes).await;
        match got {
            Ok(got) if got.info.size == bytes.len() as u64 => Ok(Some(bytes.into())),
            Ok(_) => Err(damaged(name)),
            Err(error) if error.kind == ErrorKind::InvalidRange => Err(damaged(name)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failure(&error)),
        }
    }

    /// All keys with a prefix, in order, with the sizes of their objects.
    pub(super) async fn list(&self, prefix: &str) -> EngineResult<Vec<(String, u64)>> {
        let mut options = ListOptions {
            prefix: prefix.to_owned(),
            ..ListOptions::default()
        };
        let mut found = Vec::new();
        loop {
            let page = self.store.list(options.clone()).await;
            let page = page.map_err(|error| failure(&error))?;
            let objects = page.objects.into_iter();
            found.extend(objects.map(|object| (object.key, object.size)));
            if page.continuation.is_none() {
                return Ok(found);
            }
            options.continuation = page.continuation;
        }
    }

    /// Deletes objects. Fails if any could not be; the others are gone then all the same.
    pub(super) async fn delete(&self, names: &[String]) -> EngineResult<()> {
        let mut failures = Vec::new();
        for some in names.chunks(DELETE_MANY_MAX) {
            let keys = some.iter().map(|name| key(name));
            let keys = keys.collect::<EngineResult<Vec<_>>>()?;
            let deleted = self.store.delete_many(&keys).await;
            failures.extend(deleted.map_err(|error| failure(&error))?);
        }
        match failures.first() {
            None => Ok(()),
            Some(first) => Err(EngineError::Store(format!(
                "{} of {} objects could not be deleted; {}: {} {}",
                failures.len(),
                names.len(),
                first.key,
                first.code,
                first.message
            ))),
        }
    }
}

fn key(name: &str) -> EngineResult<Key> {
    Key::new(name).map_err(|error| EngineError::Store(error.to_string()))
}

fn failure(error: &ObjectError) -> EngineError {
    EngineError::Store(error.to_string())
}
