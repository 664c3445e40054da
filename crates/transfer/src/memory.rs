//! What bytes in flight cost, and who gets memory when there is none.
//!
//! A reader gives its memory back when its bytes were delivered, so readers never keep each other
//! waiting for long. A writer is different: it holds what was written until that is enough for a
//! part, 5 MiB on S3, and it may be idle for hours in between. Several writers that all hold a
//! little less, in a budget that has nothing left, would wait for each other for ever. Hence
//! [`SetAside`]: from the first write on a little of the budget is kept apart, and writers that
//! wait take turns with it. Whoever completes its part sends it and thereby frees the whole part,
//! not only what it got in its turn.
//!
//! What keeps this going, whoever falls asleep:
//! - A writer gets the turn only when what is set aside suffices to complete its part, and nobody
//!   else takes any of that meanwhile. With the part it comes back.
//! - The turn passes on when its holder has not used it for [`TURN_IDLE`] and another waits. The
//!   idle one keeps what it has, which is then missing; the budget lends as much, when memory
//!   comes back, until it wakes up ([`Stock::borrow`]).
//! - Two parts are set aside where the budget allows it, so that there is one for the others.
//!
//! Writers wait for ever only when idle ones really hold everything but less than one part. Who
//! waits is refused when nobody got any memory for the whole time.
//!
//! A block or two beside it serve reads, which get on even when idle writers hold everything else.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use penstock_base::{
    BLOCK_SIZE, BufferPool, FsError, FsResult, MIB, MemoryBudget, Reservation, clock,
    clock::Instant,
};
use tokio::sync::{Notify, OnceCell};

use crate::{TransferError, TransferResult, lock::lock};

/// Bytes kept for reads: two of the kernel's largest.
const READS: u64 = 2 * MIB;

/// Parts that are set aside where that is no more than half of the budget; else one.
const PARTS_SET_ASIDE: u64 = 2;

/// How long a writer keeps its turn without using it when others wait.
const TURN_IDLE: Duration = Duration::from_secs(1);

/// How often a writer that waits looks whether a turn has become idle.
const TURN_PERIOD: Duration = Duration::from_millis(100);

/// Writers at the front of the line among which the first is chosen whose part can be completed.
const CANDIDATES_MAX: usize = 64;

/// Bytes of the budget that buffers for `length` received bytes occupy: whole blocks, and for the
/// rest a buffer of its own.
pub(crate) fn cost(length: u64) -> u64 {
    let block = BLOCK_SIZE as u64;
    let rest = usize::try_from(length % block).expect("less than a block");
    length / block * block + BufferPool::cost(rest)
}

/// The part of the budget that is kept for those who cannot wait.
#[derive(Debug)]
pub(crate) struct SetAside {
    /// Bytes that suffice to complete one smallest part.
    part: u64,
    stock: OnceCell<Option<Arc<Stock>>>,
    /// Counts waits that ended with memory.
    granted: AtomicU64,
}

#[derive(Debug)]
struct Stock {
    budget: Arc<MemoryBudget>,
    reads: Account,
    /// What writers take from, in their turn.
    base: Account,
    line: Mutex<Line>,
    /// The turn is free, or there is more memory.
    changed: Notify,
}

/// A part of the budget that is accounted for apart.
#[derive(Debug)]
struct Account {
    budget: Arc<MemoryBudget>,
    /// What it is made of.
    _backing: Reservation,
}

/// Who may take what is set aside for writes.
#[derive(Debug, Default)]
struct Line {
    holder: Option<Holder>,
    waiting: VecDeque<Waiter>,
    last_id: u64,
    /// What the budget lends for what idle writers keep.
    loans: Vec<Account>,
    borrowing: bool,
}

/// Whose turn it is.
#[derive(Debug)]
struct Holder {
    id: u64,
    used: Instant,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    /// Bytes that it needs to complete its part.
    need: u64,
}

/// The right to use what is set aside for writes. Give it up when the part was sent.
#[derive(Debug)]
pub(crate) struct Turn {
    stock: Arc<Stock>,
    id: u64,
}

/// Memory for a write.
#[derive(Debug)]
pub(crate) enum WriteMemory {
    /// From the budget that everybody shares.
    Shared(Reservation),
    /// From what is set aside: only to be filled to the last byte.
    SetAside(Reservation),
}

