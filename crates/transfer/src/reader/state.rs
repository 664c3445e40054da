//! Decides, for each read, what is served from memory, what is waited for and what is fetched.

use std::{ops::Range, sync::Arc};

use penstock_base::{Payload, Reservation, clock};
use smallvec::SmallVec;

use super::{
    extents::{FileRead, MapPart, Refused},
    habit::Course,
    held::{Coverage, Dropped, Held, KEPT, PartHandle, Piece},
    part::Part,
    receive::{self, Origin},
    share::Ahead,
    source::{Errand, Errands, Found, Source},
    stream::{InFlight, Place, StreamId, Streams, UNREAD_BEHIND_MAX, part_size},
};
use crate::Transfer;

/// Parts of extents that a stream has ahead at most: where a file is in many small pieces, each of them is a request.
const PARTS_AHEAD_MAX: usize = 64;

/// What a read does next.
#[derive(Debug)]
pub(crate) enum Plan {
    /// The bytes are there.
    Ready(Payload),
    /// Wait for these parts, then look again.
    Wait(SmallVec<[Piece; 2]>),
    /// Show these if they are those that were written.
    Compare(Found),
    /// Fetch just the read's range, into this memory.
    Fetch(Reservation, Errand),
    /// Wait for memory for the read's range, then look again.
    Memory,
}

/// What one reader knows and holds.
#[derive(Debug)]
pub(crate) struct State {
    transfer: Arc<Transfer>,
    source: Source,
    streams: Streams,
    held: Held,
    course: Course,
    /// Bytes ahead of the last read of which it is worth knowing where they lie.
    reach: u64,
}

impl State {
    pub(crate) fn new(transfer: Arc<Transfer>, source: Source) -> Self {
        let settings = transfer.settings();
        let streams = Streams::new(settings.streams_per_reader, settings.skip_max);
        Self {
            transfer,
            source,
            streams,
            held: Held::default(),
            course: Course::default(),
            reach: 0,
        }
    }

    /// Whether a read of extents can be planned, and how much of it at once.
    pub(crate) fn admit(&mut self, asked: &FileRead) -> Result<Range<u64>, Refused> {
        let Source::Extents(map) = &mut self.source else {
            return Ok(asked.range.clone());
        };
        map.admit(asked, self.reach)
    }

    /// Takes in where the bytes of a range lie. What is held of other places goes.
    pub(crate) fn learn(&mut self, part: &MapPart) {
        let Source::Extents(map) = &mut self.source else {
            return;
        };
        let Some(learned) = map.learn(part) else {
            return;
        };
        if let Some(former) = learned.former {
            let dropped = self.held.retain(|range| map.agrees_with(&former, range));
            self.streams.look_again();
            self.account(dropped);
        }
        self.held.add_holes(learned.holes);
    }

    /// What brings all of `range`, by what each brings of it; `None` where it is not known what lies there.
    pub(crate) fn errands(&self, range: &Range<u64>) -> Option<Errands> {
        self.source.errands(range)
    }

    /// Takes in a read of `range`. It is the `first` as long as no read of this reader has ended.
    pub(crate) fn plan(&mut self, range: &Range<u64>, read: &InFlight, first: bool) -> Plan {
        let now = clock::now();
        self.course.read(range, first);
        if self.course.is_whole(self.source.size()) {
            self.tell_habit();
        }
        let held_until = self.held.first_gap(range.start);
        let (place, changes) = self.streams.place(range, held_until, read, now);
        for (from, to) in changes.merged {
            self.held.change_owner(from, to);
        }
        for stream in changes.evicted {
            let dropped = self.held.drop_owned(stream);
            self.account(dropped);
        }
        for stream in changes.forgotten {
            let dropped = match self.keeps_grains() {
                true => self.held.keep(stream),
                false => self.held.drop_owned(stream),
            };
            self.account(dropped);
        }
        let delay = self.delay(place.stream, now);
        if let Some(stream) = self.streams.get(place.stream) {
            stream.consumption.record(place.advanced, now, delay);
            let behind = stream.frontier.saturating_sub(UNREAD_BEHIND_MAX);
            let dropped = self.held.drop_below(place.stream, behind);
            self.account(dropped);
        }
        if self.source.comes_whole() {
            return self.serve_whole(range, place.stream);
        }
        self.reach = 0;
        let plan = self.serve(range, place, first);
        if !matches!(plan, Plan::Memory) {
            self.prefetch(place.stream, delay);
        }
        plan
    }

    /// Whether there is anything to give back.
    pub(crate) fn holds_anything(&self) -> bool {
        !self.held.is_empty()
    }

    /// The bytes of `range` if they are there. `pieces` are those that the read waited for.
    pub(crate) fn arrived(
        &mut self,
        range: &Range<u64>,
        pieces: SmallVec<[Piece; 2]>,
    ) -> Option<Payload> {
        drop(pieces);
        self.held.read(range)
    }

