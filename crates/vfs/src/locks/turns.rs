//! One after the other.

use std::{collections::HashMap, sync::Arc};

use penstock_base::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::LockOwner;
use crate::Inode;

/// Turns of those who change what an owner holds of a file: who asks for a lock again that it gave up waits until that is
/// given back. As many entries as owners have turns. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Turns(Arc<Mutex<HashMap<Of, Arc<AsyncMutex<()>>>>>);

type Of = (Inode, LockOwner);

impl Turns {
    /// Returns when nobody else has the turn of an owner and a file, nor will anybody until what it returns is dropped. Turns
    /// are in the order in which this was polled first.
    pub fn turn(&self, inode: Inode, owner: LockOwner) -> impl Future<Output = Turn> + use<> {
        let (turns, of) = (self.clone(), (inode, owner));
        async move {
            let line = Arc::clone(turns.0.lock().entry(of).or_default());
            let held = None;
            let mut turn = Turn { turns, of, held };
            turn.held = Some(line.lock_owned().await);
            turn
        }
    }
}

/// The turn of an owner, or a place in the line for it.
#[derive(Debug)]
pub struct Turn {
    turns: Turns,
    of: Of,
    held: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.held = None;
        let mut lines = self.turns.0.lock();
        let is_unused = |line: &Arc<AsyncMutex<()>>| Arc::strong_count(line) == 1;
        if lines.get(&self.of).is_some_and(is_unused) {
            lines.remove(&self.of);
        }
    }
}
