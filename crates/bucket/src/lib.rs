//! The bucket volume: a file is an object.
//!
//! `a/b/c` in the mount is the object `a/b/c` in the bucket, byte for byte, so that whoever uses
//! the bucket directly and whoever uses the mount see the same things. Files are read in any
//! order. In *streaming* mode they are written from front to end, and nothing of them touches a
//! local disk; in *staged* mode they are written anywhere, into a staging directory. Either way
//! nothing of a written file is visible in the bucket before it is closed or synced.
//!
//! - [`mount`]: what every part of a volume needs, and which parts there are.
//! - [`inode`]: which number is which name, what is known about it, and for how long.
//! - [`lookup`], [`listing`], [`attributes`]: looking, at the price of as few requests as can be.
//! - [`files`], [`open_file`]: reading a pinned version, writing a stream, making it durable.
//! - [`staged`]: what an open file is in staged mode, above the staging area of `transfer`.
//! - [`names`], [`rename`]: changing the namespace.
//! - [`write_back`]: changes of names that the store gets behind them.
//! - [`posix`], [`metadata`]: owner, mode, times and the like, kept in the metadata of objects.
//! - [`errors`]: what a failed request means to a file.
//!
//! `docs/semantics/bucket.md` says what each operation does, what it costs and how it fails, and
//! names the test that shows it.

#![allow(rustdoc::private_intra_doc_links)]

mod attributes;
mod content_type;
mod errors;
mod files;
mod freed;
mod gauges;
mod handles;
mod inode;
mod key;
mod learning;
mod listing;
mod lookup;
mod metadata;
mod metrics;
mod mount;
mod names;
mod open_file;
mod posix;
mod rename;
mod settings;
mod staged;
mod volume;
mod write_back;

pub use content_type::ContentTypes;
pub use metrics::HIDDEN_REASONS;
pub use penstock_transfer::staging::{
    AT_ONCE_DEFAULT, MAX_DIRTY_DEFAULT, PUT_MAX_DEFAULT, Staging, StagingError, StagingSettings,
    has_unsaved,
};
pub use settings::{
    BucketSettings, Fsync, METADATA_REQUESTS_DEFAULT, MetadataSettings, RENAME_DIR_LIMIT_DEFAULT,
    SaveBehind,
};
pub use volume::BucketVolume;
