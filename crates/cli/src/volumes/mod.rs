//! Opening volumes as the options say.
//!
//! ```text
//! VolumeSpec -> Store -> cache, staging -> bucket: files          (bucket)
//!                     -> index          -> stream: files or disks (stream)
//!                     -> engine         -> fileset: files         (fileset)
//! ```
//!
//! An [`OpenedVolume`] knows no door: any number of them can be opened in front of it, see [`crate::doors`].
//! Volumes that one process opens share its [`Resources`].

pub(crate) mod bucket;
pub(crate) mod cache;
mod fileset;
pub(crate) mod stream;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use penstock_base::{
    FsResult,
    clock::Instant,
    metrics::{Registry, table as metrics},
    run_blocking,
};
use penstock_block::Contents;
use penstock_bucket::HIDDEN_REASONS;
use penstock_fileset::FilesetVolume;
use penstock_object::{ObjectError, Store};
use penstock_transfer::DiskCache;
use penstock_vfs::{Unsaved, UnsavedItem, Volume};
use tracing::warn;

use crate::{
    encryption,
    environment::Environment,
    failure::Outcome,
    filesets, limits, memory,
    options::{Values, table},
    predecessors::Predecessors,
    resources::Resources,
};

/// The kinds of volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VolumeKind {
    /// A file is an object.
    Bucket,
    /// A snapshot of a path.
    Stream,
    /// A file system of our own.
    Fileset,
}

impl VolumeKind {
    /// What a source is that is mounted as it is: a fileset or a bucket.
    pub(crate) fn of(source: &str) -> Self {
        match filesets::name_in(source) {
            Some(_) => Self::Fileset,
            None => Self::Bucket,
        }
    }
}

/// Everything that says what a volume is.
#[derive(Debug, Clone)]
pub(crate) struct VolumeSpec {
    pub kind: VolumeKind,
    /// The URL of what it shows.
    pub source: String,
    /// Where programs find it, absolute. What it keeps on this machine is named after that.
    pub mountpoint: PathBuf,
    pub values: Values,
    pub environment: Environment,
}

impl VolumeSpec {
    /// Bytes of memory that it may use for buffers and caches.
    pub(crate) fn memory(&self) -> u64 {
        match self.kind {
            VolumeKind::Stream => limits::memory(&self.values),
            VolumeKind::Bucket | VolumeKind::Fileset => {
                let given = self.values.size(&table::MEMORY);
                given.unwrap_or_else(memory::default_budget)
            }
        }
    }

    /// How many processors it may use, if there is a limit.
    pub(crate) fn processors(&self) -> Option<usize> {
        match self.kind {
            VolumeKind::Stream => limits::processors(&self.values),
            VolumeKind::Bucket | VolumeKind::Fileset => None,
        }
    }

    /// The staging directory that options name, where it stages anything.
    pub(crate) fn named_staging(&self) -> Option<&Path> {
        let stages = self.kind == VolumeKind::Bucket
            && bucket::is_staged(&self.values)
            && !self.values.flag(&table::READ_ONLY);
        stages.then(|| self.values.path(&table::STAGING_DIR))?
    }

    /// Whether opening it takes as long as it must: an index is built, or what an earlier mount staged is
    /// read from a slow disk. Giving up would leave as much to do for the next time.
    pub(crate) fn opens_slowly(&self) -> bool {
        match self.kind {
            VolumeKind::Stream => true,
            VolumeKind::Bucket => bucket::is_staged(&self.values),
            VolumeKind::Fileset => false,
        }
    }
}

/// What a door serves.
pub(crate) enum Form {
    /// A file system of ours, asked for each operation.
    Files(Arc<dyn Volume>),
    /// An image and disks, for a file system of the kernel.
    Disks(Contents),
}

/// A volume before doors are opened in front of it, and after.
pub(crate) struct OpenedVolume {
    pub form: Form,
    /// The same as what it is, if that is a fileset, with its name.
    pub fileset: Option<(String, Arc<FilesetVolume>)>,
    /// Whether nothing in it can be changed.
    pub read_only: bool,
    /// Whether files have owners and modes of their own, for which permission is to be checked.
    pub keeps_owners: bool,
    /// KiB that the kernel should read ahead of its readers where nothing else is asked for.
    pub read_ahead_kib: Option<u32>,
    /// The staging directory, if there is one.
    pub staging: Option<PathBuf>,
    pub cache: Option<Arc<DiskCache>>,
    /// The scope of its metrics, which goes with it.
    registry: Arc<Registry>,
    /// Where its bytes are, as it is asked for them.
    store: Arc<dyn Store>,
    /// Whether the cache is emptied when the volume is closed.
    discards_cache: bool,
    /// With this a process that takes over finds the same content again, see [`open`].
    pub note: Option<String>,
    /// What must not go before the volume, such as its index.
    _held: Option<Box<dyn Send + Sync>>,
}

impl OpenedVolume {
    /// What waits to be saved. Disks are never written.
    pub(crate) fn unsaved(&self) -> Unsaved {
        match &self.form {
            Form::Files(volume) => volume.unsaved(),
            Form::Disks(_) => Unsaved::default(),
        }
    }

