//! Locks of one process, in memory.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use async_trait::async_trait;
use penstock_base::{FsError, FsResult, Mutex};
use tokio::sync::Notify;

use super::{
    Given, HeldLocks, Lock, LockFamily, LockOwner, Locks, Settled, Turn, Turns, Waiting, Waits,
};
use crate::Inode;

/// Locks that may be held at once, of all files.
const LOCKS_MAX: usize = 1 << 20;

/// The locks of a volume that this process serves alone.
#[derive(Debug, Default)]
pub struct LockTable {
    held: Arc<Mutex<Held>>,
    turns: Turns,
}

type Locked = (Inode, LockFamily);

#[derive(Debug, Default)]
struct Held {
    files: HashMap<Locked, FileLocks>,
    waits: Waits,
    /// Locks in `files`.
    count: usize,
}

/// The locks of one file and family.
#[derive(Debug, Default)]
struct FileLocks {
    held: HeldLocks,
    /// Rung whenever one goes. Shared by those who wait, which keeps it beyond the last lock.
    gone: Arc<Notify>,
}

impl LockTable {
    /// A lock that was given in a turn, and what its owner held of the range before.
    fn given(&self, at: Locked, (wanted, before): (Lock, Vec<Lock>), turn: Turn) -> Given {
        let held = Arc::clone(&self.held);
        Given::new(move |settled| {
            if settled == Settled::GivenBack {
                held.lock().take_back(at, &wanted, &before);
            }
            drop(turn);
        })
    }
}

#[async_trait]
impl Locks for LockTable {
    async fn conflict(
        &self,
        inode: Inode,
        family: LockFamily,
        wanted: &Lock,
    ) -> FsResult<Option<Lock>> {
        let held = self.held.lock();
        let locks = held.files.get(&(inode, family));
        Ok(locks.and_then(|locks| locks.held.blocking(wanted).next().cloned()))
    }

    async fn acquire(
        &self,
        inode: Inode,
        family: LockFamily,
        wanted: Lock,
        waiting: Waiting,
    ) -> FsResult<Given> {
        if wanted.range.is_empty() {
            return Err(FsError::InvalidArgument("an empty range cannot be locked"));
        }
        let at = (inode, family);
        let wait = Wait::begin(self, at, wanted.owner);
        loop {
            let rings = wait.bell.notified();
            tokio::pin!(rings);
            // What goes from now on is heard.
            rings.as_mut().enable();
            let turn = self.turns.turn(inode, wanted.owner).await;
            let taken = wait.try_to_take(&wanted, waiting)?;
            if let Some(before) = taken {
                return Ok(self.given(at, (wanted, before), turn));
            }
            drop(turn);
            rings.await;
        }
    }

    async fn release(
        &self,
        inode: Inode,
        family: LockFamily,
        (owner, range): (LockOwner, Range<u64>),
    ) {
        let mut held = self.held.lock();
        held.release((inode, family), owner, &range);
    }

    async fn release_client(&self, client: u64) {
        let mut held = self.held.lock();
        let files: Vec<Locked> = held.files.keys().copied().collect();
        for at in files {
            let is_one = |owner: LockOwner| owner.client == client;
            held.change(at, is_one, |locks| {
                let before = locks.len();
                locks.drop_client(client);
                locks.len() < before
            });
        }
    }
}

/// An owner that may wait. However its wait ends, the table keeps nothing of it.
struct Wait<'a> {
    table: &'a LockTable,
    at: Locked,
    owner: LockOwner,
    number: u64,
    bell: Arc<Notify>,
}

impl<'a> Wait<'a> {
    fn begin(table: &'a LockTable, at: Locked, owner: LockOwner) -> Self {
        let mut held = table.held.lock();
        let bell = Arc::clone(&held.files.entry(at).or_default().gone);
        Self {
            table,
            at,
            owner,
            number: held.waits.begin(),
            bell,
        }
    }

    /// Takes the lock and says what its owner held of the range before; nothing if others are in the way and it waits.
    fn try_to_take(&self, wanted: &Lock, waiting: Waiting) -> FsResult<Option<Vec<Lock>>> {
        let mut held = self.table.held.lock();
        if self.at.1 == LockFamily::Whole {
            held.convert(self.at, wanted);
        }
        let blockers = held.blockers(self.at, wanted);
        if blockers.is_empty() {
            return held.give(self.at, wanted).map(Some);
        }
        if waiting == Waiting::No {
            return Err(FsError::WouldBlock);
        }
        if self.at.1 == LockFamily::Record {
            let waits = (self.owner, self.number);
            held.waits.wait(waits, (self.at.0, blockers))?;
        }
        Ok(None)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut held = self.table.held.lock();
        held.waits.end((self.owner, self.number));
        self.bell = Arc::default();
        held.prune(self.at);
    }
}

