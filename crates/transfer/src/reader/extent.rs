//! A file whose bytes lie in several objects.

use std::{ops::Range, sync::Arc};

use super::stream::part_end;
use crate::{Codec, ObjectVersion, cache::BLOCK as CACHE_BLOCK, memory};

/// Bytes of a file that lie one behind the other in one object, which is never changed.
#[derive(Debug, Clone)]
pub struct Extent {
    /// Which bytes of the file; not empty.
    pub range: Range<u64>,
    /// The object that has them.
    pub object: Arc<ObjectVersion>,
    /// Where in the object the first of them lies. In a compressed run places go by plain bytes: see [`Grains::run`].
    pub at: u64,
    /// What they are compared with when they arrive.
    pub grains: Option<Grains>,
}

/// Checksums of a run of bytes of an object. A grain arrives whole, whatever is wanted of it, and none of its bytes
/// is shown before they were compared.
#[derive(Debug, Clone)]
pub struct Grains {
    /// Which bytes of the object; the extent lies within. A compressed run begins where its first frame does and is as
    /// long as its plain bytes, so places in it are its own: they mean nothing for other runs of the object.
    pub run: Range<u64>,
    /// Bytes of each grain, counted from the beginning of the run; the last one may be shorter. Not 0.
    pub size: u64,
    /// The CRC-32C of each grain's plain bytes.
    pub checksums: Arc<[u32]>,
    /// How the grains lie in the object, if they are compressed.
    pub frames: Option<Frames>,
}

/// Grains of a run that are compressed, each by itself, one behind the other.
#[derive(Debug, Clone)]
pub struct Frames {
    /// How.
    pub codec: Codec,
    /// Bytes that each grain takes in the object, at least 1 and at most as many as it has. One that takes as many as it has
    /// lies there as it is.
    pub lengths: Arc<[u32]>,
}

impl Extent {
    /// What is in `range` of it, if anything.
    pub(super) fn part(&self, range: &Range<u64>) -> Option<Self> {
        let start = self.range.start.max(range.start);
        let end = self.range.end.min(range.end);
        (start < end).then(|| Self {
            range: start..end,
            object: Arc::clone(&self.object),
            at: self.place(start),
            grains: self.grains.clone(),
        })
    }

    /// Where in the object a byte of the file lies.
    pub(super) fn place(&self, offset: u64) -> u64 {
        self.at + (offset - self.range.start)
    }

    /// Whether the byte of the file at `offset` is the same byte of the same object as with another extent.
    pub(super) fn shows_the_same_as(&self, other: &Self, offset: u64) -> bool {
        let run = |extent: &Self| extent.grains.as_ref().map(|grains| grains.run.start);
        self.object.key == other.object.key
            && run(self) == run(other)
            && self.place(offset) == other.place(offset)
    }

    /// What arrives of the object for `range` of the file: grains are not divided, and neither are objects without
    /// grains of up to `whole_max` bytes.
    pub(super) fn received(&self, range: &Range<u64>, whole_max: u64) -> Range<u64> {
        let wanted = self.place(range.start)..self.place(range.end);
        match &self.grains {
            Some(grains) => grains.around(&wanted),
            None if self.object.size <= whole_max => 0..self.object.size,
            None => wanted,
        }
    }

    /// Bytes of the budget that receiving `range` of the file takes.
    pub(super) fn cost(&self, range: &Range<u64>, whole_max: u64) -> u64 {
        let received = self.received(range, whole_max);
        let unpacking = self.grains.as_ref().map_or(0, Grains::unpacking_cost);
        memory::cost(received.end - received.start) + unpacking
    }

    /// The bytes of the file that arrive with those of `range`.
    pub(super) fn widened(&self, range: &Range<u64>, whole_max: u64) -> Range<u64> {
        let received = self.received(range, whole_max);
        let before = self.place(range.start) - received.start;
        let behind = received.end - self.place(range.end);
        let start = range.start.saturating_sub(before).max(self.range.start);
        start..self.range.end.min(range.end + behind)
    }

    /// Where a part ends that has `wanted`, and about `length` bytes if that is more.
    pub(super) fn part_end(&self, wanted: &Range<u64>, length: u64) -> u64 {
        let (origin, unit) = match &self.grains {
            Some(grains) => (grains.run.start, grains.size),
            None => (0, CACHE_BLOCK),
        };
        let place = |offset| self.place(offset).saturating_sub(origin);
        let start = place(wanted.start);
        let end = part_end(&(start..place(wanted.end)), length, unit);
        let end = wanted.start.saturating_add(end - start);
        // What would be left is not worth a request of its own.
        let rest = self.range.end.saturating_sub(end);
        match rest <= (end - wanted.start) / 2 {
            true => self.range.end,
            false => end,
        }
    }
}

impl Grains {
    /// The grains that have the bytes `range` of the object.
    fn around(&self, range: &Range<u64>) -> Range<u64> {
        let grain = |place: u64| place.saturating_sub(self.run.start) / self.size;
        let start = self.run.start + grain(range.start) * self.size;
        let end = self.run.start + (grain(range.end - 1) + 1) * self.size;
        start..end.min(self.run.end).max(range.end)
    }

