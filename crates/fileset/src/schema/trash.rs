//! The trash: its inodes, names in it, and for how many days files stay there.
//!
//! Its directory has the last number that a file can have, and that of an hour follows from the hour. So a removal knows
//! where it puts a file without a look at any entry, and no snapshot has the trash: its numbers are above the last file's.

use std::time::{Duration, SystemTime};

use bytes::{Buf, BufMut, Bytes};
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use penstock_base::{FileName, FsResult};
use penstock_vfs::Inode;

use super::{
    codec::take_version,
    damaged,
    snapshot::{FILE_BITS, FILE_MAX},
};

const VERSION: u8 = 1;
/// Hours that have a number: from 1970 until the year 3883.
pub(super) const HOURS: u64 = 1 << 24;
const HOUR: u64 = 60 * 60;
/// Bytes of the longest name.
const NAME_MAX: usize = 255;
/// How the directory of an hour is called, so that names sort.
const HOUR_NAME: &str = "%Y-%m-%d-%H";

/// The directory of all that is in the trash.
pub(crate) const TRASH: Inode = Inode((1 << FILE_BITS) - 1);
/// What it is called, in the root directory.
pub(crate) const TRASH_NAME: &[u8] = b".trash";
/// The key of the days for which files stay in the trash; it is not there while nothing comes into it.
pub(crate) const TRASH_DAYS: &[u8] = b"t";

/// Whether a directory is the trash or one of its hours.
pub(crate) fn is_of_trash(directory: Inode) -> bool {
    directory == TRASH || Hour::of_inode(directory).is_some()
}

/// An hour by UTC, in which files lost their last names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hour(u64);

impl Hour {
    /// The one in which a time lies.
    pub(crate) fn of(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = since.unwrap_or(Duration::ZERO).as_secs();
        Self((seconds / HOUR).min(HOURS - 1))
    }

    /// So many days before.
    pub(crate) fn before(self, days: u32) -> Self {
        Self(self.0.saturating_sub(u64::from(days) * 24))
    }

    /// The one behind it, if that has a number.
    pub(crate) fn next(self) -> Option<Self> {
        (self.0 + 1 < HOURS).then_some(Self(self.0 + 1))
    }

    /// That of a directory of the trash.
    pub(crate) fn of_inode(inode: Inode) -> Option<Self> {
        let hour = inode.0.checked_sub(FILE_MAX + 1)?;
        (hour < HOURS).then_some(Self(hour))
    }

    /// Its directory.
    pub(crate) fn inode(self) -> Inode {
        Inode(FILE_MAX + 1 + self.0)
    }

    /// What its directory is called.
    pub(crate) fn name(self) -> FileName {
        let seconds = (self.0 * HOUR).cast_signed();
        let begin = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
        let text = begin.to_zoned(TimeZone::UTC).strftime(HOUR_NAME);
        FileName::new(text.to_string().as_bytes()).expect("digits are a name")
    }

    /// The one whose directory is called so.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        let begin = DateTime::strptime(HOUR_NAME, name).ok()?;
        let begin = begin.to_zoned(TimeZone::UTC).ok()?.timestamp();
        let hour = Self(u64::try_from(begin.as_second()).ok()? / HOUR);
        (hour.0 < HOURS && hour.name().as_bytes() == name).then_some(hour)
    }
}

/// What a file is called in the trash, of which the directory and the name are those that it had: `PARENT-INODE-NAME`. A
/// long name is cut, between characters where it is UTF-8.
pub(crate) fn trash_name(parent: Inode, inode: Inode, name: &FileName) -> FileName {
    let mut text = format!("{}-{}-", parent.0, inode.0).into_bytes();
    let room = NAME_MAX - text.len();
    text.extend_from_slice(cut(name.as_bytes(), room));
    FileName::new(&text).expect("a part of a name behind numbers is a name")
}

