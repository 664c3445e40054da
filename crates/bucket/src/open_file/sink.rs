//! Where written bytes go: into an upload that appears as a whole, or piece by piece to the end
//! of an appendable object.

use bytes::Bytes;
use penstock_object::{Key, ObjectKind, PutOptions};
use penstock_transfer::{Appender, ObjectVersion, TransferResult, Writer};

/// Where written bytes go.
#[derive(Debug)]
pub(crate) enum Sink {
    /// An upload that is visible when it is finished.
    Upload(Box<Writer>, Key),
    /// An object that grows.
    Append(Box<Appender>),
}

impl Sink {
    /// The kind of object that comes to be.
    pub(crate) fn object_kind(&self) -> ObjectKind {
        match self {
            Self::Upload(..) => ObjectKind::Normal,
            Self::Append(_) => ObjectKind::Appendable,
        }
    }

    /// Says how the object is to be described, if it was not begun yet. The condition of
    /// `options` does not count.
    pub(crate) fn describe(&mut self, options: PutOptions) {
        match self {
            Self::Upload(writer, _) => writer.describe(options),
            Self::Append(appender) => appender.describe(options),
        }
    }

    /// Whether an object was begun, so that it can no longer be described.
    pub(crate) fn is_begun(&self) -> bool {
        match self {
            Self::Upload(writer, _) => writer.is_begun(),
            Self::Append(appender) => appender.stored() > 0,
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

    /// Whether something is visible before the sink is finished. Waits for what is under way.
    pub(crate) async fn may_be_stored(&mut self) -> bool {
        match self {
            Self::Upload(..) => false,
            // After a failure nobody knows.
            Self::Append(appender) => appender.settle().await.is_err() || appender.stored() > 0,
        }
    }

    /// Gives up what is not visible yet.
    pub(crate) async fn abort(self) {
        match self {
            Self::Upload(writer, _) => writer.abort().await,
            // An append under way must not come after what follows.
            Self::Append(mut appender) => drop(appender.settle().await),
        }
    }
}
