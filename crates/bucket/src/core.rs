//! What the parts of a volume share.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use penstock_base::{FsError, FsResult, clock, clock::Instant, metrics::Registry, random};
use penstock_object::{ObjectInfo, ObjectKind, Store};
use penstock_transfer::{ObjectVersion, Transfer};
use penstock_vfs::{Entry, FileKind, Inode, Unsaved};

use crate::{
    BucketSettings,
    handles::Handles,
    inode::{Known, Namespace, Patience, TreeSettings},
    metadata::{MetadataLocks, Pace},
    metrics::{BucketMetrics, Notices},
    open_file::{Mode, OpenFile, Unheard},
    rename::Journal,
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

/// One volume. Its operations live in the modules named after them.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) transfer: Arc<Transfer>,
    pub(crate) settings: BucketSettings,
    pub(crate) metrics: BucketMetrics,
    pub(crate) notices: Notices,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) handles: Handles,
    /// How files are written.
    pub(crate) mode: Mode,
    journal: Mutex<Journal>,
    pub(crate) unheard: Unheard,
    /// Set when the volume shuts down: whatever is unsaved is saved then, and nothing may be
    /// written that nobody would save any more.
    shut: AtomicBool,
    /// The time that directories show, since the store keeps none.
    pub(crate) mounted: SystemTime,
    /// Tells inodes from those of other mounts, which begin to number them anew.
    pub(crate) generation: u32,
    pub(crate) metadata_locks: MetadataLocks,
    pub(crate) metadata_pace: Pace,
}

impl Core {
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
        let metadata_pace = Pace::new(settings.metadata.requests_max);
        let core = Arc::new(Self {
            transfer,
            settings,
            metrics: BucketMetrics::new(registry),
            notices: Notices::default(),
            namespace,
            handles: Handles::default(),
            mode,
            journal: Mutex::default(),
            unheard: Unheard::default(),
            shut: AtomicBool::new(false),
            mounted: clock::wall_time(),
            generation: random::number() as u32 | 1,
            metadata_locks: MetadataLocks::default(),
            metadata_pace,
        });
        core.register_gauges(registry);
        if let Mode::Staged(mode) = &core.mode {
            crate::staged::sync::begin(mode);
        }
        crate::freed::begin(&core);
        core
    }

    fn register_gauges(self: &Arc<Self>, registry: &Registry) {
        let gauge = |name, help, value: fn(&Self) -> usize| {
            let core = Arc::downgrade(self);
            registry.observe(name, help, move || {
                core.upgrade().map_or(0, |core| value(&core) as u64)
            });
        };
        gauge(
            "bucket_inodes",
            "Files and directories that somebody holds.",
            |core| core.namespace.lock().len(),
        );
        gauge(
            "bucket_idle_directories",
            "Directories that nobody holds and that stay for what they remember.",
            |core| core.namespace.lock().idle(),
        );
        gauge(
            "bucket_remembered_names",
            "Names remembered though nobody holds them.",
            |core| core.namespace.lock().remembered(),
        );
        gauge(
            "bucket_unsaved_files",
            "Open files whose content is not in the store yet.",
            |core| core.unsaved().files as usize,
        );
        gauge(
            "bucket_unsaved_bytes",
            "Bytes of open files whose content is not in the store yet.",
            |core| core.unsaved().bytes as usize,
        );
        gauge(
            "bucket_open_handles",
            "Open files and directories.",
            |core| core.handles.len(),
        );
        gauge(
            "bucket_staged_bytes",
            "Bytes in the staging directory.",
            |core| {
                let mode = core.mode.staged();
                mode.map_or(0, |mode| mode.staging().used() as usize)
            },
        );
        gauge(
            "bucket_recovering_files",
            "Files that an earlier mount left unsaved and that are not saved yet.",
            |core| core.left().files as usize,
        );
        gauge(
            "bucket_recovering_bytes",
            "Bytes of these files that the store lacks.",
            |core| core.left().bytes as usize,
        );
        gauge(
            "bucket_recovered_files",
            "Files that an earlier mount left unsaved and this one saved.",
            |core| {
                let mode = core.mode.staged();
                mode.map_or(0, |mode| mode.recovered() as usize)
            },
        );
    }

    /// Files that are not saved, and their bytes. Those that nobody has open any more are among them.
    pub(crate) fn unsaved(&self) -> Unsaved {
        match &self.mode {
            Mode::Streaming => self.handles.unsaved(),
            Mode::Staged(mode) => mode.unsaved(),
        }
    }

    /// Takes one more reference to a node.
    pub(crate) fn hold(&self, inode: Inode) -> FsResult<Entry> {
        let mut tree = self.namespace.lock();
        tree.hold_again(inode)?;
        Ok(self.entry_of(inode, tree.node(inode)?))
    }

    /// Files that an earlier mount left and that are not saved yet, and bytes of them to send.
    fn left(&self) -> Unsaved {
        let mode = self.mode.staged();
        mode.map(|mode| mode.left()).unwrap_or_default()
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.transfer.store()
    }

    pub(crate) fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when an answer to a question asked at `begun` is believed.
    pub(crate) fn believed_until(&self, begun: Instant) -> Instant {
        begun + self.settings.attr_timeout
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

    /// Fails once the volume shuts down. Whoever is about to add something to a file asks under
    /// the lock that the last save of that file takes, so that it is either saved or refused.
    pub(crate) fn check_not_shut(&self) -> FsResult<()> {
        if self.shut.load(Ordering::SeqCst) {
            let text = "the volume is shutting down and saves nothing any more; mount it again";
            return Err(FsError::Io(text.to_owned()));
        }
        Ok(())
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
