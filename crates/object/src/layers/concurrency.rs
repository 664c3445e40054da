//! Bounding the requests that are under way at once.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::around::{Around, Call, Layer, Work};
use crate::{ErrorKind, ObjectError, ObjectResult, Operation, Store};

/// One in this many places is kept for operations without a body, so that transfers cannot keep
/// lookups and listings waiting.
const METADATA_SHARE: usize = 4;

/// Lets only so many operations run at once; others wait in line, first come, first served.
pub type ConcurrencyLimit = Layer<Places>;

/// The places of a [`ConcurrencyLimit`].
#[derive(Debug)]
pub struct Places {
    transfers: Semaphore,
    metadata: Semaphore,
}

impl ConcurrencyLimit {
    /// At most `operations_max` operations at once on `inner`, two at least: a quarter of the
    /// places is for those without a body, the others for those with one.
    pub fn new(inner: Arc<dyn Store>, operations_max: usize) -> Self {
        let operations_max = operations_max.clamp(2, Semaphore::MAX_PERMITS);
        let metadata = (operations_max / METADATA_SHARE).max(1);
        let places = Places {
            transfers: Semaphore::new(operations_max - metadata),
            metadata: Semaphore::new(metadata),
        };
        Self::of(inner, places)
    }
}

impl Around for Places {
    async fn around<T: Send>(&self, call: &Call<'_>, work: Work<'_, T>) -> ObjectResult<T> {
        let places = if is_transfer(call.operation) {
            &self.transfers
        } else {
            &self.metadata
        };
        let Ok(_place) = places.acquire().await else {
            let message = "the store is shut down";
            return Err(ObjectError::new(
                ErrorKind::Unavailable,
                call.operation,
                message,
            ));
        };
        work.await
    }
}

/// Whether bytes of objects move, here or within the store.
fn is_transfer(operation: Operation) -> bool {
    match operation {
        Operation::Get
        | Operation::Put
        | Operation::Append
        | Operation::Copy
        | Operation::UploadPart
        | Operation::CopyPart
        | Operation::CompleteUpload => true,
        Operation::Head
        | Operation::Delete
        | Operation::DeleteMany
        | Operation::List
        | Operation::CreateUpload
        | Operation::AbortUpload
        | Operation::ListUploads
        | Operation::PutSymlink
        | Operation::GetSymlink => false,
    }
}
