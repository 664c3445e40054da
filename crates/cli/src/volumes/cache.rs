//! The disk cache of a volume, from options.

use std::{path::Path, sync::Arc, time::Duration};

use penstock_base::run_blocking;
use penstock_transfer::{CacheContents, CacheError, CacheSettings, DiskCache, KeepFree};

use super::VolumeSpec;
use crate::{
    failure::{Failure, Outcome},
    mount_point,
    options::table,
    predecessors::Predecessors,
    resources::Resources,
};

/// How long a mount waits until a cache knows what it has. A large one goes on in the background.
const READY_PATIENCE: Duration = Duration::from_secs(1);

/// Opens the cache that the options ask for, if they do.
pub(crate) async fn open(
    spec: &VolumeSpec,
    resources: &Resources,
    before: &Predecessors<'_>,
) -> Outcome<Option<Arc<DiskCache>>> {
    let values = &spec.values;
    let Some(directory) = values.path(&table::CACHE_DIR) else {
        return Ok(None);
    };
    mount_point::check_outside(&spec.mountpoint, directory, "cache directory")?;
    let percent = values.count(&table::CACHE_FREE_RATIO).unwrap_or_default();
    let settings = CacheSettings {
        directory: directory.to_owned(),
        size: values.size(&table::CACHE_SIZE),
        keep_free: KeepFree {
            bytes: values.size(&table::CACHE_FREE_SPACE).unwrap_or_default(),
            ratio: percent as f64 / 100.0,
        },
    };
    let discard = values.flag(&table::CACHE_DISCARD);
    let take = || {
        if discard {
            run_blocking(|| empty(directory))?;
        }
        DiskCache::open(&settings, &resources.pool, &resources.registry)
    };
    let user = |error: &CacheError| match error {
        CacheError::InUse { pid, .. } => Some(*pid),
        CacheError::Io { .. } => None,
    };
    let cache = before.once_free(take, user, failure).await?;
    run_blocking(|| cache.wait_until_ready(READY_PATIENCE));
    Ok(Some(cache))
}

/// Removes what an earlier mount left in a cache.
fn empty(directory: &Path) -> Result<(), CacheError> {
    match CacheContents::remove(directory, "") {
        Err(error @ CacheError::InUse { .. }) => Err(error),
        // There is none yet, or opening it will say what is wrong with it.
        Ok(_) | Err(CacheError::Io { .. }) => Ok(()),
    }
}

/// A cache's failure as the user sees it.
pub(crate) fn failure(error: &CacheError) -> Failure {
    let text = error.to_string();
    match error {
        CacheError::InUse { .. } => {
            let (cause, remedy) = text.split_once(": ").unwrap_or((&text, ""));
            Failure::new(cause, remedy)
        }
        CacheError::Io { .. } => Failure::new(text, "give a directory that this user can write"),
    }
}
