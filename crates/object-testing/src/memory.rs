//! A bucket in memory: the reference that tests compare other stores with.
//!
//! Everything that [`Store`] describes is here in its plainest form: one ordered map of objects
//! and one of unfinished uploads behind one lock, so every operation is atomic by construction.
//! Tags are made as S3 makes them (MD5 of the content, or of the parts' tags), hence equal
//! content has equal tags; each object carries its CRC-64/XZ.
//!
//! [`Capabilities`] decide what works. The presets resemble the two real services, so that code
//! above can be tested against their limits without a server.

mod listing;
mod object;
mod uploads;

use std::collections::BTreeMap;

use async_trait::async_trait;
use penstock_base::{GIB, KIB, MIB, Mutex, Payload};

use self::{object::Object, uploads::Uploads};
use penstock_object::{
    Appended, Below, BodySink, Capabilities, CompleteOptions, CopyOptions, DeleteFailure, ETag,
    ErrorKind, GetOptions, Got, HeadOptions, Key, ListOptions, ListPage, ObjectError, ObjectInfo,
    ObjectKind, ObjectResult, Operation, Part, PartCopy, PartNumber, PutOptions, Store, Stored,
    UploadId, UploadPage, WriteCondition, rules,
};

/// A bucket in memory.
pub struct MemoryStore {
    capabilities: Capabilities,
    bucket: Mutex<Bucket>,
}

#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, Object>,
    uploads: Uploads,
}

impl MemoryStore {
    /// An empty bucket that can do everything, with parts of any size.
    pub fn new() -> Self {
        Self::with_capabilities(Capabilities {
            scheme: "memory",
            object_size_max: 48 << 40,
            put_size_max: 5 * GIB,
            part_size_min: 1,
            part_size_max: 5 * GIB,
            parts_max: 10_000,
            copy_size_max: 5 * GIB,
            append: true,
            symlinks: true,
            metadata_size_max: 8 << 10,
            write_if_absent: true,
        })
    }

    /// An empty bucket with the limits of S3: parts of 5 MiB and more, no appending, no links.
    pub fn like_s3() -> Self {
        Self::with_capabilities(Capabilities {
            object_size_max: 5 << 40,
            part_size_min: 5 * MIB,
            append: false,
            symlinks: false,
            ..Self::new().capabilities
        })
    }

    /// An empty bucket with the limits of OSS: parts of 100 KiB and more, appending, links.
    pub fn like_oss() -> Self {
        Self::with_capabilities(Capabilities {
            part_size_min: 100 * KIB,
            ..Self::new().capabilities
        })
    }

    /// An empty bucket with these capabilities.
    pub fn with_capabilities(capabilities: Capabilities) -> Self {
        Self {
            capabilities,
            bucket: Mutex::default(),
        }
    }

    /// Another bucket with the same objects, and without the uploads that are unfinished in this one.
    #[must_use]
    pub fn copied(&self) -> Self {
        let objects = self.bucket.lock().objects.clone();
        Self {
            capabilities: self.capabilities.clone(),
            bucket: Mutex::new(Bucket {
                objects,
                uploads: Uploads::default(),
            }),
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bucket = self.bucket.lock();
        f.debug_struct("MemoryStore")
            .field("objects", &bucket.objects.len())
            .finish_non_exhaustive()
    }
}

impl Bucket {
    /// The object under `key`, links not followed.
    fn object(&self, operation: Operation, key: &Key) -> ObjectResult<&Object> {
        self.objects.get(key.as_str()).ok_or_else(|| {
            ObjectError::new(ErrorKind::NotFound, operation, "no such object").about(key)
        })
    }

    /// The object whose content a read of `key` gets, and its description. As on OSS a link has
    /// the size and tag of its target and cannot lead to another link.
    fn content(&self, operation: Operation, key: &Key) -> ObjectResult<(&Object, ObjectInfo)> {
        let object = self.object(operation, key)?;
        let Some(target) = &object.link else {
            return Ok((object, object.info()));
        };
        let target = self.object(operation, target)?;
        if target.link.is_some() {
            let message = "the link leads to another link";
            return Err(ObjectError::new(ErrorKind::InvalidRequest, operation, message).about(key));
        }
        let info = ObjectInfo {
            kind: ObjectKind::Symlink,
            ..target.info()
        };
        Ok((target, info))
    }

