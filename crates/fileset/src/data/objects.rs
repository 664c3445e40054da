//! The objects of a file system in its bucket.
//!
//! Between its PUT and the operation that refers to it an object is *uncommitted*: nothing in the metadata says that it
//! is needed, or one of the files in it came and went already while others are on their way. Who stores something
//! holds an [`Uncommitted`] until its operation is made, and nobody deletes what is held. Who wants to delete asks
//! [`Objects::uncommitted`] *before* it looks at the metadata: an object that is not held then is referred to by
//! then, or never will be: who copies refers to what a chunk shows, and that has a use. Younger objects are held in that answer, too: one of the files in such an object can come and go
//! before the look, and another one come behind it. That is so of objects that nobody adds to: one that
//! the bucket does not have yet must be sealed before ([`super::Unsent::due`]), and is left to who uploads.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use penstock_base::{FsError, FsResult, Mutex, Payload, Reservation, random, run_blocking};
use penstock_object::{DELETE_MANY_MAX, ETag, Key, PutOptions};
use penstock_transfer::{Frames, Grains, ObjectVersion, Transfer};

use super::{
    Ahead, Content, Inlined, ObjectId, Spool, UNKNOWN_LENGTH,
    compressor::Compressor,
    pack::{Pack, Packed, Run},
};
use crate::{
    errors::{object_failure, transfer_failure},
    schema::{self, Extent, GRAIN, Stored, damaged},
};

/// Objects that are held, and by how many.
type Held = Arc<Mutex<HashMap<ObjectId, usize>>>;

/// Objects that must not be deleted whatever the metadata says.
#[derive(Debug)]
pub(crate) struct UnderWay {
    held: HashSet<ObjectId>,
    writer: u64,
    /// The last object that there was.
    last: u64,
}

impl UnderWay {
    /// Whether an object is one of them. One that is younger than the answer is.
    pub(crate) fn contains(&self, object: &ObjectId) -> bool {
        self.held.contains(object) || object.writer == self.writer && object.number > self.last
    }
}

/// An object to which the metadata does not refer yet. It is not deleted as long as somebody has this.
#[derive(Debug)]
pub(crate) struct Uncommitted {
    object: ObjectId,
    held: Held,
}

impl Drop for Uncommitted {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        if let Some(holders) = held.get_mut(&self.object) {
            *holders -= 1;
            if *holders == 0 {
                held.remove(&self.object);
            }
        }
    }
}

/// A run that is in the bucket, or on its way there.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) chunk: u64,
    pub(crate) extent: Extent,
    /// What the operation that refers to it has to put.
    pub(crate) content: Option<Content>,
    /// Until the metadata refers to it.
    pub(super) _object: Arc<Uncommitted>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Objects {
    transfer: Arc<Transfer>,
    /// Where small runs wait for the bucket, if they do.
    ahead: Option<Ahead>,
    compressor: Compressor,
    writer: u64,
    last: AtomicU64,
    held: Held,
}

impl Objects {
    /// The objects behind `transfer`; new ones are those of a new writer.
    pub(crate) fn new(transfer: Arc<Transfer>) -> Self {
        Self::with_ahead(transfer, None)
    }

    /// The same, with what waits for the bucket, through which `transfer` reads.
    pub(crate) fn with_ahead(transfer: Arc<Transfer>, ahead: Option<Ahead>) -> Self {
        Self {
            compressor: Compressor::new(transfer.pool().budget()),
            transfer,
            ahead,
            writer: random::number(),
            last: AtomicU64::new(0),
            held: Held::default(),
        }
    }

    /// Stores runs as an object, and returns where they are.
    pub(super) async fn put(&self, runs: &[Run]) -> FsResult<Vec<Placed>> {
        let (packed, _memory) = self.compressor.pack(runs).await;
        let pack = Pack::new(packed);
        let object = self.new_object();
        let extents = pack.extents(object.object);
        let store = self.transfer.store();
        store
            .put(&key(object.object)?, pack.payload(), PutOptions::default())
            .await
            .map_err(|error| object_failure(&error))?;
        let object = Arc::new(object);
        let placed = extents.into_iter().map(|(chunk, extent)| Placed {
            chunk,
            extent,
            content: None,
            _object: Arc::clone(&object),
        });
        Ok(placed.collect())
    }

