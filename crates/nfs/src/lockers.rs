//! Clients that hold locks, and what they hold.
//!
//! A client is an address with the name that it calls itself: no other address can give back what it holds by taking
//! its name. A volume knows clients and owners by numbers, which are given here and never twice. Of each file that is
//! locked a reference is kept, so that its inode names it until the lock is gone.

use std::{
    collections::HashMap,
    net::IpAddr,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use penstock_base::Mutex;
use penstock_vfs::{HeldLocks, Inode, Lock, LockOwner};

use crate::{
    limits::{LOCK_CLIENTS_MAX, LOCKS_MAX, LOCKS_OF_CLIENT_MAX},
    nodes::Node,
};

/// Which client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ClientName {
    pub(crate) address: IpAddr,
    pub(crate) caller: Box<[u8]>,
}

/// Who of a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct OwnerName {
    pub(crate) process: u32,
    pub(crate) owner: Box<[u8]>,
}

/// All clients that hold something.
#[derive(Debug, Default)]
pub(crate) struct Lockers {
    clients: Mutex<HashMap<ClientName, Arc<Locker>>>,
    numbers: AtomicU64,
    /// Locks of all of them.
    count: Arc<AtomicUsize>,
}

/// One client. What it asks for is done one after the other, so that what is kept here is what the volume has.
#[derive(Debug)]
pub(crate) struct Locker {
    pub(crate) number: u64,
    pub(crate) holdings: tokio::sync::Mutex<Holdings>,
}

/// What a client holds.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    owners: HashMap<OwnerName, Owner>,
    count: usize,
    /// That of all clients.
    total: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Owner {
    number: u64,
    /// By their handles, which name them also when they are gone.
    files: HashMap<Box<[u8]>, Locked>,
}

/// A file with a lock.
struct Locked {
    node: Node,
    held: HeldLocks,
}

impl std::fmt::Debug for Locked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.held.fmt(f)
    }
}

impl Lockers {
    /// The client if it is known.
    pub(crate) fn find(&self, name: &ClientName) -> Option<Arc<Locker>> {
        self.clients.lock().get(name).cloned()
    }

    /// The client; nothing where there are too many.
    pub(crate) fn find_or_make(&self, name: ClientName) -> Option<Arc<Locker>> {
        let mut clients = self.clients.lock();
        if clients.len() >= LOCK_CLIENTS_MAX && !clients.contains_key(&name) {
            return None;
        }
        let make = || {
            Arc::new(Locker {
                number: self.number(),
                holdings: tokio::sync::Mutex::new(Holdings {
                    total: Arc::clone(&self.count),
                    ..Holdings::default()
                }),
            })
        };
        Some(Arc::clone(clients.entry(name).or_insert_with(make)))
    }

    /// A number that nobody had.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Forgets clients that hold nothing and ask for nothing.
    pub(crate) fn sweep(&self) {
        self.clients.lock().retain(|_, client| {
            let is_asking = Arc::strong_count(client) > 1;
            is_asking
                || client
                    .holdings
                    .try_lock()
                    .is_ok_and(|holdings| holdings.count > 0)
        });
    }

    /// The numbers of all.
    pub(crate) fn all(&self) -> Vec<u64> {
        let clients = self.clients.lock();
        clients.values().map(|client| client.number).collect()
    }
}

impl Holdings {
    /// The number of an owner that holds something.
    pub(crate) fn owner(&self, name: &OwnerName) -> Option<u64> {
        self.owners.get(name).map(|owner| owner.number)
    }

    /// A file of which an owner holds something.
    pub(crate) fn file(&self, name: &OwnerName, handle: &[u8]) -> Option<Inode> {
        let file = self.owners.get(name)?.files.get(handle)?;
        Some(file.node.inode())
    }

    /// Whether nothing may be added.
    pub(crate) fn is_full(&self) -> bool {
        self.count >= LOCKS_OF_CLIENT_MAX || self.total.load(Ordering::Relaxed) >= LOCKS_MAX
    }

    /// Takes note of a lock that was given.
    pub(crate) fn add(&mut self, (name, handle): (OwnerName, &[u8]), node: Node, lock: Lock) {
        let number = lock.owner.owner;
        let owner = self.owners.entry(name).or_insert_with(|| Owner {
            number,
            files: HashMap::new(),
        });
        let held = HeldLocks::default();
        let file = owner
            .files
            .entry(handle.into())
            .or_insert_with(|| Locked { node, held });
        let before = file.held.len();
        file.held.cut(lock.owner, &lock.range);
        file.held.add(lock);
        let after = file.held.len();
        self.changed(before, after);
    }

    /// Whether giving a range back would leave more pieces than there may be.
    pub(crate) fn breaks_too_much(
        &self,
        name: &OwnerName,
        handle: &[u8],
        (owner, range): (LockOwner, &Range<u64>),
    ) -> bool {
        let file = self.owners.get(name).and_then(|of| of.files.get(handle));
        self.is_full()
            && file.is_some_and(|file| {
                let mut left = file.held.clone();
                left.cut(owner, range);
                left.len() > file.held.len()
            })
    }

    /// Takes note of a range that was given back.
    pub(crate) fn remove(
        &mut self,
        name: &OwnerName,
        handle: &[u8],
        (by, range): (LockOwner, &Range<u64>),
    ) {
        let Some(owner) = self.owners.get_mut(name) else {
            return;
        };
        let Some(file) = owner.files.get_mut(handle) else {
            return;
        };
        let before = file.held.len();
        file.held.cut(by, range);
        let after = file.held.len();
        if after == 0 {
            owner.files.remove(handle);
        }
        if owner.files.is_empty() {
            self.owners.remove(name);
        }
        self.changed(before, after);
    }

    /// The client holds nothing any more.
    pub(crate) fn clear(&mut self) {
        self.owners.clear();
        self.changed(self.count, 0);
    }

    fn changed(&mut self, before: usize, after: usize) {
        self.count = self.count + after - before;
        self.total.fetch_add(after, Ordering::Relaxed);
        self.total.fetch_sub(before, Ordering::Relaxed);
    }
}