    /// The same one by one.
    pub(crate) fn unsaved_items(&self) -> Vec<UnsavedItem> {
        match &self.form {
            Form::Files(volume) => volume.unsaved_items(),
            Form::Disks(_) => Vec::new(),
        }
    }

    /// Bytes that were written to its store since it was opened.
    pub(crate) fn sent(&self) -> u64 {
        let sent = self.registry.counter(&metrics::OBJECT_SENT_BYTES, &[]);
        sent.value()
    }

    /// How often a listing had an entry that no file can show, since it was opened.
    pub(crate) fn hidden(&self) -> u64 {
        let counters = HIDDEN_REASONS.map(|reason| {
            let labels = [("reason", reason)];
            self.registry
                .counter(&metrics::BUCKET_HIDDEN_ENTRIES, &labels)
        });
        counters.iter().map(|counter| counter.value()).sum()
    }

    /// Lets go of the cache, when all doors are closed.
    pub(crate) fn close(&self) {
        let Some(cache) = &self.cache else {
            return;
        };
        run_blocking(|| {
            cache.close();
            if self.discards_cache {
                cache.remove("");
            }
        });
    }
}

/// The volumes of a process, with their names; that of the only one is empty, unless it was given one.
#[derive(Clone, Default)]
pub(crate) struct OpenedVolumes(Vec<(String, Arc<OpenedVolume>)>);

impl OpenedVolumes {
    pub(crate) fn add(&mut self, name: &str, volume: Arc<OpenedVolume>) {
        self.0.push((name.to_owned(), volume));
    }

    fn each(&self) -> impl Iterator<Item = &Arc<OpenedVolume>> {
        self.0.iter().map(|(_, volume)| volume)
    }

    /// All in their order.
    pub(crate) fn all(&self) -> Vec<Arc<OpenedVolume>> {
        self.each().cloned().collect()
    }

    /// What waits to be saved, of all.
    pub(crate) fn unsaved(&self) -> Unsaved {
        let mut sum = Unsaved::default();
        for unsaved in self.each().map(|volume| volume.unsaved()) {
            sum.files += unsaved.files;
            sum.bytes += unsaved.bytes;
            sum.parts_under_way += unsaved.parts_under_way;
        }
        sum
    }

    /// The same one by one; of a volume with a name the paths begin with that.
    pub(crate) fn unsaved_items(&self) -> Vec<UnsavedItem> {
        let mut all = Vec::new();
        for (name, volume) in &self.0 {
            let mut items = volume.unsaved_items();
            for item in items.iter_mut().filter(|_| !name.is_empty()) {
                item.path = format!("{name}: {}", item.path);
            }
            all.extend(items);
        }
        all
    }

    /// The last error of a store of theirs, and when it came.
    pub(crate) fn last_failure(&self) -> Option<(ObjectError, Instant)> {
        let failures = self.each().filter_map(|volume| volume.store.last_failure());
        failures.max_by_key(|(_, when)| *when)
    }

    /// Bytes that were written to their stores since they were opened.
    pub(crate) fn sent(&self) -> u64 {
        self.each().map(|volume| volume.sent()).sum()
    }

    /// Those of them that are filesets, with the names of these.
    pub(crate) fn filesets(&self) -> Vec<(&str, &Arc<FilesetVolume>)> {
        let filesets = self.each().filter_map(|volume| volume.fileset.as_ref());
        filesets.map(|(name, fileset)| (&**name, fileset)).collect()
    }

    /// Makes durable what was written to the filesets among them.
    pub(crate) async fn make_durable(&self) -> FsResult<()> {
        for (_, fileset) in self.filesets() {
            fileset.make_durable().await?;
        }
        Ok(())
    }

    /// Their disk caches.
    pub(crate) fn caches(&self) -> Vec<&Arc<DiskCache>> {
        let caches = self.each().filter_map(|volume| volume.cache.as_ref());
        caches.collect()
    }

    /// Their staging directories.
    pub(crate) fn staging(&self) -> Vec<&Path> {
        let staging = self.each().filter_map(|volume| volume.staging.as_deref());
        staging.collect()
    }

    /// Shuts them down in their order, where no door is there that would do it.
    pub(crate) async fn shut_down(&self) {
        for volume in self.each() {
            if let Form::Files(files) = &volume.form {
                for (path, reason) in files.shut_down().await {
                    warn!(path, %reason, "could not be saved");
                }
            }
            volume.close();
        }
    }

    /// Lets go of their caches, when all doors are closed.
    pub(crate) fn close(&self) {
        self.each().for_each(|volume| volume.close());
    }
}

/// Opens a volume. What one process at a time may have of this machine is waited for as long as `before`
/// allows. With the `note` of another process, which was killed, the volume shows what that one did.
pub(crate) async fn open(
    spec: &VolumeSpec,
    resources: &Resources,
    before: &Predecessors<'_>,
    note: Option<&str>,
) -> Outcome<OpenedVolume> {
    if spec.kind != VolumeKind::Fileset {
        encryption::check_no_key(&spec.values)?;
    }
    match spec.kind {
        VolumeKind::Bucket => bucket::open(spec, resources, before).await,
        VolumeKind::Stream => stream::open(spec, resources, note).await,
        VolumeKind::Fileset => fileset::open(spec, resources, before).await,
    }
}
