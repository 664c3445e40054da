//! The seam between Penstock and object storage.

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;
use penstock_base::{LocalFile, Payload, clock::Instant};

use crate::{
    Ability, Appended, AtHand, BodySink, ByteRange, Capabilities, ChecksumKind, CompleteOptions,
    CopyOptions, DeleteFailure, ETag, ErrorKind, FlatPage, GetOptions, Got, HeadOptions, Key,
    ListOptions, ListPage, ObjectError, ObjectInfo, ObjectResult, Operation, Part, PartCopy,
    PartNumber, PutOptions, Stored, UploadId, UploadPage,
};

/// Objects that one [`Store::delete_many`] takes, as many as S3 and OSS take in one request.
pub const DELETE_MANY_MAX: usize = 1000;

/// What stands below a [`Store`].
#[derive(Debug)]
pub enum Below<'a> {
    /// Another store: this one is a layer around it, and what a layer does not spell is passed on.
    Store(&'a dyn Store),
    /// A service or a disk that can do this. What its store does not spell fails with `Unsupported`.
    Service(&'a Capabilities),
}

impl<'a> Below<'a> {
    /// The store to pass `operation` on to.
    fn store(self, operation: Operation, key: Option<&Key>) -> ObjectResult<&'a dyn Store> {
        let capabilities = match self {
            Self::Store(store) => return Ok(store),
            Self::Service(capabilities) => capabilities,
        };
        let message = format!("{}: sources cannot do this", capabilities.scheme);
        let error = ObjectError::new(ErrorKind::Unsupported, operation, message);
        Err(match key {
            Some(key) => error.about(key),
            None => error,
        })
    }
}

/// An object store, or one prefix of a bucket in it.
///
/// Rules that hold for every method:
/// - **Atomicity.** A write is visible whole or not at all, to any reader, once it returned `Ok`.
///   After an error of kind `Timeout`, `Unavailable` or `Interrupted` it may have happened.
/// - **Consistency.** Reads and listings that start after a write returned see it.
/// - **Cancellation.** Dropping the future gives the request up; a write may still take effect.
/// - **Errors.** [`crate::ErrorKind`] says what a caller can do. Layers below this seam have
///   retried what may be retried, within the deadline.
#[async_trait]
pub trait Store: Debug + Send + Sync {
    /// What stands below this store, which does what the store itself does not spell.
    fn below(&self) -> Below<'_>;

    /// What this store can do, and its limits.
    fn capabilities(&self) -> &Capabilities {
        match self.below() {
            Below::Store(store) => store.capabilities(),
            Below::Service(capabilities) => capabilities,
        }
    }

    /// What others of its kind can do, and whether this store does, as far as requests so far have
    /// shown. None for a store that has no imitations.
    fn abilities(&self) -> Vec<Ability> {
        match self.below() {
            Below::Store(store) => store.abilities(),
            Below::Service(_) => Vec::new(),
        }
    }

    /// The last error of a request, also of one that was tried again, and when it came. An answer that something is not there,
    /// or is another version, is none.
    fn last_failure(&self) -> Option<(ObjectError, Instant)> {
        match self.below() {
            Below::Store(store) => store.last_failure(),
            Below::Service(_) => None,
        }
    }

    /// The checksum that bodies are sent with, if any. A [`Payload`] that brings one of this kind
    /// spares the store a pass over its bytes; any other payload is as good.
    fn checksum_kind(&self) -> Option<ChecksumKind> {
        match self.below() {
            Below::Store(store) => store.checksum_kind(),
            Below::Service(_) => None,
        }
    }

    /// A file of this machine that holds this version of an object, for whoever can read that
    /// without copies. Nothing but a cache has one, and no layer passes the question on.
    fn local_copy(&self, _key: &Key, _etag: &ETag) -> Option<Arc<dyn LocalFile>> {
        None
    }

    /// All bytes of a range that is not empty, if they are in this process's memory, of the version that `if_match` names.
    /// Asks nobody else. Nothing but a cache has any, and a layer passes the question on only where the bytes below it are
    /// the same.
    fn at_hand(&self, _key: &Key, _range: &ByteRange, _if_match: Option<&ETag>) -> Option<AtHand> {
        None
    }

    /// Describes an object. Fails with `NotFound`.
    async fn head(&self, key: &Key, options: HeadOptions) -> ObjectResult<ObjectInfo> {
        let store = self.below().store(Operation::Head, Some(key))?;
        store.head(key, options).await
    }

