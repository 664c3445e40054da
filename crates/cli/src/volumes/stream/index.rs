//! The index of a path: found among those that are kept, or built.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use penstock_base::run_blocking;
use penstock_object::Store;
use penstock_stream::{
    BuildError, BuildParts, BuildProgress, BuildSummary, Changes, ImageRequest, KeptError,
    KeptImage, KeptImages, KeptLimits, ListingProgress, ListingSettings, ObjectMap,
    ObjectMapWriter, ObjectSource, Permissions, Placement, Refresh, SnapshotError, Spool,
    SpoolSettings, SpoolSource, compare, list_all, load_manifest,
};
use tracing::{info, warn};

use super::{
    layout::Layout,
    manifest::{self, Manifest},
    progress, settings,
};
use crate::{
    control::mount_id,
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    options::{Values, table},
    stores,
};

/// What the index is to be of, and how.
pub(crate) struct IndexRequest<'a> {
    /// The URL.
    pub source: &'a str,
    pub values: &'a Values,
    pub environment: &'a Environment,
    pub store: &'a Arc<dyn Store>,
}

/// An index on this machine. What is kept of it stays as long as this lives.
pub(crate) struct Index {
    /// The file-system image.
    pub image: PathBuf,
    /// The map of its objects.
    pub objects: PathBuf,
    pub(super) layout: Layout,
    _kept: Option<KeptImage>,
}

impl Index {
    /// Finds the newest index of the path, or builds one.
    pub(crate) async fn get(request: &IndexRequest<'_>) -> Outcome<Self> {
        let manifest = Manifest::of(request)?;
        let wanted = request.image_request(manifest.as_ref()).await?;
        let (images, newest) = request.newest(&wanted)?;
        if let Some(kept) = newest {
            let age = kept.about().age();
            if settings::refresh(request.values).accepts(age) {
                info!(?age, listing = kept.about().listing, "a kept index is used");
                return Ok(request.index(kept));
            }
            return request.build(&images, &wanted, Some(kept)).await;
        }
        request.build(&images, &wanted, None).await
    }

    /// Builds an index, whether or not there is one.
    pub(crate) async fn build(request: &IndexRequest<'_>) -> Outcome<Self> {
        let manifest = Manifest::of(request)?;
        let wanted = request.image_request(manifest.as_ref()).await?;
        let (images, newest) = request.newest(&wanted)?;
        request.build(&images, &wanted, newest).await
    }

    /// The index that another process of the same mount used. Asks nobody but this machine.
    pub(crate) fn again(request: &IndexRequest<'_>, image: &str) -> Outcome<Self> {
        let images = request.images()?;
        let image = PathBuf::from(image);
        Ok(Self {
            objects: image.with_file_name("objects"),
            layout: Layout::of(request.values),
            _kept: run_blocking(|| images.again(&image)),
            image,
        })
    }
}

impl IndexRequest<'_> {
    fn images(&self) -> Outcome<KeptImages> {
        let folder = settings::index_directory(self.values, self.environment)?;
        let opened = KeptImages::open(&folder, KeptLimits::default());
        opened.map_err(|error| kept_error(&error))
    }

    /// The kept images, and the newest of these, whatever its age.
    fn newest(&self, wanted: &ImageRequest) -> Outcome<(KeptImages, Option<KeptImage>)> {
        let images = self.images()?;
        let newest = run_blocking(|| images.newest(wanted, Refresh::Never));
        let newest = newest.map_err(|error| kept_error(&error))?;
        Ok((images, newest))
    }

    async fn image_request(&self, manifest: Option<&Manifest>) -> Outcome<ImageRequest> {
        let mut source = stores::identity(self.source, self.values)?;
        if let Some(manifest) = manifest {
            let columns = self.values.text(&table::MANIFEST_COLUMNS);
            for part in [&*manifest.version().await?, columns.unwrap_or_default()] {
                source.push(' ');
                source.push_str(part);
            }
        }
        Ok(ImageRequest {
            source,
            variant: match Layout::of(self.values) {
                // Owners and modes are not in the tree.
                Layout::Tree => format!("{:?}", Layout::Tree),
                layout => format!("{layout:?} {:?}", self.permissions()),
            },
        })
    }

    fn index(&self, kept: KeptImage) -> Index {
        Index {
            image: kept.image_path(),
            objects: kept.objects_path(),
            layout: Layout::of(self.values),
            _kept: Some(kept),
        }
    }

    fn permissions(&self) -> Permissions {
        settings::permissions(self.values)
    }

    /// Lists the path and builds its index among the kept ones; says what changed since `old`.
    async fn build(
        &self,
        images: &KeptImages,
        wanted: &ImageRequest,
        old: Option<KeptImage>,
    ) -> Outcome<Index> {
        let new = run_blocking(|| images.begin(wanted)).map_err(|error| kept_error(&error))?;
        let summary = build_into(self, &new.image_path(), &new.objects_path()).await?;
        let kept = run_blocking(|| new.keep(&summary.listing));
        let kept = kept.map_err(|error| kept_error(&error))?.into_image();
        if let Some(old) = old {
            let (old, new) = (old.objects_path(), kept.objects_path());
            let changes = run_blocking(|| changes(&old, &new));
            report_changes(changes.map_err(|error| self.explain(&error))?);
        }
        Ok(self.index(kept))
    }

    async fn list(&self) -> Outcome<SpoolSource> {
        let identity = stores::identity(self.source, self.values)?;
        let folder = settings::index_directory(self.values, self.environment)?;
        let spool = folder.join("listings").join(mount_id(Path::new(&identity)));
        let spool = run_blocking(|| Spool::open(&SpoolSettings::new(spool, identity)));
        let spool = spool.map_err(|error| self.explain(&error))?;
        let progress = Arc::new(ListingProgress::default());
        if let Some(manifest) = Manifest::of(self)? {
            return self.load(&manifest, spool, &progress).await;
        }
        let defaults = ListingSettings::default();
        let concurrency = self.values.count(&table::LIST_CONCURRENCY);
        let requests = self.values.count(&table::LIST_REQUESTS_MAX);
        let settings = ListingSettings {
            concurrency: concurrency.map_or(defaults.concurrency, |count| count as usize),
            requests_max: requests.unwrap_or(defaults.requests_max),
            ..defaults
        };
        let listing = list_all(self.store, spool, &settings, &progress);
        let listed = progress::while_listing(&progress, listing).await;
        let status = progress.status();
        info!(
            keys = status.keys,
            requests = status.requests,
            seconds = status.elapsed.as_secs_f64(),
            "the path is listed"
        );
        listed.map_err(|error| self.explain(&error))
    }

    /// Takes a file for a listing.
    async fn load(
        &self,
        manifest: &Manifest,
        spool: Spool,
        progress: &Arc<ListingProgress>,
    ) -> Outcome<SpoolSource> {
        let (location, settings) = (manifest.location(), manifest::settings(self)?);
        let loading = load_manifest(self.store, &location, spool, &settings, progress);
        let loaded = progress::while_listing(progress, loading).await;
        let (source, summary) = loaded.map_err(|error| self.explain(&error))?;
        info!(
            rows = summary.rows,
            left_out = summary.left_out,
            repeated = summary.repeated,
            gone = summary.gone,
            "the manifest is read"
        );
        Ok(source)
    }

    fn explain(&self, error: &SnapshotError) -> Failure {
        match error {
            SnapshotError::Store(error) => explain::store_error(self.source, error),
            other => Failure::new(format!("{}: {other}", self.source), ""),
        }
    }
}

