//! Keeps short ranges of objects in memory, and fetches ahead of who reads one small thing after the other out of an object.
//!
//! Small files lie side by side in an object, in the order in which they were written. Each is read by a reader of its own,
//! which cannot know that the next one will be read; a store that stands around the store sees all of them:
//!
//! - A range that was fetched stays, for each file and handle that asks for it or for a part of it.
//! - A range that begins about where one ended that was used a moment ago is fetched with more behind it, twice as much as
//!   that one was, up to [`RUN_MAX`]. Who reads the files of a directory in the order in which they were written so asks
//!   the store once for hundreds of them. A range that follows none is fetched alone.
//! - What was fetched ahead and did not pay off has half as much fetched behind the next range: if the requests that it spared
//!   would have taken less time than the bytes of it did that nobody asked for. So of files of 4 KiB all are fetched by who
//!   reads each third, and of files of 48 KiB hardly more than those.
//! - Who asks for what is on its way waits for it. What is here is handed out as it lies, without a copy, to who asks for it so.
//! - Who asks the store itself, as a reader does that found damaged bytes, gets nothing of what is kept, and it is forgotten.
//!
//! Memory: half of what was free at the beginning stays free. What was used least lately goes first, and all of it while
//! somebody stands in line for memory ([`MemoryBudget::reserve`]). Longer ranges pass by: they are parts of streams, which fetch
//! ahead themselves.

mod metrics;
mod runs;
#[cfg(test)]
mod tests;
mod used;

use std::{ops::Range, sync::Arc};

use async_trait::async_trait;
use penstock_base::{MemoryBudget, Mutex, Reclaim, Reservation, metrics::Registry};
use penstock_object::{
    AtHand, Below, BodySink, ByteRange, ETag, ErrorKind, GetOptions, Got, Key, ObjectResult, Store,
    layers::Layer,
};

use self::{
    metrics::Metrics,
    runs::{Run, Runs},
};
use crate::forgetting::{Forgets, Forgetting};

/// Bytes in the longest range that is kept: two grains of a file's checksums.
const RANGE_MAX: u64 = 256 << 10;
/// Bytes that are fetched at most for a range and what lies behind it.
const RUN_MAX: u64 = 1 << 20;
/// The part of the memory that is left free: one in this many.
const FREE_SHARE: u64 = 2;

/// A store whose objects are written once. See the module.
#[derive(Debug)]
pub struct MemoryCache {
    inner: Arc<dyn Store>,
    /// The same, for what is passed on.
    forgetting: Layer<Forgetting<Kept>>,
    kept: Arc<Kept>,
}

/// What is in memory.
#[derive(Debug)]
struct Kept {
    budget: Arc<MemoryBudget>,
    /// Bytes that stay free.
    kept_free: u64,
    metrics: Arc<Metrics>,
    runs: Mutex<Runs>,
}

impl MemoryCache {
    /// A cache around `inner` in memory of `budget`, half of what is free now, which tells `registry` how it goes. No object
    /// changes but through it.
    pub fn around(
        inner: Arc<dyn Store>,
        budget: &Arc<MemoryBudget>,
        registry: &Registry,
    ) -> Arc<Self> {
        let metrics = Metrics::register(registry);
        let kept = Arc::new(Kept {
            budget: Arc::clone(budget),
            kept_free: budget.available() / FREE_SHARE,
            runs: Mutex::new(Runs::new(Arc::clone(&metrics))),
            metrics,
        });
        let reclaimer: Arc<dyn Reclaim> = Arc::<Kept>::clone(&kept);
        budget.register(Arc::downgrade(&reclaimer));
        Arc::new(Self {
            forgetting: Forgetting::around(Arc::clone(&inner), Arc::clone(&kept)),
            inner,
            kept,
        })
    }

