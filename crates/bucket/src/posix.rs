//! Owner, mode, times, extended attributes and links in the user metadata of objects.
//!
//! Several programs keep such things there, each in a form of its own. All of them are read; what
//! is written is the form of ossfs and s3fs, and takes the place of whatever other form there was:
//!
//! | name | value |
//! |---|---|
//! | `uid`, `gid` | decimal |
//! | `mode` | the full `st_mode` in decimal: 33188 for `-rw-r--r--` |
//! | `rdev` | which device, in hexadecimal as `rclone --metadata` writes it; of devices only |
//! | `mtime`, `atime`, `ctime` | seconds since 1970, and `.` with nine digits unless they are 0 |
//! | `xattr` | percent-encoded JSON, `{"name":"base64"}` |
//! | `symlink-target` | `header:LENGTH:TARGET`, percent-encoded, or `body:0:` |
//!
//! Read besides: the octal modes and RFC 3339 times of `rclone --metadata`, fractions of any
//! length, `owner`, `group` and `permissions` of s3sync, and `goog-reserved-*` of gsutil. A value
//! that makes no sense counts as absent, and headers that nobody here knows survive every rewrite.
//!
//! Nothing here does I/O: metadata goes in, [`PosixAttributes`] come out, and back.

mod link;
mod mode;
mod moment;
#[cfg(test)]
mod tests;
mod xattr;

use std::{collections::BTreeMap, time::SystemTime};

use penstock_object::{Description, HEADER_MARK, ObjectInfo, PutOptions, UserMetadata};
use penstock_vfs::{Device, FileKind};

pub(crate) use link::LinkTarget;
pub(crate) use mode::{PERMISSIONS, TYPE_DIRECTORY, TYPE_MASK, type_of};

/// The media type of the objects that mark directories, as most tools write it.
pub(crate) const DIRECTORY_TYPE: &str = "application/x-directory";
/// The media type of links and special files, as ossfs and s3fs write it.
pub(crate) const LINK_TYPE: &str = "application/octet-stream";

/// Media types that say that an object without a trailing `/` marks a directory.
const DIRECTORY_TYPES: [&str; 2] = [DIRECTORY_TYPE, "httpd/unix-directory"];

const UID: &str = "uid";
const GID: &str = "gid";
const MODE: &str = "mode";
const DEVICE: &str = "rdev";
const MTIME: &str = "mtime";
const ATIME: &str = "atime";
const CTIME: &str = "ctime";
const XATTR: &str = "xattr";
const LINK: &str = "symlink-target";

/// The names of the form that is written.
const OWN_NAMES: [&str; 9] = [UID, GID, MODE, DEVICE, MTIME, ATIME, CTIME, XATTR, LINK];
/// Names that others use for the same, and that are dropped when metadata is written.
const FOREIGN_NAMES: [&str; 7] = [
    "owner",
    "group",
    "permissions",
    "goog-reserved-posix-uid",
    "goog-reserved-posix-gid",
    "goog-reserved-posix-mode",
    "goog-reserved-file-mtime",
];

/// What an object says of the file that it is; `None` where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PosixAttributes {
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    /// The full `st_mode`; without type bits if whoever wrote it left them out.
    pub(crate) mode: Option<u32>,
    /// Which device, if it is one.
    pub(crate) device: Option<Device>,
    pub(crate) modified: Option<SystemTime>,
    pub(crate) accessed: Option<SystemTime>,
    pub(crate) changed: Option<SystemTime>,
    pub(crate) xattrs: BTreeMap<String, Vec<u8>>,
    pub(crate) link: Option<LinkTarget>,
}

/// Everything that an object carries beside its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeptMetadata {
    pub(crate) posix: PosixAttributes,
    /// User metadata and headers that say nothing of files, kept for whoever wrote them.
    pub(crate) others: UserMetadata,
    /// Empty if none.
    pub(crate) content_type: String,
    /// Whether the object's time tells a later change apart; see [`crate::metadata`].
    pub(crate) settled: bool,
}

impl PosixAttributes {
    /// What `metadata` says, in whichever form.
    pub(crate) fn decode(metadata: &UserMetadata) -> Self {
        let text = |name: &str| metadata.get(name).map(|value| value.trim());
        let id = |names: [&str; 3]| names.into_iter().find_map(|name| text(name)?.parse().ok());
        let time = |name| text(name).and_then(moment::parse);
        Self {
            uid: id([UID, "owner", "goog-reserved-posix-uid"]),
            gid: id([GID, "group", "goog-reserved-posix-gid"]),
            mode: text(MODE)
                .and_then(mode::parse)
                .or_else(|| text("permissions").and_then(mode::parse))
                .or_else(|| text("goog-reserved-posix-mode").and_then(mode::parse_octal)),
            device: text(DEVICE)
                .and_then(|text| u32::from_str_radix(text, 16).ok())
                .map(Device),
            modified: time(MTIME).or_else(|| time("goog-reserved-file-mtime")),
            accessed: time(ATIME),
            changed: time(CTIME),
            xattrs: text(XATTR).map(xattr::decode).unwrap_or_default(),
            link: text(LINK).and_then(LinkTarget::decode),
        }
    }