/// What a writer asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    /// Bytes for its next piece.
    pub(crate) bytes: u64,
    /// Bytes until its part is complete, those for the next piece among them.
    pub(crate) part: u64,
}

impl SetAside {
    /// For a store whose parts have at least `part_min` bytes.
    ///
    /// The blocks of one part are full but for two: the last of what was read back from an object
    /// that is continued, and the one that the next piece is copied into.
    pub(crate) fn new(part_min: u64) -> Self {
        Self {
            part: (part_min.div_ceil(MIB) + 2) * MIB,
            stock: OnceCell::new(),
            granted: AtomicU64::new(0),
        }
    }

    /// Sets the memory aside, once. A budget that is too small for it is left whole.
    pub(crate) async fn prepare(&self, budget: &Arc<MemoryBudget>) -> FsResult<()> {
        let make = || async {
            let Some(full) = self.affordable(budget.total()) else {
                return Ok(None);
            };
            let mut all = budget.reserve(full + READS).await?;
            let reads = all.split(READS).ok_or(FsError::OutOfMemory)?;
            Ok(Some(Arc::new(Stock {
                budget: Arc::clone(budget),
                reads: Account::new(reads),
                base: Account::new(all),
                line: Mutex::default(),
                changed: Notify::new(),
            })))
        };
        self.stock.get_or_try_init(make).await.map(|_| ())
    }

    fn affordable(&self, total: u64) -> Option<u64> {
        let several = self.part * PARTS_SET_ASIDE;
        if several + READS <= total / 2 {
            return Some(several);
        }
        (self.part + READS <= total / 4 * 3).then_some(self.part)
    }

    /// Memory for a read: from `budget`, or from what is set aside for reads.
    pub(crate) async fn for_read(
        &self,
        budget: &MemoryBudget,
        bytes: u64,
    ) -> FsResult<Reservation> {
        match self.stock() {
            Some(stock) if bytes <= READS => tokio::select! {
                memory = budget.reserve(bytes) => memory,
                memory = stock.reads.budget.reserve(bytes) => memory,
            },
            _ => budget.reserve(bytes).await,
        }
    }

    /// Memory for a write: from `budget`, or from what is set aside for writes, which takes the
    /// `turn`. Fails when nobody at all got any for as long as `limit`.
    pub(crate) async fn for_write(
        &self,
        budget: &MemoryBudget,
        demand: Demand,
        turn: &mut Option<Turn>,
        limit: Duration,
    ) -> TransferResult<WriteMemory> {
        let memory = self.wait_for_write(budget, demand, turn);
        tokio::pin!(memory);
        loop {
            let before = self.granted.load(Ordering::Relaxed);
            match clock::deadline(limit, memory.as_mut()).await {
                Ok(Ok(memory)) => {
                    self.granted.fetch_add(1, Ordering::Relaxed);
                    return Ok(memory);
                }
                // The line moves, only slowly.
                Err(_) if self.granted.load(Ordering::Relaxed) != before => {}
                Ok(Err(_)) | Err(_) => return Err(TransferError::OutOfMemory),
            }
        }
    }

    async fn wait_for_write(
        &self,
        budget: &MemoryBudget,
        demand: Demand,
        turn: &mut Option<Turn>,
    ) -> FsResult<WriteMemory> {
        let Some(stock) = self.stock() else {
            return budget.reserve(demand.bytes).await.map(WriteMemory::Shared);
        };
        tokio::select! {
            memory = budget.reserve(demand.bytes) => memory.map(WriteMemory::Shared),
            memory = stock.in_turn(demand, turn) => memory.map(WriteMemory::SetAside),
        }
    }

    fn stock(&self) -> Option<&Arc<Stock>> {
        self.stock.get().and_then(Option::as_ref)
    }
}

impl Account {
    fn new(backing: Reservation) -> Self {
        Self {
            budget: MemoryBudget::new(backing.bytes()),
            _backing: backing,
        }
    }
}

