//! Locks that are being given back because somebody is gone.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use penstock_base::Mutex;
use penstock_vfs::{Inode, LockOwner};
use tokio::sync::Notify;

/// Files of which locks are being given back. Who asks for one waits for that: to the program the lock was free when its
/// close returned, and the kernel may give the next owner the name of one that is gone. As many entries as requests that
/// close something are under way. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Endings(Arc<State>);

#[derive(Debug, Default)]
struct State {
    under_way: Mutex<HashMap<Of, usize>>,
    over: Notify,
}

/// Who waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Of {
    Anybody(Inode),
    Owner(Inode, LockOwner),
}

impl Endings {
    pub(super) fn begin(&self, of: Of) -> Ending {
        *self.0.under_way.lock().entry(of).or_default() += 1;
        Ending {
            endings: self.clone(),
            of,
        }
    }

    /// Returns when none is under way that concerns an owner of locks of a file.
    pub(super) async fn over(&self, inode: Inode, owner: LockOwner) {
        loop {
            let over = self.0.over.notified();
            tokio::pin!(over);
            over.as_mut().enable();
            let concerns = [Of::Anybody(inode), Of::Owner(inode, owner)];
            let is_under_way = {
                let under_way = self.0.under_way.lock();
                concerns.iter().any(|of| under_way.contains_key(of))
            };
            if !is_under_way {
                return;
            }
            over.await;
        }
    }
}

/// One that is under way, until this is dropped.
#[derive(Debug)]
pub(super) struct Ending {
    endings: Endings,
    of: Of,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.endings.0.under_way.lock().entry(self.of) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        self.endings.0.over.notify_waiters();
    }
}
