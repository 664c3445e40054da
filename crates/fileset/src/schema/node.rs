//! Files, entries of directories, objects: the small values.

use std::time::{Duration, SystemTime};

use bytes::{Buf, BufMut, Bytes};
use penstock_base::FsResult;
use penstock_vfs::{AccessList, AccessLists, Attributes, Device, FileKind, Inode, SpecialFile};

use super::{
    TRASH,
    chunk::Share,
    codec::{put_time, take_time, take_version, take_version_of},
    damaged,
};

const VERSION: u8 = 1;
/// Of a file with access lists, which stand behind all else.
const WITH_LISTS: u8 = 2;
/// What `stat` says of a directory's size, which means nothing.
const DIRECTORY_SIZE: u64 = 4096;

/// A file of any kind, but for what is kept apart because it changes more often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) kind: FileKind,
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Names that lead to it; of a directory 1, or 0 once it is removed.
    pub(crate) links: u32,
    pub(crate) size: u64,
    /// Bytes in its extents.
    pub(crate) allocated: u64,
    pub(crate) accessed: SystemTime,
    pub(crate) modified: SystemTime,
    pub(crate) changed: SystemTime,
    /// The directory that a directory is in; 0 for all else.
    pub(crate) parent: u64,
    /// Where the mark of a directory's entries stood when `modified` was set: it counts if it moved since.
    pub(crate) seen: u64,
    /// With which number it was made exclusively; 0 with none.
    pub(crate) verifier: u64,
    /// The directory for whose quota it counts; 0 for none, and the trash for what is in it.
    pub(crate) project: u64,
    /// The access list goes with `permissions`.
    pub(crate) lists: AccessLists,
}

