//! The runs of bytes that are in memory or on their way, by object and place, and in the order of their last use.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use penstock_base::Reservation;
use penstock_object::{AtHand, BodySink, Compared, ETag, Got, Key, ObjectResult};
use tokio::sync::OnceCell;

use super::{Metrics, RANGE_MAX, RUN_MAX, used::Used};

/// Uses of other runs after which nobody is taken to be reading on from one.
const USES_BETWEEN_MAX: u64 = 64;
/// Bytes that take as long as a request does without any, where that takes a few milliseconds.
const REQUEST: u64 = 64 << 10;

/// Bytes of an object that one GET brings.
#[derive(Debug)]
pub(super) struct Run {
    /// What is asked for; the object may end before its end.
    pub(super) range: Range<u64>,
    /// Bytes at its beginning that somebody asked for; the others are fetched ahead.
    asked: u64,
    /// What the object's tag has to be.
    pub(super) if_match: Option<ETag>,
    /// What came, or why nothing did.
    pub(super) content: OnceCell<ObjectResult<(Got, Vec<u8>)>>,
    /// Ranges of it that a reader compared.
    compared: Compared,
    memory: Reservation,
}

/// A run that somebody sees, which stays in memory, and is paid for, as long.
struct Shown(Arc<Run>);

impl AsRef<[u8]> for Shown {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// A run in its place.
#[derive(Debug)]
struct Place {
    run: Arc<Run>,
    /// When it was used last, as a number of uses.
    used_at: u64,
    used: Used,
}

#[derive(Debug)]
pub(super) struct Runs {
    metrics: Arc<Metrics>,
    /// By object, by where they begin. They may overlap.
    objects: HashMap<Key, BTreeMap<u64, Place>>,
    /// Which was used when.
    order: BTreeMap<u64, (Key, u64)>,
    uses: u64,
}

impl Run {
    /// A run for who `asked`, with more behind it up to `end`, that nobody has fetched yet, in memory that is its own.
    pub(super) fn new(
        (asked, end): (&Range<u64>, u64),
        if_match: Option<ETag>,
        memory: Reservation,
    ) -> Arc<Self> {
        Arc::new(Self {
            range: asked.start..end,
            asked: asked.end - asked.start,
            if_match,
            content: OnceCell::new(),
            compared: Compared::default(),
            memory,
        })
    }

    /// What came.
    fn bytes(&self) -> &[u8] {
        match self.content.get() {
            Some(Ok((_, bytes))) => bytes,
            _ => &[],
        }
    }

    /// How many of the bytes that came were fetched ahead.
    pub(super) fn ahead_of(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.asked)
    }

    /// Bytes that are here and were fetched ahead.
    fn ahead(&self) -> u64 {
        let content = self.content.get().and_then(|content| content.as_ref().ok());
        content.map_or(0, |(_, bytes)| self.ahead_of(bytes.len() as u64))
    }

    /// Where bytes are here that may be handed out.
    fn here(&self, asked: &Range<u64>) -> Option<(&Got, Range<usize>)> {
        let (got, bytes) = self.content.get()?.as_ref().ok()?;
        let start = asked.start.checked_sub(self.range.start)?;
        let within = start as usize..(asked.end - self.range.start) as usize;
        (within.end <= bytes.len()).then_some((got, within))
    }

    /// Whether all of `asked` is here.
    pub(super) fn has(&self, asked: &Range<u64>) -> bool {
        self.here(asked).is_some()
    }

    /// What was asked for, as it lies here.
    pub(super) fn at_hand(self: &Arc<Self>, asked: &Range<u64>) -> Option<AtHand> {
        let (got, within) = self.here(asked)?;
        let size = got.info.size;
        let bytes = Bytes::from_owner(Shown(Arc::clone(self))).slice(within);
        Some(AtHand {
            bytes,
            size,
            compared: self.compared.clone(),
        })
    }

    /// Hands on what was asked for; `None` where it did not all come. `is_here` says that nobody waited for it.
    pub(super) fn deliver(
        &self,
        asked: &Range<u64>,
        is_here: bool,
        sink: &mut dyn BodySink,
    ) -> Option<Got> {
        let (got, within) = self.here(asked)?;
        let wanted = &self.bytes()[within];
        let mut delivered = Got {
            info: got.info.clone(),
            range: asked.clone(),
        };
        match is_here {
            true => sink.begin_at_hand(&delivered),
            false => sink.begin(&delivered),
        }
        delivered.range.end = asked.start + sink.copy_from(wanted) as u64;
        Some(delivered)
    }
}

impl Place {
    fn new(run: &Arc<Run>, used_at: u64) -> Self {
        let mut used = Used::of(&run.range);
        used.add(&(run.range.start..run.range.start + run.asked));
        Self {
            run: Arc::clone(run),
            used_at,
            used,
        }
    }

