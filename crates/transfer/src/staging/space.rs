//! How much the staging directory may hold.
//!
//! A write takes its bytes first, so that a full disk is told to the write and
//! never to the close. What the file really occupies is settled afterwards.
//!
//! A write that finds no room stands in a line, and what it wants is not given to later ones. They
//! pass it where there is room for both.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use penstock_base::{MIB, clock, kept_free};
use tokio::sync::Notify;

use crate::staging::{content::Content, disk::on_worker, folder::Folder};

/// Bytes that are taken before the file system is asked again how much it has.
const LOOK_EVERY: u64 = 64 * MIB;
/// How often a waiting write asks the file system at least.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// An account of staging space.
#[derive(Debug)]
pub struct Space {
    folder: Folder,
    limit: u64,
    account: Mutex<Account>,
    /// There may be room for a waiting write.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Account {
    used: u64,
    /// Of these, what was taken and may not be written yet, so that the file system does not know of it.
    promised: u64,
    /// Extents of all files.
    extents: usize,
    /// What may still be taken before the file system is asked.
    unasked: u64,
    /// What it had when it was asked last.
    free: u64,
    /// What the waiting writes want, by their numbers.
    line: BTreeMap<u64, u64>,
    next_number: u64,
}

/// A place in the line of writes that wait for room. Left on drop.
#[derive(Debug)]
pub struct Place {
    space: Arc<Space>,
    number: u64,
    bytes: u64,
}

