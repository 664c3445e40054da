//! Deleting many, of which some fail in passing.

use super::Retry;
use crate::{DeleteFailure, ErrorKind, Key, ObjectError, ObjectResult, Operation};

/// Codes of S3 and OSS for single keys that may be tried again.
const PASSING_CODES: [&str; 5] = [
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
];

impl Retry {
    /// Deletes `keys`, and again those whose deletion failed in passing.
    pub(super) async fn delete_until_done(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        let mut retries = self.begin();
        let mut final_failures = Vec::new();
        let mut left = keys.to_vec();
        loop {
            let failures = self.repeat(|| self.inner.delete_many(&left)).await?;
            let (passing, others): (Vec<_>, Vec<_>) = failures.into_iter().partition(is_passing);
            final_failures.extend(others);
            let Some(first) = passing.first() else {
                retries.succeeded();
                return Ok(final_failures);
            };
            if retries.pause(as_error(first)).await.is_err() {
                final_failures.extend(passing);
                return Ok(final_failures);
            }
            left = passing.into_iter().map(|failure| failure.key).collect();
        }
    }
}

fn is_passing(failure: &DeleteFailure) -> bool {
    PASSING_CODES.contains(&failure.code.as_str())
}

fn as_error(failure: &DeleteFailure) -> ObjectError {
    let kind = ErrorKind::Unavailable;
    let error = ObjectError::new(kind, Operation::DeleteMany, failure.message.clone());
    ObjectError {
        code: failure.code.clone(),
        ..error
    }
}
