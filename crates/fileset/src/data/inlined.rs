//! Small runs that are with the metadata until an object of many of them is in the bucket.
//!
//! ```text
//!  small runs ──► the open object ([`super::unsent`]): keys `d`, put by the operation that refers to them
//!       │                                   │
//!       │                                   └──► sealed ──► one PUT ──► one operation removes its keys
//!       └──► the log, which goes to the bucket: one PUT for bytes and metadata of all who wait
//! ```
//!
//! With `durability=store` a close waits for the log in the bucket. If its bytes had an object of their own it waited for two
//! requests, one after the other, and each small file were an object for ever. Here the log has both, and what it has is
//! brought together behind it: it goes to the bucket twice, so that only what is small goes this way.
//!
//! | what | rule |
//! |---|---|
//! | how much | runs of a save that are [`SAVE_MAX`] bytes together; [`INLINED_MAX`] bytes in all, past which a save stores an object at once |
//! | order | one operation puts bytes and what refers to them: neither is there without the other, after any crash, on any machine |
//! | reading | it is the [`Store`] that the volume reads through; keys go only once the bucket has their object |
//! | removal | an object that no file needs any more is dropped without a request, unless it was sent before |
//! | deletion | passes by: who deletes is who found that nobody needs an object, of which a kill may have left keys |
//! | a crash | whoever opens the file system next, on whatever machine, finds the keys, and all objects sealed |
//! | damage | a key that cannot be read is passed over: what it had is missing, and a run that lacks a byte does not match its checksums |

use std::{collections::BTreeMap, fmt, ops::ControlFlow, ops::Range, sync::Arc};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use penstock_base::{FsError, FsResult};
use penstock_object::{
    AtHand, Below, BodySink, ByteRange, ETag, ErrorKind, GetOptions, Got, Key, ObjectError,
    ObjectResult, Operation, Store,
};

use super::{
    ObjectId,
    unsent::{Due, Limits, Slot, Unsent, beyond, info},
};
use crate::{
    engine::{Engine, Reads, query},
    schema::{self, BLOCK_SIZE, kind},
};

/// Bytes of a save at most: about what is sent in the time that a request takes without them, where it takes a few
/// milliseconds.
pub(super) const SAVE_MAX: u64 = 64 << 10;
/// Bytes of all objects that are here at most: one that is filled, and one that is on its way.
const INLINED_MAX: u64 = 2 * BLOCK_SIZE;
/// Runs in an object: one operation removes the keys of all.
const RUNS_MAX: usize = 4096;
const LIMITS: Limits = Limits {
    bytes: INLINED_MAX,
    runs: RUNS_MAX,
};

/// See the module.
pub struct Inlined {
    engine: Arc<dyn Engine>,
    below: Arc<dyn Store>,
    unsent: Unsent,
}

/// Bytes that an operation puts beside what refers to them.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    /// The key, which says which object has them, and where.
    pub(crate) key: Bytes,
    pub(crate) bytes: Bytes,
}

impl Inlined {
    /// What is with the metadata in `engine`, before the bucket `below`. What an earlier process left is brought there by
    /// the volume that is opened with it.
    pub async fn open(engine: Arc<dyn Engine>, below: Arc<dyn Store>) -> FsResult<Arc<Self>> {
        let found = query(&*engine, |reads| objects(reads)).await?;
        Ok(Arc::new(Self {
            engine,
            below,
            unsent: Unsent::new(LIMITS, found),
        }))
    }

    pub(crate) fn unsent(&self) -> &Unsent {
        &self.unsent
    }

    /// Whether a save of so many bytes goes this way.
    pub(super) fn takes(&self, bytes: u64) -> bool {
        bytes <= SAVE_MAX && self.has_room(bytes)
    }

    /// Whether there is room for so many bytes.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.unsent.has_room(bytes)
    }

    /// A place for a run in the open object, for which `new` makes up a name if there is none.
    pub(super) fn take(&self, length: u32, new: impl FnOnce() -> ObjectId) -> Slot<'_> {
        let taken = self.unsent.take(length, || Ok(new()));
        let Ok(slot) = taken.map_err(|never: std::convert::Infallible| never);
        slot
    }

    /// All bytes of an object, with nothing where a save failed.
    pub(crate) async fn read(&self, due: &Due) -> FsResult<Bytes> {
        let range = 0..u64::from(due.length);
        let found = self.find(due.object, &range).await?;
        found.ok_or_else(|| schema::damaged("the content of an object"))
    }

    /// The bytes of a range, if the keys have any of them: then they have all that anything refers to.
    async fn find(&self, object: ObjectId, range: &Range<u64>) -> FsResult<Option<Bytes>> {
        query(&*self.engine, |reads| bytes_in(reads, object, range)).await
    }

    /// The metadata has no byte of it any more: the bucket has it, or no file needs it.
    pub(crate) fn gone(&self, object: ObjectId) {
        self.unsent.gone(object);
    }
}

/// The objects of which there are bytes, with their lengths. A key that does not say of which keeps none of the others: what
/// it had is missed by who reads it.
fn objects(reads: &dyn Reads) -> FsResult<BTreeMap<ObjectId, u32>> {
    let (mut found, mut damaged) = (BTreeMap::new(), 0_u64);
    let range = &[kind::CONTENT][..]..&[kind::CONTENT + 1][..];
    reads.scan(range, &mut |key, bytes| {
        match schema::content_in(key, bytes) {
            Ok((object, range)) => {
                let length: &mut u32 = found.entry(object).or_default();
                *length = range.end.max(*length);
            }
            Err(_) => damaged += 1,
        }
        ControlFlow::Continue(())
    })?;
    if damaged > 0 {
        tracing::error!(
            keys = damaged,
            "bytes that no object in the bucket has are lost: see `penstock fileset check`"
        );
    }
    Ok(found)
}

