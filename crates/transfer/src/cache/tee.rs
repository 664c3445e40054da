//! A sink that passes everything on and keeps whole blocks for the disk.
//!
//! What the sink behind it can share is kept by reference. From any other sink the bytes are
//! copied into memory that is free right now; file data never takes that way. What does not make a
//! whole block is left to [`Edges`](super::edges::Edges), also of a response that is cut off.

use std::{collections::VecDeque, mem::MaybeUninit, ops::Range, sync::Arc};

use bytes::Bytes;
use penstock_base::{BLOCK_SIZE, BufferPool, BufferView, BufferWriter};
use penstock_object::{BodySink, Got};

use super::{block, edges::Edge, header::Header, queue::Piece, shared::Shared, version::Version};

/// How a response is announced to the sink.
#[derive(Debug, Clone)]
pub(super) enum Announce {
    /// As it comes.
    AsItIs,
    /// With this range, of which it delivers the beginning.
    With(Range<u64>),
    /// Not at all: it goes on with what another source began.
    Not,
}

/// The sink.
pub(super) struct Tee<'a> {
    sink: &'a mut dyn BodySink,
    shared: &'a Arc<Shared>,
    pool: &'a Arc<BufferPool>,
    version: &'a Version<'a>,
    announce: Announce,
    /// What arrived is of another version than what was begun.
    refused: bool,
    keeping: Option<Keeping>,
    /// Bytes left of the piece of memory that the sink handed out last.
    room: usize,
}

/// Bytes on their way to the disk.
struct Keeping {
    header: Arc<Header>,
    /// Where in the object the next byte belongs, and where the response ends.
    position: u64,
    end: u64,
    /// Bytes of the sink that were taken over.
    taken: u64,
    /// What was taken and does not make a block yet, and where it belongs.
    slices: VecDeque<Bytes>,
    start: u64,
    /// The response is compared with a checksum at its end; until then nothing may be kept.
    until_checked: Option<Vec<Piece>>,
    copies: Option<Copies>,
    asked: bool,
}

/// Memory of our own, for sinks that cannot share theirs.
struct Copies {
    writer: BufferWriter,
    view: BufferView,
}

impl<'a> Tee<'a> {
    pub(super) fn new(
        sink: &'a mut dyn BodySink,
        shared: &'a Arc<Shared>,
        pool: &'a Arc<BufferPool>,
        version: &'a Version<'a>,
        announce: Announce,
    ) -> Self {
        Self {
            sink,
            shared,
            pool,
            version,
            announce,
            refused: false,
            keeping: None,
            room: 0,
        }
    }

    /// Whether the sink knows of a response.
    pub(super) fn has_begun(&self) -> bool {
        matches!(self.announce, Announce::Not)
    }

    /// Whether what arrived was of another version.
    pub(super) fn has_refused(&self) -> bool {
        self.refused
    }

    /// The response is complete and what arrived is sound.
    pub(super) fn finish(mut self) {
        if let Some(keeping) = &mut self.keeping {
            for piece in keeping.until_checked.take().unwrap_or_default() {
                self.shared.queue.push(piece);
            }
        }
    }

    fn keep(&mut self, count: usize) {
        let Some(keeping) = &mut self.keeping else {
            return;
        };
        keeping.position += count as u64;
        let is_copied = keeping.copies.is_some();
        if is_copied || self.room == 0 || keeping.position == keeping.end {
            self.take_over();
            self.pass_on();
        }
    }

    /// Takes over what arrived since the last time.
    fn take_over(&mut self) {
        if let Some(keeping) = &mut self.keeping
            && keeping.copies.is_none()
        {
            let filled = self.sink.filled();
            match self.sink.shared(keeping.taken..filled) {
                Some(bytes) => keeping.slices.push_back(bytes),
                None => return self.keeping = None,
            }
            keeping.taken = filled;
        }
    }

    /// Passes on what makes whole blocks.
    fn pass_on(&mut self) {
        let Some(keeping) = &mut self.keeping else {
            return;
        };
        let whole = block::whole(&keeping.kept(), keeping.header.info.size);
        if whole.is_empty() {
            return;
        }
        let (shared, version) = (self.shared, self.version);
        keeping.pass_edges(whole.start, version, shared);
        let piece = keeping.piece(whole.end, version);
        match &mut keeping.until_checked {
            Some(pieces) => pieces.push(piece),
            None => shared.queue.push(piece),
        }
    }

    /// Passes on the rest, which ends inside a block.
    fn end(&mut self) {
        self.take_over();
        self.pass_on();
        if let Some(mut keeping) = self.keeping.take()
            && keeping.until_checked.is_none()
        {
            keeping.pass_edges(keeping.kept().end, self.version, self.shared);
        }
    }