impl Space {
    /// Space in `folder`, at most `limit` bytes.
    pub(crate) fn new(folder: Folder, limit: u64) -> Arc<Self> {
        Arc::new(Self {
            folder,
            limit,
            account: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Bytes taken.
    pub fn used(&self) -> u64 {
        self.account().used
    }

    /// Extents of all files together.
    pub fn extents(&self) -> usize {
        self.account().extents
    }

    /// A payment of nothing yet.
    pub(crate) fn nothing(self: &Arc<Self>) -> Payment {
        Payment {
            space: Arc::clone(self),
            bytes: 0,
            promised: 0,
            extents: 0,
        }
    }

    /// Takes `bytes` if they are known to be there beside what others wait for.
    pub fn try_take_known(self: &Arc<Self>, bytes: u64) -> Option<Payment> {
        self.try_take_known_as(u64::MAX, bytes)
    }

    /// A place at the end of the line, for `bytes`.
    pub fn line_up(self: &Arc<Self>, bytes: u64) -> Place {
        let mut account = self.account();
        let number = account.next_number;
        account.next_number += 1;
        account.line.insert(number, bytes);
        drop(account);
        Place {
            space: Arc::clone(self),
            number,
            bytes,
        }
    }

    fn try_take_known_as(self: &Arc<Self>, number: u64, bytes: u64) -> Option<Payment> {
        let mut account = self.account();
        if !account.has_room(number, bytes, self.limit) {
            return None;
        }
        account.unasked -= bytes;
        account.used += bytes;
        account.promised += bytes;
        drop(account);
        Some(Payment {
            space: Arc::clone(self),
            bytes,
            promised: bytes,
            extents: 0,
        })
    }

    /// Asks the file system, for those that want `bytes`. The others do not wait for the answer.
    fn ask(&self, bytes: u64) {
        let promised = self.account().promised;
        let free = self.look();
        let mut account = self.account();
        // What was written since may not be in the answer.
        let free = free.saturating_sub(promised.max(account.promised));
        account.unasked = free.min(LOOK_EVERY.max(bytes));
        drop(account);
        self.changed.notify_waiters();
    }

    /// Bytes of the file system that others want, too, as it told when it was asked last.
    pub fn free_seen(&self) -> u64 {
        self.account().free
    }

    /// Makes the next taker ask the file system, which has just refused a write.
    pub fn doubt(&self) {
        self.account().unasked = 0;
    }

    /// Bytes of the file system that may be taken. One that does not tell is taken at its word when
    /// it refuses a write. Blocks.
    pub fn look(&self) -> u64 {
        let Ok((free, total)) = self.folder.disk() else {
            self.account().free = 0;
            return u64::MAX;
        };
        self.account().free = free;
        free.saturating_sub(kept_free(total))
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// Bytes that those want that came before number `number`.
    fn wanted_before(&self, number: u64) -> u64 {
        self.line.range(..number).map(|(_, bytes)| bytes).sum()
    }

    /// Whether `bytes` are known to be there, within `limit`, beside what those want that came before.
    fn has_room(&self, number: u64, bytes: u64, limit: u64) -> bool {
        let wanted = self.wanted_before(number).saturating_add(bytes);
        self.used.saturating_add(wanted) <= limit && self.unasked >= wanted
    }
}

impl Place {
    /// Takes what is waited for, once it is there.
    pub async fn served(&self) -> Payment {
        loop {
            if let Some(wanted) = self.unasked() {
                on_worker(|| self.space.ask(wanted)).await;
            }
            let changed = self.space.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(payment) = self.space.try_take_known_as(self.number, self.bytes) {
                return payment;
            }
            // Others than this mount may give the file system room.
            let _ = clock::deadline(LOOK_INTERVAL, changed).await;
        }
    }

    /// Whether there is room, as far as the file system is not in the way.
    pub fn may_be_served(&self) -> bool {
        let account = self.space.account();
        account.has_room(self.number, self.bytes, self.space.limit)
    }

    /// What the file system is to be asked for: by the first in the line, where nothing else is in the way.
    fn unasked(&self) -> Option<u64> {
        let account = self.space.account();
        let is_first = account.wanted_before(self.number) == 0;
        let within = account.used.saturating_add(self.bytes) <= self.space.limit;
        (is_first && within && account.unasked < self.bytes).then_some(self.bytes)
    }

    /// Takes what is waited for if it is there. Blocks where the file system must be asked.
    pub(crate) fn try_take(&self) -> Option<Payment> {
        let missing = {
            let account = self.space.account();
            let wanted = account.wanted_before(self.number) + self.bytes;
            (account.unasked < wanted).then_some(wanted)
        };
        if let Some(wanted) = missing {
            self.space.ask(wanted);
        }
        self.space.try_take_known_as(self.number, self.bytes)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.space.account().line.remove(&self.number);
        self.space.changed.notify_waiters();
    }
}

/// Bytes that were taken; given back on drop.
#[derive(Debug)]
pub struct Payment {
    space: Arc<Space>,
    bytes: u64,
    /// Of these, what may not be written yet.
    promised: u64,
    extents: usize,
}

impl Payment {
    /// Pays for what `content` occupies, no more and no less. What is missing is taken, whether or
    /// not it is there: it is occupied already.
    pub(crate) fn settle(&mut self, content: &Content) {
        self.pay(content.cost(), content.extents().count());
    }

    fn pay(&mut self, bytes: u64, extents: usize) {
        let mut account = self.space.account();
        account.used = (account.used + bytes).saturating_sub(self.bytes);
        account.promised -= self.promised;
        account.extents = (account.extents + extents).saturating_sub(self.extents);
        drop(account);
        if bytes < self.bytes {
            self.space.changed.notify_waiters();
        }
        self.bytes = bytes;
        self.promised = 0;
        self.extents = extents;
    }
}

impl Drop for Payment {
    fn drop(&mut self) {
        self.pay(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(limit: u64) -> (tempfile::TempDir, Arc<Space>) {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let folder = Folder::take(scratch.path()).expect("a folder");
        (scratch, Space::new(folder, limit))
    }

    async fn is_served(place: &Place) -> bool {
        let served = clock::deadline(Duration::from_millis(1), place.served());
        served.await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_passed_only_where_there_is_room_for_both() {
        let (_scratch, space) = space(100);
        let first = space.line_up(60).try_take().expect("room");
        let (second, third) = (space.line_up(70), space.line_up(20));
        assert!(!is_served(&second).await && !is_served(&third).await);
        assert!(
            space.try_take_known(1).is_none(),
            "there are 40, and 90 are wanted"
        );
        drop(first);
        assert!(space.try_take_known(11).is_none());
        let passing = space.try_take_known(10).expect("room for all of them");
        assert!(is_served(&third).await && is_served(&second).await);
        drop((second, third, passing));
        assert!(space.try_take_known(100).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_the_disk_hears_that_it_has_room() {
        let (_scratch, space) = space(1000 * MIB);
        let place = space.line_up(60);
        let served = place.served();
        let full = async {
            for _ in 0..10 {
                space.account().unasked = 0;
                clock::sleep(Duration::from_millis(7)).await;
            }
        };
        let (_payment, ()) = tokio::join!(served, full);
    }
}