fn bytes_in(reads: &dyn Reads, object: ObjectId, range: &Range<u64>) -> FsResult<Option<Bytes>> {
    let within = |place: u64| place.min(u64::from(u32::MAX)) as u32;
    // A run that begins before the range may reach into it.
    let first = schema::content(object, within(range.start.saturating_sub(SAVE_MAX)));
    let end = schema::content(object, within(range.end));
    let mut bytes = BytesMut::zeroed((range.end - range.start) as usize);
    let mut has_any = false;
    reads.scan(&first..&end, &mut |key, run| {
        let Ok((_, lies)) = schema::content_in(key, run) else {
            return ControlFlow::Continue(());
        };
        let offset = u64::from(lies.start);
        let (start, behind) = (offset.max(range.start), u64::from(lies.end).min(range.end));
        if start < behind {
            has_any = true;
            let part = &run[(start - offset) as usize..(behind - offset) as usize];
            let at = (start - range.start) as usize;
            bytes[at..at + part.len()].copy_from_slice(part);
        }
        ControlFlow::Continue(())
    })?;
    Ok(has_any.then(|| bytes.freeze()))
}

impl fmt::Debug for Inlined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inlined")
            .field("unsent", &self.unsent.waiting())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Inlined {
    fn below(&self) -> Below<'_> {
        Below::Store(&*self.below)
    }

    fn at_hand(&self, key: &Key, range: &ByteRange, if_match: Option<&ETag>) -> Option<AtHand> {
        self.below.at_hand(key, range, if_match)
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        let object = ObjectId::of_key(key.as_str());
        let here = object.and_then(|object| Some((object, self.unsent.length(object)?)));
        let Some((object, length)) = here else {
            return self.below.get(key, options, sink).await;
        };
        let length = u64::from(length);
        let range = options.range.clone().unwrap_or(0..length);
        if range.start >= length {
            return Err(beyond(key, length));
        }
        let range = range.start..range.end.min(length);
        let found = self.find(object, &range).await;
        let Some(bytes) = found.map_err(|error| failure(&error).about(key))? else {
            // The bucket got it since.
            return self.below.get(key, options, sink).await;
        };
        let mut got = Got {
            info: info(length),
            range,
        };
        sink.begin(&got);
        got.range.end = got.range.start + sink.copy_from(&bytes) as u64;
        Ok(got)
    }
}

fn failure(error: &FsError) -> ObjectError {
    ObjectError::new(ErrorKind::Unavailable, Operation::Get, error.to_string())
}

#[cfg(test)]
mod tests {
    use penstock_object_testing::MemoryStore;

    use super::*;
    use crate::{
        data::key,
        engine::{MemoryEngine, transact},
    };

    const ID: ObjectId = ObjectId {
        writer: 1,
        number: 2,
    };

    /// With these runs of one object.
    async fn inlined(runs: &[(u32, Vec<u8>)]) -> Arc<Inlined> {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        let runs = runs.to_vec();
        let put = move |transaction: &mut dyn crate::engine::Transaction| {
            for (offset, bytes) in &runs {
                let bytes = Bytes::copy_from_slice(bytes);
                transaction.put(&schema::content(ID, *offset), bytes);
            }
            Ok::<_, FsError>(())
        };
        transact(&*engine, put).await.expect("there is room");
        let opened = Inlined::open(engine, Arc::new(MemoryStore::new())).await;
        opened.expect("its keys are sound")
    }

    #[tokio::test]
    async fn any_range_of_an_object_is_read_and_nothing_lies_where_a_save_failed() {
        let long = SAVE_MAX as usize;
        let object = [vec![1; long], vec![0; 100], vec![2; 10], vec![3; 20]].concat();
        let runs = [
            (0, 0..long),
            (long + 100, long + 100..long + 110),
            (long + 110, long + 110..long + 130),
        ];
        let runs = runs.map(|(offset, range)| (offset as u32, object[range].to_vec()));
        let inlined = inlined(&runs).await;
        assert_eq!(inlined.unsent().waiting(), (object.len() as u64, 1));
        let key = key(ID).expect("it is one");
        for (start, end) in [
            (0, 1),
            (long - 1, long),
            (1, long),
            (7, long + 130),
            (long + 105, long + 115),
            (long + 115, long + 500),
        ] {
            let options = GetOptions {
                range: Some(start as u64..end as u64),
                ..GetOptions::default()
            };
            let mut bytes = Vec::with_capacity(object.len());
            let got = inlined.get(&key, options, &mut bytes).await;
            got.expect("it is here");
            assert!(
                bytes == object[start..end.min(object.len())],
                "{start}..{end}"
            );
        }
    }

    #[tokio::test]
    async fn one_operation_removes_the_keys_of_an_object() {
        let inlined = inlined(&[]).await;
        let taken = |number| inlined.take(1, || ObjectId { number, ..ID }).object.number;
        assert!((0..RUNS_MAX as u64).all(|number| taken(number) == 0));
        assert_eq!(taken(7), 7, "the next one is another object");
    }
}
