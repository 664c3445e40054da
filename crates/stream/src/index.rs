//! The life of an index: found among those that are kept, or listed, built, compared and kept.
//!
//! ```text
//! kept and young enough -----------------------------------------------------+
//! else: listing or manifest -> spool -> image and map -> kept, old compared -+-> Index
//! ```
//!
//! [`Index::get`] does all of that for an [`IndexRequest`]; what is going on meanwhile an [`IndexProgress`] tells
//! whoever looks at it.

mod layout;
mod progress;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use penstock_base::run_blocking;
use penstock_object::{HeadOptions, ObjectError, Store};
use tracing::{info, warn};

use crate::{
    BuildError, BuildParts, BuildProgress, BuildSummary, Changes, ImageRequest, KeptError,
    KeptImage, KeptImages, KeptLimits, ListingProgress, ListingSettings, ManifestLocation,
    ManifestSettings, ObjectMap, ObjectMapWriter, ObjectSource, Permissions, Placement, Refresh,
    SnapshotError, Spool, SpoolSettings, SpoolSource, build_index, compare, list_all,
    load_manifest,
};

pub use layout::Layout;
pub use progress::{IndexProgress, IndexStage};

/// Why there is no index.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The path could not be listed.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The image or the map could not be written.
    #[error(transparent)]
    Build(BuildError),
    /// The folder of the kept indexes cannot be used.
    #[error(transparent)]
    Kept(#[from] KeptError),
    /// The file that takes the place of a listing cannot be read.
    #[error("cannot read the manifest `{path}`: {source}")]
    ManifestFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The object that takes the place of a listing cannot be had.
    #[error("{name}: {source}")]
    ManifestObject {
        /// Its URL.
        name: String,
        /// What the store said.
        source: Box<ObjectError>,
    },
    /// A fault of this program.
    #[error("building failed: {0}")]
    Panicked(String),
}

impl From<BuildError> for IndexError {
    fn from(error: BuildError) -> Self {
        match error {
            BuildError::Source(error) => Self::Snapshot(error),
            other => Self::Build(other),
        }
    }
}

/// The file that takes the place of a listing.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// Where its bytes are.
    pub location: ManifestLocation,
    /// Its path or URL.
    pub name: String,
    /// How it is read.
    pub settings: ManifestSettings,
}

impl Manifest {
    /// What tells this state of it from every other. Fails when it cannot be had.
    async fn version(&self) -> Result<String, IndexError> {
        let name = &self.name;
        match &self.location {
            ManifestLocation::File(path) => {
                let metadata = fs::metadata(path).map_err(|source| IndexError::ManifestFile {
                    path: path.clone(),
                    source,
                })?;
                let modified = metadata.modified().ok();
                Ok(format!("{name} {} {modified:?}", metadata.len()))
            }
            ManifestLocation::Object { store, key } => {
                let info = store.head(key, HeadOptions::default()).await;
                let info = info.map_err(|source| IndexError::ManifestObject {
                    name: name.clone(),
                    source: Box::new(source),
                })?;
                Ok(format!("{name} {}", info.etag))
            }
        }
    }
}

/// What an index is to be of, and how it is made.
#[derive(Debug, Clone)]
pub struct IndexRequest {
    /// Has the path.
    pub store: Arc<dyn Store>,
    /// What tells the path from every other, in one line without credentials.
    pub identity: String,
    /// Where indexes are kept.
    pub folder: PathBuf,
    /// Where keys are on their way from listing to index. A listing that was cut off goes on there.
    pub spool: PathBuf,
    /// Instead of a listing.
    pub manifest: Option<Manifest>,
    /// How the path is listed.
    pub listing: ListingSettings,
    /// What the index is written as.
    pub layout: Layout,
    /// Owner and modes of everything.
    pub permissions: Permissions,
    /// Told how far it is.
    pub progress: Arc<IndexProgress>,
}

/// An index on this machine. What is kept of it stays as long as this lives.
#[derive(Debug)]
pub struct Index {
    /// The file-system image.
    pub image: PathBuf,
    /// The map of its objects.
    pub objects: PathBuf,
    /// What it is written as.
    pub layout: Layout,
    /// What became of the objects since the index before; none where there was none, or none was built.
    pub changes: Option<Changes>,
    _kept: Option<KeptImage>,
}

impl Index {
    /// Finds the newest index of the path that is young enough, or builds one.
    pub async fn get(request: &IndexRequest, refresh: Refresh) -> Result<Self, IndexError> {
        let wanted = request.image_request().await?;
        let images = request.images()?;
        let newest = run_blocking(|| images.newest(&wanted, Refresh::Never))?;
        match newest {
            Some(kept) if refresh.accepts(kept.about().age()) => {
                let age = kept.about().age();
                info!(?age, listing = kept.about().listing, "a kept index is used");
                Ok(request.index(kept, None))
            }
            old => request.build(&images, &wanted, old).await,
        }
    }