    /// Puts a run into the spool, which the bucket gets later. Waits for room at most as long as `patience`.
    pub(super) async fn spool(
        &self,
        spool: &Spool,
        (run, patience): (&Run, Duration),
    ) -> FsResult<Placed> {
        // Who waits for the bucket holds no memory for frames.
        spool.room(run.length(), patience).await?;
        let (packed, _memory) = self.compressor.pack(std::slice::from_ref(run)).await;
        let [run] = &packed[..] else {
            return Err(FsError::Io("a run was lost".to_owned()));
        };
        let wanted = (run.stored_length(), patience);
        let mut slot = spool.take(wanted, || self.new_id()).await?;
        // Before the slot goes: from then on the object can be uploaded, unless somebody holds it.
        let object = self.hold(slot.object());
        let written = run_blocking(|| slot.write(run));
        written.map_err(|error| FsError::Io(error.to_string()))?;
        Ok(Placed {
            chunk: run.chunk(),
            extent: run.extent((slot.object(), UNKNOWN_LENGTH), slot.offset()),
            content: None,
            _object: Arc::new(object),
        })
    }

    /// Gives runs of a save places in an object that is with the metadata, if there is room. Who saves puts their content
    /// there.
    pub(super) async fn inline(&self, inlined: &Inlined, runs: &[Run]) -> Option<Vec<Placed>> {
        let (packed, _memory) = self.compressor.pack(runs).await;
        let lengths = packed.iter().map(|run| u64::from(run.stored_length()));
        // Others took it while this one waited for memory.
        let has_room = inlined.has_room(lengths.sum());
        let placed = packed.iter().map(|run| self.inline_one(inlined, run));
        has_room.then(|| placed.collect())
    }

    fn inline_one(&self, inlined: &Inlined, run: &Packed) -> Placed {
        let length = run.stored_length();
        let mut slot = inlined.take(length, || self.new_id());
        // Before the slot goes, as in the spool.
        let object = self.hold(slot.object);
        slot.written(slot.offset + length);
        Placed {
            chunk: run.chunk(),
            extent: run.extent((slot.object, UNKNOWN_LENGTH), slot.offset),
            content: Some(Content {
                key: schema::content(slot.object, slot.offset).freeze(),
                bytes: run.whole(),
            }),
            _object: Arc::new(object),
        }
    }

    fn new_object(&self) -> Uncommitted {
        // Whoever asks what is held hears of a number or of its object.
        let mut held = self.held.lock();
        let object = self.new_id();
        held.insert(object, 1);
        self.uncommitted_object(object)
    }

