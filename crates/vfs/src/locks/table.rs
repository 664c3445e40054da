//! Locks of one process, in memory.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use penstock_base::{FsError, FsResult};
use tokio::sync::Notify;

use super::{HeldLocks, Lock, LockFamily, LockOwner, Locks, Waiting, Waits};
use crate::Inode;

/// Locks that may be held at once, of all files.
const LOCKS_MAX: usize = 1 << 20;

/// The locks of a volume that this process serves alone.
#[derive(Debug, Default)]
pub struct LockTable {
    held: Mutex<Held>,
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
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the lock, or says what rings when another try is worth while.
    fn try_acquire(
        &self,
        (at, wait): (Locked, u64),
        wanted: &Lock,
        waiting: Waiting,
    ) -> FsResult<Option<Arc<Notify>>> {
        let mut held = self.lock();
        let locks = held.files.entry(at).or_default();
        let blockers: HashSet<_> = locks.held.blocking(wanted).map(|lock| lock.owner).collect();
        if blockers.is_empty() {
            return held.give(at, wanted).map(|()| None);
        }
        let gone = Arc::clone(&locks.gone);
        if waiting == Waiting::No {
            return Err(FsError::WouldBlock);
        }
        if at.1 == LockFamily::Record {
            held.waits.wait((wanted.owner, wait), blockers)?;
        }
        Ok(Some(gone))
    }

    /// Whether an owner has a lock of a whole file as it is wanted. As flock(2) says, who has it in another mode gives
    /// it back first, and may lose it so.
    fn has_whole(&self, at: Locked, wanted: &Lock) -> bool {
        let mut held = self.lock();
        let locks = held
            .files
            .get(&at)
            .into_iter()
            .flat_map(|locks| locks.held.iter());
        let mut own = locks.filter(|lock| lock.owner == wanted.owner);
        if own.any(|lock| lock.mode == wanted.mode) {
            return true;
        }
        held.release(at, wanted.owner, &(0..u64::MAX));
        false
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
        let held = self.lock();
        let locks = held.files.get(&(inode, family));
        Ok(locks.and_then(|locks| locks.held.blocking(wanted).next().cloned()))
    }

    async fn acquire(
        &self,
        inode: Inode,
        family: LockFamily,
        wanted: Lock,
        waiting: Waiting,
    ) -> FsResult<()> {
        if wanted.range.is_empty() {
            return Err(FsError::InvalidArgument("an empty range cannot be locked"));
        }
        let at = (inode, family);
        if family == LockFamily::Whole && self.has_whole(at, &wanted) {
            return Ok(());
        }
        let wait = Wait::begin(self, at, wanted.owner);
        let try_acquire = || self.try_acquire((at, wait.number), &wanted, waiting);
        loop {
            let Some(gone) = try_acquire()? else {
                return Ok(());
            };
            let rings = gone.notified();
            tokio::pin!(rings);
            rings.as_mut().enable();
            // What went before the bell was listened to is seen by this try.
            if try_acquire()?.is_none() {
                return Ok(());
            }
            rings.await;
        }
    }

    async fn release(
        &self,
        inode: Inode,
        family: LockFamily,
        (owner, range): (LockOwner, Range<u64>),
    ) {
        self.lock().release((inode, family), owner, &range);
    }