    /// Whether the requests that it spared would have taken longer than those bytes of it did that nobody asked for before
    /// `asked`, which goes on behind it or from within.
    fn paid_off(&self, asked: &Range<u64>) -> bool {
        let before = asked.start.min(self.run.range.end) - self.run.range.start;
        let useless = before.saturating_sub(self.used.bytes());
        useless <= self.used.ranges().saturating_sub(1) * REQUEST
    }
}

impl Runs {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            objects: HashMap::new(),
            order: BTreeMap::new(),
            uses: 0,
        }
    }

    /// The run that all of `asked` lies in, if there is one.
    pub(super) fn peek(&self, key: &Key, asked: &Range<u64>) -> Option<&Arc<Run>> {
        let (_, place) = self.objects.get(key)?.range(..=asked.start).next_back()?;
        (place.run.range.end >= asked.end).then_some(&place.run)
    }

    /// The run that all of `asked` lies in, which is used by that.
    pub(super) fn find(&mut self, key: &Key, asked: &Range<u64>) -> Option<Arc<Run>> {
        let runs = self.objects.get_mut(key)?;
        let (start, place) = runs.range_mut(..=asked.start).next_back()?;
        if place.run.range.end < asked.end {
            return None;
        }
        self.uses += 1;
        place.used.add(asked);
        let last = std::mem::replace(&mut place.used_at, self.uses);
        self.order.remove(&last);
        self.order.insert(self.uses, (key.clone(), *start));
        Some(Arc::clone(&place.run))
    }

    /// Where to end what is fetched for `asked`: farther, where it goes on from a run that was used a moment ago. That is twice as
    /// much as that one was, and half as much where it did not pay off.
    pub(super) fn end_for(&self, key: &Key, asked: &Range<u64>) -> u64 {
        let runs = self.objects.get(key);
        let before = runs.and_then(|runs| runs.range(..asked.start).next_back());
        let Some((_, before)) = before.filter(|(_, before)| self.is_read_on(before, asked)) else {
            return asked.end;
        };
        let length = before.run.range.end - before.run.range.start;
        let length = match before.paid_off(asked) {
            true => (2 * length).min(RUN_MAX),
            false => length / 2,
        };
        let end = asked.start.saturating_add(length);
        let next = runs.and_then(|runs| runs.range(asked.end..).next());
        let end = next.map_or(end, |(next, _)| end.min(*next));
        end.max(asked.end)
    }

    /// Whether who asks may be who read the run before.
    fn is_read_on(&self, before: &Place, asked: &Range<u64>) -> bool {
        let range = &before.run.range;
        let skipped = asked.start.saturating_sub(range.end);
        skipped <= (range.end - range.start).min(RANGE_MAX)
            && self.uses - before.used_at < USES_BETWEEN_MAX
    }

    /// Adds one, in place of one that begins where it does.
    pub(super) fn add(&mut self, key: &Key, run: Arc<Run>) -> Arc<Run> {
        self.uses += 1;
        let start = run.range.start;
        let place = Place::new(&run, self.uses);
        let runs = self.objects.entry(key.clone()).or_default();
        if let Some(former) = runs.insert(start, place) {
            self.order.remove(&former.used_at);
            self.account(&former);
        }
        self.order.insert(self.uses, (key.clone(), start));
        run
    }

    /// Drops the one that was used least lately. Returns what that frees of the budget now: nothing where somebody waits for it.
    pub(super) fn drop_oldest(&mut self) -> Option<u64> {
        let (_, (key, start)) = self.order.pop_first()?;
        let runs = self.objects.get_mut(&key)?;
        let gone = runs.remove(&start)?;
        if runs.is_empty() {
            self.objects.remove(&key);
        }
        self.account(&gone);
        Some(match Arc::strong_count(&gone.run) {
            1 => gone.run.memory.bytes(),
            _ => 0,
        })
    }

    /// Drops `run`, which could not be fetched.
    pub(super) fn forget(&mut self, key: &Key, run: &Run) {
        let Some(runs) = self.objects.get_mut(key) else {
            return;
        };
        let found = runs.get(&run.range.start);
        if found.is_some_and(|place| std::ptr::eq(&*place.run, run))
            && let Some(gone) = runs.remove(&run.range.start)
        {
            self.order.remove(&gone.used_at);
        }
        if runs.is_empty() {
            self.objects.remove(key);
        }
    }

    /// Drops all of an object.
    pub(super) fn forget_all(&mut self, key: &Key) {
        for place in self.objects.remove(key).into_iter().flatten() {
            self.order.remove(&place.1.used_at);
            self.account(&place.1);
        }
    }

    /// A run that is dropped may have bytes that nobody asked for.
    fn account(&self, dropped: &Place) {
        let bytes = dropped.used.bytes().saturating_sub(dropped.run.asked);
        let useless = dropped.run.ahead().saturating_sub(bytes);
        self.metrics.useless_bytes.add(useless);
    }
}
