//! Several machines that have the same file system at once.
//!
//! Where the engine has [`Peers`], what a machine keeps of the keys can become wrong at any time: where the bytes of open
//! files lie, how long these are, what doors were given. So each machine follows what the others change:
//!
//! ```text
//!  others change keys ──► follower ──┬─ open files look again where their bytes lie, and how long they are
//!                                    ├─ doors are told: names, attributes, contents
//!                                    └─ followed until here ──► the engine is told, so that others know
//!  open ──► the engine catches up ──► the follower is as far ──► what the file held when it was closed last, anywhere
//! ```
//!
//! Between an `open` and the next one a machine lags behind the others by what the engine needs to tell it, unless coherence is
//! strict: then each look catches up.
//!
//! A machine whose session is over learns it from the same feed. It knows nothing of what happens from then on, so it
//! shows nothing any more: each operation fails, those that only read too.
//!
//! | part | what it does |
//! |---|---|
//! | [`follower`] | takes in what others change |
//! | [`contents`] | of which files a door may have old bytes when it opens them |
//! | [`leases`] | with strict coherence, who may have writes that are not saved |
//! | [`locks`] | locks of files that hold on all machines |
//! | [`orphans`] | files without a name that may be open elsewhere, and objects that may be read there |
//! | [`sessions`] | which sessions are over, and whose objects are whose |

mod contents;
mod follower;
mod leases;
mod locks;
mod orphans;
mod sessions;

use std::sync::{Arc, OnceLock, Weak};

use penstock_base::{FsError, FsResult, Mutex};
use penstock_vfs::{Watcher, Watchers};
use tokio::{sync::watch, task::AbortHandle};

pub(crate) use self::leases::{Changing, Leases, return_idle};
use self::{contents::Contents, locks::Bells, orphans::Orphans, sessions::Over};
pub(crate) use self::{locks::VolumeLocks, sessions::living_writers};
use crate::{
    engine::{Engine, EngineError, EngineResult, Moment, Peers},
    snapshots::Preserving,
    volume::{Coherence, Parts},
};

/// What a machine knows of the others. See the module.
#[derive(Debug)]
pub(crate) struct Machines {
    engine: Arc<Preserving>,
    watchers: Mutex<Watchers>,
    pub(crate) contents: Contents,
    orphans: Orphans,
    bells: Bells,
    /// With strict coherence.
    pub(crate) leases: Option<Leases>,
    sessions_over: Mutex<Over>,
    /// Up to where the follower took in what others changed.
    followed: watch::Sender<Moment>,
    /// Why this machine has the file system no more.
    over: OnceLock<FsError>,
    follower: OnceLock<AbortHandle>,
}

impl Machines {
    /// What is known of the others on this engine, if there can be any.
    pub(crate) fn new(engine: &Arc<Preserving>, coherence: Coherence) -> Option<Self> {
        engine.peers()?;
        Some(Self {
            engine: Arc::clone(engine),
            watchers: Mutex::default(),
            contents: Contents::default(),
            orphans: Orphans::default(),
            bells: Bells::default(),
            leases: (coherence == Coherence::Strict).then(Leases::default),
            sessions_over: Mutex::default(),
            followed: watch::Sender::new(Moment::default()),
            over: OnceLock::new(),
            follower: OnceLock::new(),
        })
    }

    /// Begins to follow the others, as long as `parts` are there.
    pub(crate) fn follow(&self, parts: Weak<Parts>) {
        let task = tokio::spawn(follower::run(parts, Arc::clone(&self.engine)));
        // It is begun once.
        let _ = self.follower.set(task.abort_handle());
    }

    /// Follows the others no more, before the session ends.
    pub(crate) fn end_following(&self) {
        if let Some(follower) = self.follower.get() {
            follower.abort();
        }
    }

    /// Tells a door from now on.
    pub(crate) fn watch(&self, door: Weak<dyn Watcher>) {
        self.watchers.lock().add(door);
    }

    fn peers(&self) -> FsResult<&dyn Peers> {
        let none = || FsError::Io("the engine has no sessions".to_owned());
        self.engine.peers().ok_or_else(none)
    }

    /// The number of this session.
    pub(crate) fn session(&self) -> u64 {
        self.engine.peers().map_or(0, |peers| peers.session().0)
    }

    /// Whether this machine does what one of them has to do now and then.
    pub(crate) async fn is_first(&self) -> FsResult<bool> {
        let sessions = self.peers()?.sessions().await?;
        let first = sessions.iter().map(|record| record.id.0).min();
        Ok(first == Some(self.session()))
    }

    /// Fails once the session is over.
    pub(crate) fn check(&self) -> FsResult<()> {
        self.over.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Returns when what was applied anywhere before the call is seen here, and nothing older is kept.
    pub(crate) async fn catch_up(&self) -> FsResult<()> {
        self.see_all().await?;
        self.settle().await
    }

    /// Returns when queries see what was applied anywhere before the call.
    pub(crate) async fn see_all(&self) -> FsResult<()> {
        self.check()?;
        self.peers()?.catch_up().await?;
        Ok(())
    }

    /// Returns when nothing is kept here that is older than what queries see.
    pub(crate) async fn settle(&self) -> FsResult<()> {
        let until = self.peers()?.changed_until();
        let mut followed = self.followed.subscribe();
        let is_there = |followed: &Moment| *followed >= until || self.over.get().is_some();
        // Whoever sends is here.
        let _ = followed.wait_for(is_there).await;
        self.check()
    }

    /// Whether the session goes on, as far as the engine knows.
    async fn ask_engine(&self) -> EngineResult<()> {
        match self.engine.peers() {
            Some(peers) => peers.catch_up().await.map(drop),
            None => Ok(()),
        }
    }

    /// All that others changed up to here was taken in.
    fn took_in(&self, until: Moment) {
        self.followed.send_replace(until);
        if let Some(peers) = self.engine.peers() {
            peers.took_in(until);
        }
    }

    /// The session is over.
    fn end(&self, parts: &Parts, error: EngineError) {
        tracing::error!(%error, "this machine has the file system no more: mount it again");
        // It ends once.
        let _ = self.over.set(error.into());
        self.bells.ring_all();
        self.followed.send_modify(|_| ());
        self.all_changed(parts);
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        self.end_following();
    }
}
