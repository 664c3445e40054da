//! Takes in what others change: one batch after the other, as the engine tells of them.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use penstock_base::{FileName, FsError, FsResult, clock};
use penstock_vfs::{Inode, Watcher};

use super::{Leases, Machines};
use crate::{
    engine::{Changed, Engine, EngineError},
    schema::{self, kind},
    snapshots::Preserving,
    volume::Parts,
};

/// How long the follower rests when the engine does not answer.
const REST: Duration = Duration::from_secs(1);

/// Works until the volume is gone or the session over.
pub(super) async fn run(parts: Weak<Parts>, engine: Arc<Preserving>) {
    let Some(peers) = engine.peers() else { return };
    loop {
        let changed = peers.changes().await;
        let Some(parts) = parts.upgrade() else { return };
        let Some(machines) = &parts.machines else {
            return;
        };
        match changed {
            Ok(changed) => take_in(&parts, machines, &changed).await,
            Err(error) if passes(&error) => clock::sleep(REST).await,
            Err(error) => return machines.end(&parts, error),
        }
    }
}

/// Whether what failed can be tried again.
pub(super) fn passes(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Database(_) | EngineError::Store(_) | EngineError::Full(_)
    )
}

async fn take_in(parts: &Arc<Parts>, machines: &Machines, changed: &Changed) {
    loop {
        match try_to_take_in(parts, machines, changed).await {
            Ok(()) => break,
            // Who asks for what is damaged is told, and nobody waits for it.
            Err(FsError::Corrupt(error)) => {
                tracing::warn!(%error, "not all that others changed could be taken in");
                break;
            }
            Err(error) => tracing::debug!(%error, "what others changed is taken in later"),
        }
        if let Err(error) = machines.ask_engine().await
            && !passes(&error)
        {
            return machines.end(parts, error);
        }
        clock::sleep(REST).await;
    }
    machines.took_in(changed.until);
}

async fn try_to_take_in(
    parts: &Arc<Parts>,
    machines: &Machines,
    changed: &Changed,
) -> FsResult<()> {
    let touched = match &changed.keys {
        Some(keys) => Touched::of(keys),
        None => Touched::anything(parts, machines).await?,
    };
    touched.take_in(parts, machines).await
}

/// What others touched.
#[derive(Debug, Default)]
struct Touched {
    names: Vec<(Inode, FileName)>,
    attributes: BTreeSet<Inode>,
    contents: BTreeSet<Inode>,
    orphans: BTreeSet<Inode>,
    /// Something may be collected now.
    is_collectable: bool,
    locks: BTreeSet<Inode>,
    any_locks: bool,
    leases: BTreeSet<Inode>,
}

impl Touched {
    fn of(keys: &[Bytes]) -> Self {
        let mut touched = Self::default();
        keys.iter().for_each(|key| touched.add(key));
        touched
    }

    /// All that is held or open here: any of it can be another one by now.
    async fn anything(parts: &Parts, machines: &Machines) -> FsResult<Self> {
        let orphans = machines.all_orphans().await?;
        let mut all: BTreeSet<_> = parts.held.all().into_iter().collect();
        all.extend(parts.files.all());
        Ok(Self {
            names: Vec::new(),
            attributes: all.clone(),
            contents: all,
            orphans,
            is_collectable: true,
            locks: BTreeSet::new(),
            any_locks: true,
            leases: machines
                .leases
                .as_ref()
                .map(Leases::all)
                .unwrap_or_default(),
        })
    }

    fn add(&mut self, key: &[u8]) {
        let Ok(inode) = schema::inode_in(key) else {
            return;
        };
        match key[0] {
            kind::ENTRY => {
                let name = FileName::new(schema::name_in(key));
                self.names.extend(name.ok().map(|name| (inode, name)));
            }
            kind::NODE | kind::TIMES | kind::DIRECTORIES | kind::TARGET | kind::XATTR => {
                self.attributes.insert(inode);
            }
            kind::CHUNK => {
                self.contents.insert(inode);
            }
            kind::ORPHAN => {
                self.orphans.insert(inode);
            }
            kind::LOCKS => {
                self.locks.insert(inode);
            }
            kind::WRITE_LEASE => {
                self.leases.insert(inode);
            }
            kind::HOLDER | kind::GARBAGE => self.is_collectable = true,
            _ => {}
        }
    }

    /// May be done again.
    async fn take_in(&self, parts: &Arc<Parts>, machines: &Machines) -> FsResult<()> {
        for inode in &self.contents {
            if let Some(file) = parts.files.find(*inode) {
                file.moved();
            }
            machines.content_changed(parts, *inode);
        }
        for inode in &self.attributes {
            if has_other_size(parts, *inode).await? {
                machines.content_changed(parts, *inode);
            }
            if parts.held.has(*inode) {
                machines.watchers.lock().attributes_changed(*inode);
            }
        }
        let names = self.names.iter();
        for (parent, name) in names.filter(|(parent, _)| parts.held.has(*parent)) {
            machines.watchers.lock().name_changed(*parent, name);
        }
        self.locks
            .iter()
            .for_each(|inode| machines.bells.ring(*inode));
        if self.any_locks {
            machines.bells.ring_all();
        }
        for inode in &self.leases {
            machines.lease_changed(parts, *inode).await?;
        }
        machines.learn_orphans(parts, &self.orphans).await?;
        if self.is_collectable {
            parts.held.bell.notify_one();
        }
        Ok(())
    }
}

impl Machines {
    /// Doors are to forget all that they have.
    pub(super) fn all_changed(&self, parts: &Parts) {
        for inode in parts.held.all() {
            self.content_changed(parts, inode);
            self.watchers.lock().attributes_changed(inode);
        }
    }

    /// What doors have of the content of a file is not what it holds.
    pub(crate) fn content_changed(&self, parts: &Parts, inode: Inode) {
        if parts.held.has(inode) {
            self.contents.changed(inode);
            self.watchers.lock().content_changed(inode);
        }
    }
}

/// Whether a file that is open here has another size than was known.
async fn has_other_size(parts: &Parts, inode: Inode) -> FsResult<bool> {
    let Some(file) = parts.files.find(inode) else {
        return Ok(false);
    };
    match parts.files.learn_size(&file).await {
        // Who has it open is told when it is used.
        Err(FsError::Stale | FsError::Corrupt(_)) => Ok(false),
        learned => learned,
    }
}
