//! What is durable when `fsync` and `close` return.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where what was synced is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// On the disk of this machine: the metadata alone there, small files until the bucket has them.
    #[default]
    Local,
    /// In the bucket, with its metadata: the file system survives the loss of its machine.
    Store,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Store => "store",
        })
    }
}