impl Held {
    fn blockers(&self, at: Locked, wanted: &Lock) -> HashSet<LockOwner> {
        let locks = self.files.get(&at).into_iter();
        let blocking = locks.flat_map(|locks| locks.held.blocking(wanted));
        blocking.map(|lock| lock.owner).collect()
    }

    /// As flock(2) says, who has a whole file in another mode gives it back first, and may lose it so.
    fn convert(&mut self, at: Locked, wanted: &Lock) {
        let locks = self.files.get(&at).into_iter();
        let mut all = locks.flat_map(|locks| locks.held.iter());
        if all.any(|lock| lock.owner == wanted.owner && lock.mode != wanted.mode) {
            self.release(at, wanted.owner, &(0..u64::MAX));
        }
    }

    /// Gives a lock, and says what its owner held of the range before.
    fn give(&mut self, at: Locked, wanted: &Lock) -> FsResult<Vec<Lock>> {
        if self.count >= LOCKS_MAX {
            return Err(FsError::LimitReached("too many locks are held"));
        }
        let mut before = Vec::new();
        self.change_own(at, wanted.owner, |locks| {
            before = locks.within(wanted.owner, &wanted.range);
            let cut = locks.cut(wanted.owner, &wanted.range);
            locks.add(wanted.clone());
            cut
        });
        Ok(before)
    }

    fn take_back(&mut self, at: Locked, given: &Lock, before: &[Lock]) {
        self.change_own(at, given.owner, |locks| {
            let all = locks.clone();
            locks.take_back(given, before, |lock| all.blocking(lock).next().is_some());
            *locks != all
        });
    }

    fn release(&mut self, at: Locked, owner: LockOwner, range: &Range<u64>) {
        self.change_own(at, owner, |locks| locks.cut(owner, range));
    }

    fn change_own(
        &mut self,
        at: Locked,
        owner: LockOwner,
        change: impl FnOnce(&mut HeldLocks) -> bool,
    ) {
        self.change(at, |one| one == owner, change);
    }

    /// Changes what some owners hold of a file and counts it. If `change` says that some went or shrank, those who wait hear
    /// of it; never otherwise, for who tries again may be the one who rings.
    fn change(
        &mut self,
        at: Locked,
        is_one: impl Fn(LockOwner) -> bool,
        change: impl FnOnce(&mut HeldLocks) -> bool,
    ) {
        // Who acquires made an entry before; there is nothing to release of a file without one.
        let Some(locks) = self.files.get_mut(&at) else {
            return;
        };
        let before = locks.held.len();
        let rings = change(&mut locks.held);
        self.count = self.count + locks.held.len() - before;
        if rings {
            locks.gone.notify_waiters();
            self.waits.gave_back(at.0, is_one);
        }
        self.prune(at);
    }

