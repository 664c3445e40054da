//! Mounting.

use std::sync::Arc;

use penstock_base::{BufferPool, metrics::Registry};

use crate::{
    failure::{Failure, Outcome},
    serve::{Opened, Plan},
};

/// Builds or finds the index of the path and mounts it.
pub(crate) async fn open(
    _plan: &Plan,
    _pool: &Arc<BufferPool>,
    _registry: &Arc<Registry>,
) -> Outcome<Opened> {
    Err(Failure::new("not yet", "wait"))
}
