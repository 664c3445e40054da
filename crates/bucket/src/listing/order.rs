//! Whether a store lists keys in order.
//!
//! Pages are merged, searched and continued in the belief that keys ascend. A store that lists them
//! otherwise would have entries shown twice, hidden wrongly or left out, so it is refused.

use penstock_base::{FsError, FsResult};

use crate::mount::Mount;

const NO_ORDER: FsError = FsError::Unsupported(
    "the store lists keys in no order, as directory buckets of S3 Express do; use a general \
     purpose bucket",
);

impl Mount {
    /// Fails unless `keys` ascend and come after `last`, the last key of the page before.
    pub(crate) fn check_order<'key>(
        &self,
        last: Option<&'key str>,
        keys: impl Iterator<Item = &'key str>,
    ) -> FsResult<()> {
        if last
            .into_iter()
            .chain(keys)
            .is_sorted_by(|one, next| one < next)
        {
            return Ok(());
        }
        if self.notices.unordered.first() {
            tracing::error!("refused to list: {NO_ORDER}");
        }
        Err(NO_ORDER)
    }
}
