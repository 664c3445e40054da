//! All that a server holds. It outlives the server, so that a test can kill one and start
//! another on the same data.

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{
        Arc, OnceLock, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::UNIX_EPOCH,
};

use super::{
    arena::Arena, bucket::Bucket, content::Content, listing::ListingQuery, object::Object,
    upload::Upload,
};
use crate::{
    clock,
    digest::{self, Algorithm},
    sync,
};

/// What tests call the header of the storage class, which each dialect spells otherwise.
const STORAGE_CLASS: &str = "storage-class";

/// The buckets of a server, in memory. Cloning makes another handle to the same data.
#[derive(Clone)]
pub struct Data {
    inner: Arc<Inner>,
}

struct Inner {
    arena: Arena,
    buckets: RwLock<BTreeMap<String, Arc<Bucket>>>,
    /// Where names that must not repeat come from.
    sequence: AtomicU64,
    pub(super) pattern: OnceLock<Content>,
}

impl Data {
    /// No buckets.
    pub fn new() -> Self {
        let started = clock::wall_time()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let inner = Inner {
            arena: Arena::new(),
            buckets: RwLock::default(),
            sequence: AtomicU64::new(started.as_micros() as u64),
            pattern: OnceLock::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Makes memory ready for so many bytes of bodies, and keeps as much when it becomes free:
    /// storing them then costs no more the first time than the next.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn prepare_memory(&self, bytes: u64) -> io::Result<()> {
        self.arena().prepare(bytes)
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.inner.arena
    }

    /// The content that filled objects share, made when first asked for.
    pub(super) fn pattern(
        &self,
        make: impl FnOnce() -> io::Result<Content>,
    ) -> io::Result<Content> {
        if let Some(pattern) = self.inner.pattern.get() {
            return Ok(pattern.clone());
        }
        let pattern = make()?;
        Ok(self.inner.pattern.get_or_init(|| pattern).clone())
    }

    pub(crate) fn bucket(&self, name: &str) -> Option<Arc<Bucket>> {
        sync::read(&self.inner.buckets).get(name).cloned()
    }

    pub(crate) fn buckets(&self) -> Vec<Arc<Bucket>> {
        sync::read(&self.inner.buckets).values().cloned().collect()
    }

    /// Creates a bucket; false if it was there.
    pub fn create_bucket(&self, name: &str) -> bool {
        let mut buckets = sync::write(&self.inner.buckets);
        if buckets.contains_key(name) {
            return false;
        }
        buckets.insert(name.to_owned(), Arc::new(Bucket::new(name)));
        true
    }

    /// Removes a bucket with all that is in it; false if there was none.
    pub fn remove_bucket(&self, name: &str) -> bool {
        sync::write(&self.inner.buckets).remove(name).is_some()
    }

    /// Stores an object, without HTTP. Creates the bucket if need be.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn put(&self, bucket: &str, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.create_bucket(bucket);
        let content = Content::of_bytes(self.arena(), bytes)?;
        let etag = digest::of_bytes(Algorithm::Md5, bytes).hex();
        if let Some(bucket) = self.bucket(bucket) {
            bucket.put(key, Object::new(content, etag));
        }
        Ok(())
    }

    /// The same with headers, names in lower case: those that are kept and sent back as they are, and
    /// `storage-class`.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn put_with_headers(
        &self,
        (bucket, key): (&str, &str),
        bytes: &[u8],
        headers: &[(&str, &str)],
    ) -> io::Result<()> {
        self.create_bucket(bucket);
        let content = Content::of_bytes(self.arena(), bytes)?;
        let etag = digest::of_bytes(Algorithm::Md5, bytes).hex();
        let mut object = Object::new(content, etag);
        for (name, value) in headers {
            match *name {
                STORAGE_CLASS => object.attributes.storage_class = (*value).to_owned(),
                name => {
                    let field = (name.to_owned(), (*value).to_owned());
                    object.attributes.fields.push(field);
                }
            }
        }
        if let Some(bucket) = self.bucket(bucket) {
            bucket.put(key, object);
        }
        Ok(())
    }

    /// The headers of an object that [`Data::put_with_headers`] takes, sorted by their names.
    pub fn headers(&self, bucket: &str, key: &str) -> Option<Vec<(String, String)>> {
        let object = self.bucket(bucket)?.get(key)?;
        let class = &object.attributes.storage_class;
        let class = (!class.is_empty()).then(|| (STORAGE_CLASS.to_owned(), class.clone()));
        let mut headers = object.attributes.fields.clone();
        headers.extend(class);
        headers.sort();
        Some(headers)
    }

    /// The bytes of an object, without HTTP; `None` if there is none.
    pub fn get(&self, bucket: &str, key: &str) -> Option<Vec<u8>> {
        let object = self.bucket(bucket)?.get(key)?;
        Some(object.content.bytes(0..object.length()))
    }

    /// The tag of an object without quotes, without HTTP; `None` if there is none.
    pub fn etag(&self, bucket: &str, key: &str) -> Option<String> {
        Some(self.bucket(bucket)?.get(key)?.etag.clone())
    }

    /// Removes an object, without HTTP; false if there was none.
    pub fn delete(&self, bucket: &str, key: &str) -> bool {
        self.bucket(bucket)
            .is_some_and(|bucket| bucket.delete(key).is_some())
    }

    /// All keys of a bucket in byte order, without HTTP.
    pub fn keys(&self, bucket: &str) -> Vec<String> {
        let query = ListingQuery {
            max_keys: usize::MAX,
            ..ListingQuery::default()
        };
        let listing = self
            .bucket(bucket)
            .map(|bucket| bucket.list(&query))
            .unwrap_or_default();
        listing
            .entries
            .iter()
            .map(|entry| entry.name().to_owned())
            .collect()
    }

    /// Keys and ids of a bucket's unfinished uploads, without HTTP.
    pub fn uploads(&self, bucket: &str) -> Vec<(String, String)> {
        self.uploads_that(bucket, |_| true)
    }

    /// Those of [`Self::uploads`] that a request has named. Of others no client need know: the answers to
    /// their creation may have been lost.
    pub fn named_uploads(&self, bucket: &str) -> Vec<(String, String)> {
        self.uploads_that(bucket, Upload::is_named)
    }

    fn uploads_that(&self, bucket: &str, fits: impl Fn(&Upload) -> bool) -> Vec<(String, String)> {
        let uploads = self.bucket(bucket).map(|bucket| bucket.uploads());
        let uploads = uploads.unwrap_or_default();
        let fitting = uploads.iter().filter(|upload| fits(upload));
        fitting
            .map(|upload| (upload.key.clone(), upload.id.clone()))
            .collect()
    }

    /// Sixteen hexadecimal digits that never repeat and always grow.
    pub(crate) fn unique(&self) -> String {
        format!(
            "{:016X}",
            self.inner.sequence.fetch_add(1, Ordering::Relaxed)
        )
    }
}

impl Default for Data {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self
            .buckets()
            .iter()
            .map(|bucket| bucket.name.clone())
            .collect::<Vec<_>>();
        f.debug_struct("Data").field("buckets", &names).finish()
    }
}
