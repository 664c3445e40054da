//! What is durable when `fsync` and `close` return.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where what was synced is. In both cases the bytes are in the bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The metadata is on the disk of this machine alone.
    #[default]
    Local,
    /// The metadata is in the bucket too: the file system survives the loss of its machine.
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
