//! The layer of a cache below what it passes on: what is written or removed, or may have been, is forgotten.

use std::{fmt::Debug, sync::Arc};

use penstock_object::{
    Key, ObjectResult, Store,
    layers::{Around, Call, Layer, Work},
};

/// Keeps something of objects.
pub(crate) trait Forgets: Debug + Send + Sync {
    /// Drops all of `key`.
    fn forget(&self, key: &Key);
}

/// Makes a cache forget.
#[derive(Debug)]
pub(crate) struct Forgetting<C>(Arc<C>);

impl<C: Forgets> Forgetting<C> {
    /// `inner`, whose changes `cache` hears of.
    pub(crate) fn around(inner: Arc<dyn Store>, cache: Arc<C>) -> Layer<Self> {
        Layer::of(inner, Self(cache))
    }
}

impl<C: Forgets> Around for Forgetting<C> {
    async fn around<T: Send>(&self, call: &Call<'_>, work: Work<'_, T>) -> ObjectResult<T> {
        let done = work.await;
        call.changed().for_each(|key| self.0.forget(key));
        done
    }
}