    /// Forgets a file that nobody has locked and nobody waits for.
    fn prune(&mut self, at: Locked) {
        let is_unused =
            |locks: &FileLocks| locks.held.is_empty() && Arc::strong_count(&locks.gone) == 1;
        if self.files.get(&at).is_some_and(is_unused) {
            self.files.remove(&at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use penstock_base::clock;

    use super::*;
    use crate::LockMode;

    const FILE: Inode = Inode(2);
    const END: u64 = u64::MAX;

    fn owner(owner: u64) -> LockOwner {
        LockOwner { client: 1, owner }
    }

    fn lock(mode: LockMode, of: u64, range: Range<u64>) -> Lock {
        Lock {
            mode,
            range,
            owner: owner(of),
            process: of as u32,
        }
    }

    fn shared(of: u64, range: Range<u64>) -> Lock {
        lock(LockMode::Shared, of, range)
    }

    fn exclusive(of: u64, range: Range<u64>) -> Lock {
        lock(LockMode::Exclusive, of, range)
    }

    async fn acquire(
        table: &LockTable,
        family: LockFamily,
        wanted: Lock,
        waiting: Waiting,
    ) -> FsResult<()> {
        let given = table.acquire(FILE, family, wanted, waiting);
        given.await.map(Given::keep)
    }

    async fn take(table: &LockTable, wanted: Lock) -> FsResult<()> {
        acquire(table, LockFamily::Record, wanted, Waiting::No).await
    }

    async fn release(table: &LockTable, of: u64, range: Range<u64>) {
        table
            .release(FILE, LockFamily::Record, (owner(of), range))
            .await;
    }

    fn ranges(table: &LockTable, of: u64) -> Vec<Range<u64>> {
        let held = table.held.lock();
        let locks = held.files.get(&(FILE, LockFamily::Record));
        let held = locks.into_iter().flat_map(|locks| locks.held.iter());
        let mut ranges: Vec<_> = held
            .filter(|lock| lock.owner == owner(of))
            .map(|lock| lock.range.clone())
            .collect();
        ranges.sort_unstable_by_key(|range| range.start);
        ranges
    }

    fn one(range: Range<u64>) -> Vec<Range<u64>> {
        std::iter::once(range).collect()
    }

    #[tokio::test]
    async fn exclusive_locks_keep_everybody_else_out_of_their_range() {
        let table = LockTable::default();
        take(&table, exclusive(1, 10..20)).await.unwrap();
        assert_eq!(
            take(&table, shared(2, 19..30)).await,
            Err(FsError::WouldBlock)
        );
        take(&table, exclusive(2, 20..END)).await.unwrap();
        let wanted = shared(2, 0..11);
        let conflict = table.conflict(FILE, LockFamily::Record, &wanted).await;
        assert_eq!(conflict, Ok(Some(exclusive(1, 10..20))));
        take(&table, shared(3, 0..10)).await.unwrap();
        take(&table, shared(4, 0..10)).await.unwrap();
        assert_eq!(
            take(&table, exclusive(3, 5..6)).await,
            Err(FsError::WouldBlock)
        );
    }

    #[tokio::test]
    async fn what_is_released_in_the_middle_leaves_both_ends() {
        let table = LockTable::default();
        take(&table, exclusive(1, 0..END)).await.unwrap();
        release(&table, 1, 10..20).await;
        assert_eq!(ranges(&table, 1), [0..10, 20..END]);
        take(&table, exclusive(1, 10..20)).await.unwrap();
        assert_eq!(ranges(&table, 1), one(0..END));
        take(&table, shared(1, 5..6)).await.unwrap();
        take(&table, shared(2, 5..6)).await.unwrap();
        assert_eq!(ranges(&table, 1), [0..5, 5..6, 6..END]);
        release(&table, 1, 0..END).await;
        release(&table, 2, 0..END).await;
        let held = table.held.lock();
        assert_eq!((held.files.len(), held.count), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_the_lock_when_it_is_free() {
        let table = Arc::new(LockTable::default());
        take(&table, exclusive(1, 0..10)).await.unwrap();
        let waiter = {
            let table = Arc::clone(&table);
            let wanted = exclusive(2, 5..15);
            tokio::spawn(
                async move { acquire(&table, LockFamily::Record, wanted, Waiting::Yes).await },
            )
        };
        clock::sleep(Duration::from_secs(1)).await;
        assert!(!waiter.is_finished());
        release(&table, 1, 0..4).await;
        clock::sleep(Duration::from_secs(1)).await;
        assert!(!waiter.is_finished());
        release(&table, 1, 4..10).await;
        assert_eq!(waiter.await.unwrap(), Ok(()));
        assert_eq!(ranges(&table, 2), one(5..15));
        assert!(table.held.lock().waits.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_waiting_leaves_nothing_behind() {
        let table = LockTable::default();
        take(&table, exclusive(1, 0..10)).await.unwrap();
        let wanted = exclusive(2, 0..10);
        let wait = acquire(&table, LockFamily::Record, wanted, Waiting::Yes);
        assert!(clock::deadline(Duration::from_secs(1), wait).await.is_err());
        assert!(table.held.lock().waits.is_empty());
        release(&table, 1, 0..10).await;
        assert!(table.held.lock().files.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn two_who_would_wait_for_each_other_hear_so() {
        let table = Arc::new(LockTable::default());
        take(&table, exclusive(1, 0..1)).await.unwrap();
        take(&table, exclusive(2, 1..2)).await.unwrap();
        take(&table, exclusive(3, 2..3)).await.unwrap();
        let wait = |of: u64, range: Range<u64>| {
            let table = Arc::clone(&table);
            tokio::spawn(async move {
                let wanted = exclusive(of, range);
                acquire(&table, LockFamily::Record, wanted, Waiting::Yes).await
            })
        };
        let (first, second) = (wait(1, 1..2), wait(2, 2..3));
        clock::sleep(Duration::from_secs(1)).await;
        assert_eq!(wait(3, 0..1).await.unwrap(), Err(FsError::Deadlock));
        release(&table, 3, 0..END).await;
        assert_eq!(second.await.unwrap(), Ok(()));
        release(&table, 2, 0..END).await;
        assert_eq!(first.await.unwrap(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_gave_a_lock_back_waits_for_nobody_that_still_seems_to_wait_for_it() {
        let table = Arc::new(LockTable::default());
        take(&table, exclusive(1, 0..1)).await.unwrap();
        take(&table, exclusive(2, 1..2)).await.unwrap();
        let wait = |of: u64, range: Range<u64>| {
            let (table, wanted) = (Arc::clone(&table), exclusive(of, range));
            async move { acquire(&table, LockFamily::Record, wanted, Waiting::Yes).await }
        };
        let first = tokio::spawn(wait(1, 1..2));
        clock::sleep(Duration::from_secs(1)).await;
        release(&table, 2, 1..2).await;
        // The first one has not looked again yet.
        let second = clock::deadline(Duration::from_secs(1), wait(2, 0..1)).await;
        assert!(second.is_err(), "it waits: {second:?}");
        first.await.unwrap().unwrap();
    }

    /// Who waits must not ring its own bell, or it would try again for ever.
    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_whole_file_sleeps_until_it_is_free() {
        let table = Arc::new(LockTable::default());
        let whole = |of: u64, waiting| {
            let (table, wanted) = (Arc::clone(&table), exclusive(of, 0..END));
            async move { acquire(&table, LockFamily::Whole, wanted, waiting).await }
        };
        whole(1, Waiting::No).await.unwrap();
        let waiters = [2, 3].map(|of| tokio::spawn(whole(of, Waiting::Yes)));
        clock::sleep(Duration::from_secs(1)).await;
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        for of in [1, 2, 3] {
            let held = (owner(of), 0..END);
            table.release(FILE, LockFamily::Whole, held).await;
            clock::sleep(Duration::from_secs(1)).await;
        }
        for waiter in waiters {
            assert_eq!(waiter.await.unwrap(), Ok(()));
        }
        assert!(table.held.lock().files.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn locks_of_whole_files_know_nothing_of_records_and_change_by_giving_back() {
        let table = Arc::new(LockTable::default());
        take(&table, exclusive(1, 0..END)).await.unwrap();
        let whole = |wanted: Lock, waiting| acquire(&table, LockFamily::Whole, wanted, waiting);
        whole(shared(2, 0..END), Waiting::No).await.unwrap();
        whole(shared(3, 0..END), Waiting::No).await.unwrap();
        let upgraded = whole(exclusive(2, 0..END), Waiting::No).await;
        assert_eq!(upgraded, Err(FsError::WouldBlock));
        whole(exclusive(3, 0..END), Waiting::No).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_nobody_keeps_leaves_what_was_held_before() {
        let table = LockTable::default();
        take(&table, exclusive(1, 0..10)).await.unwrap();
        take(&table, shared(1, 10..20)).await.unwrap();
        let given = async |wanted: Lock| {
            let given = table.acquire(FILE, LockFamily::Record, wanted, Waiting::No);
            given.await.unwrap()
        };
        let held = || {
            let held = table.held.lock();
            let mut held: Vec<_> = held.files[&(FILE, LockFamily::Record)]
                .held
                .iter()
                .cloned()
                .collect();
            held.sort_unstable_by_key(|lock| lock.range.start);
            held
        };
        drop(given(exclusive(1, 5..30)).await);
        assert_eq!(held(), [exclusive(1, 0..10), shared(1, 10..20)]);
        drop(given(shared(1, 0..10)).await);
        assert_eq!(held(), [exclusive(1, 0..10), shared(1, 10..20)]);
        // What was given back since stays so, and others are not put out.
        let downgraded = given(shared(1, 0..20)).await;
        release(&table, 1, 0..5).await;
        take(&table, shared(2, 8..9)).await.unwrap();
        drop(downgraded);
        release(&table, 2, 0..END).await;
        assert_eq!(held(), [shared(1, 5..20)]);
        release(&table, 1, 0..END).await;
        // Who asks again waits until it is back.
        let first = given(exclusive(1, 0..10)).await;
        let again = take(&table, exclusive(1, 0..10));
        tokio::pin!(again);
        let moment = Duration::from_secs(1);
        assert!(clock::deadline(moment, again.as_mut()).await.is_err());
        drop(first);
        again.await.unwrap();
        assert_eq!(held(), [exclusive(1, 0..10)]);
    }

    #[tokio::test]
    async fn a_client_that_has_gone_holds_nothing() {
        let table = LockTable::default();
        take(&table, exclusive(1, 0..10)).await.unwrap();
        let elsewhere = Lock {
            owner: LockOwner {
                client: 2,
                owner: 1,
            },
            ..exclusive(1, 20..30)
        };
        take(&table, elsewhere).await.unwrap();
        table.release_client(1).await;
        assert!(ranges(&table, 1).is_empty());
        assert_eq!(table.held.lock().count, 1);
    }
}
