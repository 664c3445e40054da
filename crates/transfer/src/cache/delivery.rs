//! One read: what is on the disk from there, the rest from the store.

use std::{ops::Range, sync::Arc};

use penstock_base::run_blocking;
use penstock_object::{BodySink, ErrorKind, GetOptions, Got, ObjectError, ObjectResult, Operation};

use super::{
    block::{self, BLOCK, State},
    entry::Entry,
    hit::{self, Block},
    store::CachedStore,
    tee::{Announce, Tee},
    version::Version,
};

/// Bytes that are read from the disk before other tasks get their turn.
const TURN: u64 = 8 << 20;

/// Blocks in a run on the disk for which a request to the store is interrupted: it costs another
/// request.
const RUN_MIN: usize = 8;

/// Blocks that are looked at at once for where such a run begins.
const LOOK_AHEAD: u64 = 1024;

/// Bytes in the largest object that is fetched anew for a read of all of it when a block is missing.
/// Readers ask for files of up to so much at once.
const ANEW_MAX: u64 = 8 << 20;

/// A read of one version.
pub(super) struct Delivery<'a> {
    store: &'a CachedStore,
    version: Version<'a>,
    sink: &'a mut dyn BodySink,
    has_begun: bool,
    has_missed: bool,
}

/// How a turn at the disk ended.
enum Turn {
    /// Where it ended, because it was long enough or everything is delivered.
    Pause(u64),
    /// Where the sink was full.
    Full(u64),
    /// The disk does not have what comes next.
    Missing(u64),
}

impl<'a> Delivery<'a> {
    pub(super) fn new(
        store: &'a CachedStore,
        version: Version<'a>,
        sink: &'a mut dyn BodySink,
    ) -> Self {
        Self {
            store,
            version,
            sink,
            has_begun: false,
            has_missed: false,
        }
    }

    /// Delivers `range`, or the whole object.
    pub(super) async fn run(mut self, range: Option<Range<u64>>) -> ObjectResult<Got> {
        let (shared, version) = (&self.store.shared, &self.version);
        let found = run_blocking(|| shared.find(version.name, |header| version.is_in(header)));
        let Some(entry) = found else {
            return self.fetch_all(range).await;
        };
        let size = entry.info().size;
        let wanted = match &range {
            None => 0..size,
            Some(range) => range.start..range.end.min(size),
        };
        // The store knows best how to refuse a range, and has a checksum only for all of it.
        let is_asked = match &range {
            None if size <= ANEW_MAX => run_blocking(|| is_some_missing(&entry, &wanted)),
            _ => self.is_all_missing(&entry, &wanted),
        };
        if wanted.is_empty() || is_asked {
            return self.fetch_all(range).await;
        }
        let end = self.deliver(&entry, &wanted).await?;
        let metrics = &self.store.shared.metrics;
        if !self.has_missed {
            metrics.hits.increment();
        }
        Ok(Got {
            info: entry.info().clone(),
            range: wanted.start..end,
        })
    }

    fn is_all_missing(&self, entry: &Entry, wanted: &Range<u64>) -> bool {
        let first = wanted.start / BLOCK;
        run_blocking(|| match entry.states(&(first..first + 1)) {
            Ok(states) if states != [State::Absent] => false,
            Ok(_) => gap(entry, wanted) == *wanted,
            Err(_) => true,
        })
    }

    /// Delivers `wanted` piece by piece; returns where it ended.
    async fn deliver(&mut self, entry: &Arc<Entry>, wanted: &Range<u64>) -> ObjectResult<u64> {
        let mut position = wanted.start;
        while position < wanted.end {
            match self.turn(entry, position, wanted).await {
                Turn::Pause(end) => position = end,
                Turn::Full(end) => return Ok(end),
                Turn::Missing(start) => {
                    let missing = run_blocking(|| gap(entry, &(start..wanted.end)));
                    position = self.fetch(missing.clone(), wanted).await?;
                    if position < missing.end {
                        break;
                    }
                }
            }
        }
        Ok(position)
    }

    /// Delivers what the disk has from `start` on, for a while.
    async fn turn(&mut self, entry: &Arc<Entry>, start: u64, wanted: &Range<u64>) -> Turn {
        let _place = self.store.places.acquire().await;
        let turn = run_blocking(|| self.read(entry, start, wanted));
        let (Turn::Pause(end) | Turn::Full(end) | Turn::Missing(end)) = turn;
        let metrics = &self.store.shared.metrics;
        metrics.read_bytes.add(end - start);
        turn
    }

