//! Copies that have more names than their sources, as snapshots by hard links have: nothing changes under the other names.

use std::io;

use rustix::fs::{Mode, Stat};

use super::{
    branch::{Branch, Item},
    file::{is_same_time, open_copy},
    job::Copying,
};
use crate::local;

impl Copying<'_> {
    /// Whether a copy has names that its source has not.
    pub(super) fn is_shared(&self, stat: &Stat, existing: &Stat) -> bool {
        let names = match self.settings.preserve.links {
            true => stat.st_nlink,
            false => 1,
        };
        existing.st_nlink > names
    }

    /// Whether a new copy of the same content would have another owner, mode, time or attributes than the one that is
    /// there. What this process may not set, or the file system does not keep, would differ again each time.
    pub(super) fn would_differ(
        &self,
        branch: &Branch,
        item: &Item,
        (stat, existing): (&Stat, &Stat),
    ) -> io::Result<bool> {
        let keep = self.settings.preserve;
        let has_other_owner = keep.owner && has_other_owner(stat, existing);
        if has_other_owner || (keep.times && !is_same_time(stat, existing)) {
            return Ok(true);
        }
        let (mode, there) = (local::permissions(stat), local::permissions(existing));
        let has_other_mode = keep.mode && mode != there;
        if !has_other_mode && !keep.attributes {
            return Ok(false);
        }
        let copy = open_copy(branch, item)?;
        let wanted = self.wanted_attributes(branch, item, stat)?;
        if local::would_change(&copy, &wanted, &self.kept_attributes(&copy)?) {
            return Ok(true);
        }
        let mode = local::mode_with(&copy, mode, &wanted);
        Ok(keep.mode && settable(mode) != settable(there))
    }
}

fn has_other_owner(stat: &Stat, existing: &Stat) -> bool {
    let is_other_user = stat.st_uid != existing.st_uid;
    let is_other_group = stat.st_gid != existing.st_gid;
    (is_other_user && local::is_root()) || (is_other_group && local::may_give_to(stat.st_gid))
}

/// The rights that this process can set of a file: only root lends those of an owner whom it may not be given to.
fn settable(mode: Mode) -> Mode {
    match local::is_root() {
        true => mode,
        false => mode.difference(local::LENT),
    }
}
