//! All keys of a file system on their way: into a dump, out of one, or from one engine straight into another.
//!
//! ```text
//!   engine ─ freeze ─► pages ─► blocks, compressed and summed ─► a file, or an object `dump/NAME`     [`write`]
//!                        │
//!        dump ─ read ─► pages ─► batches, each with a note of how far they are ─► an empty engine     [`carry`]
//!                                         all read back and compared ─► visible                       [`Carried`]
//! ```
//!
//! A page has at most [`PAGE_BYTES`] of keys and values or [`PAGE_KEYS`] keys, and no more than one is in memory. Objects are
//! not in a dump, only what says where they are: who keeps one keeps its objects, for which a snapshot is there.
//!
//! What belongs to the machines that have the file system is not brought along (`carried`): who holds files without a
//! name, locks, whose objects are whose. Files without a name are collected by who opens the file system next.
//!
//! An engine into which keys are brought has no head ([`crate::Format`]) until it has all of them and they were compared, so that
//! nobody opens it before. Who is interrupted goes on behind the last batch.

mod bucket;
mod carrying;
mod format;
mod making;
mod pages;

use serde::{Deserialize, Serialize};

pub use self::{
    bucket::{DumpObject, DumpObjectSource, Kept, list, remove},
    carrying::{Carried, carry},
    format::{Reading, Sink, Source, Summary, write},
    making::{Made, Making, NewDump, remove_older},
    pages::{Digest, FrozenPages, Page, Pages},
};
pub(crate) use making::give_up;

use crate::Label;

/// Bytes of keys and values in a page, but for the last key of it.
pub const PAGE_BYTES: usize = 1 << 20;
/// Keys in a page.
pub const PAGE_KEYS: usize = 8192;
/// What the keys of dumps in the bucket begin with.
pub const DUMPS: &str = "dump/";

/// What a dump says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The label of the file system, when the dump was begun.
    pub label: Label,
    /// Which dump: a random number.
    pub dump: u64,
    /// When it was begun, in seconds of Unix time.
    pub taken: u64,
    /// Where the metadata was: `embedded`, `shipped`, `postgresql` or `tikv`.
    pub engine: String,
}

/// Reads bytes as a dump, for a fuzz target.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub fn try_to_read_dump(bytes: &[u8]) {
    format::try_to_read(bytes);
}