impl Stock {
    /// Waits for the turn, and for the memory.
    async fn in_turn(
        self: &Arc<Self>,
        demand: Demand,
        turn: &mut Option<Turn>,
    ) -> FsResult<Reservation> {
        let known = turn.as_ref().map(|turn| turn.id);
        let place = Place::join(self, known, demand.part);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.has_turn(place.id) {
                turn.get_or_insert_with(|| Turn {
                    stock: Arc::clone(self),
                    id: place.id,
                });
                let memory = self.reserve(demand.bytes);
                if let Ok(memory) = clock::deadline(TURN_PERIOD, memory).await {
                    self.note_use(place.id);
                    return memory;
                }
            } else {
                // When this is late the turn may be idle.
                let _ = clock::deadline(TURN_PERIOD, changed).await;
            }
        }
    }

    /// Memory for whose turn it is.
    async fn reserve(&self, bytes: u64) -> FsResult<Reservation> {
        let lent = {
            let line = lock(&self.line);
            let mut loans = line.loans.iter();
            loans.find_map(|loan| loan.budget.try_reserve(bytes))
        };
        match lent {
            Some(memory) => Ok(memory),
            None => self.base.budget.reserve(bytes).await,
        }
    }

    /// Whether it is that writer's turn. It becomes his if he is the first who can have it.
    fn has_turn(self: &Arc<Self>, id: u64) -> bool {
        let mut line = lock(&self.line);
        let now = clock::now();
        match &line.holder {
            Some(holder) if holder.id == id => return true,
            Some(holder) if now.duration_since(holder.used) < TURN_IDLE => return false,
            _ => {}
        }
        line.give_back_loans(self.base.budget.available() >= self.base.budget.total());
        let free = self.base.budget.available() + line.lent();
        let mut candidates = line.waiting.iter().take(CANDIDATES_MAX);
        let first = candidates.find(|waiter| waiter.need <= free);
        if first.is_none_or(|first| first.id != id) {
            return false;
        }
        let passed_on = line.holder.replace(Holder { id, used: now }).is_some();
        if passed_on && !std::mem::replace(&mut line.borrowing, true) {
            self.borrow(self.base.budget.total().saturating_sub(free));
        }
        true
    }

    fn note_use(&self, id: u64) {
        let mut line = lock(&self.line);
        if let Some(holder) = line.holder.as_mut().filter(|holder| holder.id == id) {
            holder.used = clock::now();
        }
    }

    /// Asks the budget, in a task of its own, for what idle writers keep of what is set aside.
    fn borrow(self: &Arc<Self>, bytes: u64) {
        let (stock, budget) = (Arc::downgrade(self), Arc::clone(&self.budget));
        tokio::spawn(async move {
            let lent = budget.reserve(bytes).await;
            let Some(stock) = stock.upgrade() else { return };
            let mut line = lock(&stock.line);
            line.borrowing = false;
            line.loans.extend(lent.ok().map(Account::new));
            drop(line);
            stock.changed.notify_waiters();
        });
    }
}

impl Line {
    /// Bytes that are lent and that nobody took.
    fn lent(&self) -> u64 {
        self.loans.iter().map(|loan| loan.budget.available()).sum()
    }

    /// Gives loans back that nobody uses, once what they stood in for is there again.
    fn give_back_loans(&mut self, whole: bool) {
        if whole {
            self.loans.retain(|loan| loan.budget.used() > 0);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut line = lock(&self.stock.line);
        let mine = line.holder.as_ref().map(|holder| holder.id) == Some(self.id);
        if mine {
            line.holder = None;
        }
        let base = &self.stock.base.budget;
        line.give_back_loans(base.available() >= base.total());
        drop(line);
        if mine {
            self.stock.changed.notify_waiters();
        }
    }
}

/// A place in the line; left on drop.
struct Place<'stock> {
    stock: &'stock Stock,
    id: u64,
}

impl<'stock> Place<'stock> {
    /// Joins the line, as who had the turn before or as somebody new.
    fn join(stock: &'stock Stock, known: Option<u64>, need: u64) -> Self {
        let mut line = lock(&stock.line);
        let id = known.unwrap_or_else(|| {
            line.last_id += 1;
            line.last_id
        });
        line.waiting.push_back(Waiter { id, need });
        Self { stock, id }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut line = lock(&self.stock.line);
        line.waiting.retain(|waiter| waiter.id != self.id);
    }
}

