//! A run of consecutive bytes that one GET receives.
//!
//! They lie in blocks, each in a buffer or in a pipe ([`super::block`]). A part is read from while it
//! arrives: whoever needs bytes up to some offset waits for just those, and is woken once, when they
//! are there. Blocks can be let go one by one as they are consumed.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
    task::{Poll, Waker},
};

use penstock_base::{BLOCK_SIZE, Contents};
use smallvec::SmallVec;

use super::{
    block::{self, Place},
    share::Ahead,
};
use crate::{TransferError, TransferResult, lock::lock, memory};

/// Bytes in a block, as offsets are counted.
pub(crate) const BLOCK: u64 = BLOCK_SIZE as u64;

/// Wakers of those who wait.
type Wakers = SmallVec<[Waker; 2]>;

#[derive(Debug)]
pub(crate) struct Part {
    range: Range<u64>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What it has of the limit of read-ahead.
    ahead: Ahead,
    /// The end of what arrived, as an offset in the object.
    filled: u64,
    blocks: SmallVec<[Block; 8]>,
    waiting: SmallVec<[(u64, Waker); 2]>,
    failure: Option<TransferError>,
}

#[derive(Debug)]
enum Block {
    /// Nothing of it arrived yet.
    Coming,
    Held(block::Block),
    /// Consumed, or not wanted any more.
    Released,
}

impl Part {
    pub(crate) fn new(range: Range<u64>) -> Arc<Self> {
        Self::ahead(range, Ahead::default())
    }

    /// A part that is fetched ahead of whoever reads it.
    pub(crate) fn ahead(range: Range<u64>, ahead: Ahead) -> Arc<Self> {
        let blocks = (range.end - range.start).div_ceil(BLOCK);
        let state = State {
            ahead,
            filled: range.start,
            blocks: (0..blocks).map(|_| Block::Coming).collect(),
            waiting: SmallVec::new(),
            failure: None,
        };
        Arc::new(Self {
            range,
            state: Mutex::new(state),
        })
    }

    /// The bytes of the object that this part is to hold.
    pub(crate) fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// The range of the object that block `index` holds.
    pub(crate) fn block_range(&self, index: usize) -> Range<u64> {
        let start = self.range.start + index as u64 * BLOCK;
        start..self.range.end.min(start + BLOCK)
    }

    /// The end of what arrived, as an offset in the object.
    pub(crate) fn filled(&self) -> u64 {
        lock(&self.state).filled
    }

    /// Whether the GET failed before everything arrived.
    pub(crate) fn failed(&self) -> bool {
        lock(&self.state).failure.is_some()
    }

    /// Whether the bytes of `range`, which must lie within the part, have all arrived and can be read.
    pub(crate) fn has(&self, range: &Range<u64>) -> bool {
        let state = lock(&self.state);
        let is_held = |(index, range): (usize, Range<u64>)| match &state.blocks[index] {
            Block::Held(block) => block.has(&range),
            Block::Coming | Block::Released => false,
        };
        state.filled >= range.end && self.pieces(range).all(is_held)
    }

    /// Adds the bytes of `range`, which it [has](Self::has), to `contents`; `false` when they are lost.
    pub(crate) fn read(&self, range: &Range<u64>, contents: &mut Contents) -> bool {
        let mut state = lock(&self.state);
        let filled = state.filled;
        self.pieces(range)
            .all(|(index, range)| match &mut state.blocks[index] {
                Block::Held(block) => block.read(&range, filled, contents).is_ok(),
                Block::Coming | Block::Released => false,
            })
    }

    /// The blocks that `range` lies in, with what of it is in each.
    fn pieces(&self, range: &Range<u64>) -> impl Iterator<Item = (usize, Range<u64>)> {
        let index_of = |offset: u64| ((offset - self.range.start) / BLOCK) as usize;
        let wanted = range.clone();
        (index_of(range.start)..=index_of(range.end - 1)).map(move |index| {
            let block = self.block_range(index);
            (
                index,
                wanted.start.max(block.start)..wanted.end.min(block.end),
            )
        })
    }

    /// Waits until everything before `end` has arrived, or the GET has failed.
    pub(crate) async fn arrival(&self, end: u64) -> TransferResult<()> {
        std::future::poll_fn(|task| {
            let mut state = lock(&self.state);
            if state.filled >= end {
                return Poll::Ready(Ok(()));
            }
            if let Some(failure) = &state.failure {
                return Poll::Ready(Err(failure.clone()));
            }
            state.register(end, task.waker());
            Poll::Pending
        })
        .await
    }

    /// Lets go of the memory of block `index`. Slices that were read from it stay valid.
    pub(crate) fn release(&self, index: usize) {
        let range = self.block_range(index);
        let mut state = lock(&self.state);
        let released = std::mem::replace(&mut state.blocks[index], Block::Released);
        if !matches!(released, Block::Released) {
            state.ahead.release(memory::cost(range.end - range.start));
        }
        drop(state);
        drop(released);
    }

    /// What comes of block `index` from the offset `start` on is being received into `place`.
    pub(super) fn receive_into(&self, index: usize, start: u64, place: Place) {
        let range = start..self.block_range(index).end;
        match &mut lock(&self.state).blocks[index] {
            block @ Block::Coming => *block = Block::Held(block::Block::new(range, place)),
            Block::Held(block) => block.go_on(range, place),
            Block::Released => {}
        }
    }

    /// What was received is damaged and was shown to nobody: it will be received again.
    pub(super) fn forget_received(&self) {
        let mut state = lock(&self.state);
        let held = state.blocks.iter_mut();
        let damaged: SmallVec<[Block; 8]> = held
            .filter(|block| matches!(block, Block::Held(_)))
            .map(|block| std::mem::replace(block, Block::Coming))
            .collect();
        drop(state);
        drop(damaged);
    }

    /// Everything before `filled` has arrived.
    pub(super) fn advance(&self, filled: u64) {
        let ready = {
            let mut state = lock(&self.state);
            state.filled = filled;
            state.take_ready(filled)
        };
        ready.into_iter().for_each(Waker::wake);
    }

    /// The GET has failed: nothing more will arrive.
    pub(super) fn fail(&self, failure: TransferError) {
        let ready = {
            let mut state = lock(&self.state);
            state.failure = Some(failure);
            state.take_ready(u64::MAX)
        };
        ready.into_iter().for_each(Waker::wake);
    }
}

impl State {
    fn register(&mut self, end: u64, waker: &Waker) {
        let known = self
            .waiting
            .iter()
            .any(|(until, known)| *until == end && known.will_wake(waker));
        if !known {
            self.waiting.push((end, waker.clone()));
        }
    }

    fn take_ready(&mut self, filled: u64) -> Wakers {
        let mut ready = Wakers::new();
        let mut index = 0;
        while index < self.waiting.len() {
            if self.waiting[index].0 <= filled {
                ready.push(self.waiting.swap_remove(index).1);
            } else {
                index += 1;
            }
        }
        ready
    }
}