impl Node {
    /// A file that nobody may use and that nothing refers to.
    pub(crate) fn new(kind: FileKind, now: SystemTime) -> Self {
        Self {
            kind,
            permissions: 0,
            uid: 0,
            gid: 0,
            links: 1,
            size: 0,
            allocated: 0,
            accessed: now,
            modified: now,
            changed: now,
            parent: 0,
            seen: 0,
            verifier: 0,
            project: 0,
            lists: AccessLists::default(),
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Whether it lost its last name, and lies in the trash: there it counts as the quota of a directory would.
    pub(crate) fn is_in_trash(&self) -> bool {
        self.project == TRASH.0
    }

    /// What `stat` shows of what is no directory: who holds a file in the trash holds one without a name.
    pub(crate) fn attributes(&self, inode: Inode) -> Attributes {
        Attributes {
            permissions: self.permissions,
            access_list: self.lists.access.clone(),
            links: match self.is_in_trash() {
                true => 0,
                false => self.links,
            },
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            allocated: self.allocated,
            accessed: self.accessed,
            modified: self.modified,
            changed: self.changed,
            ..Attributes::new(inode, self.kind, self.changed)
        }
    }

    /// What `stat` shows of a directory: `mark` says when its entries changed, `directories` how many are in it.
    pub(crate) fn directory_attributes(
        &self,
        inode: Inode,
        mark: u64,
        directories: i64,
    ) -> Attributes {
        let entries = SystemTime::UNIX_EPOCH + Duration::from_nanos(mark);
        let moved = mark > self.seen;
        let below = u32::try_from(directories).unwrap_or_default();
        Attributes {
            // Its name, its own `.`, and the `..` of each directory in it.
            links: self.links.min(1) * (2 + below),
            size: DIRECTORY_SIZE,
            modified: if moved { entries } else { self.modified },
            changed: if moved {
                entries.max(self.changed)
            } else {
                self.changed
            },
            ..self.attributes(inode)
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let (kind, device) = kind_bytes(self.kind);
        let mut bytes = Vec::with_capacity(112);
        bytes.put_u8(match self.has_lists() {
            true => WITH_LISTS,
            false => VERSION,
        });
        bytes.put_u8(kind);
        bytes.put_u16_le(self.permissions);
        for number in [self.uid, self.gid, self.links, device] {
            bytes.put_u32_le(number);
        }
        bytes.put_u64_le(self.size);
        bytes.put_u64_le(self.allocated);
        for time in [self.accessed, self.modified, self.changed] {
            put_time(&mut bytes, time);
        }
        for number in [self.parent, self.seen, self.verifier, self.project] {
            bytes.put_u64_le(number);
        }
        if self.has_lists() {
            put_list(&mut bytes, self.lists.access.as_ref());
            put_list(&mut bytes, self.lists.default.as_ref());
        }
        bytes.into()
    }

    fn has_lists(&self) -> bool {
        self.lists != AccessLists::default()
    }

    pub(crate) fn decode(mut value: &[u8]) -> FsResult<Self> {
        let version = take_version_of(&mut value, VERSION..=WITH_LISTS, "an inode")?;
        let node = Self::decode_fields(&mut value);
        let lists = match version {
            WITH_LISTS => decode_lists(&mut value),
            _ => Some(AccessLists::default()),
        };
        let (node, lists) = node.zip(lists).ok_or_else(|| damaged("an inode"))?;
        Ok(Self { lists, ..node })
    }

    fn decode_fields(value: &mut &[u8]) -> Option<Self> {
        let kind = value.try_get_u8().ok()?;
        let permissions = value.try_get_u16_le().ok()?;
        let mut number = || value.try_get_u32_le().ok();
        let (uid, gid, links, device) = (number()?, number()?, number()?, number()?);
        let (size, allocated) = (value.try_get_u64_le().ok()?, value.try_get_u64_le().ok()?);
        let (accessed, modified, changed) =
            (take_time(value)?, take_time(value)?, take_time(value)?);
        let mut number = || value.try_get_u64_le().ok();
        Some(Self {
            kind: kind_of(kind, device)?,
            permissions,
            uid,
            gid,
            links,
            size,
            allocated,
            accessed,
            modified,
            changed,
            parent: number()?,
            seen: number()?,
            verifier: number()?,
            project: number()?,
            lists: AccessLists::default(),
        })
    }
}

/// The bytes of a list behind their number, which is 0 for none.
fn put_list(bytes: &mut Vec<u8>, list: Option<&AccessList>) {
    let value = list.map(AccessList::encode).unwrap_or_default();
    bytes.put_u16_le(u16::try_from(value.len()).expect("a list fits into a page"));
    bytes.put_slice(&value);
}

fn decode_lists(value: &mut &[u8]) -> Option<AccessLists> {
    Some(AccessLists {
        access: take_list(value)?,
        default: take_list(value)?,
    })
}

fn take_list(value: &mut &[u8]) -> Option<Option<AccessList>> {
    let length = value.try_get_u16_le().ok()?;
    let (list, rest) = value.split_at_checked(length.into())?;
    *value = rest;
    match list {
        [] => Some(None),
        list => AccessList::parse(list).ok(),
    }
}

fn kind_bytes(kind: FileKind) -> (u8, u32) {
    match kind {
        FileKind::Regular => (1, 0),
        FileKind::Directory => (2, 0),
        FileKind::Symlink => (3, 0),
        FileKind::Special(SpecialFile::Pipe) => (4, 0),
        FileKind::Special(SpecialFile::Socket) => (5, 0),
        FileKind::Special(SpecialFile::CharacterDevice(device)) => (6, device.0),
        FileKind::Special(SpecialFile::BlockDevice(device)) => (7, device.0),
    }
}

fn kind_of(kind: u8, device: u32) -> Option<FileKind> {
    Some(match kind {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::Symlink,
        4 => FileKind::Special(SpecialFile::Pipe),
        5 => FileKind::Special(SpecialFile::Socket),
        6 => FileKind::Special(SpecialFile::CharacterDevice(Device(device))),
        7 => FileKind::Special(SpecialFile::BlockDevice(Device(device))),
        _ => return None,
    })
}

/// An entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) inode: Inode,
    /// Of the file; a device's number is with the file alone.
    pub(crate) kind: FileKind,
}

impl Entry {
    pub(crate) fn encode(self) -> Bytes {
        let mut bytes = Vec::with_capacity(10);
        bytes.put_u8(VERSION);
        bytes.put_u8(kind_bytes(self.kind).0);
        bytes.put_u64_le(self.inode.0);
        bytes.into()
    }

    pub(crate) fn decode(mut value: &[u8]) -> FsResult<Self> {
        take_version(&mut value, VERSION, "an entry")?;
        let kind = value.try_get_u8().ok();
        let inode = value.try_get_u64_le().ok();
        let entry = kind.and_then(|kind| kind_of(kind, 0)).zip(inode);
        let (kind, inode) = entry.ok_or_else(|| damaged("an entry"))?;
        Ok(Self {
            inode: Inode(inode),
            kind,
        })
    }
}

/// What files use of an object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ObjectUse {
    /// Bytes in the object.
    pub(crate) length: u64,
    /// Bytes of files that extents refer to, but not what snapshots keep: plain bytes, also where they are compressed.
    pub(crate) used: u64,
    /// How many of these the object lacks since they are compressed.
    pub(crate) spared: u64,
    /// The latest snapshot when the first was used; 0 if there was none.
    pub(crate) born: u64,
    /// The same when the last was used no more, if the object is held for snapshots; else 0.
    pub(crate) died: u64,
}

impl ObjectUse {
    /// What extents refer to.
    pub(crate) fn share(self) -> Share {
        Share {
            bytes: self.used.cast_signed(),
            spared: self.spared.cast_signed(),
        }
    }

