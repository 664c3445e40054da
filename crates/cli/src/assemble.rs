//! Builds the parts of a mount from settings: the one place where crates meet.
//!
//! ```text
//! Values -> BufferPool ----+-------------------+
//!        -> Store -> Transfer -> BucketVolume -> Session
//! ```

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use penstock_base::{BufferPool, KIB, MemoryBudget, metrics::Registry};
use penstock_fuse::FuseSettings;
use penstock_object::Store;
use penstock_transfer::Transfer;
use penstock_vfs::Volume;
use stub::{BucketSettings, BucketVolume};
use stub::{LocalSettings, LocalStore};

use crate::{
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    memory,
    options::{Values, table},
    system,
};

/// The memory of a mount.
pub(crate) fn pool(values: &Values) -> Arc<BufferPool> {
    let bytes = values.size(&table::MEMORY);
    BufferPool::new(MemoryBudget::new(
        bytes.unwrap_or_else(memory::default_budget),
    ))
}

/// Finds mistakes in a source that need no network to be found.
pub(crate) fn check_source(source: &str, _values: &Values) -> Outcome {
    if local_directory(source).is_some() {
        return Ok(());
    }
    Err(Failure::usage(
        format!("`{source}` names no bucket"),
        "write s3://BUCKET[/PREFIX], oss://BUCKET[/PREFIX] or file:///DIRECTORY",
    ))
}

/// The directory of a bucket on this machine.
pub(crate) fn local_directory(source: &str) -> Option<PathBuf> {
    let path = source.strip_prefix("file://")?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// Opens the store with all its layers.
pub(crate) async fn store(
    source: &str,
    values: &Values,
    _environment: &Environment,
    _registry: &Registry,
) -> Outcome<Arc<dyn Store>> {
    check_source(source, values)?;
    let directory = local_directory(source).expect("checked");
    let store = LocalStore::open(&directory, LocalSettings::default());
    let store = store.map_err(|error| explain::store_error(source, &error))?;
    Ok(Arc::new(store))
}

/// Opens the store for a first look, which gives up soon: a mistake should be told, not retried.
pub(crate) async fn impatient_store(
    source: &str,
    values: &Values,
    environment: &Environment,
) -> Outcome<Arc<dyn Store>> {
    store(source, values, environment, &Registry::new()).await
}

/// The bucket as a file system.
pub(crate) fn volume(
    store: &Arc<dyn Store>,
    pool: &Arc<BufferPool>,
    values: &Values,
    registry: &Registry,
) -> Arc<dyn Volume> {
    let transfer = Transfer::new(Arc::clone(store), Arc::clone(pool));
    BucketVolume::new(transfer, bucket_settings(values), registry)
}

fn bucket_settings(values: &Values) -> BucketSettings {
    let id = |spec, own: u32| {
        let given = values.count(spec).and_then(|id| u32::try_from(id).ok());
        given.unwrap_or(own)
    };
    let limit = values.count(&table::RENAME_LIMIT);
    BucketSettings {
        uid: id(&table::UID, system::user_id()),
        gid: id(&table::GID, system::group_id()),
        file_mode: values.mode(&table::FILE_MODE),
        dir_mode: values.mode(&table::DIR_MODE),
        read_only: values.flag(&table::READ_ONLY),
        attr_timeout: values.duration(&table::ATTR_TIMEOUT),
        negative_timeout: values.duration(&table::NEGATIVE_TIMEOUT),
        close_to_open: values.flag(&table::CLOSE_TO_OPEN),
        fsync: values.flag(&table::FSYNC),
        appendable: values.flag(&table::APPENDABLE),
        symlinks: values.flag(&table::SYMLINKS),
        rename_dir_limit: limit.map_or(usize::MAX, |limit| limit as usize),
        ..BucketSettings::default()
    }
}

/// How the kernel mounts it.
pub(crate) fn fuse_settings(source: &str, mountpoint: &Path, values: &Values) -> FuseSettings {
    let threads = values.count(&table::FUSE_THREADS);
    let background = values.count(&table::MAX_BACKGROUND);
    let background = background.and_then(|count| u16::try_from(count).ok());
    let defaults = FuseSettings::new(mountpoint, source);
    FuseSettings {
        read_only: values.flag(&table::READ_ONLY),
        allow_other: values.flag(&table::ALLOW_OTHER),
        nonempty: values.flag(&table::NONEMPTY),
        noexec: values.flag(&table::NOEXEC),
        threads: threads.and_then(|count| NonZeroUsize::new(count as usize)),
        max_background: background.unwrap_or(defaults.max_background),
        congestion_threshold: background.unwrap_or(defaults.congestion_threshold),
        read_ahead_kib: read_ahead_kib(values),
        io_uring: values.flag(&table::IO_URING),
        ..defaults
    }
}

fn read_ahead_kib(values: &Values) -> u32 {
    let bytes = values.size(&table::READ_AHEAD).unwrap_or_default();
    u32::try_from(bytes / KIB).unwrap_or(u32::MAX)
}

/// Parts of files that are on their way to the store.
pub(crate) fn uploads_in_flight(registry: &Registry) -> u64 {
    let samples = registry.samples();
    let uploads = samples.iter().filter(|sample| {
        sample.name == "transfer_parts_in_flight"
            && sample.labels.contains(&("direction", "upload".to_owned()))
    });
    uploads.map(|sample| sample.value).sum()
}

mod stub {
    use penstock_base::metrics::Registry;
    use penstock_transfer::Transfer;
    use penstock_vfs::Volume;
    use std::{path::Path, sync::Arc, time::Duration};
    #[derive(Default)]
    pub(super) struct LocalSettings;
    pub(super) struct LocalStore;
    impl LocalStore {
        pub(super) fn open(
            _: &Path,
            _: LocalSettings,
        ) -> penstock_object::ObjectResult<penstock_object::MemoryStore> {
            Ok(penstock_object::MemoryStore::new())
        }
    }
    #[derive(Default)]
    #[allow(dead_code)]
    pub(super) struct BucketSettings {
        pub uid: u32,
        pub gid: u32,
        pub file_mode: u16,
        pub dir_mode: u16,
        pub read_only: bool,
        pub attr_timeout: Duration,
        pub negative_timeout: Duration,
        pub close_to_open: bool,
        pub fsync: bool,
        pub appendable: bool,
        pub symlinks: bool,
        pub rename_dir_limit: usize,
        pub x: u32,
    }
    pub(super) struct BucketVolume;
    impl BucketVolume {
        pub(super) fn new(_: Arc<Transfer>, _: BucketSettings, _: &Registry) -> Arc<dyn Volume> {
            unreachable!()
        }
    }
}
