//! What every part of a volume needs: the store, the settings, the tree of names, and what is counted.
//!
//! The parts of a volume are types of their own, each with its state, and know those below them:
//!
//! ```text
//! SetAttributes  Names  Renames  Listings   what doors ask for, and no other part
//!       Files                               open files: reading, writing, saving
//!       Metadata                            what is kept of files beside their bytes
//!       Lookups                             asking the store about names
//!       Mount                               this
//! ```
//!
//! [`crate::BucketVolume`] puts them together and hands each operation to one of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use penstock_base::{FsError, FsResult, clock, clock::Instant, metrics::Registry, random};
use penstock_object::{Key, ObjectInfo, ObjectKind, Store};
use penstock_transfer::{ObjectVersion, Transfer};
use penstock_vfs::{Entry, FileKind, Inode};

use crate::{
    BucketSettings, Fsync, SaveBehind,
    inode::{Known, Namespace, Patience, TreeSettings},
    metrics::{BucketMetrics, Notices},
    open_file::{Mode, OpenFile},
    write_back::WriteBack,
};

/// For how long a change believes what a lookup found just before it, however short the
/// negative timeout: a door looks a name up before it creates it.
const CREATION_PATIENCE: Duration = Duration::from_secs(1);

/// Bytes that a remembered name occupies with its metadata, about.
const KEPT_ENTRY_COST: u64 = 640;
/// Bytes that the metadata of a file occupies, about.
const KEPT_COST: u64 = 384;
/// The share of the memory budget that remembered names may take.
const KEPT_SHARE: u64 = 8;

/// What every part of a volume needs.
#[derive(Debug)]
pub(crate) struct Mount {
    pub(crate) transfer: Arc<Transfer>,
    pub(crate) settings: BucketSettings,
    pub(crate) metrics: BucketMetrics,
    pub(crate) notices: Notices,
    pub(crate) namespace: Arc<Namespace>,
    /// How files are written.
    pub(crate) mode: Mode,
    /// Changes of names that the store gets later, in staged mode.
    write_back: Option<Arc<WriteBack>>,
    /// Set when the volume shuts down: what is unsaved is saved then, and nothing may be
    /// written that would not be saved any more.
    shut: AtomicBool,
    /// The time that directories show, since the store keeps none.
    pub(crate) mounted: SystemTime,
    /// Tells inodes from those of other mounts, which begin to number them anew.
    pub(crate) generation: u32,
}

impl Mount {
    /// What the parts of a new volume share. Makes no request.
    pub(crate) fn new(
        transfer: Arc<Transfer>,
        settings: BucketSettings,
        mode: Mode,
        registry: &Registry,
    ) -> Arc<Self> {
        let budget = transfer.pool().budget();
        let tree = TreeSettings {
            remembered_max: remembered_max(&settings, budget.total()),
            replaces: settings.door_keeps_sizes,
            kept_cost: kept_cost(&settings),
        };
        let namespace = Namespace::new(budget, tree);
        let write_back = mode
            .staged()
            .map(|mode| WriteBack::new(mode.staging(), settings.save_behind, budget));
        Arc::new(Self {
            transfer,
            settings,
            metrics: BucketMetrics::new(registry),
            notices: Notices::default(),
            namespace,
            mode,
            write_back,
            shut: AtomicBool::new(false),
            mounted: clock::wall_time(),
            generation: random::number() as u32 | 1,
        })
    }

    /// Takes one more reference to a node.
    pub(crate) fn hold(&self, inode: Inode) -> FsResult<Entry> {
        let mut tree = self.namespace.lock();
        tree.hold_again(inode)?;
        Ok(self.entry_of(inode, tree.node(inode)?))
    }