fn cut(name: &[u8], room: usize) -> &[u8] {
    if name.len() <= room {
        return name;
    }
    let continues = |at: &usize| name[*at] & 0xc0 == 0x80;
    let begins = (room.saturating_sub(3)..=room)
        .rev()
        .find(|at| !continues(at));
    &name[..begins.unwrap_or(room)]
}

/// A name in the trash: the directory in which the file was, the file, and what it was called there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trashed<'a> {
    pub(crate) parent: Inode,
    pub(crate) inode: Inode,
    pub(crate) name: &'a [u8],
}

impl<'a> Trashed<'a> {
    pub(crate) fn of(name: &'a [u8]) -> Option<Self> {
        let mut parts = name.splitn(3, |byte| *byte == b'-');
        let mut number = || {
            let digits = std::str::from_utf8(parts.next()?).ok()?;
            digits.parse().ok().map(Inode)
        };
        let (parent, inode) = (number()?, number()?);
        let name = parts.next()?;
        Some(Self {
            parent,
            inode,
            name,
        })
    }

    /// What its name in the trash begins with, and no other one.
    pub(crate) fn prefix(&self) -> String {
        format!("{}-{}-", self.parent.0, self.inode.0)
    }
}

pub(crate) fn encode_days(days: u32) -> Bytes {
    let mut bytes = Vec::with_capacity(5);
    bytes.put_u8(VERSION);
    bytes.put_u32_le(days);
    bytes.into()
}

pub(crate) fn decode_days(mut value: &[u8]) -> FsResult<u32> {
    let what = "the days of the trash";
    take_version(&mut value, VERSION, what)?;
    value.try_get_u32_le().map_err(|_| damaged(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> FileName {
        FileName::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn hours_have_names_and_numbers_of_their_own() {
        let hour = Hour::of(SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_881_599));
        assert_eq!(hour.name().as_bytes(), b"2026-11-28-15");
        assert_eq!(Hour::named(b"2026-11-28-15"), Some(hour));
        assert_eq!(Hour::of_inode(hour.inode()), Some(hour));
        assert_eq!(hour.before(1).name().as_bytes(), b"2026-11-27-15");
        for other in [
            "2026-11-28-24",
            "2026-11-28",
            "2026-11-28-5",
            "9000-01-01-00",
        ] {
            assert_eq!(Hour::named(other.as_bytes()), None, "{other}");
        }
        for inode in [Inode::ROOT, Inode(FILE_MAX), TRASH] {
            assert_eq!(Hour::of_inode(inode), None);
        }
        let last = Hour::of(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 60));
        assert_eq!(
            (last.inode().0, Hour::named(last.name().as_bytes())),
            (TRASH.0 - 1, Some(last))
        );
    }

    #[test]
    fn a_name_in_the_trash_says_where_the_file_was() {
        let long = "ä".repeat(127);
        for text in ["a", "a-b-c", "-", &long] {
            let made = trash_name(Inode(7), Inode(FILE_MAX), &name(text));
            let found = Trashed::of(made.as_bytes()).unwrap();
            assert_eq!((found.parent, found.inode), (Inode(7), Inode(FILE_MAX)));
            let kept = std::str::from_utf8(found.name).unwrap();
            assert!(made.as_bytes().len() <= NAME_MAX && text.starts_with(kept));
            assert!(kept == text || made.as_bytes().len() + 2 > NAME_MAX);
        }
        let bytes = FileName::new(&[0xbf; 255]).unwrap();
        assert_eq!(trash_name(Inode(1), Inode(2), &bytes).as_bytes().len(), 255);
        for other in ["", "1", "1-2", "a-2-x", "1-b-x"] {
            assert_eq!(Trashed::of(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn days_are_what_they_were() {
        assert_eq!(decode_days(&encode_days(30)), Ok(30));
        assert!(decode_days(b"\x02aaaa").is_err() && decode_days(b"\x01a").is_err());
    }
}
