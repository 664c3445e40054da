//! Which records are locked through which handle.

use std::{collections::HashMap, ops::Range};

use penstock_base::Mutex;
use penstock_vfs::{HandleId, HeldLocks, Inode, Lock, LockOwner};

/// Locks of one file from which on none is broken into two by giving its midst back.
const LOCKS_MAX: usize = 4096;

/// What was locked through each handle last and not given back. A process that closes a descriptor says so; a lock that
/// belongs to what is open (`F_OFD_SETLK`), or that was given after its descriptor was closed, ends with its handle.
///
/// The name that the kernel has for an owner is no more than the address of what is open or of the process, and the next one
/// may have the same, also in another file. So what ends with a handle is what was locked through that one and no other.
#[derive(Debug, Default)]
pub(crate) struct RecordLocks(Mutex<HashMap<Inode, Handles>>);

type Handles = HashMap<HandleId, HeldLocks>;

impl RecordLocks {
    /// A lock was given through a handle.
    pub(super) fn given(&self, inode: Inode, handle: HandleId, lock: Lock) {
        let mut files = self.0.lock();
        let handles = files.entry(inode).or_default();
        cut(handles, lock.owner, &lock.range);
        handles.entry(handle).or_default().add(lock);
    }

    /// Whether giving a range back would leave more locks of a file than there may be.
    pub(super) fn breaks_too_much(
        &self,
        inode: Inode,
        (owner, range): (LockOwner, &Range<u64>),
    ) -> bool {
        let files = self.0.lock();
        let handles = files.get(&inode).into_iter().flatten();
        let held: Vec<_> = handles.map(|(_, held)| held).collect();
        let breaks = |held: &HeldLocks| {
            let mut left = held.clone();
            left.cut(owner, range);
            left.len() > held.len()
        };
        let count: usize = held.iter().map(|held| held.len()).sum();
        count >= LOCKS_MAX && held.into_iter().any(breaks)
    }

    /// An owner gave a range of a file back. Returns whether it held any of it.
    pub(super) fn gave_back(&self, inode: Inode, owner: LockOwner, range: &Range<u64>) -> bool {
        let mut files = self.0.lock();
        let Some(handles) = files.get_mut(&inode) else {
            return false;
        };
        let held = cut(handles, owner, range);
        if handles.is_empty() {
            files.remove(&inode);
        }
        held
    }

    /// A handle is gone. Returns what was locked through it, an owner that held nothing else at once.
    pub(super) fn released(&self, inode: Inode, handle: HandleId) -> Vec<(LockOwner, Range<u64>)> {
        let mut files = self.0.lock();
        let Some(handles) = files.get_mut(&inode) else {
            return Vec::new();
        };
        let gone = handles.remove(&handle).unwrap_or_default();
        let has_others = |owner| {
            let mut others = handles.values().flat_map(HeldLocks::iter);
            others.any(|lock| lock.owner == owner)
        };
        let mut held: Vec<_> = gone
            .iter()
            .map(|lock| match has_others(lock.owner) {
                true => (lock.owner, lock.range.clone()),
                false => (lock.owner, 0..u64::MAX),
            })
            .collect();
        held.sort_unstable_by_key(|(owner, range)| (*owner, range.start));
        held.dedup();
        if handles.is_empty() {
            files.remove(&inode);
        }
        held
    }
}

/// Takes a range out of what an owner locked through any handle, and says whether any was.
fn cut(handles: &mut Handles, owner: LockOwner, range: &Range<u64>) -> bool {
    let mut any = false;
    handles.retain(|_, held| {
        any |= held.cut(owner, range);
        !held.is_empty()
    });
    any
}

#[cfg(test)]
mod tests {
    use penstock_vfs::LockMode;

    use super::*;

    const ONE: Inode = Inode(2);
    const OTHER: Inode = Inode(3);
    const FIRST: HandleId = HandleId(7);
    const SECOND: HandleId = HandleId(8);
    const OWNER: LockOwner = LockOwner {
        client: 1,
        owner: 5,
    };
    const ALL: Range<u64> = 0..u64::MAX;

    fn lock(range: Range<u64>) -> Lock {
        Lock {
            mode: LockMode::Exclusive,
            range,
            owner: OWNER,
            process: 9,
        }
    }

    #[test]
    fn what_ends_with_a_handle_is_what_was_locked_through_it() {
        let locks = RecordLocks::default();
        locks.given(ONE, FIRST, lock(0..10));
        // What is open now has the address of what was open before.
        locks.given(OTHER, SECOND, lock(0..10));
        assert_eq!(locks.released(ONE, FIRST), [(OWNER, ALL)]);
        assert_eq!(locks.released(OTHER, SECOND), [(OWNER, ALL)]);
        locks.given(ONE, FIRST, lock(0..10));
        locks.given(ONE, SECOND, lock(5..20));
        assert_eq!(locks.released(ONE, FIRST), [(OWNER, 0..5)]);
        assert!(locks.gave_back(ONE, OWNER, &ALL));
        assert!(!locks.gave_back(ONE, OWNER, &ALL));
        assert_eq!(locks.released(ONE, SECOND), []);
        assert!(locks.0.lock().is_empty());
    }
}
