//! Asking the store for the sizes that a manifest lacks.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use penstock_object::{ErrorKind, FlatTime, HeadOptions, Key, Store};

use crate::{SnapshotError, SnapshotObject, Timestamp};

/// A row of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) key: String,
    pub(super) size: u64,
    pub(super) modified: Timestamp,
    pub(super) etag: String,
}

impl Known {
    pub(super) fn of(object: &SnapshotObject<'_>) -> Self {
        Self {
            key: String::from_utf8_lossy(object.key).into_owned(),
            size: object.size,
            modified: object.modified,
            etag: object.etag.to_owned(),
        }
    }

    pub(super) fn object(&self) -> SnapshotObject<'_> {
        SnapshotObject {
            key: self.key.as_bytes(),
            size: self.size,
            modified: self.modified,
            etag: &self.etag,
            target: "",
        }
    }
}

/// Asks for sizes, a number of them at once.
#[derive(Debug)]
pub(super) struct Asking<'a> {
    store: &'a Arc<dyn Store>,
    concurrency: usize,
}

impl<'a> Asking<'a> {
    pub(super) fn new(store: &'a Arc<dyn Store>, concurrency: usize) -> Self {
        Self {
            store,
            concurrency: concurrency.max(1),
        }
    }

    /// The rows in order, each with all that the store knows where it lacked a size, or `None` where
    /// there is no such object.
    pub(super) async fn complete(
        &self,
        rows: Vec<Known>,
    ) -> Result<Vec<Option<Known>>, SnapshotError> {
        let answers = stream::iter(rows).map(|row| self.ask(row));
        answers.buffered(self.concurrency).try_collect().await
    }

    async fn ask(&self, row: Known) -> Result<Option<Known>, SnapshotError> {
        if !row.lacks_size() {
            return Ok(Some(row));
        }
        let key = Key::new(&row.key).map_err(|error| {
            SnapshotError::Invalid(format!(
                "the manifest has the key `{:.80}`: {error}",
                row.key
            ))
        })?;
        match self.store.head(&key, HeadOptions::default()).await {
            Ok(info) => {
                let modified = FlatTime::from(info.modified);
                Ok(Some(Known {
                    key: row.key,
                    size: info.size,
                    modified: Timestamp {
                        seconds: modified.seconds,
                        nanoseconds: modified.nanoseconds,
                    },
                    etag: info.etag.as_str().to_owned(),
                }))
            }
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
