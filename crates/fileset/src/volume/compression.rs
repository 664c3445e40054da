//! Compression of what a file system that is open saves.

use penstock_base::FsResult;

use super::FilesetVolume;
use crate::compression::{self, Compression};

impl FilesetVolume {
    /// How what is saved is compressed: see [`compression::get`].
    pub async fn compression(&self) -> FsResult<Compression> {
        compression::get(&*self.parts.engine).await
    }

    /// Has what is saved from now on compressed so: see [`compression::set`].
    pub async fn set_compression(&self, compression: Compression) -> FsResult<()> {
        compression::set(&*self.parts.engine, compression).await
    }
}
