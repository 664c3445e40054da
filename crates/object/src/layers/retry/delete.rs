//! Deleting many, of which some fail in passing.

use super::Retry;
use crate::{DeleteFailure, Key, ObjectError, ObjectResult, Operation};

impl Retry {
    /// Deletes `keys`, and again those whose deletion failed in passing.
    pub(super) async fn delete_until_done(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        let mut retries = self.begin();
        let mut final_failures = Vec::new();
        let mut left = keys.to_vec();
        loop {
            let failures = self.repeat(|| self.inner.delete_many(&left)).await?;
            let (passing, others): (Vec<_>, Vec<_>) = failures
                .into_iter()
                .partition(|failure| failure.kind.is_transient());
            final_failures.extend(others);
            let Some(first) = passing.first() else {
                retries.succeeded();
                return Ok(final_failures);
            };
            if passing.len() < left.len() {
                retries.progressed();
            }
            if retries.pause(as_error(first)).await.is_err() {
                final_failures.extend(passing);
                return Ok(final_failures);
            }
            left = passing.into_iter().map(|failure| failure.key).collect();
        }
    }
}

fn as_error(failure: &DeleteFailure) -> ObjectError {
    let (kind, message) = (failure.kind, failure.message.clone());
    let error = ObjectError::new(kind, Operation::DeleteMany, message);
    ObjectError {
        code: failure.code.clone(),
        ..error
    }
}
