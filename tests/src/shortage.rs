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
    /// Anywhere, and saved behind the close.
    Behind,
}

impl Mode {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Streaming, Self::Staged, Self::Gathered, Self::Behind];
    /// Those in which files can be written anywhere.
    pub const ANYWHERE: [Self; 3] = [Self::Staged, Self::Gathered, Self::Behind];

    /// `options` of a mount that writes so.
    #[must_use]
    pub fn choose(self, options: MountOptions) -> MountOptions {
        match self {
            Self::Streaming | Self::Staged => options,
            Self::Gathered => options.option("writeback-cache", "on"),
            Self::Behind => options
                .option("save", "behind")
                .option("save-after", "200ms"),
        }
    }
}

/// The options of a mount of `bucket` that is short, and stages below `folder` if it does.
pub fn options(bucket: &Bucket, mode: Mode, folder: &Path) -> MountOptions {
    let options = match mode {
        Mode::Streaming => bucket.options(),
        Mode::Staged | Mode::Gathered | Mode::Behind => bucket
            .staged_options(folder)
            .option("staging-size", "16MiB")
            .option("max-dirty-data", "5MiB"),
    };
    mode.choose(options).option("memory", MEMORY)
}

/// A store that is far away behind a thin line, and does nothing wrong.
pub fn slow_store() -> Faults {
    Faults {
        latency_ms: 20,
        bandwidth_total: Some(30 << 20),
        ..Faults::default()
    }
}
