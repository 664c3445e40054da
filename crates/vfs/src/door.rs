//! What a volume may ask of the door that serves it.

use std::fmt;

use penstock_base::FileName;

use crate::Inode;

/// A file whose references a volume would like back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldFile {
    /// The file.
    pub inode: Inode,
    /// Where it hangs.
    pub parent: Inode,
    /// Its name there.
    pub name: FileName,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// A door as its volume sees it.
pub trait Door: Send + Sync + fmt::Debug {
    /// Asks for the references to `held` as far as nobody uses them. They come as calls of
    /// [`crate::Volume::forget`], later, or never. Only takes note and never blocks: callers hold
    /// locks.
    fn ask_back(&self, held: Vec<HeldFile>);

    /// The file holds something else than the door was given of it: what it keeps of the content goes,
    /// soon, or at the next open if that keeps nothing. Only takes note and never blocks.
    fn content_changed(&self, inode: Inode);
}
