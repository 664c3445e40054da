//! Clients that hold locks, and what they hold.
//!
//! A client is an address with the name that it calls itself: no other address can give back what it holds by taking
//! its name. Its limits are those of its address, whatever it calls itself. A volume knows clients and owners by numbers, which are given here and never twice. Of each file that is
//! locked a reference is kept, so that its inode names it until the lock is gone.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use penstock_base::{Mutex, clock};
use penstock_vfs::{HeldLocks, Inode, Lock, LockOwner};

use crate::{
    limits::{
        LOCK_CLIENTS_MAX, LOCK_CLIENTS_OF_ADDRESS_MAX, LOCKER_DEADLINE, LOCKS_MAX,
        LOCKS_OF_ADDRESS_MAX,
    },
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
    /// Nothing is given any more.
    is_closed: AtomicBool,
}

/// One client. What it asks for is done one after the other, so that what is kept here is what the volume has.
#[derive(Debug)]
pub(crate) struct Locker {
    pub(crate) number: u64,
    pub(crate) address: IpAddr,
    holdings: tokio::sync::Mutex<Holdings>,
    /// Which of its starts the client is known in; 0 where it does not say. While the client is freed of all that it
    /// holds nobody else has this, so that nothing that it is given meanwhile is lost.
    start: tokio::sync::Mutex<u32>,
    /// Locks of its address.
    of_address: Arc<AtomicUsize>,
}

/// What a client holds.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    owners: HashMap<OwnerName, Owner>,
    count: usize,
    /// Those of its address, and of all clients.
    totals: [Arc<AtomicUsize>; 2],
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
        if let Some(known) = clients.get(&name) {
            return Some(Arc::clone(known));
        }
        let of_address = |known: &&ClientName| known.address == name.address;
        let neighbours = clients.keys().filter(of_address).count();
        if clients.len() >= LOCK_CLIENTS_MAX || neighbours >= LOCK_CLIENTS_OF_ADDRESS_MAX {
            return None;
        }
        let mut known = clients.iter();
        let neighbour = known.find(|(known, _)| known.address == name.address);
        let of_address = neighbour.map_or_else(Arc::default, |(_, of)| Arc::clone(&of.of_address));
        let counts = (of_address, &self.count);
        let made = Arc::new(Locker::new((self.number(), name.address), counts));
        clients.insert(name, Arc::clone(&made));
        Some(made)
    }

    /// The clients with an address that are the machine with a name; the only one with the address, whatever its name is.
    pub(crate) fn of_machine(&self, address: IpAddr, name: &[u8]) -> Vec<Arc<Locker>> {
        let clients = self.clients.lock();
        let of_address = clients
            .iter()
            .filter(|(known, _)| known.address == address)
            .collect::<Vec<_>>();
        let is_alone = of_address.len() == 1;
        let of_machine = of_address
            .into_iter()
            .filter(|(known, _)| is_alone || short(&known.caller) == short(name));
        of_machine.map(|(_, client)| Arc::clone(client)).collect()
    }

    /// All of them.
    pub(crate) fn clients(&self) -> Vec<Arc<Locker>> {
        self.clients.lock().values().cloned().collect()
    }

    /// The addresses of all.
    pub(crate) fn addresses(&self) -> HashSet<IpAddr> {
        let clients = self.clients.lock();
        clients.keys().map(|name| name.address).collect()
    }

    /// Says that nothing is given any more.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Whether nothing is given any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
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

impl Locker {
    fn new(
        (number, address): (u64, IpAddr),
        (of_address, all): (Arc<AtomicUsize>, &Arc<AtomicUsize>),
    ) -> Self {
        let totals = [Arc::clone(&of_address), Arc::clone(all)];
        let holdings = Holdings {
            totals,
            ..Holdings::default()
        };
        Self {
            number,
            address,
            holdings: tokio::sync::Mutex::new(holdings),
            start: tokio::sync::Mutex::new(0),
            of_address,
        }
    }