    /// Which grains `received` is, which begins with one and ends with one.
    pub(super) fn indices(&self, received: &Range<u64>) -> Range<u64> {
        let within = |place: u64| place.saturating_sub(self.run.start);
        within(received.start) / self.size..within(received.end).div_ceil(self.size)
    }

    /// Bytes of a grain; 0 behind the run.
    pub(super) fn length(&self, index: u64) -> u64 {
        let length = self.run.end - self.run.start;
        length.saturating_sub(index * self.size).min(self.size)
    }

    /// Where in the object whole grains lie that have the places `received`.
    pub(super) fn stored(&self, received: &Range<u64>) -> Range<u64> {
        let Some(frames) = &self.frames else {
            return received.clone();
        };
        let indices = self.indices(received);
        let before = |index: u64| -> u64 {
            let lengths = frames.lengths.iter().take(index as usize);
            lengths.map(|length| u64::from(*length)).sum()
        };
        self.run.start + before(indices.start)..self.run.start + before(indices.end)
    }

    /// Bytes of the budget that unpacking takes while grains arrive: a frame, what becomes of it, and what a decoder needs.
    pub(super) fn unpacking_cost(&self) -> u64 {
        let largest = self.length(0);
        let frames = self.frames.as_ref();
        frames.map_or(0, |frames| 2 * largest + frames.codec.memory())
    }
}

#[cfg(test)]
mod tests {
    use penstock_base::KIB;
    use penstock_object::{ETag, Key};

    use super::*;

    /// 300 KiB of a run of 1000 KiB that begins 7 bytes into its object.
    fn extent() -> Extent {
        let object = ObjectVersion {
            key: Key::new("object").expect("valid"),
            etag: ETag::new(""),
            size: 2000 * KIB,
        };
        Extent {
            range: 1000..1000 + 300 * KIB,
            object: Arc::new(object),
            at: 7 + 200 * KIB,
            grains: Some(Grains {
                run: 7..7 + 1000 * KIB,
                size: 128 * KIB,
                checksums: [0; 8].into(),
                frames: None,
            }),
        }
    }

    #[test]
    fn grains_arrive_whole() {
        let extent = extent();
        let received = extent.received(&(1000..1001), 0);
        assert_eq!(received, 7 + 128 * KIB..7 + 256 * KIB);
        let widened = extent.widened(&(1000..1001), 0);
        assert_eq!(widened, 1000..1000 + 56 * KIB);
        let last = extent.range.end - 1..extent.range.end;
        assert_eq!(extent.received(&last, 0).end, 7 + 512 * KIB);
        assert_eq!(extent.widened(&last, 0).end, extent.range.end);
    }

    #[test]
    fn compressed_grains_are_received_as_their_frames_and_cost_what_unpacking_takes() {
        let mut extent = extent();
        let plain_cost = extent.cost(&(1000..1001), 0);
        let grains = extent.grains.as_mut().expect("it has grains");
        grains.frames = Some(Frames {
            codec: Codec::Zstd,
            lengths: [10, 20, 30, 40, 50, 60, 70, 80].into(),
        });
        let received = extent.received(&(1000..1000 + 100 * KIB), 0);
        assert_eq!(received, 7 + 128 * KIB..7 + 384 * KIB);
        let grains = extent.grains.as_ref().expect("it has grains");
        assert_eq!(grains.stored(&received), 7 + 10..7 + 10 + 20 + 30);
        let last = 7 + 896 * KIB..7 + 1000 * KIB;
        assert_eq!(grains.stored(&last), 7 + 280..7 + 360);
        let cost = extent.cost(&(1000..1001), 0);
        assert_eq!(cost - plain_cost, 2 * 128 * KIB + Codec::Zstd.memory());
    }

    #[test]
    fn the_last_grain_of_a_run_is_short() {
        let extent = Extent {
            at: 7 + 900 * KIB,
            range: 0..100 * KIB,
            ..extent()
        };
        let received = extent.received(&(99 * KIB..100 * KIB), 0);
        assert_eq!(received, 7 + 896 * KIB..7 + 1000 * KIB);
    }

    #[test]
    fn an_object_may_come_whole() {
        let extent = Extent {
            grains: None,
            ..extent()
        };
        assert_eq!(extent.received(&(1000..1001), u64::MAX), 0..2000 * KIB);
        assert_eq!(extent.widened(&(1000..1001), u64::MAX), extent.range);
        assert_eq!(extent.widened(&(1000..1001), 0), 1000..1001);
    }

    #[test]
    fn parts_end_where_grains_do() {
        let extent = extent();
        assert_eq!(extent.part_end(&(1000..1001), 1), 1000 + 56 * KIB);
        let end = extent.part_end(&(1000..1001), 200 * KIB);
        assert_eq!(end, 1000 + (384 - 200) * KIB);
        assert_eq!(extent.part_end(&(1000..1001), u64::MAX), extent.range.end);
    }
}
