//! Locks of files, advisory as those of fcntl(2) and flock(2).
//!
//! A volume that one process serves alone, and that wants the same locks to be seen through every door, has
//! one [`LockTable`]. A volume that many machines serve implements [`Locks`] over what they share, with [`HeldLocks`],
//! [`Waits`] and [`Turns`]. Where a volume has no locks a kernel keeps those of its own programs.

mod given;
mod held;
mod table;
mod turns;
mod waits;

use std::ops::Range;

use async_trait::async_trait;
use penstock_base::FsResult;

use crate::Inode;

pub use given::{Given, Settled};
pub use held::HeldLocks;
pub use table::LockTable;
pub use turns::{Turn, Turns};
pub use waits::Waits;

/// Who holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockOwner {
    /// Which client of the volume: a door gives each mount or host another number.
    pub client: u64,
    /// Who it is there.
    pub owner: u64,
}

/// Which of the two kinds of locks that know nothing of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockFamily {
    /// Of ranges, by process: fcntl(2) and NLM.
    Record,
    /// Of whole files, by open file: flock(2).
    Whole,
}

/// Whom a lock keeps out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Those who want it exclusively.
    Shared,
    /// Everybody else.
    Exclusive,
}

/// A lock, wanted or held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// Whom it keeps out.
    pub mode: LockMode,
    /// Which bytes. An end of `u64::MAX` is the end of the file, wherever that is.
    pub range: Range<u64>,
    /// Whose it is.
    pub owner: LockOwner,
    /// The process that F_GETLK tells of; 0 where a door does not know.
    pub process: u32,
}

/// What to do about a lock that keeps the caller out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Fail with `WouldBlock`.
    No,
    /// Wait until it is gone. Who drops the future gives up.
    Yes,
}

/// The locks of a volume.
#[async_trait]
pub trait Locks: Send + Sync {
    /// A lock of somebody else that keeps `wanted` from being given, if there is one.
    async fn conflict(
        &self,
        inode: Inode,
        family: LockFamily,
        wanted: &Lock,
    ) -> FsResult<Option<Lock>>;

    /// Gives a lock. What the owner held of the range before is replaced. Fails with `WouldBlock`, and with
    /// `Deadlock` where two owners of record locks would wait for each other for ever; then, and if the future is
    /// dropped, the owner holds what it held before.
    async fn acquire(
        &self,
        inode: Inode,
        family: LockFamily,
        wanted: Lock,
        waiting: Waiting,
    ) -> FsResult<Given>;

    /// Takes back what an owner holds of a range, also if the future is dropped once it was polled.
    async fn release(&self, inode: Inode, family: LockFamily, held: (LockOwner, Range<u64>));

    /// Takes back all that a client holds, which has gone, also if the future is dropped once it was polled.
    async fn release_client(&self, client: u64);
}