    /// Copies what is about to be advanced over, if the sink cannot share it.
    fn copy(&mut self, count: usize) {
        let Some(keeping) = &mut self.keeping else {
            return;
        };
        if !keeping.asked {
            keeping.asked = true;
            let filled = self.sink.filled();
            if self.sink.shared(filled..filled).is_some() {
                return;
            }
            keeping.copies = Copies::begin(self.pool);
            if keeping.copies.is_none() {
                return self.keeping = None;
            }
        }
        if keeping.copies.is_some() && !keeping.copy(self.pool, &self.sink.unfilled()[..count]) {
            self.keeping = None;
        }
    }
}

impl Drop for Tee<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Keeping {
    fn new(version: &Version<'_>, got: &Got, taken: u64) -> Self {
        let is_whole = got.range == (0..got.info.size);
        let checked = got.info.checksum.is_some() && is_whole;
        Self {
            header: Arc::new(version.header(&got.info)),
            position: got.range.start,
            end: got.range.end,
            taken,
            slices: VecDeque::new(),
            start: got.range.start,
            until_checked: checked.then(Vec::new),
            copies: None,
            asked: false,
        }
    }

    /// The bytes of the object that are in `slices`.
    fn kept(&self) -> Range<u64> {
        let length: usize = self.slices.iter().map(Bytes::len).sum();
        self.start..self.start + length as u64
    }

    /// Takes out what lies before `end`, none of which is a whole block.
    fn pass_edges(&mut self, end: u64, version: &Version<'_>, shared: &Shared) {
        let size = self.header.info.size;
        while self.start < end {
            let border = (self.start + 1).next_multiple_of(block::BLOCK).min(end);
            let edge = Edge::of(version.name, self.start, &self.take(border - self.start));
            self.start = border;
            if let Some((start, bytes)) = shared.edges.add(edge, size) {
                shared.queue.push(Piece {
                    name: version.name,
                    header: Arc::clone(&self.header),
                    start,
                    slices: vec![bytes],
                });
            }
        }
    }

    /// Takes out what lies before `end`: whole blocks.
    fn piece(&mut self, end: u64, version: &Version<'_>) -> Piece {
        let start = self.start;
        let slices = self.take(end - start);
        self.start = end;
        Piece {
            name: version.name,
            header: Arc::clone(&self.header),
            start,
            slices,
        }
    }

    /// The first `count` bytes that were kept.
    fn take(&mut self, mut count: u64) -> Vec<Bytes> {
        let mut taken = Vec::new();
        while count > 0
            && let Some(mut slice) = self.slices.pop_front()
        {
            if slice.len() as u64 > count {
                self.slices.push_front(slice.split_off(count as usize));
            }
            count -= slice.len() as u64;
            taken.push(slice);
        }
        taken
    }

    /// Copies `bytes`; `false` when memory is short.
    fn copy(&mut self, pool: &Arc<BufferPool>, bytes: &[MaybeUninit<u8>]) -> bool {
        // SAFETY: these are the bytes that the caller of `advance` initialised.
        #[allow(unsafe_code)]
        let mut bytes = unsafe { bytes.assume_init_ref() };
        while !bytes.is_empty() {
            let Some(copies) = &mut self.copies else {
                return false;
            };
            let start = copies.writer.filled();
            let count = copies.writer.copy_from(bytes);
            if count == 0 {
                self.copies = Copies::begin(pool);
                continue;
            }
            self.slices
                .push_back(copies.view.slice(start..start + count));
            bytes = &bytes[count..];
        }
        true
    }
}

impl Copies {
    fn begin(pool: &Arc<BufferPool>) -> Option<Self> {
        let (writer, view) = pool.try_take(BLOCK_SIZE)?.share();
        Some(Self { writer, view })
    }
}

// SAFETY: `unfilled` is the front of another sink's.
#[allow(unsafe_code)]
unsafe impl BodySink for Tee<'_> {
    fn begin(&mut self, got: &Got) {
        let same = self.version.is(&got.info);
        self.end();
        match std::mem::replace(&mut self.announce, Announce::Not) {
            Announce::AsItIs => self.sink.begin(got),
            Announce::With(range) => {
                let info = got.info.clone();
                self.sink.begin(&Got { info, range });
            }
            Announce::Not => self.refused = !same,
        }
        if same && !self.shared.is_paused() && got.info.size > 0 {
            self.keeping = Some(Keeping::new(self.version, got, self.sink.filled()));
        }
    }

    fn filled(&self) -> u64 {
        self.sink.filled()
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        if self.refused {
            return &mut [];
        }
        let room = self.sink.unfilled();
        self.room = room.len();
        room
    }

    unsafe fn advance(&mut self, count: usize) {
        self.copy(count);
        // SAFETY: `unfilled` is the sink's own, so the caller's promise holds for it.
        unsafe { self.sink.advance(count) };
        self.room = self.room.saturating_sub(count);
        self.keep(count);
    }
}
