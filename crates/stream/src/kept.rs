//! Images that outlive their mount, and are taken again for the same path.
//!
//! ```text
//! FOLDER/.new-RANDOM/        an image that is being built
//! FOLDER/SOURCE-LISTING/     a kept one: SOURCE a digest of what was asked for, LISTING one of
//!                            the objects that were found
//!     image  objects  about.json  lock
//! ```
//!
//! **Reuse.** Whether a path changed cannot be known without listing it, which is most of the work.
//! So the newest image of a path is taken as it is, whatever its age ([`Refresh::Never`]), unless
//! the caller wants it younger than something or listed anew. That is safe because every read
//! names the version that was listed: an object that changed since fails to be read, and is never
//! mixed with what it was. A new listing that finds what the last one found has the same digest,
//! therefore the same name, and leaves the image in its place.
//!
//! **Atomicity.** An image is built in a folder of its own, made durable, and renamed. What a
//! crash leaves behind is removed by whoever builds next.
//!
//! **Locks.** Who builds or uses an image holds a shared `flock` on its `lock`, which the kernel
//! drops with the process. Who removes one takes the lock for itself, and leaves the image where
//! it is when it cannot. Nobody ever waits for a lock. The time of `lock` is the time of the last
//! use; when there are too many images or bytes, the one not used for longest goes first.

mod about;
mod changes;
mod folder;

#[cfg(test)]
mod tests;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

pub use about::AboutImage;
pub use changes::{Changes, compare};
use folder::{Locked, NEW_PREFIX};

use penstock_base::{clock, random};
use sha2::{Digest as _, Sha256};

use crate::{ListingDigest, private};

/// How many images are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptLimits {
    /// Images, with those in use.
    pub images: usize,
    /// Bytes of all of them together.
    pub bytes: u64,
}

impl Default for KeptLimits {
    fn default() -> Self {
        Self {
            images: 32,
            bytes: 16 << 30,
        }
    }
}

/// What is asked for. Two mounts with the same request may share an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRequest {
    /// The path that is listed, with all that tells it from others, such as the endpoint. Shown
    /// to people; without credentials.
    pub source: String,
    /// Everything else that the image depends on: the file system, owners, modes, disks.
    pub variant: String,
}

/// When a path is listed anew although there is an image of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refresh {
    /// Never.
    #[default]
    Never,
    /// When the listing is older than this.
    OlderThan(Duration),
    /// Always.
    Always,
}

impl Refresh {
    /// Whether an image of this age is taken as it is.
    pub fn accepts(self, age: Duration) -> bool {
        match self {
            Self::Never => true,
            Self::OlderThan(limit) => age <= limit,
            Self::Always => false,
        }
    }
}

/// Keeping an image failed.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}; see to the folder, or choose another one for kept images", path.display())]
pub struct KeptError {
    path: PathBuf,
    source: io::Error,
}

impl KeptError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |source| Self {
            path: path.to_owned(),
            source,
        }
    }
}

/// A folder of images. Its methods do file I/O and take the thread.
#[derive(Debug, Clone)]
pub struct KeptImages {
    folder: PathBuf,
    limits: KeptLimits,
}

impl KeptImages {
    /// In `folder`, which is made if it is not there.
    pub fn open(folder: &Path, limits: KeptLimits) -> Result<Self, KeptError> {
        private::create_folder(folder).map_err(KeptError::at(folder))?;
        let images = Self {
            folder: folder.to_owned(),
            limits,
        };
        for (_, path) in images.complete()? {
            private::close_folder(&path);
        }
        Ok(images)
    }

    /// The newest image of this request that `refresh` accepts, held until it is dropped.
    pub fn newest(
        &self,
        request: &ImageRequest,
        refresh: Refresh,
    ) -> Result<Option<KeptImage>, KeptError> {
        let prefix = request_prefix(request);
        let mut found: Vec<(u64, PathBuf)> = self
            .complete()?
            .filter(|(name, _)| name.starts_with(&prefix))
            .filter_map(|(_, path)| Some((AboutImage::read(&path).ok()?.listed_at, path)))
            .collect();
        found.sort();
        // Those that are being removed cannot be held.
        let held = found
            .into_iter()
            .rev()
            .find_map(|(_, path)| self.hold(path));
        Ok(held.filter(|image| refresh.accepts(image.about.age())))
    }

