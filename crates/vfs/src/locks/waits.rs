//! Who waits for whom.

use std::collections::{HashMap, HashSet};

use penstock_base::{FsError, FsResult};

use super::LockOwner;
use crate::Inode;

/// Whom owners of record locks wait for, by wait: the threads of a process are one owner.
#[derive(Debug, Default)]
pub struct Waits {
    waits: HashMap<LockOwner, HashMap<u64, Wait>>,
    last: u64,
}

#[derive(Debug)]
struct Wait {
    inode: Inode,
    blockers: HashSet<LockOwner>,
}

impl Waits {
    /// A number for a wait.
    pub fn begin(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// An owner waits for others to give locks of a file back. Fails with `Deadlock` if one of these waits for it.
    pub fn wait(
        &mut self,
        (owner, number): (LockOwner, u64),
        (inode, blockers): (Inode, HashSet<LockOwner>),
    ) -> FsResult<()> {
        if self.leads_to(&blockers, owner) {
            return Err(FsError::Deadlock);
        }
        self.waits
            .entry(owner)
            .or_default()
            .insert(number, Wait { inode, blockers });
        Ok(())
    }

    /// Some owners gave locks of a file back: who waits for one of them looks again, and waits for nobody until then.
    pub fn gave_back(&mut self, inode: Inode, is_one: impl Fn(LockOwner) -> bool) {
        let waits = self.waits.values_mut().flat_map(HashMap::values_mut);
        for wait in waits.filter(|wait| wait.inode == inode) {
            wait.blockers.retain(|blocker| !is_one(*blocker));
        }
    }

    /// A wait is over.
    pub fn end(&mut self, (owner, number): (LockOwner, u64)) {
        if let Some(waits) = self.waits.get_mut(&owner) {
            waits.remove(&number);
            if waits.is_empty() {
                self.waits.remove(&owner);
            }
        }
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// Whether one of `owners` waits, over however many others, for `owner`.
    fn leads_to(&self, owners: &HashSet<LockOwner>, owner: LockOwner) -> bool {
        let mut seen = HashSet::new();
        let mut open: Vec<LockOwner> = owners.iter().copied().collect();
        while let Some(next) = open.pop() {
            if next == owner {
                return true;
            }
            if seen.insert(next) {
                let waits = self.waits.get(&next).into_iter();
                let waits = waits.flat_map(HashMap::values);
                open.extend(waits.flat_map(|wait| &wait.blockers));
            }
        }
        false
    }
}