    fn read(&mut self, entry: &Entry, start: u64, wanted: &Range<u64>) -> Turn {
        let mut position = start;
        let pause = wanted.end.min(start + TURN);
        let blocks = block::touched(&(start..pause));
        let Ok(states) = entry.states(&blocks) else {
            return Turn::Missing(start);
        };
        for (index, state) in blocks.zip(states) {
            let State::Present(sum) = state else {
                return Turn::Missing(position);
            };
            self.announce(entry, wanted);
            let whole = block::range_of(index, entry.info().size);
            let end = whole.end.min(pause);
            match hit::deliver(entry, index, sum, &(position..end), self.sink) {
                Block::Delivered => position = end,
                Block::Full(count) => return Turn::Full(position + count),
                Block::Damaged => {
                    self.store.shared.damaged(entry, index);
                    return Turn::Missing(position);
                }
            }
        }
        Turn::Pause(position)
    }

    fn announce(&mut self, entry: &Entry, wanted: &Range<u64>) {
        if !self.has_begun {
            self.has_begun = true;
            self.sink.begin(&Got {
                info: entry.info().clone(),
                range: wanted.clone(),
            });
        }
    }

    /// Asks the store for all of it.
    async fn fetch_all(mut self, range: Option<Range<u64>>) -> ObjectResult<Got> {
        let (got, _) = self.ask(range, Announce::AsItIs).await?;
        Ok(got)
    }

    /// Asks the store for `missing`, a piece of `wanted`; returns where what came ended.
    async fn fetch(&mut self, missing: Range<u64>, wanted: &Range<u64>) -> ObjectResult<u64> {
        let announce = if self.has_begun {
            Announce::Not
        } else {
            Announce::With(wanted.clone())
        };
        let start = missing.start;
        let (got, refused) = self.ask(Some(missing), announce).await?;
        if refused || got.range.start != start {
            let message = "the store sent something else than the version that was asked for";
            let error = ObjectError::new(ErrorKind::Protocol, Operation::Get, message);
            return Err(error.about(self.version.key));
        }
        Ok(got.range.end)
    }

    async fn ask(
        &mut self,
        range: Option<Range<u64>>,
        announce: Announce,
    ) -> ObjectResult<(Got, bool)> {
        if !self.has_missed {
            self.has_missed = true;
            self.store.shared.metrics.misses.increment();
        }
        let store = self.store;
        if range.as_ref().is_none_or(has_whole_blocks) && !store.shared.is_paused() {
            store.shared.queue.caught_up().await;
        }
        let options = GetOptions {
            range,
            if_match: self.version.etag.cloned(),
            fresh: false,
            unchanging: self.version.etag.is_none(),
        };
        let (shared, pool) = (&store.shared, &store.pool);
        let mut tee = Tee::new(self.sink, shared, pool, &self.version, announce);
        let got = store.inner.get(self.version.key, options, &mut tee).await;
        self.has_begun |= tee.has_begun();
        let refused = tee.has_refused();
        if got.is_ok() {
            tee.finish();
        }
        got.map(|got| (got, refused))
    }
}

/// Whether there may be something in `range` to be kept.
fn has_whole_blocks(range: &Range<u64>) -> bool {
    !block::whole(range, u64::MAX).is_empty()
}

fn is_some_missing(entry: &Entry, wanted: &Range<u64>) -> bool {
    let states = entry.states(&block::touched(wanted));
    states.map_or(true, |states| states.contains(&State::Absent))
}

/// From where `wanted` starts, which is missing, to where the disk has enough again.
fn gap(entry: &Entry, wanted: &Range<u64>) -> Range<u64> {
    let blocks = block::touched(wanted);
    let mut run = 0;
    let mut start = blocks.start;
    while start < blocks.end {
        let look = start..blocks.end.min(start + LOOK_AHEAD);
        let Ok(states) = entry.states(&look) else {
            return wanted.clone();
        };
        for (index, state) in look.zip(states) {
            run = if state == State::Absent { 0 } else { run + 1 };
            // What is damaged counts as missing though it may still say that it is there.
            let is_long = run >= RUN_MIN || index + 1 == blocks.end;
            let first = index + 1 - run as u64;
            if run > 0 && is_long && first > blocks.start {
                return wanted.start..(first * BLOCK).min(wanted.end);
            }
        }
        start += LOOK_AHEAD;
    }
    wanted.clone()
}
