//! One prefix of a bucket as a store of its own.

use std::sync::Arc;

use async_trait::async_trait;
use penstock_base::Payload;

use crate::{
    Appended, Below, BodySink, CompleteOptions, CopyOptions, DeleteFailure, ErrorKind, FlatPage,
    GetOptions, Got, HeadOptions, Key, ListOptions, ListPage, ListedObject, ObjectError,
    ObjectInfo, ObjectResult, Operation, Part, PartCopy, PartNumber, PutOptions, Store, Stored,
    Upload, UploadId, UploadPage,
};

/// Puts a prefix before every key on the way in and takes it off on the way out, so that
/// `s3://bucket/prefix` looks like a bucket of its own.
///
/// Keys that are too long together with the prefix fail with `InvalidRequest`. A symbolic link
/// that leads out of the prefix has no target here: `NotFound`.
#[derive(Debug)]
pub struct Prefixed {
    inner: Arc<dyn Store>,
    prefix: String,
}

impl Prefixed {
    /// The part of `inner` under `prefix`, which is taken as it is: it usually ends with `/`.
    pub fn new(inner: Arc<dyn Store>, prefix: impl Into<String>) -> Self {
        Self {
            inner,
            prefix: prefix.into(),
        }
    }

    fn full(&self, operation: Operation, key: &Key) -> ObjectResult<Key> {
        Key::new(format!("{}{key}", self.prefix)).map_err(|_| {
            let message = format!(
                "the key and the mounted prefix together have more than {} bytes",
                crate::KEY_LENGTH_MAX
            );
            ObjectError::new(ErrorKind::InvalidRequest, operation, message).about(key)
        })
    }

    /// `full` without the prefix, if it starts with it and is more than it.
    fn stripped(&self, full: &Key) -> Option<Key> {
        Key::new(full.as_str().strip_prefix(self.prefix.as_str())?).ok()
    }

    /// The same outcome, an error about the key as the caller knows it.
    fn outside<T>(&self, outcome: ObjectResult<T>) -> ObjectResult<T> {
        outcome.map_err(|mut error| {
            if let Some(key) = error.key.as_ref().and_then(|key| self.stripped(key)) {
                error.key = Some(key);
            }
            error
        })
    }

    fn listing(&self, options: ListOptions) -> ListOptions {
        ListOptions {
            prefix: format!("{}{}", self.prefix, options.prefix),
            start_after: options
                .start_after
                .map(|after| format!("{}{after}", self.prefix)),
            ..options
        }
    }

    fn page(&self, page: ListPage) -> ListPage {
        let strip = |text: String| text.strip_prefix(self.prefix.as_str()).map(str::to_owned);
        let object = |object: ListedObject| {
            // The key that is the prefix itself is the root of what was mounted.
            let key = strip(object.key).filter(|key| !key.is_empty())?;
            Some(ListedObject { key, ..object })
        };
        ListPage {
            objects: page.objects.into_iter().filter_map(object).collect(),
            common_prefixes: page.common_prefixes.into_iter().filter_map(strip).collect(),
            ..page
        }
    }

    fn upload_page(&self, page: UploadPage) -> UploadPage {
        let upload = |upload: Upload| {
            let key = self.stripped(&upload.key)?;
            Some(Upload { key, ..upload })
        };
        UploadPage {
            uploads: page.uploads.into_iter().filter_map(upload).collect(),
            continuation: page.continuation,
        }
    }
}

