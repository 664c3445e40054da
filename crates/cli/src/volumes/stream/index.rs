//! The index of a path: what the options ask for, what a terminal shows meanwhile, and what its errors mean.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use penstock_object::Store;
use penstock_stream::{
    BuildSummary, Index, IndexError, IndexProgress, IndexRequest, ListingSettings, Refresh,
};

use super::{layout, manifest, progress, settings};
use crate::{
    control::mount_id,
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    options::{Values, table},
    stores,
};

/// What the index of `source` is to be, and how it is made.
pub(crate) fn request(
    source: &str,
    values: &Values,
    environment: &Environment,
    store: &Arc<dyn Store>,
) -> Outcome<IndexRequest> {
    let identity = stores::identity(source, values)?;
    let folder = settings::index_directory(values, environment)?;
    Ok(IndexRequest {
        store: Arc::clone(store),
        spool: folder.join("listings").join(mount_id(Path::new(&identity))),
        identity,
        folder,
        manifest: manifest::of(source, values, environment)?,
        listing: listing(values),
        layout: layout::of(values),
        permissions: settings::permissions(values),
        progress: Arc::new(IndexProgress::default()),
    })
}

fn listing(values: &Values) -> ListingSettings {
    let defaults = ListingSettings::default();
    let concurrency = values.count(&table::LIST_CONCURRENCY);
    let requests = values.count(&table::LIST_REQUESTS_MAX);
    ListingSettings {
        concurrency: concurrency.map_or(defaults.concurrency, |count| count as usize),
        requests_max: requests.unwrap_or(defaults.requests_max),
        ..defaults
    }
}

/// Finds the newest index of `source` that is young enough, or builds one.
pub(crate) async fn get(source: &str, request: &IndexRequest, refresh: Refresh) -> Outcome<Index> {
    let getting = Index::get(request, refresh);
    let index = progress::until_done(&request.progress, getting).await;
    let index = index.map_err(|error| failure(source, &error))?;
    if let Some(changes) = index.changes {
        progress::say_changes(changes);
    }
    Ok(index)
}

/// Takes the index that another process of the same mount used.
pub(crate) fn again(source: &str, request: &IndexRequest, image: &str) -> Outcome<Index> {
    let image = PathBuf::from(image);
    let index = Index::again(&request.folder, request.layout, &image);
    index.map_err(|error| failure(source, &error))
}

/// Writes an index to new files.
pub(crate) async fn build_into(
    source: &str,
    request: &IndexRequest,
    image: &Path,
    objects: &Path,
) -> Outcome<BuildSummary> {
    let building = request.build_into(image, objects);
    let summary = progress::until_done(&request.progress, building).await;
    summary.map_err(|error| failure(source, &error))
}

fn failure(source: &str, error: &IndexError) -> Failure {
    use penstock_stream::SnapshotError;
    match error {
        IndexError::Snapshot(SnapshotError::Store(error)) => explain::store_error(source, error),
        IndexError::Snapshot(_) | IndexError::Build(_) => {
            Failure::new(format!("{source}: {error}"), "")
        }
        IndexError::Kept(_) => Failure::new(error.to_string(), ""),
        IndexError::ManifestFile { .. } => Failure::new(
            error.to_string(),
            "check its path, or write s3://BUCKET/KEY or oss://BUCKET/KEY for an object",
        ),
        IndexError::ManifestObject { name, source } => explain::store_error(name, source),
        IndexError::Panicked(_) => Failure::new(error.to_string(), "report this"),
    }
}