    /// The image whose file-system image is at `path`, for a process that goes on with it, held
    /// until it is dropped; none if it is not here or being removed.
    pub fn again(&self, path: &Path) -> Option<KeptImage> {
        let folder = path.parent()?;
        let ours = folder.parent() == Some(self.folder.as_path());
        ours.then(|| self.hold(folder.to_owned())).flatten()
    }

    /// All images, those last that were used last.
    pub fn list(&self) -> Result<Vec<AboutImage>, KeptError> {
        let mut found: Vec<_> = self
            .complete()?
            .filter_map(|(_, path)| Some((folder::last_used(&path).ok()?, path)))
            .collect();
        found.sort();
        let about = |(_, path): (_, PathBuf)| AboutImage::read(&path).ok();
        Ok(found.into_iter().filter_map(about).collect())
    }

    /// Begins an image. What is not kept in the end is removed when it is dropped.
    pub fn begin(&self, request: &ImageRequest) -> Result<NewImage, KeptError> {
        self.remove_leftovers()?;
        let path = self
            .folder
            .join(format!("{NEW_PREFIX}{:016x}", random::number()));
        let create = || {
            private::create_folder(&path)?;
            Locked::create(&path)
        };
        let lock = create().map_err(KeptError::at(&path))?;
        Ok(NewImage {
            images: self.clone(),
            request: request.clone(),
            path,
            lock: Some(lock),
        })
    }

    /// Removes images that are not in use until the limits hold, as far as that is possible.
    pub fn evict(&self) -> Result<(), KeptError> {
        let mut found = Vec::new();
        for (_, path) in self.complete()? {
            // What vanishes meanwhile was removed by somebody else.
            if let (Ok(used), Ok(bytes)) = (folder::last_used(&path), folder::bytes(&path)) {
                found.push((used, path, bytes));
            }
        }
        found.sort();
        let mut images = found.len();
        let mut total: u64 = found.iter().map(|(_, _, bytes)| bytes).sum();
        for (_, path, bytes) in found {
            if images <= self.limits.images && total <= self.limits.bytes {
                break;
            }
            if folder::remove_unused(&path).map_err(KeptError::at(&path))? {
                images -= 1;
                total -= bytes;
            }
        }
        Ok(())
    }

    /// Removes what builds left behind whose process is gone.
    fn remove_leftovers(&self) -> Result<(), KeptError> {
        for (name, path) in self.folders()? {
            if name.starts_with(NEW_PREFIX) {
                folder::remove_unused(&path).map_err(KeptError::at(&path))?;
            }
        }
        Ok(())
    }

    fn hold(&self, path: PathBuf) -> Option<KeptImage> {
        let lock = Locked::hold(&path).ok()??;
        let about = AboutImage::read(&path).ok()?;
        Some(KeptImage { path, about, lock })
    }

    fn complete(&self) -> Result<impl Iterator<Item = (String, PathBuf)>, KeptError> {
        let folders = self.folders()?;
        Ok(folders.filter(|(name, path)| !name.starts_with('.') && AboutImage::is_in(path)))
    }

    fn folders(&self) -> Result<impl Iterator<Item = (String, PathBuf)>, KeptError> {
        let entries = fs::read_dir(&self.folder).map_err(KeptError::at(&self.folder))?;
        Ok(entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            Some((name, entry.path()))
        }))
    }
}

/// An image that is being built.
#[derive(Debug)]
pub struct NewImage {
    images: KeptImages,
    request: ImageRequest,
    path: PathBuf,
    lock: Option<Locked>,
}

impl NewImage {
    /// Where the image is to be written; nothing is there yet.
    pub fn image_path(&self) -> PathBuf {
        self.path.join(folder::IMAGE)
    }

    /// Where the map of objects is to be written; nothing is there yet.
    pub fn objects_path(&self) -> PathBuf {
        self.path.join(folder::OBJECTS)
    }

