//! The disk cache of a mount, from options.

use std::{path::Path, sync::Arc, time::Duration};

use penstock_base::{BufferPool, metrics::Registry, run_blocking};
use penstock_object::Store;
use penstock_transfer::{CacheContents, CacheError, CacheSettings, DiskCache, KeepFree};

use crate::{
    assemble,
    failure::{Failure, Outcome},
    mount_point,
    options::{Values, table},
    serve::{Plan, Predecessors},
};

/// How long a mount waits until a cache knows what it has. A large one goes on in the background.
const READY_PATIENCE: Duration = Duration::from_secs(1);

/// Opens the cache that the options ask for, if they do.
pub(crate) async fn open(
    plan: &Plan,
    pool: &Arc<BufferPool>,
    registry: &Registry,
    before: &Predecessors<'_>,
) -> Outcome<Option<Arc<DiskCache>>> {
    let values = &plan.values;
    let Some(directory) = values.path(&table::CACHE_DIR) else {
        return Ok(None);
    };
    mount_point::check_outside(&plan.mountpoint, directory, "cache directory")?;
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
        DiskCache::open(&settings, pool, registry)
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

/// `store` behind the cache, if there is one.
pub(crate) fn around(
    cache: Option<&Arc<DiskCache>>,
    store: Arc<dyn Store>,
    source: &str,
    values: &Values,
) -> Outcome<Arc<dyn Store>> {
    let Some(cache) = cache else {
        return Ok(store);
    };
    Ok(cache.around(store, &identity(source, values)?))
}

/// What tells this store from every other, without credentials.
pub(crate) fn identity(source: &str, values: &Values) -> Outcome<String> {
    let url = assemble::parse(source)?;
    let endpoint = values.text(&table::ENDPOINT).unwrap_or_default();
    let host = endpoint.rsplit('@').next().unwrap_or_default();
    let region = values.text(&table::REGION).unwrap_or_default();
    Ok(format!("{url} {host} {region}"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Given, Origin};

    fn values(endpoint: &str) -> Values {
        let given = Given {
            spec: &table::ENDPOINT,
            spelling: "endpoint".to_owned(),
            text: endpoint.to_owned(),
            origin: Origin::CommandLine,
        };
        Values::resolve(vec![given]).expect("valid")
    }

    #[test]
    fn stores_are_told_apart_and_credentials_kept_out() {
        let identity = |source, endpoint| identity(source, &values(endpoint)).expect("valid");
        let one = identity("s3://bucket/a", "http://AKIA:secret@host:1");
        assert!(one.contains("s3://bucket/a/") && one.contains("host:1"));
        assert!(!one.contains("AKIA") && !one.contains("secret"), "{one}");
        assert_ne!(one, identity("s3://bucket/a", "http://host:2"));
        assert_ne!(one, identity("s3://bucket/b", "http://host:1"));
    }
}
