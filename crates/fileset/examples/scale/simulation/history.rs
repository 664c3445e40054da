//! All changes of all machines in their order, with how many keys each changed; by a number the feed says what is behind it.

use crate::load::{KEYS, SHARED_FILES};

/// Who changed a shared file, under which number; 0 is nobody.
#[derive(Debug, Clone, Copy, Default)]
struct Change {
    at: usize,
    by: usize,
}

/// Keys that a group of so many operations changes.
pub(super) fn keys_of(operations: usize) -> u64 {
    match operations {
        0 => 0,
        _ => operations as u64 * KEYS + 1,
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct History {
    /// Keys that were changed up to each number.
    keys: Vec<u64>,
    /// The changes of each machine, and how many keys each changed.
    own: Vec<Vec<(usize, u64)>>,
    /// The last change of each shared file, and the last one of another machine than that.
    shared: Vec<[Change; 2]>,
}

impl History {
    pub(super) fn new(machines: usize) -> Self {
        Self {
            keys: vec![0],
            own: vec![Vec::new(); machines],
            shared: vec![[Change::default(); 2]; SHARED_FILES as usize],
        }
    }

    /// The number of the last change.
    pub(super) fn last(&self) -> usize {
        self.keys.len() - 1
    }

    /// Keys that were changed behind this number.
    pub(super) fn behind(&self, at: usize) -> u64 {
        self.keys[self.last()] - self.keys[at]
    }

    /// The same without the machine's own.
    pub(super) fn behind_of_others(&self, machine: usize, at: usize) -> u64 {
        let own = self.own[machine]
            .iter()
            .rev()
            .take_while(|(when, _)| *when > at);
        self.behind(at) - own.map(|(_, keys)| keys).sum::<u64>()
    }

    /// A group of so many operations was made, which changed these shared files.
    pub(super) fn change(&mut self, by: usize, operations: usize, shared: &[usize]) {
        let keys = self.keys[self.last()] + keys_of(operations);
        self.keys.push(keys);
        let at = self.last();
        self.own[by].push((at, keys_of(operations)));
        for file in shared {
            let last = &mut self.shared[*file];
            if last[0].by != by {
                last[1] = last[0];
            }
            last[0] = Change { at, by };
        }
    }

    /// The number under which somebody else changed a shared file last.
    pub(super) fn changed_by_others(&self, machine: usize, file: usize) -> usize {
        let [last, other] = self.shared[file];
        match last.by == machine {
            true => other.at,
            false => last.at,
        }
    }
}