/// Lists the path and writes its image and the map of its objects to new files.
pub(crate) async fn build_into(
    request: &IndexRequest<'_>,
    image: &Path,
    objects: &Path,
) -> Outcome<BuildSummary> {
    let mut source = request.list().await?;
    let written = Written {
        image: image.to_owned(),
        objects: objects.to_owned(),
        layout: Layout::of(request.values),
        permissions: request.permissions(),
    };
    let total = source.objects();
    let progress = Arc::new(BuildProgress::default());
    let building = {
        let progress = Arc::clone(&progress);
        tokio::task::spawn_blocking(move || {
            let summary = written.build(&mut source, &progress);
            (summary, source)
        })
    };
    let cancel = CancelOnDrop(Arc::clone(&progress));
    let (summary, source) = progress::while_building(&progress, total, building)
        .await
        .map_err(|error| Failure::new(format!("building failed: {error}"), "report this"))?;
    drop(cancel);
    let summary = summary.map_err(|error| match &error {
        BuildError::Source(error) => request.explain(error),
        other => Failure::new(format!("{}: {other}", request.source), ""),
    })?;
    // What is left of the listing is of no use any more.
    if let Err(error) = run_blocking(|| source.into_spool().discard()) {
        warn!(%error, "the files of the listing stay behind");
    }
    report(&summary);
    Ok(summary)
}

/// Ends a build that nobody waits for any more.
struct CancelOnDrop(Arc<BuildProgress>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Where an index goes.
struct Written {
    image: PathBuf,
    objects: PathBuf,
    layout: Layout,
    permissions: Permissions,
}

impl Written {
    fn build(
        self,
        source: &mut dyn ObjectSource,
        progress: &BuildProgress,
    ) -> Result<BuildSummary, BuildError> {
        let mut objects = ObjectMapWriter::create(&self.objects)?;
        let summary = penstock_stream::build_index(BuildParts {
            source,
            placement: Placement::new(self.layout.disks()),
            image: self.layout.writer(&self.image, self.permissions)?,
            objects: &mut objects,
            progress,
        })?;
        objects.finish()?;
        Ok(summary)
    }
}

fn report(summary: &BuildSummary) {
    info!(
        objects = summary.objects,
        bytes = summary.bytes,
        directories = summary.image.directories,
        image_bytes = summary.image.bytes,
        seconds = summary.took.as_secs_f64(),
        "the index is built"
    );
    for line in summary.hidden.lines() {
        warn!("{line}");
    }
}

fn changes(old: &Path, new: &Path) -> Result<Changes, SnapshotError> {
    let (old, new) = (ObjectMap::open(old)?, ObjectMap::open(new)?);
    compare(&mut old.objects(), &mut new.objects())
}

fn report_changes(changes: Changes) {
    let Changes {
        added,
        removed,
        changed,
        unchanged,
    } = changes;
    info!(
        added,
        removed, changed, unchanged, "compared with the last index"
    );
    progress::say(&format!(
        "since the last index: {added} objects added, {removed} removed, {changed} changed, \
         {unchanged} as before"
    ));
}

fn kept_error(error: &KeptError) -> Failure {
    Failure::new(error.to_string(), "")
}