    /// Bytes of the object that files need.
    pub(crate) fn needed(self) -> u64 {
        self.used.saturating_sub(self.spared)
    }

    pub(crate) fn encode(self) -> Bytes {
        let mut bytes = Vec::with_capacity(41);
        bytes.put_u8(VERSION);
        bytes.put_u64_le(self.length);
        bytes.put_u64_le(self.used);
        if self.born != 0 || self.died != 0 || self.spared != 0 {
            bytes.put_u64_le(self.born);
            bytes.put_u64_le(self.died);
        }
        if self.spared != 0 {
            bytes.put_u64_le(self.spared);
        }
        bytes.into()
    }

    pub(crate) fn decode(mut value: &[u8]) -> FsResult<Self> {
        take_version(&mut value, VERSION, "an object")?;
        let mut number = || value.try_get_u64_le().ok();
        let numbers = number().zip(number());
        let (length, used) = numbers.ok_or_else(|| damaged("an object"))?;
        let (born, died) = number().zip(number()).unwrap_or_default();
        Ok(Self {
            length,
            used,
            spared: number().unwrap_or_default(),
            born,
            died,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_what_it_was() {
        let now = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 123);
        let kinds = (1..=7).map(|kind| kind_of(kind, if kind > 5 { 77 } else { 0 }).unwrap());
        for kind in kinds {
            let node = Node {
                permissions: 0o6755,
                size: u64::MAX,
                parent: 9,
                verifier: 3,
                project: 4,
                ..Node::new(kind, now)
            };
            assert_eq!(Node::decode(&node.encode()).unwrap(), node);
        }
        let list = [
            2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 5, 0, 255, 255, 255, 255,
        ]
        .into_iter()
        .chain([
            0x10, 0, 1, 0, 255, 255, 255, 255, 0x20, 0, 4, 0, 255, 255, 255, 255,
        ]);
        let list = AccessList::parse(&list.collect::<Vec<u8>>()).unwrap();
        let node = Node {
            lists: AccessLists {
                access: list.clone(),
                default: list,
            },
            ..Node::new(FileKind::Directory, now)
        };
        let value = node.encode();
        assert_eq!(Node::decode(&value).unwrap(), node);
        for length in 0..value.len() {
            assert!(Node::decode(&value[..length]).is_err(), "{length}");
        }
        assert!(Node::decode(&[]).is_err());
        assert!(Node::decode(&[9; 112]).is_err());
    }

    #[test]
    fn what_is_left_out_of_the_use_of_an_object_is_nothing() {
        let plain = ObjectUse {
            length: 9,
            used: 8,
            ..ObjectUse::default()
        };
        let (spared, born) = (
            ObjectUse { spared: 7, ..plain },
            ObjectUse { born: 3, ..plain },
        );
        let both = ObjectUse {
            died: 4,
            ..ObjectUse { spared: 7, ..born }
        };
        for (known, length) in [(plain, 17), (born, 33), (spared, 41), (both, 41)] {
            let value = known.encode();
            assert_eq!(value.len(), length);
            assert_eq!(ObjectUse::decode(&value), Ok(known));
        }
        assert_eq!((plain.needed(), spared.needed()), (8, 1));
    }

    #[test]
    fn a_directory_shows_the_later_of_what_was_set_and_what_happened() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let set = Node {
            modified: SystemTime::UNIX_EPOCH,
            seen: 500,
            ..Node::new(FileKind::Directory, now)
        };
        let quiet = set.directory_attributes(Inode(5), 500, 3);
        assert_eq!((quiet.modified, quiet.links), (SystemTime::UNIX_EPOCH, 5));
        let later = Duration::from_secs(2000);
        let busy = set.directory_attributes(Inode(5), later.as_nanos() as u64, 0);
        assert_eq!(busy.modified, SystemTime::UNIX_EPOCH + later);
        assert_eq!(busy.changed, busy.modified);
    }
}
