//! A store that fails on command, for tests.
//!
//! Faults are queued for an operation, each used once, or happen at a rate. Chance comes from a
//! seed, so a run can be repeated.

mod plan;
mod sinks;

use std::sync::Arc;

use async_trait::async_trait;
use penstock_base::{Payload, clock};

pub use plan::{Fault, Faults};
use sinks::{Cut, Flipping, flipped};

use penstock_object::{
    Appended, Below, BodySink, DeleteFailure, ErrorKind, GetOptions, Got, Key, ObjectError,
    ObjectResult, Operation, Part, PartNumber, PutOptions, Store, Stored, UploadId,
    layers::{Around, Call, Layer, Work},
};

/// Injects [`Faults`] into a store.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Store>,
    faults: Arc<Faults>,
    /// The same store, for operations that only fail, wait or lose their answer.
    suffering: Layer<Suffering>,
}

/// Carries out each operation under its next fault.
#[derive(Debug)]
struct Suffering(Arc<Faults>);

impl Around for Suffering {
    async fn around<T: Send>(&self, call: &Call<'_>, work: Work<'_, T>) -> ObjectResult<T> {
        let fault = self.0.next(call.operation);
        under(call.operation, fault, work).await
    }
}

impl Faulty {
    /// `inner` with faults as `faults` says; keep a clone to command them.
    pub fn new(inner: Arc<dyn Store>, faults: Arc<Faults>) -> Self {
        let suffering = Suffering(Arc::clone(&faults));
        Self {
            suffering: Layer::of(Arc::clone(&inner), suffering),
            inner,
            faults,
        }
    }

    /// The next fault of an operation that sends `body`, and what of the body arrives.
    fn sent(&self, operation: Operation, body: Payload) -> (Option<Fault>, Payload) {
        match self.faults.next(operation) {
            Some(Fault::Flip { at }) => (None, flipped(&body, at)),
            Some(Fault::Damage { at }) => (Some(Fault::Damage { at }), flipped(&body, at)),
            fault => (fault, body),
        }
    }
}

async fn under<T>(
    operation: Operation,
    fault: Option<Fault>,
    work: Work<'_, T>,
) -> ObjectResult<T> {
    match fault {
        Some(Fault::Fail { kind, retry_after }) => Err(ObjectError {
            retry_after,
            ..injected(kind, operation)
        }),
        Some(Fault::Answer { status }) => Err(ObjectError {
            status: Some(status),
            ..injected(ErrorKind::Unavailable, operation)
        }),
        Some(Fault::LoseAnswer(kind)) => {
            work.await?;
            Err(injected(kind, operation))
        }
        Some(Fault::Delay(duration)) => {
            clock::sleep(duration).await;
            work.await
        }
        Some(Fault::Hang) => std::future::pending().await,
        // Only bodies can be cut or flipped, and only of many can one be spared.
        Some(Fault::Cut { .. } | Fault::Flip { .. } | Fault::Damage { .. } | Fault::Spare(_))
        | None => work.await,
    }
}

fn injected(kind: ErrorKind, operation: Operation) -> ObjectError {
    ObjectError::new(kind, operation, "a fault was injected")
}

#[async_trait]
impl Store for Faulty {
    fn below(&self) -> Below<'_> {
        Below::Store(&self.suffering)
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        match self.faults.next(Operation::Get) {
            Some(Fault::Cut { after }) => {
                let mut sink = Cut::new(sink, after);
                let got = self.inner.get(key, options, &mut sink).await?;
                match sink.was_cut() {
                    true => Err(injected(ErrorKind::Interrupted, Operation::Get)),
                    false => Ok(got),
                }
            }
            Some(Fault::Flip { at }) => {
                let mut sink = Flipping::new(sink, at);
                self.inner.get(key, options, &mut sink).await
            }
            fault => {
                let work = self.inner.get(key, options, sink);
                under(Operation::Get, fault, work).await
            }
        }
    }

    async fn put(&self, key: &Key, body: Payload, options: PutOptions) -> ObjectResult<Stored> {
        let (fault, body) = self.sent(Operation::Put, body);
        let work = self.inner.put(key, body, options);
        if matches!(fault, Some(Fault::Damage { .. })) {
            let left = work.await?.etag;
            return Err(injected(ErrorKind::ChecksumMismatch, Operation::Put).leaving(left));
        }
        under(Operation::Put, fault, work).await
    }

    async fn append(
        &self,
        key: &Key,
        position: u64,
        body: Payload,
        options: PutOptions,
    ) -> ObjectResult<Appended> {
        let (fault, body) = self.sent(Operation::Append, body);
        let work = self.inner.append(key, position, body, options);
        under(Operation::Append, fault, work).await
    }

    async fn delete_many(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        let fault = self.faults.next(Operation::DeleteMany);
        if let (Some(Fault::Spare(kind)), Some((first, others))) = (fault, keys.split_first()) {
            let mut failures = self.inner.delete_many(others).await?;
            failures.push(DeleteFailure {
                key: first.clone(),
                kind,
                code: format!("{kind:?}"),
                message: "a fault was injected".to_owned(),
            });
            return Ok(failures);
        }
        let work = self.inner.delete_many(keys);
        under(Operation::DeleteMany, fault, work).await
    }

    async fn upload_part(
        &self,
        key: &Key,
        upload: &UploadId,
        number: PartNumber,
        body: Payload,
    ) -> ObjectResult<Part> {
        let (fault, body) = self.sent(Operation::UploadPart, body);
        let work = self.inner.upload_part(key, upload, number, body);
        under(Operation::UploadPart, fault, work).await
    }
}