    /// Keeps the image, which is complete and durable, and makes room. When the listing is one
    /// that there is an image of already, that one is given.
    pub fn keep(mut self, listing: &ListingDigest) -> Result<Kept, KeptError> {
        let name = request_prefix(&self.request) + &listing.to_string()[..LISTING_DIGITS];
        let path = self.images.folder.join(name);
        let about = self.describe(listing).map_err(KeptError::at(&self.path))?;
        let mut kept = None;
        // The other one may just be removed.
        for _ in 0..ATTEMPTS_MAX {
            match fs::rename(&self.path, &path) {
                Ok(()) => {
                    let lock = self.lock.take().expect("held until now");
                    kept = Some(Kept::New(KeptImage { path, about, lock }));
                    break;
                }
                Err(error) if is_taken(&error) => {
                    if let Some(image) = self.confirm(&path, &about)? {
                        kept = Some(Kept::Unchanged(image));
                        break;
                    }
                }
                Err(error) => return Err(KeptError::at(&path)(error)),
            }
        }
        let Some(kept) = kept else {
            let error = io::Error::from(io::ErrorKind::ResourceBusy);
            return Err(KeptError::at(&self.path)(error));
        };
        folder::sync(&self.images.folder).map_err(KeptError::at(&self.images.folder))?;
        self.images.evict()?;
        Ok(kept)
    }

    /// Notes that the image at `path` shows what the bucket has now.
    fn confirm(&self, path: &Path, about: &AboutImage) -> Result<Option<KeptImage>, KeptError> {
        let Some(image) = self.images.hold(path.to_owned()) else {
            return Ok(None);
        };
        about.write(path).map_err(KeptError::at(path))?;
        Ok(Some(KeptImage {
            about: about.clone(),
            ..image
        }))
    }

    fn describe(&self, listing: &ListingDigest) -> io::Result<AboutImage> {
        let about = AboutImage {
            source: self.request.source.clone(),
            variant: self.request.variant.clone(),
            listing: listing.to_string(),
            listed_at: about::seconds(clock::wall_time()),
        };
        about.write(&self.path)?;
        Ok(about)
    }
}

/// Digits of the digests in the name of an image.
const REQUEST_DIGITS: usize = 16;
const LISTING_DIGITS: usize = 32;

/// How often keeping an image is tried while another of its name is being removed.
const ATTEMPTS_MAX: usize = 3;

fn is_taken(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty};
    matches!(error.kind(), AlreadyExists | DirectoryNotEmpty)
}

impl Drop for NewImage {
    fn drop(&mut self) {
        if self.path.exists() {
            // Whoever builds next removes what cannot be removed now.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// What became of a new image.
#[derive(Debug)]
pub enum Kept {
    /// It is kept.
    New(KeptImage),
    /// The objects are those of an earlier image, which is given instead.
    Unchanged(KeptImage),
}

impl Kept {
    /// The image to use.
    pub fn into_image(self) -> KeptImage {
        match self {
            Self::New(image) | Self::Unchanged(image) => image,
        }
    }
}

/// An image that is not removed as long as this lives.
#[derive(Debug)]
pub struct KeptImage {
    path: PathBuf,
    about: AboutImage,
    #[expect(dead_code, reason = "held until it is dropped")]
    lock: Locked,
}

impl KeptImage {
    /// The image of the file system.
    pub fn image_path(&self) -> PathBuf {
        self.path.join(folder::IMAGE)
    }

    /// The map of its objects.
    pub fn objects_path(&self) -> PathBuf {
        self.path.join(folder::OBJECTS)
    }

    /// What it shows, and since when.
    pub fn about(&self) -> &AboutImage {
        &self.about
    }
}

/// What the names of all images of a request begin with.
fn request_prefix(request: &ImageRequest) -> String {
    let mut hash = Sha256::new();
    for text in [&request.source, &request.variant] {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    let digest = ListingDigest(hash.finalize().into()).to_string();
    format!("{}-", &digest[..REQUEST_DIGITS])
}
