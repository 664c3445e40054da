//! A file on its way to becoming an object.

use std::io::IoSlice;

use penstock_base::{Payload, random};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{
        AtFlags, Mode, OFlags, RenameFlags, fchmod, fstat, fsync, futimens, linkat, openat,
        renameat_with, unlinkat,
    },
    io::{Errno, pwritev},
};

use super::{
    attributes::Attributes,
    problem::Attempt,
    version::{APPENDABLE_BIT, Version, unique_timestamps},
};
use crate::WriteCondition;

/// Slices in one write (`IOV_MAX` of limits.h).
const SLICES_MAX: usize = 1024;

/// A new file in the staging directory. It is removed again unless it is moved to its place.
pub(super) struct Draft<'a> {
    staging: BorrowedFd<'a>,
    name: String,
    file: OwnedFd,
    placed: bool,
}

impl<'a> Draft<'a> {
    pub(super) fn create(staging: BorrowedFd<'a>) -> Attempt<Self> {
        let name = random::token();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(staging, &name, flags, Mode::from_raw_mode(0o666))?;
        Ok(Self {
            staging,
            name,
            file,
            placed: false,
        })
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Gives the finished file its attributes and a modification time of its own, and makes it
    /// durable if asked to.
    pub(super) fn seal(&self, attributes: &Attributes, durable: bool) -> Attempt<Version> {
        attributes.write(self.file())?;
        futimens(&self.file, &unique_timestamps())?;
        if durable {
            fsync(&self.file)?;
        }
        Ok(Version::of(&fstat(&self.file)?))
    }

    /// Marks the file as begun by an append.
    pub(super) fn mark_appendable(&self) -> Attempt<()> {
        let mode = fstat(&self.file)?.st_mode | APPENDABLE_BIT;
        Ok(fchmod(&self.file, Mode::from_raw_mode(mode))?)
    }

    /// Moves the file to `name` in `directory`.
    pub(super) fn move_to(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &str,
        condition: &WriteCondition,
    ) -> Result<(), Errno> {
        let flags = match condition {
            WriteCondition::Always | WriteCondition::IfMatch(_) => RenameFlags::empty(),
            WriteCondition::IfAbsent => RenameFlags::NOREPLACE,
        };
        match renameat_with(self.staging, &self.name, directory, name, flags) {
            // Some file systems do not know NOREPLACE; a link never replaces anything.
            Err(Errno::INVAL | Errno::NOSYS) if *condition == WriteCondition::IfAbsent => {
                linkat(self.staging, &self.name, directory, name, AtFlags::empty())?;
            }
            moved => {
                moved?;
                self.placed = true;
            }
        }
        Ok(())
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.placed
            && let Err(error) = unlinkat(self.staging, &self.name, AtFlags::empty())
        {
            tracing::warn!(%error, name = self.name, "a staged file stays until it is swept");
        }
    }
}

/// Writes all of `payload` at `offset`.
pub(super) fn write_all(file: BorrowedFd<'_>, payload: &Payload, offset: u64) -> Attempt<()> {
    let mut slices: Vec<IoSlice<'_>> = payload
        .slices()
        .iter()
        .map(|slice| IoSlice::new(slice))
        .collect();
    let mut rest = &mut slices[..];
    let mut position = offset;
    while !rest.is_empty() {
        let count = rest.len().min(SLICES_MAX);
        let written = match pwritev(file, &rest[..count], position) {
            Err(Errno::INTR) => continue,
            Ok(0) => return Err(Errno::IO.into()),
            written => written?,
        };
        position += written as u64;
        IoSlice::advance_slices(&mut rest, written);
    }
    Ok(())
}
