//! Doing the same around every operation.

use std::{
    fmt::Debug,
    mem::MaybeUninit,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use penstock_base::{Checksum, Payload, clock::Instant};

use crate::{
    Appended, Below, BodySink, CompleteOptions, CopyOptions, DeleteFailure, FlatPage, GetOptions,
    Got, HeadOptions, Key, ListOptions, ListPage, ObjectError, ObjectInfo, ObjectResult, Operation,
    Part, PartCopy, PartNumber, PutOptions, Store, Stored, UploadId, UploadPage,
};

/// An operation of the store within, not begun yet.
pub type Work<'a, T> = Pin<Box<dyn Future<Output = ObjectResult<T>> + Send + 'a>>;

/// What a layer may know about an operation while it runs.
#[derive(Debug)]
pub struct Call<'a> {
    /// What is done.
    pub operation: Operation,
    /// To which object, if to one.
    pub key: Option<&'a Key>,
    /// Bytes of body that are sent or copied.
    pub sent: u64,
    /// The objects, where it is done to several.
    several: &'a [Key],
    expected: AtomicU64,
    received: AtomicU64,
}

impl<'a> Call<'a> {
    fn new(operation: Operation, key: Option<&'a Key>, sent: u64) -> Self {
        Self {
            operation,
            key,
            sent,
            several: &[],
            expected: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }

    /// The objects that are written or removed: of which nothing that was known before may count afterwards.
    pub fn changed(&self) -> impl Iterator<Item = &'a Key> {
        let one = match self.operation {
            Operation::Append
            | Operation::CompleteUpload
            | Operation::Copy
            | Operation::Delete
            | Operation::Put
            | Operation::PutSymlink => self.key,
            _ => None,
        };
        one.into_iter().chain(self.several)
    }

    /// Bytes of body that the store has announced so far.
    pub fn expected(&self) -> u64 {
        self.expected.load(Ordering::Relaxed)
    }

    /// Bytes of body that have arrived so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// What a layer does around each operation.
pub trait Around: Debug + Send + Sync {
    /// Carries out `work`, or not. Dropping the future drops the work.
    fn around<T: Send>(
        &self,
        call: &Call<'_>,
        work: Work<'_, T>,
    ) -> impl Future<Output = ObjectResult<T>> + Send;

    /// See [`Store::last_failure`].
    fn last_failure(&self) -> Option<(ObjectError, Instant)> {
        None
    }
}

/// A store with something around each of its operations.
#[derive(Debug)]
pub struct Layer<A> {
    inner: Arc<dyn Store>,
    around: A,
}

impl<A: Around> Layer<A> {
    /// `inner` with `around` around each operation.
    pub fn of(inner: Arc<dyn Store>, around: A) -> Self {
        Self { inner, around }
    }
}

/// A sink that tells a [`Call`] what arrives.
struct Watched<'a> {
    sink: &'a mut dyn BodySink,
    call: &'a Call<'a>,
}

// SAFETY: `unfilled` is the front of another sink's.
#[allow(unsafe_code)]
unsafe impl BodySink for Watched<'_> {
    fn begin(&mut self, got: &Got) {
        let length = got.range.end - got.range.start;
        self.call.expected.fetch_add(length, Ordering::Relaxed);
        self.sink.begin(got);
    }

    fn filled(&self) -> u64 {
        self.sink.filled()
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        self.sink.unfilled()
    }

    unsafe fn advance(&mut self, count: usize) {
        let received = &self.call.received;
        received.fetch_add(count as u64, Ordering::Relaxed);
        // SAFETY: `unfilled` is the sink's own, so the caller's promise holds for it.
        unsafe { self.sink.advance(count) }
    }

    fn summed(&self) -> Option<Checksum> {
        self.sink.summed()
    }
}