    fn new_id(&self) -> ObjectId {
        ObjectId {
            writer: self.writer,
            number: self.last.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }

    /// Who stores new objects.
    pub(crate) fn writer(&self) -> u64 {
        self.writer
    }

    /// Keeps an object from being deleted.
    pub(crate) fn hold(&self, object: ObjectId) -> Uncommitted {
        *self.held.lock().entry(object).or_default() += 1;
        self.uncommitted_object(object)
    }

    fn uncommitted_object(&self, object: ObjectId) -> Uncommitted {
        Uncommitted {
            object,
            held: Arc::clone(&self.held),
        }
    }

    /// Objects that must not be deleted whatever the metadata says. Asked for before looking there.
    pub(crate) fn uncommitted(&self) -> UnderWay {
        let held = self.held.lock();
        UnderWay {
            held: held.keys().copied().collect(),
            writer: self.writer,
            last: self.last.load(Ordering::Relaxed),
        }
    }

    /// Those of them that there are.
    pub(crate) fn held(&self) -> HashSet<ObjectId> {
        self.uncommitted().held
    }

    /// Receives a range of the object that has a run.
    pub(crate) async fn fetch(&self, stored: &Stored, range: Range<u32>) -> FsResult<Payload> {
        let (version, memory) = self.means(stored, &range).await?;
        let fetched = self.transfer.fetch(version, wide(&range), memory);
        fetched.await.map_err(|error| transfer_failure(&error))
    }

    /// The same from the bucket itself, where what caches on the way have was damaged.
    pub(crate) async fn fetch_anew(&self, stored: &Stored, range: Range<u32>) -> FsResult<Payload> {
        let (version, memory) = self.means(stored, &range).await?;
        let fetched = self.transfer.fetch_anew(version, wide(&range), memory);
        fetched.await.map_err(|error| transfer_failure(&error))
    }

    async fn means(
        &self,
        stored: &Stored,
        range: &Range<u32>,
    ) -> FsResult<(ObjectVersion, Reservation)> {
        let length = u64::from(range.end - range.start);
        let memory = self.transfer.read_memory(Transfer::cost(length)).await;
        let memory = memory.map_err(|error| transfer_failure(&error))?;
        Ok((version(stored)?, memory))
    }

    /// Deletes objects. Those that could not be are returned.
    pub(crate) async fn delete(&self, objects: &[ObjectId]) -> FsResult<Vec<ObjectId>> {
        let mut kept = Vec::new();
        for some in objects.chunks(DELETE_MANY_MAX) {
            let keys = some.iter().map(|object| key(*object));
            let keys = keys.collect::<FsResult<Vec<_>>>()?;
            let failed = self.transfer.store().delete_many(&keys).await;
            let failed = failed.map_err(|error| object_failure(&error))?;
            kept.extend(
                failed
                    .iter()
                    .filter_map(|one| ObjectId::of_key(one.key.as_str())),
            );
        }
        Ok(kept)
    }

    /// Whether an object waits for the bucket: who uploads finds that no file needs it ([`crate::uploads`]).
    pub(crate) fn is_ahead(&self, object: ObjectId) -> bool {
        let ahead = self.ahead.as_ref();
        ahead.is_some_and(|ahead| ahead.unsent().takes_care_of(object))
    }

    /// Where small runs wait for the bucket, if they do.
    pub(crate) fn ahead(&self) -> Option<&Ahead> {
        self.ahead.as_ref()
    }

    /// Whether they wait on this disk.
    pub(crate) fn is_spooled(&self) -> bool {
        matches!(self.ahead, Some(Ahead::Spool(_)))
    }

    /// Bytes and objects that are on this disk and not in the bucket yet.
    pub(crate) fn on_disk_alone(&self) -> (u64, u64) {
        match &self.ahead {
            Some(Ahead::Spool(spool)) => spool.waiting(),
            _ => (0, 0),
        }
    }

    /// The same of those that are with the metadata.
    pub(crate) fn inlined(&self) -> (u64, u64) {
        match &self.ahead {
            Some(Ahead::Inlined(inlined)) => inlined.unsent().waiting(),
            _ => (0, 0),
        }
    }

    /// The way to the bucket.
    pub(crate) fn transfer(&self) -> &Arc<Transfer> {
        &self.transfer
    }
}

fn wide(range: &Range<u32>) -> Range<u64> {
    range.start.into()..range.end.into()
}

/// Where the bytes of an extent lie, which begin at `offset` of their file, and what they are compared with.
pub(crate) fn saved_extent(offset: u64, extent: &Extent) -> FsResult<penstock_transfer::Extent> {
    let stored = &extent.stored;
    let end = extent.skip.checked_add(extent.length);
    if extent.length == 0 || end.is_none_or(|end| end > stored.length) {
        return Err(damaged("an extent"));
    }
    let run = u64::from(stored.offset);
    Ok(penstock_transfer::Extent {
        range: offset..offset + u64::from(extent.length),
        object: Arc::new(version(stored)?),
        at: run + u64::from(extent.skip),
        grains: Some(Grains {
            run: run..run + u64::from(stored.length),
            size: u64::from(GRAIN),
            checksums: stored.checksums.as_slice().into(),
            frames: stored.frames.as_ref().map(|frames| Frames {
                codec: frames.codec,
                lengths: frames.lengths.as_slice().into(),
            }),
        }),
    })
}

/// Objects are never changed: no tag is needed to know which version it is.
fn version(stored: &Stored) -> FsResult<ObjectVersion> {
    Ok(ObjectVersion {
        key: key(stored.object)?,
        etag: ETag::new(""),
        size: match stored.object_length {
            UNKNOWN_LENGTH => ObjectVersion::ANY_SIZE,
            length => u64::from(length),
        },
    })
}

/// The key of an object.
pub(crate) fn key(object: ObjectId) -> FsResult<Key> {
    Key::new(object.key()).map_err(|_| FsError::NameTooLong)
}
