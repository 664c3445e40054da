//! What tells caches on the way that objects of a file system are never replaced by something else.
//!
//! One that the bucket was sent and this machine did not hear of is sent again, from the spool or the log: the same bytes in the same places, as many as anything
//! refers to. Encrypted, they are others each time: a cache through which the second one did not pass may then mix both, which does not decrypt, and a read
//! that finds that asks the bucket itself, with which the cache forgets the object.

use std::sync::Arc;

use async_trait::async_trait;
use penstock_object::{Below, BodySink, GetOptions, Got, Key, ObjectResult, Store};

use super::ObjectId;

/// A store around one whose objects with the bytes of files each have one version for ever.
#[derive(Debug)]
struct Unchanging {
    below: Arc<dyn Store>,
}

/// `store`, which holds a file system and may have a disk cache: reads of its objects can be kept there, though they name
/// no version.
pub fn unchanging(store: Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(Unchanging { below: store })
}

#[async_trait]
impl Store for Unchanging {
    fn below(&self) -> Below<'_> {
        Below::Store(&*self.below)
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        let unchanging = ObjectId::of_key(key.as_str()).is_some();
        let options = GetOptions {
            unchanging,
            ..options
        };
        self.below.get(key, options, sink).await
    }
}
