//! Compression of what is saved: a setting of the file system, which each save looks at.
//!
//! A run that is saved is compressed grain by grain, and each part of it that does not become smaller is stored as it is
//! (`data/compressor.rs`). Extents say how their run lies in its object ([`Frames`](crate::schema::Frames)), so what was
//! saved with one setting is read with every other, and is stored anew only where a chunk is folded.

use penstock_base::FsResult;

pub use crate::schema::Compression;
use crate::{
    engine::{Engine, query, transact},
    operations::raise_format,
    schema::{COMPRESSION, Format},
};

/// How what is saved is compressed.
pub async fn get(engine: &dyn Engine) -> FsResult<Compression> {
    query(engine, |reads| {
        let value = reads.get(COMPRESSION)?;
        value.map_or(Ok(Compression::None), |value| Compression::decode(&value))
    })
    .await
}

/// Has what is saved from now on compressed so, on all machines. Durable when this returns.
pub async fn set(engine: &dyn Engine, compression: Compression) -> FsResult<()> {
    transact(engine, move |transaction| -> FsResult<()> {
        if compression == Compression::None {
            transaction.delete(COMPRESSION);
            return Ok(());
        }
        raise_format(transaction, Format::with_compression)?;
        transaction.put(COMPRESSION, compression.encode());
        Ok(())
    })
    .await?;
    Ok(engine.sync().await?)
}
