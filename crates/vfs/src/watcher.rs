//! What a volume tells the doors that serve it.

use std::fmt;

use penstock_base::FileName;

use crate::Inode;

/// A file whose references a volume would like back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldFile {
    /// The file.
    pub inode: Inode,
    /// The directory that it is in.
    pub parent: Inode,
    /// Its name there.
    pub name: FileName,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// A door as its volume sees it.
///
/// Every method only takes note and never blocks: volumes call them while they hold locks. What a door
/// cannot do then it does later or, where that is harmless, never.
pub trait Watcher: Send + Sync + fmt::Debug {
    /// The volume needs room: references to `held` shall come back as calls of [`crate::Volume::forget`] as
    /// far as nobody uses them.
    fn references_wanted(&self, held: Vec<HeldFile>);

    /// The file holds something else than the door was given of it. What the door keeps of the content goes
    /// soon, or at the next open if that keeps nothing.
    fn content_changed(&self, inode: Inode);
}
