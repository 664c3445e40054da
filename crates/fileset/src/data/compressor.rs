//! Compression of runs on their way into objects.
//!
//! A run is compressed grain by grain, off the threads that wait, and is stored as it is unless a grain becomes smaller
//! ([`Encoder`]). Frames are there beside the bytes that they are made of until their object is stored, and whoever has
//! them holds pending bytes already: so they have memory of their own, taken of the budget when the first run is
//! compressed. Whoever waits for it waits for PUTs alone. Where the budget has none left, runs are stored as they are.

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::{MemoryBudget, Mutex, Payload, Reservation, run_blocking};
use penstock_transfer::{Codec, Encoder};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::pack::{Packed, Run};
use crate::schema::{BLOCK_SIZE, Compression, Frames, GRAIN};

/// What memory for frames is counted in.
const UNIT: u64 = 64 << 10;
/// The part of the memory that is for frames.
const SHARE: u64 = 16;
/// Bytes of memory for frames: those of one object with an encoder at least.
const MEMORY_MIN: u64 = BLOCK_SIZE + Encoder::MEMORY;
const MEMORY_MAX: u64 = 64 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Compressor {
    budget: Arc<MemoryBudget>,
    /// What the budget gave, once it did.
    reserved: Mutex<Option<Reservation>>,
    /// In units.
    free: Semaphore,
    /// Bytes in all.
    memory: u64,
}

impl Compressor {
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> Self {
        let memory = (budget.total() / SHARE).clamp(MEMORY_MIN, MEMORY_MAX);
        Self {
            budget: Arc::clone(budget),
            reserved: Mutex::default(),
            free: Semaphore::new((memory / UNIT) as usize),
            memory,
        }
    }

    /// Runs as they are to be stored, of one object at most. What comes with them is held until they are.
    pub(super) async fn pack(&self, runs: &[Run]) -> (Vec<Packed>, Option<SemaphorePermit<'_>>) {
        let Some(mut memory) = self.memory_for(runs).await else {
            return (runs.iter().map(Packed::plain).collect(), None);
        };
        let packed = run_blocking(|| packed(runs));
        let frames = packed.iter().map(Packed::frame_bytes).sum();
        let spare = memory.num_permits().saturating_sub(units(frames));
        drop(memory.split(spare));
        (packed, Some(memory))
    }

    /// Memory for compressing runs, if any is to be compressed and there is some.
    async fn memory_for(&self, runs: &[Run]) -> Option<SemaphorePermit<'_>> {
        let wanted = runs
            .iter()
            .filter(|run| run.compression != Compression::None);
        let bytes: u64 = wanted.map(Run::length).sum();
        if bytes == 0 || !self.has_memory() {
            return None;
        }
        let units = units((bytes + Encoder::MEMORY).min(self.memory));
        // It is never closed.
        self.free.acquire_many(units as u32).await.ok()
    }

    fn has_memory(&self) -> bool {
        let mut reserved = self.reserved.lock();
        if reserved.is_none() {
            *reserved = self.budget.try_reserve(self.memory);
        }
        reserved.is_some()
    }
}

fn units(bytes: u64) -> usize {
    bytes.div_ceil(UNIT) as usize
}

fn packed(runs: &[Run]) -> Vec<Packed> {
    let mut ready: Option<(Compression, Codec, Encoder)> = None;
    let packed = runs.iter().map(|run| {
        if ready.as_ref().is_none_or(|(of, ..)| *of != run.compression) {
            ready = encoder(run.compression).map(|(codec, made)| (run.compression, codec, made));
        }
        let framed = ready.as_mut().and_then(|(_, codec, encoder)| {
            let (lengths, bytes) = framed(run, encoder)?;
            let codec = *codec;
            Some((Frames { codec, lengths }, bytes))
        });
        match framed {
            Some(framed) => Packed::compressed(run, framed),
            None => Packed::plain(run),
        }
    });
    packed.collect()
}

/// What makes frames as a setting says. Where there is no memory for it nothing is compressed.
fn encoder(compression: Compression) -> Option<(Codec, Encoder)> {
    match compression {
        Compression::None => None,
        Compression::Lz4 => Some((Codec::Lz4, Encoder::lz4())),
        Compression::Zstd(level) => Some((Codec::Zstd, Encoder::zstd(level).ok()?)),
    }
}

/// The frames of a run with their lengths; `None` if no grain becomes smaller.
fn framed(run: &Run, encoder: &mut Encoder) -> Option<(Vec<u32>, Vec<Bytes>)> {
    let (mut lengths, mut bytes) = (Vec::new(), Vec::new());
    let (mut joined, mut is_smaller) = (Vec::new(), false);
    let plain = run.payload();
    for start in (0..run.length()).step_by(GRAIN as usize) {
        let grain = plain.slice(&(start..run.length().min(start + u64::from(GRAIN))));
        match encoder.encode(contiguous(&grain, &mut joined)) {
            Some(frame) => {
                is_smaller = true;
                lengths.push(frame.len() as u32);
                bytes.push(Bytes::copy_from_slice(frame));
            }
            None => {
                lengths.push(grain.len() as u32);
                bytes.extend(grain.slices().iter().cloned());
            }
        }
    }
    is_smaller.then_some((lengths, bytes))
}