/// Waits for memory for at most `limit`.
pub(crate) async fn in_time<T>(
    limit: Duration,
    memory: impl Future<Output = FsResult<T>>,
) -> TransferResult<T> {
    match clock::deadline(limit, memory).await {
        Ok(Ok(memory)) => Ok(memory),
        Ok(Err(_)) | Err(_) => Err(TransferError::OutOfMemory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::KIB;

    #[test]
    fn small_rests_cost_what_they_hold_and_large_ones_a_block() {
        let lengths = [0, 4 * KIB, 128 * KIB, 129 * KIB, MIB, MIB + KIB, 8 * MIB];
        let costs = [0, 4 * KIB, 128 * KIB, MIB, MIB, MIB + 4 * KIB, 8 * MIB];
        assert_eq!(lengths.map(cost), costs);
    }

    const WAIT: Duration = Duration::from_secs(1);

    /// What is set aside in a budget of which somebody else holds the rest.
    async fn exhausted(total: u64) -> (Arc<MemoryBudget>, SetAside, Reservation) {
        let budget = MemoryBudget::new(total);
        let set_aside = SetAside::new(5 * MIB);
        set_aside.prepare(&budget).await.expect("enough");
        let rest = budget.try_reserve(budget.available()).expect("free");
        (budget, set_aside, rest)
    }

    fn demand(part: u64) -> Demand {
        Demand {
            bytes: MIB,
            part: part * MIB,
        }
    }

    fn is_set_aside(memory: &TransferResult<WriteMemory>) -> bool {
        matches!(memory, Ok(WriteMemory::SetAside(_)))
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_is_held_one_writer_at_a_time_goes_on_and_reads_too() {
        let (budget, set_aside, _rest) = exhausted(16 * MIB).await;
        let (mut first, mut second) = (None, None);
        let memory = set_aside.for_write(&budget, demand(6), &mut first, WAIT);
        assert!(is_set_aside(&memory.await));
        let wait = Duration::from_millis(500);
        let other = set_aside.for_write(&budget, demand(1), &mut second, wait);
        assert!(other.await.is_err(), "it is not its turn");
        assert!(set_aside.for_read(&budget, MIB).await.is_ok());
        drop(first);
        let memory = set_aside.for_write(&budget, demand(6), &mut second, WAIT);
        assert!(is_set_aside(&memory.await));
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_holder_loses_its_turn_and_the_budget_lends_what_it_keeps() {
        let (budget, set_aside, mut rest) = exhausted(16 * MIB).await;
        let (mut idle, mut second, mut third) = (None, None, None);
        let minute = Duration::from_secs(60);
        let mut kept = Vec::new();
        for _ in 0..3 {
            let memory = set_aside.for_write(&budget, demand(6), &mut idle, WAIT);
            kept.push(memory.await.expect("the first turn"));
        }
        // Four of seven are left, which is not enough to begin with a part, but for the end of one.
        let refused = set_aside.for_write(&budget, demand(6), &mut second, minute);
        assert!(refused.await.is_err());
        let memory = set_aside.for_write(&budget, demand(4), &mut second, minute);
        assert!(is_set_aside(&memory.await), "the idle one lost its turn");
        drop(second);
        tokio::task::yield_now().await;
        // Memory that comes back makes up for what the idle one keeps.
        drop(rest.split(3 * MIB));
        let held = budget.try_reserve(budget.available());
        let memory = set_aside.for_write(&budget, demand(7), &mut third, minute);
        assert!(is_set_aside(&memory.await));
        drop((third, held, kept, idle));
        assert_eq!(budget.available(), 3 * MIB, "the loan is given back");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_not_refused_while_others_get_memory() {
        let (budget, set_aside, mut rest) = exhausted(64 * MIB).await;
        let mut slow = None;
        let refused = set_aside.for_write(&budget, demand(60), &mut slow, WAIT);
        assert!(refused.await.is_err(), "nobody gets any");
        let large = Demand {
            bytes: 20 * MIB,
            part: 60 * MIB,
        };
        let waiting = set_aside.for_write(&budget, large, &mut slow, WAIT);
        let others = async {
            for _ in 0..10 {
                clock::sleep(WAIT / 2).await;
                let mut other = None;
                let small = set_aside.for_write(&budget, demand(1), &mut other, WAIT);
                small.await.expect("set aside");
            }
            drop(rest.split(30 * MIB));
        };
        let (waited, ()) = tokio::join!(waiting, others);
        assert!(matches!(waited, Ok(WriteMemory::Shared(_))));
    }

    #[tokio::test]
    async fn a_tiny_budget_is_left_whole() {
        let budget = MemoryBudget::new(8 * MIB);
        SetAside::new(5 * MIB)
            .prepare(&budget)
            .await
            .expect("nothing to wait for");
        assert_eq!(budget.used(), 0);
    }
}
