//! How much the staging directory may hold.
//!
//! Whoever is about to write takes the bytes first, so that a full disk is told to the write and
//! never to the close. What the file really occupies is settled afterwards.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_base::MIB;

use crate::staged::{content::Content, folder::Folder};

/// Bytes of the file system that are left to others, at most.
const KEEP_FREE_MAX: u64 = 64 * MIB;
/// The part of the file system that is left to others.
const KEEP_FREE_SHARE: u64 = 20;
/// Bytes that are taken before the file system is asked again how much it has.
const LOOK_EVERY: u64 = 64 * MIB;

/// An account of staging space.
#[derive(Debug)]
pub(crate) struct Space {
    folder: Folder,
    limit: u64,
    account: Mutex<Account>,
}

#[derive(Debug, Default)]
struct Account {
    used: u64,
    /// Extents of all files.
    extents: usize,
    /// What may still be taken before the file system is asked.
    unasked: u64,
}

impl Space {
    /// Space in `folder`, at most `limit` bytes.
    pub(crate) fn new(folder: Folder, limit: u64) -> Arc<Self> {
        Arc::new(Self {
            folder,
            limit,
            account: Mutex::default(),
        })
    }

    /// Bytes taken.
    pub(crate) fn used(&self) -> u64 {
        self.account().used
    }

    /// Extents of all files together.
    pub(crate) fn extents(&self) -> usize {
        self.account().extents
    }

    /// A payment of nothing yet.
    pub(crate) fn nothing(self: &Arc<Self>) -> Payment {
        Payment {
            space: Arc::clone(self),
            bytes: 0,
            extents: 0,
        }
    }

    /// Takes `bytes` if they are there.
    pub(crate) fn try_take(self: &Arc<Self>, bytes: u64) -> Option<Payment> {
        let mut account = self.account();
        if account.used.saturating_add(bytes) > self.limit {
            return None;
        }
        if account.unasked < bytes {
            let free = self.free();
            if free < bytes {
                return None;
            }
            account.unasked = free.min(LOOK_EVERY.max(bytes));
        }
        account.unasked -= bytes;
        account.used += bytes;
        drop(account);
        Some(Payment {
            space: Arc::clone(self),
            bytes,
            extents: 0,
        })
    }

    /// Makes the next taker ask the file system, which has just refused a write.
    pub(crate) fn doubt(&self) {
        self.account().unasked = 0;
    }

    /// Bytes of the file system that may be taken. One that does not tell is taken at its word when
    /// it refuses a write.
    fn free(&self) -> u64 {
        let Ok((free, total)) = self.folder.disk() else {
            return u64::MAX;
        };
        free.saturating_sub(KEEP_FREE_MAX.min(total / KEEP_FREE_SHARE))
    }

    fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that were taken; given back on drop.
#[derive(Debug)]
pub(crate) struct Payment {
    space: Arc<Space>,
    bytes: u64,
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
        account.extents = (account.extents + extents).saturating_sub(self.extents);
        drop(account);
        self.bytes = bytes;
        self.extents = extents;
    }
}

impl Drop for Payment {
    fn drop(&mut self) {
        self.pay(0, 0);
    }
}