    /// The parts to wait for when `range` is held or coming as a whole.
    pub(crate) fn coming(&mut self, range: &Range<u64>) -> Option<SmallVec<[Piece; 2]>> {
        let coverage = self.held.coverage(range);
        coverage.gaps.is_empty().then_some(coverage.pieces)
    }

    /// Drops what no read waits for, about `cost` bytes of the budget, from the streams that were
    /// idle for longest. Returns how much it was.
    pub(crate) fn reclaim(&mut self, cost: u64) -> u64 {
        let mut total = self.held.reclaim(KEPT, cost);
        for id in self.streams.ids() {
            if total.cost >= cost {
                break;
            }
            let dropped = self.held.reclaim(id, cost - total.cost);
            if let (Some(start), Some(stream)) = (dropped.start, self.streams.get(id)) {
                stream.scheduled = stream.scheduled.min(start);
                stream.share = None;
            }
            total = total.and(dropped);
        }
        self.account(total);
        total.cost
    }

    /// A small object is never fetched in pieces: stores tell no checksum for them. Kernels do ask for
    /// pieces, of pages that were taken back from their cache, or one by one after an error.
    fn serve_whole(&mut self, range: &Range<u64>, stream: StreamId) -> Plan {
        if let Some(payload) = self.held.read(range) {
            return Plan::Ready(payload);
        }
        let Coverage { pieces, gaps } = self.held.coverage(range);
        if gaps.is_empty() {
            return Plan::Wait(pieces);
        }
        let whole = 0..self.source.size();
        let Some(memory) = self.reserve(&whole) else {
            return Plan::Memory;
        };
        if whole == *range {
            return self.fetch(memory, range);
        }
        let ahead = whole.end - (range.end - range.start);
        self.transfer.metrics().prefetched_bytes.add(ahead);
        self.receive(&whole, stream, memory, Ahead::default());
        Plan::Wait(self.held.coverage(range).pieces)
    }

    fn serve(&mut self, range: &Range<u64>, place: Place, first: bool) -> Plan {
        if let Some(payload) = self.held.read(range) {
            return Plan::Ready(payload);
        }
        if let Some(found) = self.at_hand(range) {
            return Plan::Compare(found);
        }
        let Coverage { mut pieces, gaps } = self.held.coverage(range);
        for gap in self.source.cut(gaps) {
            let wanted = self.extend(&gap, place, first);
            if wanted == *range {
                let memory = self.reserve(range);
                return memory.map_or(Plan::Memory, |memory| self.fetch(memory, range));
            }
            let ahead = (wanted.end - wanted.start) - (gap.end - gap.start);
            if let Some((memory, paid)) = self.reserve_ahead(&wanted, ahead) {
                self.transfer.metrics().prefetched_bytes.add(ahead);
                self.receive(&wanted, place.stream, memory, paid);
            } else if let Some(memory) = self.reserve(&gap) {
                self.receive(&gap, place.stream, memory, Ahead::default());
            } else {
                return Plan::Memory;
            }
            pieces.extend(self.held.coverage(&gap).pieces);
        }
        Plan::Wait(pieces)
    }

    /// The grains of `range`, if a cache has them in memory as they are.
    fn at_hand(&self, range: &Range<u64>) -> Option<Found> {
        let Source::Extents(map) = &self.source else {
            return None;
        };
        let extent = map.at(range.start)?;
        let grains = extent.grains.as_ref()?;
        if extent.range.end < range.end || grains.frames.is_some() {
            return None;
        }
        let errand = self.source.errand(range)?;
        let version = &errand.version;
        let store = self.transfer.store();
        let found = store.at_hand(&version.key, &errand.range, version.pinned())?;
        version.fits(found.size).then_some(Found { errand, found })
    }

    fn fetch(&self, memory: Reservation, range: &Range<u64>) -> Plan {
        let errand = self.source.errand(range);
        errand.map_or(Plan::Memory, |errand| Plan::Fetch(memory, errand))
    }

    /// What to fetch for a `gap` in what is held, which one GET can bring. Only a read that begins the object or that moves
    /// a stream's frontier fetches more than was asked for and what comes along with that.
    fn extend(&mut self, gap: &Range<u64>, place: Place, first: bool) -> Range<u64> {
        let settings = self.transfer.settings();
        let Some(stream) = self
            .streams
            .get(place.stream)
            .filter(|_| settings.window_max() > 0)
        else {
            return gap.clone();
        };
        let length = if stream.is_sequential() && stream.frontier == gap.end {
            let limit = stream
                .share
                .as_ref()
                .map_or(u64::MAX, |share| share.bytes() / 2);
            Some(part_size(stream.length, settings.read_part_size.min(limit)))
        } else if first && gap.start == 0 {
            Some(match self.expects_whole() {
                true => u64::MAX,
                false => part_size(0, u64::MAX),
            })
        } else {
            None
        };
        let end = length.and_then(|length| self.source.part_end(gap, length));
        let wanted = self.source.widened(gap.start..end.unwrap_or(gap.end));
        self.held.free_around(gap, &wanted)
    }

