//! The write-back area: files that can be written anywhere before a store has them.
//!
//! What is written to a [`StagedFile`] lies in a sparse *staging file* until it is saved, and a map of
//! [`Extents`] says for each range whether the staging file has it, or only the store's base version, or neither
//! because it is zero. A save sends what changed and lets the store copy the rest ([`plan`], [`save`]); what is
//! changed meanwhile stays unsaved in just those ranges ([`content`]). What the store got is still here, and can
//! be given up when [`space`] is short; what a closed file leaves is found again by its version ([`closed`]).
//!
//! A process that dies leaves a [`journal`] beside each staging file, of which the next one makes the files that
//! it lost ([`recover`]), and notes of the uploads that it began ([`uploads`]).
//!
//! An area knows files by the ids of their staging files and objects by their keys and versions. Names, inodes
//! and handles, when a file is saved and what is told of it, are the business of the volume that owns the files.
//!
//! # Locks
//!
//! From the outside in; a later one may be taken while an earlier one is held:
//! 1. [`StagedFile::hold_shared`], [`StagedFile::hold_alone`]: the *change* lock says where bytes are. Reads and
//!    writes of the staging file hold it shared; what moves bytes away (a truncation, an eviction), and a save for
//!    the moment in which it begins, holds it alone. Never wait for memory or for the store while holding it.
//! 2. the journal of a file: held while the disk takes a record.
//! 3. what the owner of the file locks before it asks the content (the tree of a bucket).
//! 4. the content of a file, or its staging file's descriptor: work in memory alone ([`penstock_base::InMemory`]).
//! 5. what the owner locks in a callback that shows what the content says (a bucket's view of the file).
//!
//! So a change looks at the content, lets the journal note it, and only then makes it; other changes wait for
//! the journal meanwhile. What is to be removed is handed to a thread behind the files ([`sweep`]).

#![allow(rustdoc::private_intra_doc_links)]

mod area;
mod attempt;
mod closed;
mod content;
mod disk;
mod error;
mod extents;
mod fetch;
mod file;
mod folder;
mod gather;
mod journal;
mod memory;
mod names;
mod notes;
mod plan;
mod recognize;
mod recover;
mod save;
mod space;
mod spans;
mod sweep;
mod sync;
#[cfg(test)]
mod tests;
mod touched;
mod uploads;
mod write;

pub use area::{AT_ONCE_DEFAULT, MAX_DIRTY_DEFAULT, PUT_MAX_DEFAULT, Staging, StagingSettings};
pub use closed::{Closed, Left, Reopened};
pub use content::{Base, Content, Replacing, Snapshot};
pub use disk::{disk_failure, on_worker};
pub use error::StagedError;
pub use extents::{Extents, Held, Piece};
pub use file::{ChangeGuard, Engagement, NewPlace, StagedFile, State};
pub use folder::{FileId, StagingError, has_unsaved};
pub use names::{NameChange, NameChanges, NameLog, Redescription, Removal, SmallObject};
pub use recover::RecoveredFile;
pub use save::staged_size_max;
pub use space::{Payment, Place, Space};
pub use sync::Forced;
pub use uploads::Uploads;
pub use write::{HeldRange, Part, push_zeros};
