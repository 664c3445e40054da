//! Mounts that have little of everything: memory, room for what is not saved, and a store that is slow.

use std::path::Path;

use penstock_devserver::Faults;

use crate::{Bucket, MountOptions};

/// The least memory that a mount takes.
pub const MEMORY: &str = "64MiB";

/// How a mount that is short writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Front to end, without a disk.
    Streaming,
    /// Anywhere, each write as the program makes it.
    Staged,
    /// Anywhere, gathered by the kernel.
    Gathered,
}

impl Mode {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Streaming, Self::Staged, Self::Gathered];
    /// Those in which files can be written anywhere.
    pub const ANYWHERE: [Self; 2] = [Self::Staged, Self::Gathered];
}

/// The options of a mount of `bucket` that is short, and stages below `folder` if it does.
pub fn options(bucket: &Bucket, mode: Mode, folder: &Path) -> MountOptions {
    let options = match mode {
        Mode::Streaming => bucket.options(),
        Mode::Staged | Mode::Gathered => bucket
            .staged_options(folder)
            .option("staging-size", "16MiB")
            .option("max-dirty-data", "5MiB"),
    };
    let options = match mode {
        Mode::Gathered => options.option("writeback-cache", "on"),
        Mode::Streaming | Mode::Staged => options,
    };
    options.option("memory", MEMORY)
}

/// A store that is far away behind a thin line, and does nothing wrong.
pub fn slow_store() -> Faults {
    Faults {
        latency_ms: 20,
        bandwidth_total: Some(30 << 20),
        ..Faults::default()
    }
}