    /// What it holds, when what it asked for before is done; nothing where that takes too long.
    pub(crate) async fn holdings(&self) -> Option<tokio::sync::MutexGuard<'_, Holdings>> {
        let holdings = clock::deadline(LOCKER_DEADLINE, self.holdings.lock()).await;
        holdings.ok()
    }

    /// The same, however long that takes: for what the client does not wait for.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, Holdings> {
        self.holdings.lock().await
    }

    /// Its start, when it is freed of what it held before; nothing where that takes too long.
    pub(crate) async fn start(&self) -> Option<tokio::sync::MutexGuard<'_, u32>> {
        let start = clock::deadline(LOCKER_DEADLINE, self.start.lock()).await;
        start.ok()
    }
}

/// The name of a machine without its domain, as machines call themselves now with it and now without.
fn short(name: &[u8]) -> &[u8] {
    name.split(|byte| *byte == b'.').next().unwrap_or(name)
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

    /// What an owner holds of a range.
    pub(crate) fn of_range(
        &self,
        name: &OwnerName,
        handle: &[u8],
        range: &Range<u64>,
    ) -> Vec<Lock> {
        let file = self.owners.get(name).and_then(|of| of.files.get(handle));
        let held = file.into_iter().flat_map(|file| file.held.iter());
        let parts = held.map(|lock| Lock {
            range: lock.range.start.max(range.start)..lock.range.end.min(range.end),
            ..lock.clone()
        });
        parts.filter(|lock| !lock.range.is_empty()).collect()
    }

    /// Whether nothing may be added.
    pub(crate) fn is_full(&self) -> bool {
        let [of_address, all] = self.totals.each_ref();
        of_address.load(Ordering::Relaxed) >= LOCKS_OF_ADDRESS_MAX
            || all.load(Ordering::Relaxed) >= LOCKS_MAX
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
        held: (LockOwner, &Range<u64>),
    ) {
        self.replace((name, handle), held, Vec::new());
    }

    /// Takes note that an owner holds these locks of a range, and nothing else of it.
    pub(crate) fn replace(
        &mut self,
        (name, handle): (&OwnerName, &[u8]),
        (by, range): (LockOwner, &Range<u64>),
        locks: Vec<Lock>,
    ) {
        let Some(owner) = self.owners.get_mut(name) else {
            return;
        };
        let Some(file) = owner.files.get_mut(handle) else {
            return;
        };
        let before = file.held.len();
        file.held.cut(by, range);
        locks.into_iter().for_each(|lock| file.held.add(lock));
        let after = file.held.len();
        if after == 0 {
            owner.files.remove(handle);
        }
        if owner.files.is_empty() {
            self.owners.remove(name);
        }
        self.changed(before, after);
    }

    /// The client holds nothing any more of files with such handles. Returns what it held of them.
    pub(crate) fn remove_files(
        &mut self,
        is_gone: impl Fn(&[u8]) -> bool,
    ) -> Vec<(Node, HeldLocks)> {
        let mut removed = Vec::new();
        for owner in self.owners.values_mut() {
            let gone = owner.files.extract_if(|handle, _| is_gone(handle));
            removed.extend(gone.map(|(_, Locked { node, held })| (node, held)));
        }
        self.owners.retain(|_, owner| !owner.files.is_empty());
        let count = removed.iter().map(|(_, held)| held.len()).sum();
        self.changed(count, 0);
        removed
    }

    /// The client holds nothing any more.
    pub(crate) fn clear(&mut self) {
        self.owners.clear();
        self.changed(self.count, 0);
    }

    fn changed(&mut self, before: usize, after: usize) {
        self.count = self.count + after - before;
        for total in &self.totals {
            total.fetch_add(after, Ordering::Relaxed);
            total.fetch_sub(before, Ordering::Relaxed);
        }
    }
}