    /// Puts `object` under `key` if `condition` allows it.
    fn store(
        &mut self,
        operation: Operation,
        key: &Key,
        condition: &WriteCondition,
        object: Object,
    ) -> ObjectResult<Stored> {
        let refused = |kind, message| Err(ObjectError::new(kind, operation, message).about(key));
        match (condition, self.objects.get(key.as_str())) {
            (WriteCondition::IfAbsent, Some(_)) => {
                return refused(ErrorKind::AlreadyExists, "the key is taken");
            }
            (WriteCondition::IfMatch(tag), Some(there)) => {
                check_tag(operation, key, &there.info(), Some(tag))?;
            }
            (WriteCondition::IfMatch(_), None) => {
                return refused(ErrorKind::PreconditionFailed, "the object was removed");
            }
            (WriteCondition::Always, _) | (WriteCondition::IfAbsent, None) => {}
        }
        let stored = object.stored();
        self.objects.insert(key.as_str().to_owned(), object);
        Ok(stored)
    }
}

fn unsupported(operation: Operation, what: &str) -> ObjectError {
    let message = format!("this store does not support {what}");
    ObjectError::new(ErrorKind::Unsupported, operation, message)
}

fn check_size(operation: Operation, key: &Key, size: u64, limit: u64) -> ObjectResult<()> {
    if size > limit {
        let message = format!("{size} bytes exceed the limit of {limit}");
        return Err(ObjectError::new(ErrorKind::TooLarge, operation, message).about(key));
    }
    Ok(())
}

fn check_tag(
    operation: Operation,
    key: &Key,
    info: &ObjectInfo,
    wanted: Option<&ETag>,
) -> ObjectResult<()> {
    if wanted.is_some_and(|tag| *tag != info.etag) {
        let message = "the object was replaced by another version";
        return Err(ObjectError::new(ErrorKind::PreconditionFailed, operation, message).about(key));
    }
    Ok(())
}

#[async_trait]
impl Store for MemoryStore {
    fn below(&self) -> Below<'_> {
        Below::Service(&self.capabilities)
    }

    async fn head(&self, key: &Key, _options: HeadOptions) -> ObjectResult<ObjectInfo> {
        let bucket = self.bucket.lock();
        Ok(bucket.content(Operation::Head, key)?.1)
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        let (body, info) = {
            let bucket = self.bucket.lock();
            let (object, info) = bucket.content(Operation::Get, key)?;
            (object.body.clone(), info)
        };
        check_tag(Operation::Get, key, &info, options.if_match.as_ref())?;
        let range = rules::delivered(key, options.range.as_ref(), info.size)?;
        let mut got = Got { info, range };
        sink.begin(&got);
        let delivered = object::slices(&body, &got.range)
            .map(|slice| sink.copy_from(&slice) as u64)
            .sum::<u64>();
        got.range.end = got.range.start + delivered;
        Ok(got)
    }

    async fn put(&self, key: &Key, body: Payload, options: PutOptions) -> ObjectResult<Stored> {
        let operation = Operation::Put;
        check_size(
            operation,
            key,
            body.len() as u64,
            self.capabilities.put_size_max,
        )?;
        let object = Object::new(object::own(&body), &options);
        self.bucket
            .lock()
            .store(operation, key, &options.condition, object)
    }

    async fn append(
        &self,
        key: &Key,
        position: u64,
        body: Payload,
        options: PutOptions,
    ) -> ObjectResult<Appended> {
        if !self.capabilities.append {
            return Err(unsupported(Operation::Append, "appending").about(key));
        }
        let size = position.saturating_add(body.len() as u64);
        check_size(
            Operation::Append,
            key,
            size,
            self.capabilities.object_size_max,
        )?;
        let body = object::own(&body);
        match self.bucket.lock().objects.entry(key.as_str().to_owned()) {
            std::collections::btree_map::Entry::Occupied(mut there) => {
                there.get_mut().append(key, position, body)
            }
            std::collections::btree_map::Entry::Vacant(free) => {
                let object = Object::appendable(key, position, body, &options)?;
                Ok(free.insert(object).appended())
            }
        }
    }

    async fn copy(&self, source: &Key, target: &Key, options: CopyOptions) -> ObjectResult<Stored> {
        let operation = Operation::Copy;
        let mut bucket = self.bucket.lock();
        let object = bucket.object(operation, source)?;
        let info = object.info();
        check_tag(operation, source, &info, options.if_match.as_ref())?;
        check_size(
            operation,
            source,
            info.size,
            self.capabilities.copy_size_max,
        )?;
        let copy = object.copied(options.description);
        bucket.store(operation, target, &options.condition, copy)
    }

    async fn delete(&self, key: &Key) -> ObjectResult<()> {
        self.bucket.lock().objects.remove(key.as_str());
        Ok(())
    }

    async fn delete_many(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        rules::check_delete_many(keys)?;
        let mut bucket = self.bucket.lock();
        for key in keys {
            bucket.objects.remove(key.as_str());
        }
        Ok(Vec::new())
    }

