//! The body of `SETATTR`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use penstock_vfs::{AttributeChanges, HandleId, TimeChange};

use super::{ParseError, fields::Fields};

/// Which fields of the body hold something.
mod valid {
    pub(super) const MODE: u32 = 1 << 0;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const SIZE: u32 = 1 << 3;
    pub(super) const ACCESSED: u32 = 1 << 4;
    pub(super) const MODIFIED: u32 = 1 << 5;
    pub(super) const HANDLE: u32 = 1 << 6;
    pub(super) const ACCESSED_NOW: u32 = 1 << 7;
    pub(super) const MODIFIED_NOW: u32 = 1 << 8;
}

/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o7777;

pub(super) fn set_attributes(mut fields: Fields<'_>) -> Result<AttributeChanges, ParseError> {
    let bits = fields.u32()?;
    fields.skip(4)?;
    let handle = HandleId(fields.u64()?);
    let size = fields.u64()?;
    fields.skip(8)?; // lock owner
    let (accessed, modified) = (fields.u64()?, fields.u64()?);
    fields.skip(8)?; // time of change, which the volume sets itself
    let (accessed_nanos, modified_nanos) = (fields.u32()?, fields.u32()?);
    fields.skip(4)?;
    let mode = fields.u32()?;
    fields.skip(4)?;
    let (uid, gid) = (fields.u32()?, fields.u32()?);
    let has = |bit: u32| bits & bit != 0;
    let time = |set: u32, now: u32, seconds: u64, nanos: u32| {
        has(set | now).then(|| match has(now) {
            true => TimeChange::Now,
            false => TimeChange::To(time_of(seconds, nanos)),
        })
    };
    Ok(AttributeChanges {
        permissions: has(valid::MODE).then_some((mode & PERMISSIONS) as u16),
        uid: has(valid::UID).then_some(uid),
        gid: has(valid::GID).then_some(gid),
        size: has(valid::SIZE).then_some(size),
        accessed: time(
            valid::ACCESSED,
            valid::ACCESSED_NOW,
            accessed,
            accessed_nanos,
        ),
        modified: time(
            valid::MODIFIED,
            valid::MODIFIED_NOW,
            modified,
            modified_nanos,
        ),
        handle: has(valid::HANDLE).then_some(handle),
        only_if_changed_at: None,
    })
}

/// The time of signed seconds and nanoseconds since 1970; what no `SystemTime` can hold is 1970.
fn time_of(seconds: u64, nanos: u32) -> SystemTime {
    let seconds = seconds.cast_signed();
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = if seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    start
        .and_then(|start| start.checked_add(Duration::from_nanos(nanos.into())))
        .unwrap_or(UNIX_EPOCH)
}
