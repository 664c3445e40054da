//! `tar` by many threads.
//!
//! An archive is one stream. Created, its members come in the order of their names; many threads look at files and
//! read them ahead, one writes ([`create`](mod@create)). Extracted, one thread reads; directories are made at once,
//! many threads write files, and what would hinder them, modes and times of directories, comes last
//! ([`extract`](mod@extract)). [`format`](mod@format) knows the bytes.

mod compression;
mod create;
mod extract;
mod format;
mod in_volume;
mod list;
mod names;
mod place;
mod whole_file;

use std::path::PathBuf;

use crate::{Patterns, Report, Stop, Threads, direct::Place};

pub use crate::local::FileId;
pub use compression::Compression;
pub use create::{CreateSettings, create, survey};
pub use extract::{ExtractSettings, extract};
pub use format::{Damage, Format, Kind, Member, Reader};
pub use in_volume::{NewArchive, StoredArchive};
pub use list::list;
pub use whole_file::{WholeFile, Writer, open_in_place};

/// Which members of an archive are meant.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// These, with what is below them; all if there is none.
    pub members: Vec<Vec<u8>>,
    /// Not what these say.
    pub exclude: Patterns,
    /// Each with its size, time and owner.
    pub is_long: bool,
}

/// What an archive is made of.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Where relative paths begin.
    pub base: Place,
    /// What goes in, with what is below.
    pub paths: Vec<PathBuf>,
    /// Files that do not: the archive itself, and what it replaces.
    pub except: Vec<FileId>,
}

/// What a damage means: some of it only for a member, some for the rest of the archive.
fn is_final(damage: &Damage) -> bool {
    !matches!(damage, Damage::Header(_) | Damage::Extension(..))
}

/// Tells of what cannot be read, unless the work is to end, which is no failure.
fn tell_damage(damage: &Damage, report: &Report, stop: &Stop) {
    if !stop.is_set() {
        report.fail(damage);
    }
}

/// How many threads a compression may have.
fn compression_threads(threads: Threads) -> usize {
    match threads {
        Threads::Fixed(count) => count,
        Threads::Measured => penstock_base::processors::count(),
    }
}
