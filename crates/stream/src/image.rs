//! What a writer of a file-system image takes.
//!
//! The tree comes depth first, in the order of the keys that it is made of, which is not the order
//! of names in a directory: `a-x` sorts before `a/y`, but `a` before `a-x`. A writer therefore
//! sorts a directory when it is left.
//!
//! - [`entries`]: what a directory holds, sorted when it is left, spilled when it is huge.
//! - [`open`]: the directories from the root to the one that is being written.
//! - [`output`]: the file that an image is written into, front to end with patches.
//! - [`permissions`]: what a volume says of owners and modes, the same for all of its files.

pub(crate) mod entries;
pub(crate) mod open;
pub(crate) mod output;
mod permissions;

use std::io;

pub use permissions::Permissions;

use crate::{BlockAddress, Timestamp};

/// A file of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileNode {
    /// Bytes in the file.
    pub size: u64,
    /// When the object was written.
    pub modified: Timestamp,
    /// Where its bytes lie.
    pub start: BlockAddress,
}

/// What an image became.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImageSummary {
    /// Bytes of the image.
    pub bytes: u64,
    /// Files in it.
    pub files: u64,
    /// Directories in it, with the root.
    pub directories: u64,
}

/// Writes the image of one tree from front to end.
///
/// The root is open from the beginning. Names have 1 to 255 bytes, are neither `.` nor `..`, have
/// neither `/` nor NUL in them, and are unique in their directory; a directory is entered once.
pub trait ImageWriter {
    /// Begins the directory `name` in the one that is open.
    fn enter(&mut self, name: &[u8]) -> io::Result<()>;

    /// Ends the directory that is open. Its time comes last, because a directory that no object
    /// marks takes that of the newest file in it. The root is ended by [`ImageWriter::finish`].
    fn leave(&mut self, modified: Timestamp) -> io::Result<()>;

    /// A file in the directory that is open.
    fn file(&mut self, name: &[u8], node: &FileNode) -> io::Result<()>;

    /// A symbolic link in the directory that is open. `target` has 1 to 4095 bytes, none NUL.
    fn symlink(&mut self, name: &[u8], target: &[u8], modified: Timestamp) -> io::Result<()>;

    /// Ends the root and the image. `disk_blocks` are the occupied blocks of each data disk. The
    /// image is complete and synced when this returns.
    fn finish(
        self: Box<Self>,
        modified: Timestamp,
        disk_blocks: &[u64],
    ) -> io::Result<ImageSummary>;
}

/// Refuses what is no name of a file.
pub(crate) fn check_name(name: &[u8]) -> io::Result<()> {
    let allowed = matches!(name.len(), 1..=255)
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
        && !matches!(name, b"." | b"..");
    allowed.then_some(()).ok_or_else(|| {
        let why = format!("{:?} is no file name", String::from_utf8_lossy(name));
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })
}

/// Refuses what is no target of a symbolic link.
pub(crate) fn check_target(target: &[u8]) -> io::Result<()> {
    let allowed = matches!(target.len(), 1..=4095) && !target.contains(&0);
    allowed.then_some(()).ok_or_else(|| {
        let why = "the target of a symbolic link has 1 to 4095 bytes without NUL";
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })
}

/// A UUID made of bytes that tell images apart: version 8, made in a way of one's own.
pub(crate) fn uuid(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    bytes
}

/// As much of a volume's name as fits `room` bytes without cutting a character.
pub(crate) fn name_field(name: &str, room: usize) -> &[u8] {
    &name.as_bytes()[..name.floor_char_boundary(room)]
}
