//! Where written bytes go: into an upload that appears as a whole, or piece by piece to the end
//! of an appendable object.

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::{MIB, Payload};
use penstock_object::{ErrorKind, HeadOptions, Key, ObjectKind, PutOptions, Store};
use penstock_transfer::{ObjectVersion, TransferResult, Writer};

/// Bytes that are collected before they are appended.
const APPEND_CHUNK: usize = 8 * MIB as usize;
/// Bytes up to which a write is copied, so that it does not hold a larger buffer.
const APPEND_COPY_MAX: usize = 128 << 10;

/// Where written bytes go.
#[derive(Debug)]
pub(crate) enum Sink {
    /// An upload that is visible when it is finished.
    Upload(Box<Writer>, Key),
    /// An object that grows.
    Append(Appender),
}

impl Sink {
    /// The kind of object that comes to be.
    pub(crate) fn object_kind(&self) -> ObjectKind {
        match self {
            Self::Upload(..) => ObjectKind::Normal,
            Self::Append(_) => ObjectKind::Appendable,
        }
    }

    /// Bytes that the object has, or would have if it were finished now.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Upload(writer, _) => writer.size(),
            Self::Append(appender) => appender.size(),
        }
    }

    /// Adds `data` at the end. After an error the sink must be dropped.
    pub(crate) async fn write(&mut self, data: Bytes) -> TransferResult<()> {
        match self {
            Self::Upload(writer, _) => writer.write(data).await,
            Self::Append(appender) => appender.write(data).await,
        }
    }

    /// Makes everything durable and visible, and goes on after it where that is cheaper than
    /// beginning anew.
    pub(crate) async fn sync(mut self) -> TransferResult<(ObjectVersion, Option<Self>)> {
        match &mut self {
            Self::Upload(writer, key) => {
                let finished = writer.sync().await?;
                let (key, etag) = (key.clone(), finished.stored.etag);
                Ok((
                    ObjectVersion {
                        key,
                        etag,
                        size: finished.size,
                    },
                    Some(self),
                ))
            }
            Self::Append(_) => Ok((self.finish().await?, None)),
        }
    }

    /// Makes everything durable and visible.
    pub(crate) async fn finish(self) -> TransferResult<ObjectVersion> {
        match self {
            Self::Upload(writer, key) => {
                let finished = writer.finish().await?;
                Ok(ObjectVersion {
                    key,
                    etag: finished.stored.etag,
                    size: finished.size,
                })
            }
            Self::Append(appender) => appender.finish().await,
        }
    }

    /// Gives up what is not visible yet.
    pub(crate) async fn abort(self) {
        if let Self::Upload(writer, _) = self {
            writer.abort().await;
        }
    }
}

/// Appends to an object in chunks.
#[derive(Debug)]
pub(crate) struct Appender {
    store: Arc<dyn Store>,
    key: Key,
    /// Bytes that the object has.
    position: u64,
    /// Whether an object of another content must be removed first.
    replaces: bool,
    /// Whether the object does not exist yet.
    absent: bool,
    pending: Payload,
}

impl Appender {
    /// Appends to an appendable object of `position` bytes.
    pub(super) fn continuing(store: &Arc<dyn Store>, key: Key, position: u64) -> Self {
        let store = Arc::clone(store);
        Self {
            store,
            key,
            position,
            replaces: false,
            absent: false,
            pending: Payload::new(),
        }
    }

    /// Begins a new appendable object. If `replaces`, the one that is there is removed first,
    /// since only then can appending begin at 0.
    pub(super) fn beginning(store: &Arc<dyn Store>, key: Key, replaces: bool) -> Self {
        let store = Arc::clone(store);
        Self {
            store,
            key,
            position: 0,
            replaces,
            absent: true,
            pending: Payload::new(),
        }
    }

    fn size(&self) -> u64 {
        self.position + self.pending.len() as u64
    }

    async fn write(&mut self, data: Bytes) -> TransferResult<()> {
        let small = data.len() <= APPEND_COPY_MAX;
        self.pending.push(if small {
            Bytes::copy_from_slice(&data)
        } else {
            data
        });
        if self.pending.len() >= APPEND_CHUNK {
            self.append().await?;
        }
        Ok(())
    }

    async fn append(&mut self) -> TransferResult<()> {
        if std::mem::take(&mut self.replaces) {
            self.store.delete(&self.key).await?;
        }
        let body = self.pending.clone();
        let options = PutOptions::default();
        let appended = self
            .store
            .append(&self.key, self.position, body, options)
            .await?;
        self.pending = Payload::new();
        self.position = appended.next_position;
        self.absent = false;
        Ok(())
    }

    async fn finish(mut self) -> TransferResult<ObjectVersion> {
        if self.absent || !self.pending.is_empty() {
            self.append().await?;
        }
        // Not every answer to an append names the version, and the next reader needs it.
        let info = self.store.head(&self.key, HeadOptions::default()).await?;
        if info.size != self.position {
            let error = penstock_object::ObjectError::new(
                ErrorKind::PositionMismatch,
                penstock_object::Operation::Append,
                "another client appended to the object",
            );
            return Err(error.about(&self.key).into());
        }
        Ok(ObjectVersion {
            key: self.key,
            etag: info.etag,
            size: info.size,
        })
    }
}
