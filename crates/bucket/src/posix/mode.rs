//! Modes as numbers.
//!
//! ossfs and s3fs write `st_mode` in decimal, rclone in octal, and nothing but the value tells
//! which is which. The forms hardly overlap: the type bits of an octal mode that is read as
//! decimal make no sense, with one exception. `41471` is what s3fs writes for a link, and octal for
//! a directory with sticky bit and odd permissions; since the permissions of links are always 0777
//! that very number is a link and its neighbours are directories.

use penstock_vfs::{Device, FileKind, SpecialFile};

/// The bits that say what kind of file it is.
pub(crate) const TYPE_MASK: u32 = 0o170_000;
/// A regular file.
pub(crate) const TYPE_REGULAR: u32 = 0o100_000;
/// A directory.
pub(crate) const TYPE_DIRECTORY: u32 = 0o040_000;
/// A symbolic link.
pub(crate) const TYPE_LINK: u32 = 0o120_000;
/// The permission bits.
pub(crate) const PERMISSIONS: u32 = 0o7777;
/// Whoever executes the file becomes its owner.
pub(super) const SET_UID: u32 = 0o4000;
/// Whoever executes the file joins its group.
pub(super) const SET_GID: u32 = 0o2000;
/// The group may execute the file.
pub(super) const GROUP_EXECUTES: u32 = 0o010;

const TYPE_PIPE: u32 = 0o010_000;
const TYPE_CHARACTER_DEVICE: u32 = 0o020_000;
const TYPE_BLOCK_DEVICE: u32 = 0o060_000;
const TYPE_SOCKET: u32 = 0o140_000;

/// The type bits of a kind of file.
pub(crate) fn type_of(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => TYPE_REGULAR,
        FileKind::Directory => TYPE_DIRECTORY,
        FileKind::Symlink => TYPE_LINK,
        FileKind::Special(SpecialFile::Pipe) => TYPE_PIPE,
        FileKind::Special(SpecialFile::Socket) => TYPE_SOCKET,
        FileKind::Special(SpecialFile::CharacterDevice(_)) => TYPE_CHARACTER_DEVICE,
        FileKind::Special(SpecialFile::BlockDevice(_)) => TYPE_BLOCK_DEVICE,
    }
}

/// The kind of file that a mode says; `device` is which one it is if it is one.
pub(super) fn kind(mode: u32, device: Device) -> Option<FileKind> {
    Some(match mode & TYPE_MASK {
        TYPE_REGULAR => FileKind::Regular,
        TYPE_DIRECTORY => FileKind::Directory,
        TYPE_LINK => FileKind::Symlink,
        TYPE_PIPE => FileKind::Special(SpecialFile::Pipe),
        TYPE_SOCKET => FileKind::Special(SpecialFile::Socket),
        TYPE_CHARACTER_DEVICE => FileKind::Special(SpecialFile::CharacterDevice(device)),
        TYPE_BLOCK_DEVICE => FileKind::Special(SpecialFile::BlockDevice(device)),
        _ => return None,
    })
}

/// Reads a decimal mode, or an octal one if it can only be that.
pub(super) fn parse(text: &str) -> Option<u32> {
    let decimal = text.parse().ok().filter(|mode| is_plausible(*mode));
    match decimal {
        Some(mode) if mode & TYPE_MASK == TYPE_LINK && mode & PERMISSIONS != 0o777 => {
            parse_octal(text)
                .filter(|octal| octal & TYPE_MASK == TYPE_DIRECTORY)
                .or(Some(mode))
        }
        Some(mode) => Some(mode),
        None => parse_octal(text).filter(|mode| mode & TYPE_MASK != 0),
    }
}

/// Reads an octal mode.
pub(super) fn parse_octal(text: &str) -> Option<u32> {
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| is_plausible(*mode))
}

fn is_plausible(mode: u32) -> bool {
    let known = [
        0,
        TYPE_REGULAR,
        TYPE_DIRECTORY,
        TYPE_LINK,
        TYPE_PIPE,
        TYPE_CHARACTER_DEVICE,
        TYPE_BLOCK_DEVICE,
        TYPE_SOCKET,
    ];
    mode & !(TYPE_MASK | PERMISSIONS) == 0 && known.contains(&(mode & TYPE_MASK))
}
