//! Trying a write in several ways.
//!
//! Imitations of S3 differ in what they understand. A [`WritePlan`] says which of the optional
//! features a write uses; when the store refuses a header that it does not know, the next plan
//! leaves one out, and the dialect remembers which plan worked.

use std::future::Future;

use super::{Dialect, RestStore};
use crate::{ErrorKind, ObjectError, ObjectResult, Operation, WriteCondition};

/// Which optional features a write uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WritePlan {
    /// The body's checksum is sent along.
    pub(crate) checksum: bool,
    /// The store itself checks the write's condition; otherwise we look first.
    pub(crate) condition: bool,
}

impl WritePlan {
    /// All features.
    pub(crate) const FULL: Self = Self {
        checksum: true,
        condition: true,
    };
}

/// What kind of write is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteKind {
    /// Bodies of parts, uploads and whole objects may be checked in different ways.
    pub(crate) operation: Operation,
    /// The key must be free.
    pub(crate) conditional: bool,
    /// The key must have a certain version.
    pub(crate) versioned: bool,
}

impl WriteKind {
    pub(super) fn new(operation: Operation, condition: &WriteCondition) -> Self {
        Self {
            operation,
            conditional: *condition == WriteCondition::IfAbsent,
            versioned: matches!(condition, WriteCondition::IfMatch(_)),
        }
    }
}

/// What a write returned, and whether the store confirmed the checksum.
pub(super) struct Written<T> {
    pub(super) value: T,
    pub(super) echoed: Option<bool>,
}

impl<D: Dialect> RestStore<D> {
    /// Attempts a write with each of the dialect's plans until the store understands one.
    pub(super) async fn write_with_plans<T, F>(
        &self,
        kind: WriteKind,
        attempt: impl Fn(WritePlan) -> F + Send + Sync,
    ) -> ObjectResult<T>
    where
        F: Future<Output = ObjectResult<Written<T>>> + Send,
        T: Send,
    {
        let mut plans = self.dialect.plans(kind).into_iter().peekable();
        let mut plan = plans.next().unwrap_or(WritePlan::FULL);
        loop {
            match (attempt(plan).await, plans.next()) {
                (Ok(written), _) => {
                    self.dialect.settle(kind, plan, written.echoed);
                    return Ok(written.value);
                }
                (Err(error), Some(next)) if is_not_understood(&error) => plan = next,
                (Err(error), _) => {
                    if plan.condition && is_refused(&error) {
                        self.dialect
                            .proof(kind)
                            .inspect(|proof| proof.saw_refusal());
                    }
                    return Err(error);
                }
            }
        }
    }
}

/// Whether it was the store that refused a write for its condition, and not we who looked. It says of
/// either condition that the key is taken.
pub(super) fn is_refused(error: &ObjectError) -> bool {
    error.kind == ErrorKind::AlreadyExists && error.status.is_some()
}

/// Whether the store may have failed for something that it does not know.
pub(super) fn is_not_understood(error: &ObjectError) -> bool {
    matches!(
        error.kind,
        ErrorKind::Unsupported | ErrorKind::InvalidRequest
    ) && error.status.is_some()
}