    /// Whether all of the object will be read, as far as anybody can tell, and there is memory for it.
    fn expects_whole(&self) -> bool {
        let size = self.source.size();
        size <= self.transfer.read_ahead().share_of_another() / 2
            && self.transfer.habit().expects_whole(size)
    }

    /// Lets the next files profit from how much of this one was read. To be called when nobody reads it any
    /// more, too.
    pub(crate) fn tell_habit(&mut self) {
        let size = self.source.size();
        if !self.source.comes_whole() {
            self.course.tell(self.transfer.habit(), size);
        }
    }

    /// Fetches ahead of a sequential stream as far as its window and the memory allow.
    fn prefetch(&mut self, id: StreamId, delay: f64) {
        let window_max = self.window_max();
        let Some(stream) = self.streams.get(id).filter(|stream| stream.is_sequential()) else {
            return;
        };
        let size = self.source.size();
        if stream.frontier >= size || window_max == 0 {
            stream.share = None;
            return;
        }
        let share = stream
            .share
            .get_or_insert_with(|| self.transfer.read_ahead().join());
        let share_bytes = share.bytes().min(window_max);
        let limit = self.transfer.settings().read_part_size.min(share_bytes / 2);
        let part = part_size(stream.length, limit);
        let window = stream.consumption.window(part, delay).min(share_bytes);
        share.show_window(window);
        self.reach = window.saturating_add(part);
        let frontier = stream.frontier;
        let horizon = size.min(frontier.saturating_add(window));
        let mut start = stream.scheduled.max(frontier);
        loop {
            start = self.held.first_gap(start);
            let Some(end) = self.source.part_end(&(start..start), part) else {
                break;
            };
            let end = self.held.next_held(start, end);
            let is_due = start < size && end <= horizon && self.may_fetch_ahead(frontier);
            if !is_due || !self.prefetch_part(start..end, id) {
                break;
            }
            start = end;
        }
        if let Some(stream) = self.streams.get(id) {
            stream.scheduled = start;
        }
    }

    /// Bytes that one of the streams may have ahead, which together keep to what one file may.
    fn window_max(&self) -> u64 {
        self.transfer.settings().window_max() / self.streams.sequential().max(1) as u64
    }

    /// Whether what came along with a read here or there is kept though other places were read since: a whole grain was
    /// fetched for it, and programs come back. Only while three quarters of the memory are free: a [`crate::MemoryCache`], which
    /// leaves less, has the same for all handles.
    fn keeps_grains(&self) -> bool {
        let budget = self.transfer.pool().budget();
        let is_plenty = || budget.available() >= budget.total() / 4 * 3;
        matches!(self.source, Source::Extents(_)) && is_plenty()
    }

    /// Whether one more part may be on its way, or wait, for who reads at `frontier`.
    fn may_fetch_ahead(&self, frontier: u64) -> bool {
        match self.source {
            Source::Object { .. } => true,
            Source::Extents(_) => self.held.parts_from(frontier) < PARTS_AHEAD_MAX,
        }
    }

    fn prefetch_part(&mut self, range: Range<u64>, owner: StreamId) -> bool {
        let bytes = range.end - range.start;
        let Some((memory, paid)) = self.reserve_ahead(&range, bytes) else {
            let cost = self.source.cost(&range);
            self.transfer.readers().reclaim_idle(cost);
            return false;
        };
        self.transfer.metrics().prefetched_bytes.add(bytes);
        self.receive(&range, owner, memory, paid);
        true
    }

    fn receive(&mut self, range: &Range<u64>, owner: StreamId, memory: Reservation, ahead: Ahead) {
        let Some(errand) = self.source.errand(range) else {
            return;
        };
        let part = Part::ahead(range.clone(), &errand, ahead);
        let transfer = Arc::clone(&self.transfer);
        let get = receive::receive(
            transfer,
            errand,
            Arc::clone(&part),
            memory,
            Origin::Anywhere,
        );
        let task = tokio::spawn(get);
        self.held
            .add(&PartHandle::new(part, task.abort_handle()), owner);
    }

    /// Memory for `range`, of which `ahead` bytes were not asked for.
    fn reserve_ahead(&self, range: &Range<u64>, ahead: u64) -> Option<(Reservation, Ahead)> {
        let paid = match ahead {
            0 => Ahead::default(),
            _ => self.transfer.read_ahead().pay(self.source.cost(range))?,
        };
        self.reserve(range).map(|memory| (memory, paid))
    }

    fn reserve(&self, range: &Range<u64>) -> Option<Reservation> {
        self.transfer
            .pool()
            .budget()
            .try_reserve(self.source.cost(range))
    }

    /// Seconds that a part of the stream's present size takes.
    fn delay(&mut self, id: StreamId, now: clock::Instant) -> f64 {
        let length = self.streams.get(id).map_or(0, |stream| stream.length);
        let part = part_size(length, self.transfer.settings().read_part_size);
        self.transfer.path().delay(part, now)
    }

    fn account(&self, dropped: Dropped) {
        let metrics = self.transfer.metrics();
        metrics.prefetch_dropped_bytes.add(dropped.unread);
    }
}