/// The bytes of a grain in one piece.
fn contiguous<'a>(grain: &'a Payload, joined: &'a mut Vec<u8>) -> &'a [u8] {
    if let [only] = grain.slices() {
        return only;
    }
    joined.clear();
    let slices = grain.slices().iter();
    slices.for_each(|slice| joined.extend_from_slice(slice));
    joined
}

#[cfg(test)]
mod tests {
    use penstock_base::MIB;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        data::{ObjectId, Piece, grains::open, pack::runs},
        schema::Stored,
    };

    const ID: ObjectId = ObjectId {
        writer: 1,
        number: 2,
    };

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1u64;
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..length).map(next).collect()
    }

    fn run(bytes: Vec<u8>, compression: Compression) -> Run {
        let bytes = bytes.into();
        runs(vec![Piece { offset: 0, bytes }], compression).remove(0)
    }

    fn stored(packed: &Packed) -> (Stored, Payload) {
        let stored = packed.extent((ID, 0), 7).stored;
        (stored, packed.payload())
    }

    fn plain(stored: &Stored, received: &Payload) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let all = 0..stored.checksums.len();
        let mut take = |grain: &[u8]| bytes.extend_from_slice(grain);
        let is_right = open(stored, all, received, &mut take);
        is_right.then_some(bytes)
    }

    fn settings() -> impl Strategy<Value = Compression> {
        prop_oneof![
            Just(Compression::None),
            Just(Compression::Lz4),
            (1u8..6).prop_map(Compression::Zstd)
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn what_is_packed_is_opened_and_what_is_damaged_is_not(
            parts in prop::collection::vec((1usize..200_000, any::<bool>()), 1..5),
            pieces in 1usize..9,
            compression in settings(),
            damage in (any::<u32>(), 1u8..),
        ) {
            let mut bytes = Vec::new();
            for (length, is_noise) in parts {
                match is_noise {
                    true => bytes.extend(noise(length)),
                    false => bytes.extend((0..length).map(|at| (at / 100) as u8)),
                }
            }
            let whole = Bytes::from(bytes.clone());
            let size = bytes.len().div_ceil(pieces);
            let pieces = (0..bytes.len()).step_by(size).map(|at| Piece {
                offset: at as u64,
                bytes: whole.slice(at..bytes.len().min(at + size)),
            });
            let run = runs(pieces.collect(), compression).remove(0);
            let packed = packed(&[run]).remove(0);
            let (stored, lies) = stored(&packed);
            prop_assert_eq!(stored.stored_length() as usize, lies.len());
            prop_assert!(lies.len() <= bytes.len());
            prop_assert!(plain(&stored, &lies).is_some_and(|opened| opened == bytes));
            let mut damaged = lies.to_vec();
            let at = damage.0 as usize % damaged.len();
            damaged[at] ^= damage.1;
            // A frame can say the same in two ways.
            prop_assert!(plain(&stored, &damaged.into()).is_none_or(|opened| opened == bytes));
            prop_assert!(plain(&stored, &lies.slice(&(0..lies.len() as u64 - 1))).is_none());
        }
    }

    #[test]
    fn only_grains_that_become_smaller_are_compressed() {
        let grain = GRAIN as usize;
        let mixed = [vec![7; grain], noise(grain), vec![8; 10]].concat();
        for compression in [Compression::Lz4, Compression::Zstd(3)] {
            let packed = packed(&[
                run(mixed.clone(), compression),
                run(noise(3 * grain), compression),
                run(vec![0; 100], Compression::None),
            ]);
            let frames = packed.iter().map(|packed| stored(packed).0.frames);
            let frames: Vec<_> = frames.collect();
            let lengths = &frames[0].as_ref().expect("it becomes smaller").lengths;
            assert!(lengths[0] < 2000 && lengths[1] == GRAIN, "{lengths:?}");
            assert_eq!(frames[1..], [None, None]);
        }
    }

    #[tokio::test]
    async fn frames_have_memory_and_without_any_runs_are_stored_as_they_are() {
        let budget = MemoryBudget::new(256 * MIB);
        let compressor = Compressor::new(&budget);
        let four = [(); 4].map(|()| run(vec![1; 1 << 20], Compression::Lz4));
        let (packed, memory) = compressor.pack(&four).await;
        assert_eq!(budget.used(), 16 * MIB);
        assert!(packed.iter().all(|packed| packed.frame_bytes() > 0));
        let held = memory.expect("it is compressed").num_permits() as u64 * UNIT;
        assert!((UNIT..MIB).contains(&held), "{held}");
        assert_eq!(compressor.free.available_permits() as u64 * UNIT, 16 * MIB);
        let budget = MemoryBudget::new(4 * MIB);
        let compressor = Compressor::new(&budget);
        let (packed, memory) = compressor.pack(&four).await;
        assert!(memory.is_none() && budget.used() == 0);
        assert!(packed.iter().all(|packed| packed.frame_bytes() == 0));
    }
}
