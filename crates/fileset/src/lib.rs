//! A fileset: a whole POSIX file system on any bucket.
//!
//! Metadata lives in a transactional [`engine`], data as immutable objects in the bucket. From above:
//!
//! | part | what it does |
//! |---|---|
//! | [`FilesetVolume`] | the file system as doors know it: references, handles, and each operation handed down |
//! | `files` | open files: what was written and not saved, saving, reading, cutting |
//! | `operations` | POSIX, once: what each operation does to keys, in one transaction of the engine |
//! | `schema` | which keys there are and what their values say; versioned |
//! | `data` | objects in the bucket: runs of bytes with checksums, and which files share one |
//! | `machines` | what others change who have the same file system at once |
//! | [`engine`] | ordered keys, changed by operations one after the other; nothing of files in it |
//! | [`check`] | whether all of it fits together |
//! | [`garbage`] | objects that no file needs |
//! | [`dumps`] | all keys in one stream of bytes, and from one engine into another |
//! | [`compression`] | how what is saved is compressed |
//! | [`quotas`] | what users, groups and directories may use |
//! | [`snapshots`] | the tree as it was, and what is kept for that |
//! | [`trash`] | removed files, for as long as they are kept |
//! | [`schedule`] | snapshots and dumps that are made at their times |
//!
//! The order that keeps a file system whole: bytes go into the bucket first, then the metadata refers to them, then
//! the metadata is synced, then somebody is told; and an object is deleted only when it is durable that nothing
//! refers to it. What was decided and why, and what is yet to come, is in `docs/decisions/fileset.md`; what each
//! operation promises in `docs/semantics/fileset.md`.

mod calls;
pub mod check;
mod collector;
pub mod compression;
mod data;
pub mod dumps;
mod durability;
mod encryption;
pub mod engine;
mod errors;
mod files;
pub mod garbage;
mod held;
mod label;
mod listings;
mod machines;
mod metrics;
mod numbers;
mod operations;
pub mod quotas;
pub mod schedule;
mod schema;
pub mod snapshots;
pub mod trash;
mod uploads;
mod usage;
mod volume;

pub use data::{Ahead, Inlined, ObjectId, Spool, unchanging};
pub use durability::Durability;
pub use encryption::{Encryption, EncryptionError};
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use label::try_to_read_label;
pub use label::{Label, LabelError};
pub use schema::{BLOCK_SIZE, FORMAT_VERSION, Format};
pub use usage::{Usage, format_of, generation_of, usage};
pub use volume::{AccessTimes, Coherence, FilesetVolume, Opening};