    /// The index that another process of the same mount used. Asks only this machine.
    pub fn again(folder: &Path, layout: Layout, image: &Path) -> Result<Self, IndexError> {
        let images = KeptImages::open(folder, KeptLimits::default())?;
        Ok(Self {
            objects: image.with_file_name("objects"),
            layout,
            changes: None,
            _kept: run_blocking(|| images.again(image)),
            image: image.to_owned(),
        })
    }
}

impl IndexRequest {
    fn images(&self) -> Result<KeptImages, IndexError> {
        Ok(KeptImages::open(&self.folder, KeptLimits::default())?)
    }

    async fn image_request(&self) -> Result<ImageRequest, IndexError> {
        let mut source = self.identity.clone();
        if let Some(manifest) = &self.manifest {
            let columns = manifest.settings.columns.as_deref().unwrap_or_default();
            for part in [&*manifest.version().await?, columns] {
                source.push(' ');
                source.push_str(part);
            }
        }
        Ok(ImageRequest {
            source,
            variant: match self.layout {
                // Owners and modes are not in the tree.
                Layout::Tree => format!("{:?}", Layout::Tree),
                layout => format!("{layout:?} {:?}", self.permissions),
            },
        })
    }

    fn index(&self, kept: KeptImage, changes: Option<Changes>) -> Index {
        Index {
            image: kept.image_path(),
            objects: kept.objects_path(),
            layout: self.layout,
            changes,
            _kept: Some(kept),
        }
    }

    /// Lists the path and builds its index among the kept ones.
    async fn build(
        &self,
        images: &KeptImages,
        wanted: &ImageRequest,
        old: Option<KeptImage>,
    ) -> Result<Index, IndexError> {
        let new = run_blocking(|| images.begin(wanted))?;
        let summary = self
            .build_into(&new.image_path(), &new.objects_path())
            .await?;
        let kept = run_blocking(|| new.keep(&summary.listing))?.into_image();
        let changes = match old {
            None => None,
            Some(old) => {
                let (old, new) = (old.objects_path(), kept.objects_path());
                Some(run_blocking(|| changes(&old, &new))?)
            }
        };
        Ok(self.index(kept, changes))
    }

    /// Lists the path and writes its image and the map of its objects to new files. What was begun stays behind
    /// when it fails.
    pub async fn build_into(
        &self,
        image: &Path,
        objects: &Path,
    ) -> Result<BuildSummary, IndexError> {
        let source = self.list().await?;
        let written = Written {
            image: image.to_owned(),
            objects: objects.to_owned(),
            layout: self.layout,
            permissions: self.permissions,
        };
        let (summary, source) = self.write(written, source).await?;
        // What is left of the listing is of no use any more.
        if let Err(error) = run_blocking(|| source.into_spool().discard()) {
            warn!(%error, "the files of the listing stay behind");
        }
        report(&summary);
        Ok(summary)
    }

    /// Writes an index in a thread of its own, which ends when nobody waits for it any more.
    async fn write(
        &self,
        written: Written,
        mut source: SpoolSource,
    ) -> Result<(BuildSummary, SpoolSource), IndexError> {
        let building = self.progress.building(source.objects());
        let cancel = CancelOnDrop(Arc::clone(&building));
        let written = tokio::task::spawn_blocking(move || {
            let summary = written.build(&mut source, &building);
            summary.map(|summary| (summary, source))
        });
        let written = written.await;
        drop(cancel);
        Ok(written.map_err(|error| IndexError::Panicked(error.to_string()))??)
    }

    async fn list(&self) -> Result<SpoolSource, IndexError> {
        let settings = SpoolSettings::new(self.spool.clone(), self.identity.clone());
        let spool = run_blocking(|| Spool::open(&settings))?;
        let progress = self.progress.listing();
        if let Some(manifest) = &self.manifest {
            return self.load(manifest, spool, &progress).await;
        }
        let listed = list_all(&self.store, spool, &self.listing, &progress).await;
        let status = progress.status();
        info!(
            keys = status.keys,
            requests = status.requests,
            seconds = status.elapsed.as_secs_f64(),
            "the path is listed"
        );
        Ok(listed?)
    }

    /// Takes a file for a listing.
    async fn load(
        &self,
        manifest: &Manifest,
        spool: Spool,
        progress: &Arc<ListingProgress>,
    ) -> Result<SpoolSource, IndexError> {
        let Manifest {
            location, settings, ..
        } = manifest;
        let loaded = load_manifest(&self.store, location, spool, settings, progress).await;
        let (source, summary) = loaded?;
        info!(
            rows = summary.rows,
            left_out = summary.left_out,
            repeated = summary.repeated,
            gone = summary.gone,
            "the manifest is read"
        );
        Ok(source)
    }
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
        let summary = build_index(BuildParts {
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
    let changes = compare(&mut old.objects(), &mut new.objects())?;
    info!(
        added = changes.added,
        removed = changes.removed,
        changed = changes.changed,
        unchanged = changes.unchanged,
        "compared with the last index"
    );
    Ok(changes)
}
