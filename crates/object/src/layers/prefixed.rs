//! One prefix of a bucket as a store of its own.

use std::sync::Arc;

use async_trait::async_trait;
use penstock_base::Payload;

use crate::{
    Ability, Appended, BodySink, Capabilities, ChecksumKind, CompleteOptions, CopyOptions,
    DeleteFailure, ErrorKind, FlatPage, GetOptions, Got, HeadOptions, Key, ListOptions, ListPage,
    ListedObject, ObjectError, ObjectInfo, ObjectResult, Operation, Part, PartCopy, PartNumber,
    PutOptions, Store, Stored, Upload, UploadId, UploadPage,
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

    /// The same error, about the key as the caller knows it.
    fn seen_from_outside(&self, mut error: ObjectError) -> ObjectError {
        if let Some(key) = error.key.as_ref().and_then(|key| self.stripped(key)) {
            error.key = Some(key);
        }
        error
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
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn abilities(&self) -> Vec<Ability> {
        self.inner.abilities()
    }

    fn checksum_kind(&self) -> Option<ChecksumKind> {
        self.inner.checksum_kind()
    }

    async fn head(&self, key: &Key, options: HeadOptions) -> ObjectResult<ObjectInfo> {
        let key = self.full(Operation::Head, key)?;
        let info = self.inner.head(&key, options).await;
        info.map_err(|error| self.seen_from_outside(error))
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        let key = self.full(Operation::Get, key)?;
        let got = self.inner.get(&key, options, sink).await;
        got.map_err(|error| self.seen_from_outside(error))
    }

    async fn put(&self, key: &Key, body: Payload, options: PutOptions) -> ObjectResult<Stored> {
        let key = self.full(Operation::Put, key)?;
        let stored = self.inner.put(&key, body, options).await;
        stored.map_err(|error| self.seen_from_outside(error))
    }

    async fn append(
        &self,
        key: &Key,
        position: u64,
        body: Payload,
        options: PutOptions,
    ) -> ObjectResult<Appended> {
        let key = self.full(Operation::Append, key)?;
        let appended = self.inner.append(&key, position, body, options).await;
        appended.map_err(|error| self.seen_from_outside(error))
    }

    async fn copy(&self, source: &Key, target: &Key, options: CopyOptions) -> ObjectResult<Stored> {
        let source = self.full(Operation::Copy, source)?;
        let target = self.full(Operation::Copy, target)?;
        let stored = self.inner.copy(&source, &target, options).await;
        stored.map_err(|error| self.seen_from_outside(error))
    }

    async fn delete(&self, key: &Key) -> ObjectResult<()> {
        let key = self.full(Operation::Delete, key)?;
        let deleted = self.inner.delete(&key).await;
        deleted.map_err(|error| self.seen_from_outside(error))
    }

    async fn delete_many(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        let full = keys
            .iter()
            .map(|key| self.full(Operation::DeleteMany, key))
            .collect::<ObjectResult<Vec<Key>>>()?;
        let failures = self.inner.delete_many(&full).await;
        let failures = failures.map_err(|error| self.seen_from_outside(error))?;
        let strip = |failure: DeleteFailure| DeleteFailure {
            key: self.stripped(&failure.key).unwrap_or(failure.key),
            ..failure
        };
        Ok(failures.into_iter().map(strip).collect())
    }

    async fn list(&self, options: ListOptions) -> ObjectResult<ListPage> {
        let page = self.inner.list(self.listing(options)).await;
        page.map(|page| self.page(page))
            .map_err(|error| self.seen_from_outside(error))
    }

    async fn list_flat(&self, options: ListOptions) -> ObjectResult<FlatPage> {
        let page = self.inner.list_flat(self.listing(options)).await;
        let mut page = page.map_err(|error| self.seen_from_outside(error))?;
        page.strip_prefix(&self.prefix);
        Ok(page)
    }

    async fn create_upload(&self, key: &Key, options: PutOptions) -> ObjectResult<UploadId> {
        let key = self.full(Operation::CreateUpload, key)?;
        let upload = self.inner.create_upload(&key, options).await;
        upload.map_err(|error| self.seen_from_outside(error))
    }

    async fn upload_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        body: Payload,
    ) -> ObjectResult<Part> {
        let key = self.full(Operation::UploadPart, key)?;
        let part = self.inner.upload_part(&key, upload, number, body).await;
        part.map_err(|error| self.seen_from_outside(error))
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
        let part = self.inner.copy_part(&key, upload, number, copy).await;
        part.map_err(|error| self.seen_from_outside(error))
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
        let stored = self
            .inner
            .complete_upload(&key, upload, parts, options)
            .await;
        stored.map_err(|error| self.seen_from_outside(error))
    }

    async fn abort_upload(&self, key: &Key, upload: &UploadId) -> ObjectResult<()> {
        let key = self.full(Operation::AbortUpload, key)?;
        let aborted = self.inner.abort_upload(&key, upload).await;
        aborted.map_err(|error| self.seen_from_outside(error))
    }

    async fn list_uploads(
        &self,
        prefix: &str,
        continuation: Option<&str>,
    ) -> ObjectResult<UploadPage> {
        let prefix = format!("{}{prefix}", self.prefix);
        let page = self.inner.list_uploads(&prefix, continuation).await;
        page.map(|page| self.upload_page(page))
            .map_err(|error| self.seen_from_outside(error))
    }

    async fn put_symlink(
        &self,
        key: &Key,
        target: &Key,
        options: PutOptions,
    ) -> ObjectResult<Stored> {
        let key = self.full(Operation::PutSymlink, key)?;
        let target = self.full(Operation::PutSymlink, target)?;
        let stored = self.inner.put_symlink(&key, &target, options).await;
        stored.map_err(|error| self.seen_from_outside(error))
    }

    async fn get_symlink(&self, key: &Key) -> ObjectResult<Key> {
        let full = self.full(Operation::GetSymlink, key)?;
        let target = self.inner.get_symlink(&full).await;
        let target = target.map_err(|error| self.seen_from_outside(error))?;
        self.stripped(&target).ok_or_else(|| {
            let message = "the symbolic link leads out of the mounted prefix";
            ObjectError::new(ErrorKind::NotFound, Operation::GetSymlink, message).about(key)
        })
    }
}