    async fn list(&self, options: ListOptions) -> ObjectResult<ListPage> {
        Ok(listing::page(&self.bucket.lock().objects, &options))
    }

    async fn create_upload(&self, key: &Key, options: PutOptions) -> ObjectResult<UploadId> {
        Ok(self.bucket.lock().uploads.create(key, options))
    }

    async fn upload_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        body: Payload,
    ) -> ObjectResult<Part> {
        let operation = Operation::UploadPart;
        rules::check_part(&self.capabilities, operation, number, body.len() as u64)?;
        let body = object::own(&body);
        self.bucket
            .lock()
            .uploads
            .find(operation, key, upload)?
            .add(number, body)
    }

    async fn copy_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        copy: PartCopy,
    ) -> ObjectResult<Part> {
        let operation = Operation::CopyPart;
        let size = copy.range.end.saturating_sub(copy.range.start);
        rules::check_part(&self.capabilities, operation, number, size)?;
        let mut bucket = self.bucket.lock();
        let (object, info) = bucket.content(operation, &copy.source)?;
        check_tag(operation, &copy.source, &info, copy.if_match.as_ref())?;
        if copy.range.is_empty() || copy.range.end > info.size {
            let message = format!("the source has only {} bytes", info.size);
            return Err(ObjectError::new(ErrorKind::InvalidRange, operation, message).about(key));
        }
        let body = object::slices(&object.body, &copy.range).fold(Payload::new(), object::joined);
        bucket
            .uploads
            .find(operation, key, upload)?
            .add(number, body)
    }

    async fn complete_upload(
        &self,
        key: &Key,
        upload: &UploadId,
        parts: &[Part],
        options: CompleteOptions,
    ) -> ObjectResult<Stored> {
        let operation = Operation::CompleteUpload;
        let mut bucket = self.bucket.lock();
        let found = bucket.uploads.find(operation, key, upload)?;
        let object = found.assemble(&self.capabilities, parts, &options)?;
        let condition = match options.condition {
            WriteCondition::Always => found.condition().clone(),
            condition => condition,
        };
        let stored = bucket.store(operation, key, &condition, object)?;
        bucket.uploads.forget(key, upload);
        Ok(stored)
    }

    async fn abort_upload(&self, key: &Key, upload: &UploadId) -> ObjectResult<()> {
        self.bucket.lock().uploads.forget(key, upload);
        Ok(())
    }

    async fn list_uploads(
        &self,
        prefix: &str,
        continuation: Option<&str>,
    ) -> ObjectResult<UploadPage> {
        Ok(self.bucket.lock().uploads.page(prefix, continuation))
    }

    async fn put_symlink(
        &self,
        key: &Key,
        target: &Key,
        options: PutOptions,
    ) -> ObjectResult<Stored> {
        let operation = Operation::PutSymlink;
        if !self.capabilities.symlinks {
            return Err(unsupported(operation, "symbolic links").about(key));
        }
        let object = Object::link(target, &options);
        self.bucket
            .lock()
            .store(operation, key, &options.condition, object)
    }

    async fn get_symlink(&self, key: &Key) -> ObjectResult<Key> {
        let operation = Operation::GetSymlink;
        if !self.capabilities.symlinks {
            return Err(unsupported(operation, "symbolic links").about(key));
        }
        let bucket = self.bucket.lock();
        bucket.object(operation, key)?.link.clone().ok_or_else(|| {
            let message = "the object is not a symbolic link";
            ObjectError::new(ErrorKind::InvalidRequest, operation, message).about(key)
        })
    }
}

#[cfg(test)]
mod tests {
    mod everything {
        use std::sync::Arc;

        use penstock_object::Store;

        use crate::MemoryStore;

        async fn open() -> ((), Arc<dyn Store>) {
            ((), Arc::new(MemoryStore::new()))
        }

        crate::conformance_tests!(open);
    }

    mod like_s3 {
        use std::sync::Arc;

        use penstock_object::Store;

        use crate::MemoryStore;

        async fn open() -> ((), Arc<dyn Store>) {
            ((), Arc::new(MemoryStore::like_s3()))
        }

        crate::conformance_tests!(open);
    }

    mod least {
        use std::sync::Arc;

        use penstock_object::{Capabilities, Store};

        use crate::MemoryStore;

        async fn open() -> ((), Arc<dyn Store>) {
            let capabilities = Capabilities {
                write_if_absent: false,
                ..MemoryStore::like_s3().capabilities().clone()
            };
            ((), Arc::new(MemoryStore::with_capabilities(capabilities)))
        }

        crate::conformance_tests!(open);
    }
}
