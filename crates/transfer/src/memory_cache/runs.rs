//! The runs of bytes that are in memory or on their way, by object and place, and in the order of their last use.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
};

use penstock_base::Reservation;
use penstock_object::{BodySink, ETag, Got, Key, ObjectResult};
use tokio::sync::OnceCell;

use super::{RANGE_MAX, RUN_MAX};

/// Uses of other runs after which nobody is taken to be reading on from one.
const USES_BETWEEN_MAX: u64 = 64;

/// Bytes of an object that one GET brings.
#[derive(Debug)]
pub(super) struct Run {
    /// What is asked for; the object may end before its end.
    pub(super) range: Range<u64>,
    /// What the object's tag has to be.
    pub(super) if_match: Option<ETag>,
    /// What came, or why nothing did.
    pub(super) content: OnceCell<ObjectResult<(Got, Vec<u8>)>>,
    memory: Reservation,
}

/// A run in its place.
#[derive(Debug)]
struct Place {
    run: Arc<Run>,
    /// When it was used last, as a number of uses.
    used: u64,
}

#[derive(Debug, Default)]
pub(super) struct Runs {
    /// By object, by where they begin. They may overlap.
    objects: HashMap<Key, BTreeMap<u64, Place>>,
    /// Which was used when.
    order: BTreeMap<u64, (Key, u64)>,
    uses: u64,
}

impl Run {
    /// A run that nobody has fetched yet, in memory that is its own.
    pub(super) fn new(range: Range<u64>, if_match: Option<ETag>, memory: Reservation) -> Arc<Self> {
        Arc::new(Self {
            range,
            if_match,
            content: OnceCell::new(),
            memory,
        })
    }

    /// Hands on what was asked for; `None` where it did not all come. `is_here` says that nobody waited for it.
    pub(super) fn deliver(
        &self,
        asked: &Range<u64>,
        is_here: bool,
        sink: &mut dyn BodySink,
    ) -> Option<Got> {
        let (got, bytes) = self.content.get()?.as_ref().ok()?;
        let start = (asked.start - self.range.start) as usize;
        let wanted = bytes.get(start..start + (asked.end - asked.start) as usize)?;
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

impl Runs {
    /// The run that all of `asked` lies in, which is used by that.
    pub(super) fn find(&mut self, key: &Key, asked: &Range<u64>) -> Option<Arc<Run>> {
        let runs = self.objects.get_mut(key)?;
        let (start, place) = runs.range_mut(..=asked.start).next_back()?;
        if place.run.range.end < asked.end {
            return None;
        }
        self.uses += 1;
        let last = std::mem::replace(&mut place.used, self.uses);
        self.order.remove(&last);
        self.order.insert(self.uses, (key.clone(), *start));
        Some(Arc::clone(&place.run))
    }

    /// What to fetch for `asked`: more, where it goes on from a run that was used a moment ago.
    pub(super) fn with_what_follows(&self, key: &Key, asked: &Range<u64>) -> Range<u64> {
        let runs = self.objects.get(key);
        let before = runs.and_then(|runs| runs.range(..asked.start).next_back());
        let Some((_, before)) = before.filter(|(_, before)| self.is_read_on(before, asked)) else {
            return asked.clone();
        };
        let length = before.run.range.end - before.run.range.start;
        let end = asked.start.saturating_add((2 * length).min(RUN_MAX));
        let next = runs.and_then(|runs| runs.range(asked.end..).next());
        let end = next.map_or(end, |(next, _)| end.min(*next));
        asked.start..end.max(asked.end)
    }

    /// Whether who asks may be who read the run before.
    fn is_read_on(&self, before: &Place, asked: &Range<u64>) -> bool {
        let range = &before.run.range;
        let skipped = asked.start.saturating_sub(range.end);
        skipped <= (range.end - range.start).min(RANGE_MAX)
            && self.uses - before.used < USES_BETWEEN_MAX
    }

    /// Adds one, in place of one that begins where it does.
    pub(super) fn add(&mut self, key: &Key, run: Arc<Run>) -> Arc<Run> {
        self.uses += 1;
        let start = run.range.start;
        let place = Place {
            run: Arc::clone(&run),
            used: self.uses,
        };
        let runs = self.objects.entry(key.clone()).or_default();
        if let Some(former) = runs.insert(start, place) {
            self.order.remove(&former.used);
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
            self.order.remove(&gone.used);
        }
        if runs.is_empty() {
            self.objects.remove(key);
        }
    }

    /// Drops all of an object.
    pub(super) fn forget_all(&mut self, key: &Key) {
        for place in self.objects.remove(key).into_iter().flatten() {
            self.order.remove(&place.1.used);
        }
    }
}