    /// Fetches a run, unless that was done or somebody else does it now.
    async fn fetch(&self, key: &Key, run: &Run) -> ObjectResult<()> {
        let fetched = run.content.get_or_init(|| async {
            let options = GetOptions {
                range: Some(run.range.clone()),
                if_match: run.if_match.clone(),
                fresh: false,
                unchanging: false,
            };
            let mut bytes = Vec::with_capacity((run.range.end - run.range.start) as usize);
            let got = self.inner.get(key, options, &mut bytes).await?;
            let ahead = run.ahead_of(bytes.len() as u64);
            self.kept.metrics.ahead_bytes.add(ahead);
            Ok((got, bytes))
        });
        match fetched.await {
            Ok(_) => Ok(()),
            Err(error) => {
                self.kept.runs.lock().forget(key, run);
                Err(error.clone())
            }
        }
    }
}

impl Kept {
    /// What has or will have the range, if there is memory for it.
    fn run(&self, key: &Key, options: &GetOptions, asked: &Range<u64>) -> Option<Arc<Run>> {
        let mut runs = self.runs.lock();
        let found = runs.find(key, asked);
        if let Some(run) = found {
            let is_it = run.if_match == options.if_match;
            let counter = if is_it {
                &self.metrics.hits
            } else {
                &self.metrics.misses
            };
            counter.increment();
            return is_it.then_some(run);
        }
        self.metrics.misses.increment();
        let end = runs.end_for(key, asked);
        let memory = self.room(&mut runs, end - asked.start)?;
        let run = Run::new((asked, end), options.if_match.clone(), memory);
        Some(runs.add(key, run))
    }

    /// Memory for `bytes` that leaves enough free, in place of what was used least lately.
    fn room(&self, runs: &mut Runs, bytes: u64) -> Option<Reservation> {
        loop {
            let memory = self.budget.try_reserve(bytes);
            if memory.is_some() && self.budget.available() >= self.kept_free {
                return memory;
            }
            drop(memory);
            runs.drop_oldest()?;
        }
    }
}

impl Forgets for Kept {
    fn forget(&self, key: &Key) {
        self.runs.lock().forget_all(key);
    }
}

impl Reclaim for Kept {
    fn reclaim(&self, bytes: u64) -> u64 {
        let mut runs = self.runs.lock();
        let mut freed = 0;
        while freed < bytes
            && let Some(cost) = runs.drop_oldest()
        {
            freed += cost;
        }
        freed
    }
}

/// Whether a range alone may be had where more of the object could not.
fn may_be_the_rest(error: ErrorKind) -> bool {
    matches!(
        error,
        ErrorKind::ChecksumMismatch
            | ErrorKind::Interrupted
            | ErrorKind::InvalidRange
            | ErrorKind::Protocol
    )
}

#[async_trait]
impl Store for MemoryCache {
    fn below(&self) -> Below<'_> {
        Below::Store(&self.forgetting)
    }

    fn at_hand(&self, key: &Key, range: &ByteRange, if_match: Option<&ETag>) -> Option<AtHand> {
        let run = {
            let mut runs = self.kept.runs.lock();
            let here = runs.peek(key, range)?;
            if here.if_match.as_ref() != if_match || !here.has(range) {
                return None;
            }
            runs.find(key, range)?
        };
        self.kept.metrics.hits.increment();
        run.at_hand(range)
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        if options.fresh {
            self.kept.forget(key);
        }
        let short = options.range.clone().filter(|range| {
            let length = range.end.saturating_sub(range.start);
            (1..=RANGE_MAX).contains(&length) && !options.fresh && sink.filled() == 0
        });
        if let Some(asked) = short
            && let Some(run) = self.kept.run(key, &options, &asked)
        {
            let is_here = run.content.initialized();
            match self.fetch(key, &run).await {
                Ok(()) => {
                    if let Some(got) = run.deliver(&asked, is_here, sink) {
                        return Ok(got);
                    }
                }
                Err(error) if run.range == asked || !may_be_the_rest(error.kind) => {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        self.inner.get(key, options, sink).await
    }
}
