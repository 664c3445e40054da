//! `cp` by many threads.
//!
//! A directory is made, filled and then given its times and mode, by who leaves it last. Files are copied in batches
//! by whoever is free, large ones in ranges by several. A file has its name only when it is whole, so that a copy
//! that was cut off is gone on with: what is there and the same stays.
//!
//! [`plan`] decides what becomes what and refuses what cannot be right, [`job`] walks, [`file`](mod@file) copies one file,
//! [`links`] keeps several names of one file together, [`prune`] removes from a mirror what its source has not, [`made`] keeps two names apart that are one in the target, [`shared`] leaves alone what copies share with others.

mod branch;
mod file;
mod job;
mod large;
mod links;
mod made;
mod plan;
mod prune;
mod shared;
#[cfg(test)]
mod tests;

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
};

use crate::{
    Patterns, Report, Stop, Threads,
    work::{Crew, Order},
};

use job::Copying;

/// What a copy keeps besides content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits.
    pub mode: bool,
    /// User and group, as far as this process may.
    pub owner: bool,
    /// Times, to the nanosecond.
    pub times: bool,
    /// Extended attributes, access control lists among them.
    pub attributes: bool,
    /// That several names are one file.
    pub links: bool,
}

impl Preserve {
    /// Everything.
    pub const ALL: Self = Self {
        mode: true,
        owner: true,
        times: true,
        attributes: true,
        links: true,
    };
    /// What cp(1) keeps without options.
    pub const NOTHING: Self = Self {
        mode: false,
        owner: false,
        times: false,
        attributes: false,
        links: false,
    };
}

/// When a file that is there is left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unchanged {
    /// Never.
    Never,
    /// If size and time are the same.
    ByTime,
    /// If the content is the same.
    ByContent,
}

/// Why the file that is there stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stays {
    /// It has the content of its source.
    Same,
    /// It is newer, whatever it has.
    Newer,
}

/// Why something stays of a directory that was to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kept {
    /// Patterns name it.
    LeftOut,
    /// It could not be removed, which was told.
    Told,
}

impl From<Kept> for io::Error {
    /// Why nothing takes the place of the directory.
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::LeftOut => in_the_way(),
            Kept::Told => Self::other(ToldBefore),
        }
    }
}

/// A directory is where a file is to be, and stays.
pub(crate) fn in_the_way() -> io::Error {
    io::Error::other("a directory has the name of the copy")
}

/// A failure of which a line says more.
#[derive(Debug, thiserror::Error)]
#[error("it was told before")]
struct ToldBefore;

/// Whether another line tells of a failure.
pub(crate) fn was_told(error: &io::Error) -> bool {
    let inner = error.get_ref();
    inner.is_some_and(<dyn Error + Send + Sync>::is::<ToldBefore>)
}

/// How a copy is made.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directories with what is in them; links as links, and what is no file as what it is.
    pub recursive: bool,
    /// What is mounted below a source is left out.
    pub one_file_system: bool,
    /// See [`Preserve`].
    pub preserve: Preserve,
    /// See [`Unchanged`].
    pub unchanged: Unchanged,
    /// The target is what the one source becomes, even if it is a directory.
    pub exact: bool,
    /// Removed from the target is what the source has not.
    pub delete: bool,
    /// A file that is as new as its source, or newer, stays.
    pub update: bool,
    /// Nothing is done, only told.
    pub dry_run: bool,
    /// What was copied is read again and compared.
    pub verify: bool,
    /// What is left out.
    pub exclude: Patterns,
    /// Permission bits that new files do not get, where modes are not kept.
    pub umask: u32,
    /// How many threads.
    pub threads: Threads,
}

impl Settings {
    /// Rights of a new directory while it is filled. One whose mode is kept is closed: it gets its own also from a copy that
    /// goes on where this one was cut off, and any other only from who made it.
    pub(crate) fn mode_while_filled(&self, source: u32) -> u32 {
        match self.preserve.mode {
            true => 0o700,
            false => source & 0o777 & !self.umask | 0o700,
        }
    }
}

/// Copies `sources` to `target`. What could not be copied stands in `report`.
pub fn copy(sources: &[PathBuf], target: &Path, settings: &Settings, report: &Report, stop: &Stop) {
    let plan = match plan::plan(sources, target, settings, report) {
        Ok(plan) => plan,
        Err(refused) => return report.fail(refused),
    };
    let job = Copying::new(settings, report, stop);
    Crew::run(&job, settings.threads, Order::Newest, stop, |crew| {
        for task in plan {
            crew.submit(task);
        }
    });
}
