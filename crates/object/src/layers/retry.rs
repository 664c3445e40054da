//! Repeating what failed in passing.
//!
//! An error of a transient kind is tried again after a pause that grows exponentially and is
//! drawn at random in full, so that clients who failed together do not come back together. The
//! pauses are at least as long as the store asks for. A [`Budget`] shared by all operations
//! bounds the rate of repetitions: when a store fails for everybody, repetitions slow down
//! instead of multiplying the load. It never turns a passing fault into an error.
//!
//! What does: a number of attempts that the store answered, each with an error of its own; and for a
//! store that is away ([`backoff`]: it refuses or drops connections, or has a proxy say that it is not
//! there) time alone. A restart takes as long as it takes, and many operations in flight, each with its
//! own luck, would not all survive a count.
//!
//! What may not be repeated blindly:
//! - **Reads** go on where the body was cut, at the same version; see [`Resumed`].
//! - **Writes that insist on a state** (`IfAbsent`, `IfMatch`, appends, the end of an upload): when an
//!   attempt ended so that it may have taken effect, and the next one finds that very effect in
//!   its way, the layer looks whether it was its own; see [`settle`].
//! - **Deleting many** is repeated for the keys that failed in passing.
//! - **Beginning an upload** is simply repeated. An answer that got lost leaves an upload without
//!   parts behind, which costs nothing and shows among the unfinished uploads.

mod backoff;
mod budget;
mod delete;
mod resume;
mod sent;
mod settle;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use penstock_base::{
    Payload,
    metrics::{Counter, Registry, table},
};

pub use backoff::{BACKOFF_BASE, RETRY_AFTER_MAX};
use backoff::{Limits, Retries};
use budget::Budget;
use resume::{Resumed, Verdict};

use super::around::Work;
use crate::{
    Appended, Below, BodySink, CompleteOptions, CopyOptions, DeleteFailure, FlatPage, GetOptions,
    Got, HeadOptions, Key, ListOptions, ListPage, ObjectInfo, ObjectResult, Part, PartCopy,
    PartNumber, PutOptions, Store, Stored, UploadId, UploadPage, WriteCondition,
};

/// Repeats operations that fail in passing.
#[derive(Debug)]
pub struct Retry {
    inner: Arc<dyn Store>,
    limits: Limits,
    budget: Budget,
    retries: Arc<Counter>,
    resumed: Arc<Counter>,
}

impl Retry {
    /// Tries operations on `inner` up to `attempts_max` times; a read that gets some bytes
    /// further starts to count anew.
    pub fn new(inner: Arc<dyn Store>, attempts_max: u32, metrics: &Registry) -> Self {
        Self {
            inner,
            limits: Limits {
                attempts_max,
                total: Duration::MAX,
                rides_out: false,
            },
            budget: Budget::new(),
            retries: metrics.counter(&table::OBJECT_RETRIES, &[]),
            resumed: metrics.counter(&table::OBJECT_RESUMED_READS, &[]),
        }
    }

    /// The same, but no attempt is begun for which `total` leaves no time, or what
    /// [`Deadline`](super::Deadline) allows beyond that.
    #[must_use]
    pub fn within(mut self, total: Duration) -> Self {
        self.limits.total = total;
        self
    }

    /// The same, but attempts at a store that is away do not count until the time is up. Where
    /// nothing is to be repeated that holds for them, too.
    #[must_use]
    pub fn riding_out(mut self, total: Duration) -> Self {
        self.limits.rides_out = self.limits.attempts_max > 1;
        self.within(total)
    }

    fn begin(&self) -> Retries<'_> {
        Retries::new(&self.budget, &self.retries, self.limits)
    }

    /// Repeats `attempt` until it succeeds, fails for good or was tried often enough.
    async fn repeat<'a, T>(&self, attempt: impl Fn() -> Work<'a, T>) -> ObjectResult<T> {
        self.repeat_sending(0, attempt).await
    }

    /// The same for an operation that sends so many bytes.
    async fn repeat_sending<'a, T>(
        &self,
        bytes: usize,
        attempt: impl Fn() -> Work<'a, T>,
    ) -> ObjectResult<T> {
        let mut retries = self.begin().sending(bytes);
        loop {
            match attempt().await {
                Ok(value) => {
                    retries.succeeded();
                    return Ok(value);
                }
                Err(error) => retries.pause(error).await?,
            }
        }
    }
}

