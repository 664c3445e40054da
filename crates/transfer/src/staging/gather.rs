//! Puts the bytes of a part together for a save: from the staging file what it has, from the base
//! version what widens a change to a part.
//!
//! What is missing between many small changes is fetched together with what lies between
//! ([`crate::staging::spans`]), and what the staging file has is laid over it. Long runs of fetched
//! bytes are passed on where they lie.
//!
//! A part that finds memory for everything it may need takes it at once and waits for none afterwards,
//! so several go on at the same time. Where there is not that much they take turns, with what is kept
//! for saves: several that each have a part of it would wait for each other.
//!
//! What is found is the file as it is now. Where it was changed since the save began that does not
//! matter: those ranges are unsaved still, and the next save sends them.

use std::{ops::Range, sync::Arc};

use penstock_base::{
    BLOCK_SIZE, BufferPool, BufferView, BufferWriter, FsError, FsResult, KIB, MIB, Payload,
    Reservation, clock, run_blocking,
};
use tokio::sync::MutexGuard;

use crate::{
    ObjectVersion, Transfer,
    staging::{
        disk::{DiskFile, disk_failure},
        error::StagedError,
        extents::Piece,
        file::StagedFile,
        memory::FETCH_SHORT,
        spans::to_fetch,
        write::{ZEROS, push_zeros},
    },
};

/// Bytes of the base version that are fetched at once.
const FETCH: u64 = 8 * MIB;
/// Bytes that are looked at, and laid into one buffer, at once.
const BLOCK: u64 = BLOCK_SIZE as u64;
/// Zeros and fetched bytes from this many on take no buffer of their own.
const LONG: u64 = 64 * KIB;

/// Where bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Disk,
    Zeros,
    Base,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Bytes of the base that are not there yet.
    Fetch,
    Zeros(u64),
    /// Fetched bytes, where they lie.
    Pass(u64),
    /// Bytes of any kind, into a buffer.
    Lay(u64),
}

/// Bytes of the base version.
#[derive(Debug, Default)]
struct Fetched {
    range: Range<u64>,
    bytes: Payload,
}

impl Fetched {
    /// The end of what is there from `at` on.
    fn until(&self, at: u64) -> u64 {
        if self.range.contains(&at) {
            self.range.end
        } else {
            at
        }
    }

    /// What is there of `range`, from its start.
    fn slice(&self, range: &Range<u64>) -> Payload {
        let (start, end) = (range.start, self.until(range.start).min(range.end));
        if start == end {
            return Payload::new();
        }
        let at = self.range.start;
        self.bytes.slice(&(start - at..end - at))
    }
}

/// What to do with `sources`, of which there is one, when the base is `fetched`. `long` is what is
/// passed on without a buffer.
fn next(sources: &[(Range<u64>, Source)], fetched: &Fetched, long: u64) -> Next {
    let (first, source) = &sources[0];
    let there = |range: &Range<u64>| fetched.until(range.start).min(range.end) - range.start;
    let is_laid = |(range, source): &&(Range<u64>, Source)| match source {
        Source::Disk => true,
        Source::Zeros => range.end - range.start < LONG,
        Source::Base => (1..long).contains(&there(range)),
    };
    match source {
        Source::Zeros if first.end - first.start >= LONG => Next::Zeros(first.end - first.start),
        Source::Base if there(first) == 0 => Next::Fetch,
        Source::Base if there(first) >= long => Next::Pass(there(first)),
        _ => {
            let laid = sources.iter().take_while(is_laid).last();
            Next::Lay(laid.map_or(first.end, |(range, _)| range.end) - first.start)
        }
    }
}

/// A part that is being put together.
struct Gathering<'part> {
    transfer: &'part Arc<Transfer>,
    staged: &'part StagedFile,
    base: Option<&'part ObjectVersion>,
    range: Range<u64>,
    /// What is left of the memory that was taken at once.
    ahead: Option<Reservation>,
    fetched: Fetched,
    /// The buffer that is being filled.
    block: Option<(BufferWriter, BufferView)>,
    payload: Payload,
}

impl StagedFile {
    /// The bytes `range` of the file, which is being saved on `base`.
    pub(super) async fn gather(
        &self,
        transfer: &Arc<Transfer>,
        base: Option<&ObjectVersion>,
        range: Range<u64>,
    ) -> Result<Payload, StagedError> {
        let _place = self.staging().memory().place().await;
        let mut gathering = Gathering {
            transfer,
            staged: self,
            base,
            range,
            ahead: None,
            fetched: Fetched::default(),
            block: None,
            payload: Payload::new(),
        };
        let _turn = gathering.take_memory().await?;
        gathering.run().await?;
        Ok(gathering.payload)
    }
}

