//! Keeping the last error.

use penstock_base::{
    Mutex,
    clock::{self, Instant},
};

use super::around::{Around, Call, Work};
use crate::{ObjectError, ObjectResult};

/// Keeps the last error of the store within for [`crate::Store::last_failure`].
#[derive(Debug, Default)]
pub struct LastFailure(Mutex<Option<(ObjectError, Instant)>>);

impl Around for LastFailure {
    async fn around<T: Send>(&self, _call: &Call<'_>, work: Work<'_, T>) -> ObjectResult<T> {
        let result = work.await;
        if let Err(error) = &result
            && !error.kind.is_answer()
        {
            *self.0.lock() = Some((error.clone(), clock::now()));
        }
        result
    }

    fn last_failure(&self) -> Option<(ObjectError, Instant)> {
        self.0.lock().clone()
    }
}