    /// Adds what is known to `metadata`.
    pub(crate) fn encode(&self, metadata: &mut UserMetadata) {
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                metadata.insert(name.to_owned(), value);
            }
        };
        add(UID, self.uid.map(|id| id.to_string()));
        add(GID, self.gid.map(|id| id.to_string()));
        add(MODE, self.mode.map(|mode| mode.to_string()));
        add(DEVICE, self.device.map(|device| format!("{:x}", device.0)));
        add(MTIME, self.modified.map(moment::format));
        add(ATIME, self.accessed.map(moment::format));
        add(CTIME, self.changed.map(moment::format));
        add(XATTR, xattr::encode(&self.xattrs));
        add(LINK, self.link.as_ref().map(LinkTarget::encode));
    }

    /// The kind of file that the mode or a link says this is.
    pub(crate) fn kind(&self) -> Option<FileKind> {
        if self.link.is_some() {
            return Some(FileKind::Symlink);
        }
        mode::kind(self.mode?, self.device.unwrap_or_default())
    }

    /// The permission bits, the low twelve of the mode.
    pub(crate) fn permissions(&self) -> Option<u16> {
        self.mode.map(|mode| (mode & PERMISSIONS) as u16)
    }

    /// Changes the permission bits and keeps the type, which is `kind`'s if there was none.
    pub(crate) fn set_permissions(&mut self, kind: FileKind, permissions: u16) {
        let old = self.mode.map(|mode| mode & TYPE_MASK);
        let bits = old.filter(|bits| *bits != 0).unwrap_or(type_of(kind));
        self.mode = Some(bits | (u32::from(permissions) & PERMISSIONS));
    }

    /// Whether who runs it runs as somebody else.
    pub(crate) fn lends_rights(&self) -> bool {
        self.mode
            .is_some_and(|mode| mode & (mode::SET_UID | mode::SET_GID) != 0)
    }

    /// Takes away the right to run as somebody else, as whoever changes a file's content or owner
    /// must: set-user-ID, and set-group-ID of what the group may execute.
    pub(crate) fn drop_privileges(&mut self) {
        if let Some(mode) = &mut self.mode
            && *mode & TYPE_MASK != TYPE_DIRECTORY
        {
            *mode &= !mode::SET_UID;
            if *mode & mode::GROUP_EXECUTES != 0 {
                *mode &= !mode::SET_GID;
            }
        }
    }
}

impl KeptMetadata {
    /// What HEAD says of an object.
    pub(crate) fn of(info: &ObjectInfo) -> Self {
        Self {
            content_type: info.content_type.clone(),
            ..Self::of_metadata(&info.metadata)
        }
    }

    /// What an object carries that is described so.
    pub(crate) fn described(description: &Description) -> Self {
        Self {
            content_type: description.content_type.clone().unwrap_or_default(),
            ..Self::of_metadata(&description.metadata)
        }
    }

    fn of_metadata(metadata: &UserMetadata) -> Self {
        let ours = |name: &str| OWN_NAMES.contains(&name) || FOREIGN_NAMES.contains(&name);
        let others = metadata.iter();
        Self {
            posix: PosixAttributes::decode(metadata),
            others: others
                .filter(|(name, _)| !ours(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            content_type: String::new(),
            settled: false,
        }
    }

    /// The user metadata to write.
    pub(crate) fn metadata(&self) -> UserMetadata {
        let mut metadata = self.others.clone();
        self.posix.encode(&mut metadata);
        metadata
    }

    /// How an object is described that carries this.
    pub(crate) fn description(&self) -> Description {
        Description {
            content_type: self.content_type(),
            metadata: self.metadata(),
        }
    }

    /// The media type to write.
    pub(crate) fn content_type(&self) -> Option<String> {
        (!self.content_type.is_empty()).then(|| self.content_type.clone())
    }

    /// Whether an object of `size` bytes whose key does not end with `/` marks a directory.
    pub(crate) fn marks_directory(&self, size: u64) -> bool {
        match self.posix.kind() {
            Some(kind) => kind == FileKind::Directory,
            None => size == 0 && is_directory_type(&self.content_type),
        }
    }

    /// Bytes of user metadata, as stores count them.
    pub(crate) fn size(&self) -> usize {
        let metadata = self.metadata();
        metadata
            .iter()
            .filter(|(name, _)| !name.starts_with(HEADER_MARK))
            .map(|(name, value)| name.len() + value.len())
            .sum()
    }
}

/// How to write an object that is described so, whatever the store has.
pub(crate) fn options_of(description: Description) -> PutOptions {
    PutOptions {
        content_type: description.content_type,
        metadata: description.metadata,
        ..PutOptions::default()
    }
}

fn is_directory_type(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    DIRECTORY_TYPES
        .iter()
        .any(|directory| essence.eq_ignore_ascii_case(directory))
}
