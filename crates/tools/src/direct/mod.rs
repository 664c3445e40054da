//! `cp` from and to volumes without a mount: into a bucket or a fileset, out of one, or from one to another.
//!
//! What a copy asks of its sides stands in [`tree`](crate::tree): files of this machine and a volume are each of them. [`plan`] decides what becomes what, [`job`] walks, [`file`](mod@file) copies one file,
//! [`links`] keeps several names of one file together, [`prune`] removes from a mirror what its source has not, [`patience`] ends a copy whose store is dead. The
//! settings mean what they mean in [`copy`](mod@crate::copy), which is for copies within this machine.
//!
//! A file has its name only when it is whole: it is written under another name first, or where a volume shows what is
//! written only when it is saved, under its own.

mod file;
mod job;
mod links;
mod patience;
mod plan;
mod prune;

use std::{ffi::CString, path::PathBuf};

use crate::{
    Report, Stop,
    copy::Settings,
    volume::VolumeTree,
    work::{Crew, Order},
};

use job::Direct;

/// Where something is that is copied, or where its copy is to be.
#[derive(Debug, Clone)]
pub enum Place {
    /// On this machine.
    Local(PathBuf),
    /// In a volume.
    Volume(VolumePlace),
}

/// A path in a volume.
#[derive(Debug, Clone)]
pub struct VolumePlace {
    /// The volume.
    pub tree: VolumeTree,
    /// Owners, modes and times are kept in it.
    pub keeps_metadata: bool,
    /// The names that lead there from its root; none for the root itself.
    pub path: Vec<CString>,
    /// What it was called by whoever named it.
    pub shown: String,
    /// The last name in that, which a copy of the root of the volume has.
    pub name: CString,
    /// It was named with a slash at its end: it is a directory, and for a source of a bucket it has something in it.
    pub is_directory: bool,
}

/// Copies `sources` to `target`. What could not be copied stands in `report`.
pub fn copy(sources: &[Place], target: &Place, settings: &Settings, report: &Report, stop: &Stop) {
    let job = Direct::new(settings, report, stop);
    let plan = match plan::plan(sources, target, &job) {
        Ok(plan) => plan,
        Err(refused) => return report.fail(refused),
    };
    Crew::run(&job, settings.threads, Order::Newest, stop, |crew| {
        for task in plan {
            crew.submit(task);
        }
    });
}

#[cfg(test)]
mod tests;
