//! Files that are read into an archive, and what is known of members before that.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use penstock_vfs::{Attributes, FileKind, SpecialFile};
use rustix::fs::{self, Stat};

use crate::{
    archive::{Kind, Member},
    local::{self, Segments, read_fully},
    tree::{Content, Source},
};

/// An open file, as it was seen when it was opened.
pub(super) enum Opened {
    Local(OwnedFd, Stat),
    Volume(Box<dyn Content>, Attributes),
}

impl Opened {
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Local(_, stat) => stat.st_size.cast_unsigned(),
            Self::Volume(_, seen) => seen.size,
        }
    }

    /// Where it has data, as begins and ends.
    pub(super) fn segments(&self) -> Vec<(u64, u64)> {
        let size = self.size();
        match self {
            Self::Local(file, stat) => Segments::of(file.as_fd(), stat, 0, size).collect(),
            Self::Volume(..) => (size > 0).then_some((0, size)).into_iter().collect(),
        }
    }

    /// Fills the buffer, and says how far: not to its end only at the end of the file.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::Local(file, _) => read_fully(file, buffer, offset),
            Self::Volume(content, _) => {
                let read = content.read_at(offset, buffer.len())?;
                buffer[..read.len()].copy_from_slice(&read);
                Ok(read.len())
            }
        }
    }

    /// Whether it was written to since.
    pub(super) fn has_changed(&self) -> bool {
        match self {
            Self::Local(file, stat) => !fs::fstat(file).is_ok_and(|after| {
                after.st_size == stat.st_size && local::modified(&after) == local::modified(stat)
            }),
            Self::Volume(content, seen) => content.has_changed(seen).unwrap_or(true),
        }
    }
}

/// A file of a volume as a member, without its content; none of what no archive has.
pub(super) fn member_of(source: &Arc<dyn Source>, path: &[u8]) -> io::Result<Option<Member>> {
    let attributes = source.facts()?.attributes;
    let (kind, device) = match attributes.kind {
        FileKind::Regular => (Kind::File, (0, 0)),
        FileKind::Directory => (Kind::Directory, (0, 0)),
        FileKind::Symlink => (Kind::Symlink, (0, 0)),
        FileKind::Special(SpecialFile::Pipe) => (Kind::Fifo, (0, 0)),
        FileKind::Special(SpecialFile::Socket) => return Ok(None),
        FileKind::Special(SpecialFile::CharacterDevice(device)) => {
            (Kind::Character, numbers(device.0))
        }
        FileKind::Special(SpecialFile::BlockDevice(device)) => (Kind::Block, numbers(device.0)),
    };
    let mut member = Member {
        mode: u32::from(attributes.permissions),
        owner: (u64::from(attributes.uid), u64::from(attributes.gid)),
        modified: since_epoch(attributes.modified),
        device,
        attributes: source.xattrs()?,
        ..Member::new(path.to_vec(), kind)
    };
    match kind {
        Kind::Directory => member.name.push(b'/'),
        Kind::Symlink => member.link = source.read_link()?,
        _ => {}
    }
    Ok(Some(member))
}

fn numbers(device: u32) -> (u32, u32) {
    let device = u64::from(device);
    (fs::major(device), fs::minor(device))
}

/// Seconds and nanoseconds, which count forward before 1970 too.
fn since_epoch(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (since.as_secs().cast_signed(), since.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let part = before.subsec_nanos();
            let seconds = -before.as_secs().cast_signed();
            match part {
                0 => (seconds, 0),
                part => (seconds - 1, 1_000_000_000 - part),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_before_1970_count_forward_from_the_second_before() {
        assert_eq!(since_epoch(UNIX_EPOCH + Duration::new(3, 4)), (3, 4));
        assert_eq!(since_epoch(UNIX_EPOCH - Duration::new(3, 0)), (-3, 0));
        assert_eq!(
            since_epoch(UNIX_EPOCH - Duration::new(3, 1)),
            (-4, 999_999_999)
        );
    }
}