impl<'part> Gathering<'part> {
    /// Takes memory for everything, or the turn, which the caller then holds.
    async fn take_memory(&mut self) -> FsResult<Option<MutexGuard<'part, ()>>> {
        let spans = self.spans(FETCH)?;
        let fetched = spans
            .iter()
            .map(|span| Transfer::cost(span.end - span.start));
        let cost = Transfer::cost(self.range.end - self.range.start) + fetched.sum::<u64>();
        let budget = self.transfer.pool().budget();
        self.ahead = budget.try_reserve_spare(cost);
        if self.ahead.is_some() {
            return Ok(None);
        }
        let staged: &'part StagedFile = self.staged;
        let turn = staged.staging().memory().turn().await;
        self.ahead = budget.try_reserve_spare(cost);
        Ok(self.ahead.is_none().then_some(turn))
    }

    async fn run(&mut self) -> Result<(), StagedError> {
        let long = if self.ahead.is_some() { LONG } else { u64::MAX };
        while self.at() < self.range.end {
            let at = self.at();
            let sources = self.sources(at..self.range.end.min(at + BLOCK))?;
            match next(&sources, &self.fetched, long) {
                Next::Fetch => self.fetch().await?,
                Next::Zeros(length) => push_zeros(&mut self.payload, length),
                Next::Pass(length) => {
                    let passed = self.fetched.slice(&(at..at + length));
                    self.payload.append(passed);
                }
                Next::Lay(length) => self.lay(length).await?,
            }
        }
        Ok(())
    }

    fn at(&self) -> u64 {
        self.range.start + self.payload.len() as u64
    }

    /// Where the bytes of `range` are, in order.
    fn sources(&self, range: Range<u64>) -> FsResult<Vec<(Range<u64>, Source)>> {
        let pieces = self.staged.pieces(range.clone())?;
        let base_end = self.base.map_or(0, |base| base.size);
        let mut sources = Vec::with_capacity(pieces.len());
        for Piece { range, held } in pieces {
            match held {
                Some(held) if held.is_backed() => sources.push((range, Source::Disk)),
                Some(_) => sources.push((range, Source::Zeros)),
                None => {
                    let middle = base_end.clamp(range.start, range.end);
                    let halves = [
                        (range.start..middle, Source::Base),
                        (middle..range.end, Source::Zeros),
                    ];
                    let there = halves.into_iter().filter(|(half, _)| !half.is_empty());
                    sources.extend(there);
                }
            }
        }
        let end = sources.last().map_or(range.start, |(range, _)| range.end);
        if end < range.end {
            // Beyond the end of a file that was truncated meanwhile.
            sources.push((end..range.end, Source::Zeros));
        }
        Ok(sources)
    }

    /// What is still to be fetched.
    fn spans(&self, limit: u64) -> FsResult<Vec<Range<u64>>> {
        let Some(base) = self.base else {
            return Ok(Vec::new());
        };
        let sources = self.sources(self.at()..self.range.end)?.into_iter();
        let gaps = sources.filter(|(_, source)| *source == Source::Base);
        let gaps = gaps.map(|(range, _)| range).collect();
        Ok(to_fetch(self.transfer, base, gaps, limit))
    }

    async fn fetch(&mut self) -> Result<(), StagedError> {
        // Before there is more.
        self.fetched = Fetched::default();
        let (Some(base), Some(mut span)) = (self.base, self.spans(FETCH)?.into_iter().next())
        else {
            return Ok(());
        };
        let cost = |span: &Range<u64>| Transfer::cost(span.end - span.start);
        let memory = match self.take_now(cost(&span)) {
            Some(memory) => memory,
            None => {
                span = self.spans(FETCH_SHORT)?.into_iter().next().unwrap_or(span);
                self.wait_for(cost(&span)).await?
            }
        };
        let transfer = self.transfer;
        let bytes = transfer.fetch(base.clone(), span.clone(), memory).await?;
        self.fetched = Fetched { range: span, bytes };
        Ok(())
    }

    /// Memory that is there.
    fn take_now(&mut self, bytes: u64) -> Option<Reservation> {
        let ahead = self.ahead.as_mut();
        ahead
            .and_then(|ahead| ahead.split(bytes))
            .or_else(|| self.transfer.pool().budget().try_reserve_spare(bytes))
    }

    async fn wait_for(&self, bytes: u64) -> FsResult<Reservation> {
        let transfer = self.transfer;
        let staging = self.staged.staging();
        let whole = Transfer::cost(self.range.end - self.range.start) + Transfer::cost(FETCH_SHORT);
        let memory = staging
            .memory()
            .take(transfer.pool().budget(), bytes, whole);
        clock::deadline(transfer.settings().memory_wait, memory)
            .await
            .map_err(|_| FsError::OutOfMemory)?
    }

    /// Adds up to `length` bytes by way of a buffer, as far as there are any.
    async fn lay(&mut self, length: u64) -> FsResult<()> {
        let (mut writer, view) = match self.block.take() {
            Some(block) if block.0.filled() < block.1.capacity() => block,
            _ => self.new_block().await?,
        };
        let start = writer.filled();
        let room = (view.capacity() - start) as u64;
        let _held = self.staged.hold_shared().await;
        let at = self.at();
        let sources = self.sources(at..at + length.min(room))?;
        let disk = self.staged.disk_if_any();
        run_blocking(|| fill(&mut writer, &sources, &self.fetched, disk.as_deref()))?;
        self.payload.push(view.slice(start..writer.filled()));
        self.block = Some((writer, view));
        Ok(())
    }

    async fn new_block(&mut self) -> FsResult<(BufferWriter, BufferView)> {
        let capacity = (self.range.end - self.at()).min(BLOCK) as usize;
        let cost = BufferPool::cost(capacity);
        let memory = match self.take_now(cost) {
            Some(memory) => memory,
            None => self.wait_for(cost).await?,
        };
        let pool = self.transfer.pool();
        Ok(pool.take_reserved(capacity, memory).share())
    }
}

/// Fills in `sources` up to the first that is not here.
fn fill(
    writer: &mut BufferWriter,
    sources: &[(Range<u64>, Source)],
    fetched: &Fetched,
    disk: Option<&DiskFile>,
) -> FsResult<()> {
    for (range, source) in sources {
        let length = (range.end - range.start) as usize;
        match (source, disk) {
            (Source::Disk, Some(disk)) => disk
                .read(writer, range.start, length)
                .map_err(|error| disk_failure(&error))?,
            (Source::Base, _) => {
                let there = fetched.slice(range);
                for slice in there.slices() {
                    writer.copy_from(slice);
                }
                if there.len() < length {
                    return Ok(());
                }
            }
            _ => drop(writer.copy_from(&ZEROS[..length])),
        }
    }
    Ok(())
}