    /// Receives an object, or a range of it, into `sink`.
    ///
    /// A range that reaches beyond the end is clipped; one that starts at or beyond the end of
    /// a non-empty object fails with `InvalidRange`. A whole GET of an empty object succeeds.
    /// With `if_match`, fails with `PreconditionFailed` when the object changed. After an error
    /// the sink keeps what arrived. When the sink is full before the body ended the rest is
    /// not received and the call succeeds with the shorter range.
    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        let store = self.below().store(Operation::Get, Some(key))?;
        store.get(key, options, sink).await
    }

    /// Writes an object in one request, at most `put_size_max` bytes.
    async fn put(&self, key: &Key, body: Payload, options: PutOptions) -> ObjectResult<Stored> {
        let store = self.below().store(Operation::Put, Some(key))?;
        store.put(key, body, options).await
    }

    /// Appends to an appendable object, or begins one at `position` 0.
    ///
    /// Fails with `PositionMismatch` when the object is not `position` bytes long and with
    /// `Unsupported` when it was not begun by an append or the store cannot append.
    async fn append(
        &self,
        key: &Key,
        position: u64,
        body: Payload,
        options: PutOptions,
    ) -> ObjectResult<Appended> {
        let store = self.below().store(Operation::Append, Some(key))?;
        store.append(key, position, body, options).await
    }

    /// Copies an object inside the store, at most `copy_size_max` bytes: with its metadata, or with
    /// other metadata, and then also onto itself.
    async fn copy(&self, source: &Key, target: &Key, options: CopyOptions) -> ObjectResult<Stored> {
        let store = self.below().store(Operation::Copy, Some(target))?;
        store.copy(source, target, options).await
    }

    /// Deletes an object. Deleting what is not there succeeds.
    async fn delete(&self, key: &Key) -> ObjectResult<()> {
        let store = self.below().store(Operation::Delete, Some(key))?;
        store.delete(key).await
    }

    /// Deletes up to [`DELETE_MANY_MAX`] objects and returns those that could not be.
    async fn delete_many(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        let store = self.below().store(Operation::DeleteMany, None)?;
        store.delete_many(keys).await
    }

    /// Lists one page of objects in byte order of their keys. A page may be shorter than asked
    /// for and still have a continuation.
    async fn list(&self, options: ListOptions) -> ObjectResult<ListPage> {
        let store = self.below().store(Operation::List, None)?;
        store.list(options).await
    }

    /// Lists one page like [`Store::list`], in a form that is cheap to go through. `delimited` must
    /// be false.
    async fn list_flat(&self, options: ListOptions) -> ObjectResult<FlatPage> {
        match self.below() {
            Below::Store(store) => store.list_flat(options).await,
            Below::Service(_) => self.list(options).await.map(FlatPage::from),
        }
    }

    /// Begins a multipart upload. Nothing is visible under the key until it is completed.
    async fn create_upload(&self, key: &Key, options: PutOptions) -> ObjectResult<UploadId> {
        let store = self.below().store(Operation::CreateUpload, Some(key))?;
        store.create_upload(key, options).await
    }

    /// Sends one part. Sending a number again replaces that part.
    async fn upload_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        body: Payload,
    ) -> ObjectResult<Part> {
        let store = self.below().store(Operation::UploadPart, Some(key))?;
        store.upload_part(key, upload, number, body).await
    }

    /// Makes a part from bytes that the store already has.
    async fn copy_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        copy: PartCopy,
    ) -> ObjectResult<Part> {
        let store = self.below().store(Operation::CopyPart, Some(key))?;
        store.copy_part(key, upload, number, copy).await
    }

    /// Turns the parts, in ascending order of number, into the object.
    async fn complete_upload(
        &self,
        key: &Key,
        upload: &UploadId,
        parts: &[Part],
        options: CompleteOptions,
    ) -> ObjectResult<Stored> {
        let store = self.below().store(Operation::CompleteUpload, Some(key))?;
        store.complete_upload(key, upload, parts, options).await
    }

    /// Forgets an upload and its parts. Aborting what is gone succeeds.
    async fn abort_upload(&self, key: &Key, upload: &UploadId) -> ObjectResult<()> {
        let store = self.below().store(Operation::AbortUpload, Some(key))?;
        store.abort_upload(key, upload).await
    }

    /// Lists one page of unfinished uploads under `prefix`.
    async fn list_uploads(
        &self,
        prefix: &str,
        continuation: Option<&str>,
    ) -> ObjectResult<UploadPage> {
        let store = self.below().store(Operation::ListUploads, None)?;
        store.list_uploads(prefix, continuation).await
    }

    /// Makes `key` a symbolic link to the object `target` (OSS).
    async fn put_symlink(
        &self,
        key: &Key,
        target: &Key,
        options: PutOptions,
    ) -> ObjectResult<Stored> {
        let store = self.below().store(Operation::PutSymlink, Some(key))?;
        store.put_symlink(key, target, options).await
    }

    /// The target of the symbolic link `key`, relative to the volume like every key (OSS).
    async fn get_symlink(&self, key: &Key) -> ObjectResult<Key> {
        let store = self.below().store(Operation::GetSymlink, Some(key))?;
        store.get_symlink(key).await
    }
}