    async fn release_client(&self, client: u64) {
        let mut held = self.lock();
        let files: Vec<Locked> = held.files.keys().copied().collect();
        for at in files {
            held.change(at, |locks| {
                let before = locks.held.len();
                locks.held.drop_client(client);
                locks.held.len() < before
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
}

impl<'a> Wait<'a> {
    fn begin(table: &'a LockTable, at: Locked, owner: LockOwner) -> Self {
        let mut held = table.lock();
        let number = held.waits.begin();
        Self {
            table,
            at,
            owner,
            number,
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut held = self.table.lock();
        held.waits.end((self.owner, self.number));
        held.prune(self.at);
    }
}

impl Held {
    fn give(&mut self, at: Locked, wanted: &Lock) -> FsResult<()> {
        if self.count >= LOCKS_MAX {
            return Err(FsError::LimitReached("too many locks are held"));
        }
        self.change(at, |locks| {
            let cut = locks.held.cut(wanted.owner, &wanted.range);
            locks.held.add(wanted.clone());
            cut
        });
        Ok(())
    }

    fn release(&mut self, at: Locked, owner: LockOwner, range: &Range<u64>) {
        self.change(at, |locks| locks.held.cut(owner, range));
    }

    /// Changes the locks of a file and counts them. If `change` says that some went or shrank, those who wait hear of it;
    /// never otherwise, for who tries again may be the one who rings.
    fn change(&mut self, at: Locked, change: impl FnOnce(&mut FileLocks) -> bool) {
        // Who acquires made an entry before; there is nothing to release of a file without one.
        let Some(locks) = self.files.get_mut(&at) else {
            return;
        };
        let before = locks.held.len();
        let rings = change(locks);
        self.count = self.count + locks.held.len() - before;
        if rings {
            locks.gone.notify_waiters();
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

    async fn take(table: &LockTable, wanted: Lock) -> FsResult<()> {
        table
            .acquire(FILE, LockFamily::Record, wanted, Waiting::No)
            .await
    }

    async fn release(table: &LockTable, of: u64, range: Range<u64>) {
        table
            .release(FILE, LockFamily::Record, (owner(of), range))
            .await;
    }

    fn ranges(table: &LockTable, of: u64) -> Vec<Range<u64>> {
        let held = table.lock();
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
        let held = table.lock();
        assert_eq!((held.files.len(), held.count), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_the_lock_when_it_is_free() {
        let table = Arc::new(LockTable::default());
        take(&table, exclusive(1, 0..10)).await.unwrap();
        let waiter = {
            let table = Arc::clone(&table);
            let wanted = exclusive(2, 5..15);
            tokio::spawn(async move {
                table
                    .acquire(FILE, LockFamily::Record, wanted, Waiting::Yes)
                    .await
            })
        };
        clock::sleep(Duration::from_secs(1)).await;
        assert!(!waiter.is_finished());
        release(&table, 1, 0..4).await;
        clock::sleep(Duration::from_secs(1)).await;
        assert!(!waiter.is_finished());
        release(&table, 1, 4..10).await;
        assert_eq!(waiter.await.unwrap(), Ok(()));
        assert_eq!(ranges(&table, 2), one(5..15));
        assert!(table.lock().waits.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_waiting_leaves_nothing_behind() {
        let table = LockTable::default();
        take(&table, exclusive(1, 0..10)).await.unwrap();
        let wanted = exclusive(2, 0..10);
        let wait = table.acquire(FILE, LockFamily::Record, wanted, Waiting::Yes);
        assert!(clock::deadline(Duration::from_secs(1), wait).await.is_err());
        assert!(table.lock().waits.is_empty());
        release(&table, 1, 0..10).await;
        assert!(table.lock().files.is_empty());
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
                table
                    .acquire(FILE, LockFamily::Record, wanted, Waiting::Yes)
                    .await
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

    /// Who waits must not ring its own bell, or it would try again for ever.
    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_whole_file_sleeps_until_it_is_free() {
        let table = Arc::new(LockTable::default());
        let whole = |of: u64, waiting| {
            let (table, wanted) = (Arc::clone(&table), exclusive(of, 0..END));
            async move {
                table
                    .acquire(FILE, LockFamily::Whole, wanted, waiting)
                    .await
            }
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
        assert!(table.lock().files.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn locks_of_whole_files_know_nothing_of_records_and_change_by_giving_back() {
        let table = Arc::new(LockTable::default());
        take(&table, exclusive(1, 0..END)).await.unwrap();
        let whole = |wanted: Lock, waiting| table.acquire(FILE, LockFamily::Whole, wanted, waiting);
        whole(shared(2, 0..END), Waiting::No).await.unwrap();
        whole(shared(3, 0..END), Waiting::No).await.unwrap();
        let upgraded = whole(exclusive(2, 0..END), Waiting::No).await;
        assert_eq!(upgraded, Err(FsError::WouldBlock));
        whole(exclusive(3, 0..END), Waiting::No).await.unwrap();
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
        assert_eq!(table.lock().count, 1);
    }
}
