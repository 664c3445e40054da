//! What results are made of.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use penstock_vfs::{Attributes, BriefAttributes, Change, Device, FileKind, SpecialFile};

use crate::protocol::xdr::Encoder;

/// Which file system files are of: a client tells files apart by this and the number of the inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId(pub(crate) u64);

/// A fattr3.
pub(crate) fn attributes(out: &mut Encoder, file: &Attributes, FileId(system): FileId) {
    let (kind, device) = kind_of(file.kind);
    for word in [
        kind,
        file.permissions.into(),
        file.links,
        file.uid,
        file.gid,
    ] {
        out.u32(word);
    }
    out.u64(file.size);
    out.u64(file.allocated);
    let (major, minor) = numbers(device);
    out.u32(major);
    out.u32(minor);
    out.u64(system);
    out.u64(file.inode.0);
    for moment in [file.accessed, file.modified, file.changed] {
        time(out, moment);
    }
}

/// A post_op_attr.
pub(crate) fn post_operation(out: &mut Encoder, file: Option<&Attributes>, system: FileId) {
    out.option(file, |out, file| attributes(out, file, system));
}

/// A wcc_data.
pub(crate) fn weak_consistency(out: &mut Encoder, change: &Change, system: FileId) {
    out.option(change.before.as_ref(), brief);
    post_operation(out, change.after.as_ref(), system);
}

fn brief(out: &mut Encoder, before: &BriefAttributes) {
    out.u64(before.size);
    time(out, before.modified);
    time(out, before.changed);
}

fn time(out: &mut Encoder, moment: SystemTime) {
    let since = time_of(moment);
    out.u32(since.as_secs() as u32);
    out.u32(since.subsec_nanos());
}

/// A moment as 32 bits of seconds since 1970 can tell it.
fn time_of(moment: SystemTime) -> Duration {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.min(Duration::from_secs(u32::MAX.into()))
}

fn kind_of(kind: FileKind) -> (u32, Device) {
    match kind {
        FileKind::Regular => (1, Device(0)),
        FileKind::Directory => (2, Device(0)),
        FileKind::Special(SpecialFile::BlockDevice(device)) => (3, device),
        FileKind::Special(SpecialFile::CharacterDevice(device)) => (4, device),
        FileKind::Symlink => (5, Device(0)),
        FileKind::Special(SpecialFile::Socket) => (6, Device(0)),
        FileKind::Special(SpecialFile::Pipe) => (7, Device(0)),
    }
}

/// Major and minor number of what Linux packed into 32 bits.
fn numbers(Device(packed): Device) -> (u32, u32) {
    (
        (packed >> 8) & 0xfff,
        (packed & 0xff) | ((packed >> 12) & 0xfff00),
    )
}