#[async_trait]
impl Store for Retry {
    fn below(&self) -> Below<'_> {
        Below::Store(&*self.inner)
    }

    async fn head(&self, key: &Key, options: HeadOptions) -> ObjectResult<ObjectInfo> {
        self.repeat(|| self.inner.head(key, options.clone())).await
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        let mut resumed = Resumed::new(sink);
        let mut retries = self.begin();
        loop {
            let Some(next) = resumed.next(&options) else {
                return resumed.finish();
            };
            let before = resumed.received();
            let got = self.inner.get(key, next, &mut resumed).await;
            match resumed.judge(key, got) {
                Verdict::Done(got) => {
                    retries.succeeded();
                    return Ok(got);
                }
                Verdict::Failed(error) => return Err(error),
                Verdict::GoOn(error) => {
                    if resumed.received() > before {
                        retries.progressed();
                        self.resumed.increment();
                    }
                    retries.pause(error).await?;
                }
            }
        }
    }

    async fn put(&self, key: &Key, body: Payload, options: PutOptions) -> ObjectResult<Stored> {
        if options.condition != WriteCondition::Always {
            return self.put_once(key, &body, &options).await;
        }
        let attempt = || self.inner.put(key, body.clone(), options.clone());
        self.repeat_sending(body.len(), attempt).await
    }

    async fn append(
        &self,
        key: &Key,
        position: u64,
        body: Payload,
        options: PutOptions,
    ) -> ObjectResult<Appended> {
        let attempt = || {
            let (body, options) = (body.clone(), options.clone());
            self.inner.append(key, position, body, options)
        };
        self.append_once(key, position, &body, attempt).await
    }

    async fn copy(&self, source: &Key, target: &Key, options: CopyOptions) -> ObjectResult<Stored> {
        let attempt = || self.inner.copy(source, target, options.clone());
        match options.condition {
            WriteCondition::Always => self.repeat(attempt).await,
            WriteCondition::IfAbsent | WriteCondition::IfMatch(_) => {
                let source = (source, options.if_match.as_ref());
                self.copy_once(source, target, attempt).await
            }
        }
    }

    async fn delete(&self, key: &Key) -> ObjectResult<()> {
        self.repeat(|| self.inner.delete(key)).await
    }

    async fn delete_many(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        self.delete_until_done(keys).await
    }

    async fn list(&self, options: ListOptions) -> ObjectResult<ListPage> {
        self.repeat(|| self.inner.list(options.clone())).await
    }

    async fn list_flat(&self, options: ListOptions) -> ObjectResult<FlatPage> {
        self.repeat(|| self.inner.list_flat(options.clone())).await
    }

    async fn create_upload(&self, key: &Key, options: PutOptions) -> ObjectResult<UploadId> {
        self.repeat(|| self.inner.create_upload(key, options.clone()))
            .await
    }

    async fn upload_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        body: Payload,
    ) -> ObjectResult<Part> {
        let attempt = || self.inner.upload_part(key, upload, number, body.clone());
        self.repeat_sending(body.len(), attempt).await
    }

    async fn copy_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        copy: PartCopy,
    ) -> ObjectResult<Part> {
        self.repeat(|| self.inner.copy_part(key, upload, number, copy.clone()))
            .await
    }

    async fn complete_upload(
        &self,
        key: &Key,
        upload: &UploadId,
        parts: &[Part],
        options: CompleteOptions,
    ) -> ObjectResult<Stored> {
        let attempt = || {
            self.inner
                .complete_upload(key, upload, parts, options.clone())
        };
        self.complete_once(key, (parts, &options), attempt).await
    }

    async fn abort_upload(&self, key: &Key, upload: &UploadId) -> ObjectResult<()> {
        self.repeat(|| self.inner.abort_upload(key, upload)).await
    }

    async fn list_uploads(
        &self,
        prefix: &str,
        continuation: Option<&str>,
    ) -> ObjectResult<UploadPage> {
        self.repeat(|| self.inner.list_uploads(prefix, continuation))
            .await
    }

    async fn put_symlink(
        &self,
        key: &Key,
        target: &Key,
        options: PutOptions,
    ) -> ObjectResult<Stored> {
        let attempt = || self.inner.put_symlink(key, target, options.clone());
        match options.condition {
            WriteCondition::Always => self.repeat(attempt).await,
            WriteCondition::IfAbsent | WriteCondition::IfMatch(_) => {
                self.link_once(key, target, attempt).await
            }
        }
    }

    async fn get_symlink(&self, key: &Key) -> ObjectResult<Key> {
        self.repeat(|| self.inner.get_symlink(key)).await
    }
}