#[async_trait]
impl Store for Prefixed {
    fn below(&self) -> Below<'_> {
        Below::Store(&*self.inner)
    }

    async fn head(&self, key: &Key, options: HeadOptions) -> ObjectResult<ObjectInfo> {
        let key = self.full(Operation::Head, key)?;
        self.outside(self.inner.head(&key, options).await)
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        let key = self.full(Operation::Get, key)?;
        self.outside(self.inner.get(&key, options, sink).await)
    }

    async fn put(&self, key: &Key, body: Payload, options: PutOptions) -> ObjectResult<Stored> {
        let key = self.full(Operation::Put, key)?;
        self.outside(self.inner.put(&key, body, options).await)
    }

    async fn append(
        &self,
        key: &Key,
        position: u64,
        body: Payload,
        options: PutOptions,
    ) -> ObjectResult<Appended> {
        let key = self.full(Operation::Append, key)?;
        self.outside(self.inner.append(&key, position, body, options).await)
    }

    async fn copy(&self, source: &Key, target: &Key, options: CopyOptions) -> ObjectResult<Stored> {
        let source = self.full(Operation::Copy, source)?;
        let target = self.full(Operation::Copy, target)?;
        self.outside(self.inner.copy(&source, &target, options).await)
    }

    async fn delete(&self, key: &Key) -> ObjectResult<()> {
        let key = self.full(Operation::Delete, key)?;
        self.outside(self.inner.delete(&key).await)
    }

    async fn delete_many(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        let full = keys
            .iter()
            .map(|key| self.full(Operation::DeleteMany, key))
            .collect::<ObjectResult<Vec<Key>>>()?;
        let failures = self.outside(self.inner.delete_many(&full).await)?;
        let strip = |failure: DeleteFailure| DeleteFailure {
            key: self.stripped(&failure.key).unwrap_or(failure.key),
            ..failure
        };
        Ok(failures.into_iter().map(strip).collect())
    }

    async fn list(&self, options: ListOptions) -> ObjectResult<ListPage> {
        let page = self.inner.list(self.listing(options)).await;
        self.outside(page).map(|page| self.page(page))
    }

    async fn list_flat(&self, options: ListOptions) -> ObjectResult<FlatPage> {
        let mut page = self.outside(self.inner.list_flat(self.listing(options)).await)?;
        page.strip_prefix(&self.prefix);
        Ok(page)
    }

    async fn create_upload(&self, key: &Key, options: PutOptions) -> ObjectResult<UploadId> {
        let key = self.full(Operation::CreateUpload, key)?;
        self.outside(self.inner.create_upload(&key, options).await)
    }

    async fn upload_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        body: Payload,
    ) -> ObjectResult<Part> {
        let key = self.full(Operation::UploadPart, key)?;
        self.outside(self.inner.upload_part(&key, upload, number, body).await)
    }

    async fn copy_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        copy: PartCopy,
    ) -> ObjectResult<Part> {
        let key = self.full(Operation::CopyPart, key)?;
        let source = self.full(Operation::CopyPart, &copy.source)?;
        let copy = PartCopy { source, ..copy };
        self.outside(self.inner.copy_part(&key, upload, number, copy).await)
    }

    async fn complete_upload(
        &self,
        key: &Key,
        upload: &UploadId,
        parts: &[Part],
        options: CompleteOptions,
    ) -> ObjectResult<Stored> {
        let key = self.full(Operation::CompleteUpload, key)?;
        let copied = match options.copied {
            Some((source, tag)) => Some((self.full(Operation::CompleteUpload, &source)?, tag)),
            None => None,
        };
        let options = CompleteOptions { copied, ..options };
        let completed = self.inner.complete_upload(&key, upload, parts, options);
        self.outside(completed.await)
    }

    async fn abort_upload(&self, key: &Key, upload: &UploadId) -> ObjectResult<()> {
        let key = self.full(Operation::AbortUpload, key)?;
        self.outside(self.inner.abort_upload(&key, upload).await)
    }

    async fn list_uploads(
        &self,
        prefix: &str,
        continuation: Option<&str>,
    ) -> ObjectResult<UploadPage> {
        let prefix = format!("{}{prefix}", self.prefix);
        let page = self.inner.list_uploads(&prefix, continuation).await;
        self.outside(page).map(|page| self.upload_page(page))
    }

    async fn put_symlink(
        &self,
        key: &Key,
        target: &Key,
        options: PutOptions,
    ) -> ObjectResult<Stored> {
        let key = self.full(Operation::PutSymlink, key)?;
        let target = self.full(Operation::PutSymlink, target)?;
        self.outside(self.inner.put_symlink(&key, &target, options).await)
    }

    async fn get_symlink(&self, key: &Key) -> ObjectResult<Key> {
        let full = self.full(Operation::GetSymlink, key)?;
        let target = self.outside(self.inner.get_symlink(&full).await)?;
        self.stripped(&target).ok_or_else(|| {
            let message = "the symbolic link leads out of the mounted prefix";
            ObjectError::new(ErrorKind::NotFound, Operation::GetSymlink, message).about(key)
        })
    }
}
