//! What a file system is here.
//!
//! [`Volume`] is the seam between volumes (how files map to objects) and doors (how programs
//! reach files). Neither side knows the other: both speak inodes, handles and
//! [`penstock_base::FsError`]. [`Disk`] is the same seam for volumes that are disks.

mod disk;
mod door;
mod types;
mod volume;

pub use disk::Disk;
pub use door::{Door, HeldFile};
pub use types::{
    Access, Allocation, AttributeChanges, Attributes, Caller, Created, Device, DirectorySink,
    Entry, FileKind, HandleId, Inode, Lookup, OpenOptions, Opened, RemoveKind, RenameMode,
    SpecialFile, Statistics, TimeChange, WritePlace, XattrMode,
};
pub use volume::Volume;
