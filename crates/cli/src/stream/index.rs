//! The index of a path: found among those that are kept, or built.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use penstock_base::run_blocking;
use penstock_object::Store;
use penstock_stream::{
    BuildError, BuildParts, BuildProgress, BuildSummary, Changes, ErofsSettings, ErofsWriter,
    ImageRequest, KeptError, KeptImage, KeptImages, KeptLimits, ListingProgress, ListingSettings,
    ObjectMap, ObjectMapWriter, ObjectSource, Permissions, Placement, Refresh, SnapshotError,
    Spool, SpoolSettings, SpoolSource, compare, list_all,
};
use tracing::{info, warn};

use super::{progress, settings};
use crate::{
    control::mount_id,
    disk_cache,
    environment::Environment,
    explain,
    failure::{Failure, Outcome},
    options::{Values, table},
    system,
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
    /// Data disks that the image speaks of.
    pub disks: u16,
    _kept: Option<KeptImage>,
}

impl Index {
    /// Finds the newest index of the path, or builds one.
    pub(crate) async fn get(request: &IndexRequest<'_>) -> Outcome<Self> {
        let images = request.images()?;
        let wanted = request.image_request()?;
        let newest = run_blocking(|| images.newest(&wanted, Refresh::Never));
        let newest = newest.map_err(|error| kept_error(&error))?;
        if let Some(kept) = newest {
            if !request.values.flag(&table::REFRESH) {
                let age = kept.about().age();
                info!(?age, listing = kept.about().listing, "a kept index is used");
                return Ok(request.index(kept));
            }
            return request.build(&images, &wanted, Some(kept)).await;
        }
        request.build(&images, &wanted, None).await
    }

    /// Builds an index, whether or not there is one.
    pub(crate) async fn build(request: &IndexRequest<'_>) -> Outcome<Self> {
        let images = request.images()?;
        let wanted = request.image_request()?;
        let newest = run_blocking(|| images.newest(&wanted, Refresh::Never));
        let newest = newest.map_err(|error| kept_error(&error))?;
        request.build(&images, &wanted, newest).await
    }

    /// The index that another process of the same mount used.
    pub(crate) fn again(request: &IndexRequest<'_>, image: &str) -> Outcome<Self> {
        let images = request.images()?;
        let newest = images.newest(&request.image_request()?, Refresh::Never);
        let newest = newest.map_err(|error| kept_error(&error))?;
        let image = PathBuf::from(image);
        Ok(Self {
            objects: image.with_file_name("objects"),
            disks: request.disks(),
            _kept: newest.filter(|kept| kept.image_path() == image),
            image,
        })
    }
}

impl IndexRequest<'_> {
    fn images(&self) -> Outcome<KeptImages> {
        let folder = settings::index_directory(self.values, self.environment);
        let opened = KeptImages::open(&folder, KeptLimits::default());
        opened.map_err(|error| kept_error(&error))
    }

    fn image_request(&self) -> Outcome<ImageRequest> {
        Ok(ImageRequest {
            source: disk_cache::identity(self.source, self.values)?,
            variant: format!(
                "{} {:?} disks {}",
                self.values.choice(&table::FILE_SYSTEM),
                self.permissions(),
                self.disks()
            ),
        })
    }

    fn index(&self, kept: KeptImage) -> Index {
        Index {
            image: kept.image_path(),
            objects: kept.objects_path(),
            disks: self.disks(),
            _kept: Some(kept),
        }
    }

    fn permissions(&self) -> Permissions {
        let id = |spec, own: u32| {
            let given = self.values.count(spec);
            given.and_then(|id| u32::try_from(id).ok()).unwrap_or(own)
        };
        Permissions::with_umask(
            id(&table::UID, system::user_id()),
            id(&table::GID, system::group_id()),
            self.values.mode(&table::UMASK),
        )
    }

    fn disks(&self) -> u16 {
        let disks = self.values.count(&table::DISKS).unwrap_or(1);
        u16::try_from(disks).unwrap_or(1)
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
        let identity = disk_cache::identity(self.source, self.values)?;
        let folder = settings::index_directory(self.values, self.environment);
        let spool = folder.join("listings").join(mount_id(Path::new(&identity)));
        let spool = run_blocking(|| Spool::open(&SpoolSettings::new(spool, identity)));
        let spool = spool.map_err(|error| self.explain(&error))?;
        let defaults = ListingSettings::default();
        let concurrency = self.values.count(&table::LIST_CONCURRENCY);
        let requests = self.values.count(&table::LIST_REQUESTS_MAX);
        let settings = ListingSettings {
            concurrency: concurrency.map_or(defaults.concurrency, |count| count as usize),
            requests_max: requests.unwrap_or(defaults.requests_max),
            ..defaults
        };
        let progress = Arc::new(ListingProgress::default());
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
        settings: ErofsSettings {
            permissions: request.permissions(),
            disks: request.disks(),
            volume_name: "penstock".to_owned(),
            ..ErofsSettings::default()
        },
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
    settings: ErofsSettings,
}

impl Written {
    fn build(
        self,
        source: &mut dyn ObjectSource,
        progress: &BuildProgress,
    ) -> Result<BuildSummary, BuildError> {
        let disks = self.settings.disks;
        let mut objects = ObjectMapWriter::create(&self.objects)?;
        let image = ErofsWriter::create(&self.image, self.settings)?;
        let summary = penstock_stream::build_index(BuildParts {
            source,
            placement: Placement::new(disks),
            image: Box::new(image),
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
