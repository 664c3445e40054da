//! What a file system says of itself and how much is in it, in constant time.

use penstock_base::{FsError, FsResult};

use crate::{
    engine::{Engine, Reads, counter, mark, query},
    schema::{self, Format},
};

/// How much is in a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Files of all kinds, directories and those without a name too.
    pub files: u64,
    /// Bytes of files that were written, holes apart.
    pub bytes: u64,
    /// Of these, bytes that the bucket lacks since they are compressed.
    pub spared: u64,
}

/// How much is in the file system.
pub async fn usage(engine: &dyn Engine) -> FsResult<Usage> {
    query(engine, |reads| usage_of(reads)).await
}

pub(crate) fn usage_of(reads: &dyn Reads) -> FsResult<Usage> {
    let number = |key| -> FsResult<u64> {
        let value = counter(reads.get(key)?.as_ref());
        Ok(u64::try_from(value).unwrap_or_default())
    };
    Ok(Usage {
        files: number(schema::FILES)?,
        bytes: number(schema::BYTES)?,
        spared: number(schema::SPARED)?,
    })
}

/// In which [`crate::Label::generation`] the file system is.
pub async fn generation_of(engine: &dyn Engine) -> FsResult<u64> {
    query(engine, |reads| {
        Ok(mark(reads.get(schema::GENERATION)?.as_ref()))
    })
    .await
}

/// Which file system this is. Fails with `NotFound` where there is none yet, and with `Unsupported` if another version
/// of Penstock is needed.
pub async fn format_of(engine: &dyn Engine) -> FsResult<Format> {
    query(engine, |reads| {
        let value = reads.get(schema::FORMAT)?;
        Format::decode(&value.ok_or(FsError::NotFound)?)
    })
    .await
}