#[async_trait]
impl<A: Around> Store for Layer<A> {
    fn below(&self) -> Below<'_> {
        Below::Store(&*self.inner)
    }

    fn last_failure(&self) -> Option<(ObjectError, Instant)> {
        let own = self.around.last_failure();
        own.or_else(|| self.inner.last_failure())
    }

    async fn head(&self, key: &Key, options: HeadOptions) -> ObjectResult<ObjectInfo> {
        let call = Call::new(Operation::Head, Some(key), 0);
        let work = self.inner.head(key, options);
        self.around.around(&call, work).await
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        let call = Call::new(Operation::Get, Some(key), 0);
        let mut sink = Watched { sink, call: &call };
        let work = self.inner.get(key, options, &mut sink);
        self.around.around(&call, work).await
    }

    async fn put(&self, key: &Key, body: Payload, options: PutOptions) -> ObjectResult<Stored> {
        let call = Call::new(Operation::Put, Some(key), body.len() as u64);
        let work = self.inner.put(key, body, options);
        self.around.around(&call, work).await
    }

    async fn append(
        &self,
        key: &Key,
        position: u64,
        body: Payload,
        options: PutOptions,
    ) -> ObjectResult<Appended> {
        let call = Call::new(Operation::Append, Some(key), body.len() as u64);
        let work = self.inner.append(key, position, body, options);
        self.around.around(&call, work).await
    }

    async fn copy(&self, source: &Key, target: &Key, options: CopyOptions) -> ObjectResult<Stored> {
        let call = Call::new(Operation::Copy, Some(target), 0);
        let work = self.inner.copy(source, target, options);
        self.around.around(&call, work).await
    }

    async fn delete(&self, key: &Key) -> ObjectResult<()> {
        let call = Call::new(Operation::Delete, Some(key), 0);
        let work = self.inner.delete(key);
        self.around.around(&call, work).await
    }

    async fn delete_many(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        let call = Call {
            several: keys,
            ..Call::new(Operation::DeleteMany, None, 0)
        };
        let work = self.inner.delete_many(keys);
        self.around.around(&call, work).await
    }

    async fn list(&self, options: ListOptions) -> ObjectResult<ListPage> {
        let call = Call::new(Operation::List, None, 0);
        let work = self.inner.list(options);
        self.around.around(&call, work).await
    }

    async fn list_flat(&self, options: ListOptions) -> ObjectResult<FlatPage> {
        let call = Call::new(Operation::List, None, 0);
        let work = self.inner.list_flat(options);
        self.around.around(&call, work).await
    }

    async fn create_upload(&self, key: &Key, options: PutOptions) -> ObjectResult<UploadId> {
        let call = Call::new(Operation::CreateUpload, Some(key), 0);
        let work = self.inner.create_upload(key, options);
        self.around.around(&call, work).await
    }

    async fn upload_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        body: Payload,
    ) -> ObjectResult<Part> {
        let call = Call::new(Operation::UploadPart, Some(key), body.len() as u64);
        let work = self.inner.upload_part(key, upload, number, body);
        self.around.around(&call, work).await
    }

    async fn copy_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        copy: PartCopy,
    ) -> ObjectResult<Part> {
        let size = copy.range.end.saturating_sub(copy.range.start);
        let call = Call::new(Operation::CopyPart, Some(key), size);
        let work = self.inner.copy_part(key, upload, number, copy);
        self.around.around(&call, work).await
    }

    async fn complete_upload(
        &self,
        key: &Key,
        upload: &UploadId,
        parts: &[Part],
        options: CompleteOptions,
    ) -> ObjectResult<Stored> {
        let call = Call::new(Operation::CompleteUpload, Some(key), 0);
        let work = self.inner.complete_upload(key, upload, parts, options);
        self.around.around(&call, work).await
    }

    async fn abort_upload(&self, key: &Key, upload: &UploadId) -> ObjectResult<()> {
        let call = Call::new(Operation::AbortUpload, Some(key), 0);
        let work = self.inner.abort_upload(key, upload);
        self.around.around(&call, work).await
    }

    async fn list_uploads(
        &self,
        prefix: &str,
        continuation: Option<&str>,
    ) -> ObjectResult<UploadPage> {
        let call = Call::new(Operation::ListUploads, None, 0);
        let work = self.inner.list_uploads(prefix, continuation);
        self.around.around(&call, work).await
    }

    async fn put_symlink(
        &self,
        key: &Key,
        target: &Key,
        options: PutOptions,
    ) -> ObjectResult<Stored> {
        let call = Call::new(Operation::PutSymlink, Some(key), 0);
        let work = self.inner.put_symlink(key, target, options);
        self.around.around(&call, work).await
    }

    async fn get_symlink(&self, key: &Key) -> ObjectResult<Key> {
        let call = Call::new(Operation::GetSymlink, Some(key), 0);
        let work = self.inner.get_symlink(key);
        self.around.around(&call, work).await
    }
}
