//! What a file system is here.
//!
//! [`Volume`] is the seam between volumes (how files map to objects) and doors (how programs
//! reach files). Neither side knows the other: both speak inodes, handles and
//! [`penstock_base::FsError`]. A stateful door holds references and handles; a stateless one names files by
//! [`NodeId`] and lists after a name. [`Disk`] is the same seam for volumes that are disks.
//!
//! Beside the seam stands what every volume and door would write again: [`permission`] says who may do what,
//! [`AccessLists`] are POSIX
//! ACLs, and [`LockTable`] keeps the locks of a volume that one process serves.

mod access_list;
mod call;
mod disk;
mod features;
mod identity;
mod locks;
mod node_id;
pub mod permission;
mod types;
mod volume;
mod watcher;

pub use access_list::{AccessEntry, AccessList, AccessLists, ListKind, Who};
pub use call::CallId;
pub use disk::Disk;
pub use features::Features;
pub use identity::{Identity, Owner};
pub use locks::{
    Given, HeldLocks, Lock, LockFamily, LockMode, LockOwner, LockTable, Locks, Settled, Turn,
    Turns, Waiting, Waits,
};
pub use node_id::NodeId;
pub use permission::AccessMask;
pub use types::{
    Access, Allocation, AttributeChanges, Attributes, BriefAttributes, Change, Dentry, Detail,
    Device, DirectorySink, Durability, Entry, Exclusivity, FileKind, HandleId, Inode, ListFrom,
    Lookup, Made, New, NewKind, OpenOptions, Opened, Position, RemoveKind, RenameMode, Renamed,
    Seek, SpecialFile, Statistics, TimeChange, Unsaved, UnsavedItem, UnsavedKind, WritePlace,
    Written, XattrMode,
};
pub use volume::Volume;
pub use watcher::{HeldFile, Watcher, Watchers};