    /// The store.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.transfer.store()
    }

    /// Until when an answer to a question asked at `begun` is believed.
    pub(crate) fn believed_until(&self, begun: Instant) -> Instant {
        begun + self.settings.attr_timeout
    }

    /// Until when a complete listing that was begun then answers for names that it did not show.
    pub(crate) fn complete_until(&self, begun: Instant) -> Instant {
        let settings = &self.settings;
        begun + settings.listing_timeout.min(settings.attr_timeout)
    }

    /// What an object shows as, as of a question asked at `begun`.
    pub(crate) fn known_object(&self, info: &ObjectInfo, begun: Instant) -> Known {
        let until = self.believed_until(begun);
        let plain = Known::object(info, self.kind_of(info.kind), until);
        self.known_with_metadata(info, plain)
    }

    /// What a file shows as whose content was written here just now, as `version`.
    pub(crate) fn known_written(
        &self,
        file: &OpenFile,
        version: &ObjectVersion,
        object: ObjectKind,
    ) -> Known {
        Known {
            kind: FileKind::Regular,
            object,
            size: version.size,
            modified: Some(file.view().modified),
            stored: None,
            etag: Some(version.etag.clone()),
            until: self.believed_until(clock::now()),
            kept: None,
            old_marker: None,
        }
    }

    /// The kind of file that an object shows as.
    pub(crate) fn kind_of(&self, object: ObjectKind) -> FileKind {
        match object {
            ObjectKind::Symlink if self.settings.symlinks => FileKind::Symlink,
            _ => FileKind::Regular,
        }
    }

    /// How files are saved behind the close, where they are.
    pub(crate) fn save_behind(&self) -> Option<SaveBehind> {
        self.mode.staged().and(self.settings.save_behind)
    }

    /// What fsync waits for.
    pub(crate) fn fsync(&self) -> Fsync {
        match self.settings.fsync {
            Fsync::Journal if self.save_behind().is_none() => Fsync::Store,
            fsync => fsync,
        }
    }

    /// Changes of names that the store gets later, where there can be any.
    pub(crate) fn write_back(&self) -> Option<&Arc<WriteBack>> {
        self.write_back.as_ref()
    }

    /// Carries out what waits for a key: to be called before anything is written under it.
    pub(crate) async fn settle(&self, key: &Key) -> FsResult<()> {
        match &self.write_back {
            Some(write_back) => write_back.settle(key).await,
            None => Ok(()),
        }
    }

    /// The same of everything below a prefix.
    pub(crate) async fn settle_below(&self, prefix: &str) -> FsResult<()> {
        match &self.write_back {
            Some(write_back) => write_back.settle_below(prefix).await,
            None => Ok(()),
        }
    }

    /// How a lookup takes memory's word that a name is free.
    pub(crate) fn lookup_patience(&self) -> Patience {
        let absence = self.settings.negative_timeout;
        Patience {
            absence,
            trusts_listings: !absence.is_zero(),
        }
    }

    /// How a change takes memory's word that a name is free.
    pub(crate) fn change_patience(&self) -> Patience {
        let absence = self.settings.negative_timeout.max(CREATION_PATIENCE);
        Patience {
            absence,
            trusts_listings: true,
        }
    }

    /// Fails if nothing may be changed.
    pub(crate) fn check_writable(&self) -> FsResult<()> {
        if self.settings.read_only {
            return Err(FsError::ReadOnly);
        }
        self.check_not_shut()
    }

    /// Fails once the volume shuts down. A change that adds something to a file asks under
    /// the lock that the last save of that file takes, so that it is either saved or refused.
    pub(crate) fn check_not_shut(&self) -> FsResult<()> {
        if self.shut.load(Ordering::SeqCst) {
            let text = "the volume is shutting down and saves nothing any more; mount it again";
            return Err(FsError::Io(text.to_owned()));
        }
        Ok(())
    }

    /// Fails with `Stale` where another client's file has the name of this one.
    pub(crate) fn check_keeps_name(&self, inode: Inode) -> FsResult<()> {
        match self.namespace.lock().node(inode)?.lost_its_name() {
            true => Err(FsError::Stale),
            false => Ok(()),
        }
    }

    /// Refuses every change from now on.
    pub(crate) fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
    }
}

/// What a file's metadata occupies, where listings ask for it.
fn kept_cost(settings: &BucketSettings) -> u64 {
    let asked_for = settings.metadata.keep && !settings.metadata.readdir_optimize;
    if asked_for { KEPT_COST } else { 0 }
}

/// Names to remember at most: with metadata each occupies more than the cache reckons with.
fn remembered_max(settings: &BucketSettings, memory: u64) -> usize {
    let wanted = settings.metadata.stat_cache_size;
    if !settings.metadata.keep {
        return wanted;
    }
    let affordable = memory / KEPT_SHARE / KEPT_ENTRY_COST;
    wanted.min(usize::try_from(affordable).unwrap_or(usize::MAX))
}

/// Runs work that must not stop half way in a task of its own: dropping the returned future
/// gives up waiting for it, not the work.
pub(crate) async fn run_to_end<T: Send + 'static>(
    work: impl Future<Output = FsResult<T>> + Send + 'static,
) -> FsResult<T> {
    let ended = tokio::spawn(work).await;
    ended.unwrap_or_else(|error| Err(FsError::Io(format!("the operation broke off: {error}"))))
}
