//! What bytes in flight cost, and who gets memory when there is none.
//!
//! A reader gives its memory back when its bytes were delivered, so readers never keep each other
//! waiting for long. A writer is different: it holds what was written until that is enough for a
//! part, 5 MiB on S3. Several writers that all hold a little less, in a budget that has nothing
//! left, would wait for each other for ever. Hence [`SetAside`]: from the first write on a little
//! of the budget is kept apart, enough to complete one smallest part, and writers that wait take
//! turns with it. Whoever completes its part sends it and thereby frees the whole part. A block
//! or two beside it serve reads, which get on even when idle writers hold everything else.

use std::{sync::Arc, time::Duration};

use penstock_base::{BLOCK_SIZE, BufferPool, FsResult, MIB, MemoryBudget, Reservation, clock};
use tokio::sync::{Mutex, OnceCell, OwnedMutexGuard};

use crate::{TransferError, TransferResult};

/// Bytes kept for reads: two of the kernel's largest.
const READS: u64 = 2 * MIB;

/// Bytes of the budget that buffers for `length` received bytes occupy: whole blocks, and for the
/// rest a buffer of its own.
pub(crate) fn cost(length: u64) -> u64 {
    let block = BLOCK_SIZE as u64;
    let rest = usize::try_from(length % block).expect("less than a block");
    length / block * block + BufferPool::cost(rest)
}

/// The part of the budget that is never held for long.
#[derive(Debug)]
pub(crate) struct SetAside {
    writes: u64,
    stock: OnceCell<Option<Stock>>,
}

#[derive(Debug)]
struct Stock {
    reads: Arc<MemoryBudget>,
    writes: Arc<MemoryBudget>,
    turn: Arc<Mutex<()>>,
    /// What both are made of.
    _reservation: Reservation,
}

/// The right to use what is set aside for writes. Give it up when the part was sent.
pub(crate) type Turn = OwnedMutexGuard<()>;

/// Memory for a write.
#[derive(Debug)]
pub(crate) enum WriteMemory {
    /// From the budget that everybody shares.
    Shared(Reservation),
    /// From what is set aside: only to be filled to the last byte.
    SetAside(Reservation),
}

impl SetAside {
    /// For a store whose parts have at least `part_min` bytes.
    ///
    /// The blocks of one part are full but for two: the last of what was read back from an object
    /// that is continued, and the one that the next piece is copied into.
    pub(crate) fn new(part_min: u64) -> Self {
        Self {
            writes: (part_min.div_ceil(MIB) + 2) * MIB,
            stock: OnceCell::new(),
        }
    }

    /// Sets the memory aside, once. A budget that is too small for it is left whole.
    pub(crate) async fn prepare(&self, budget: &MemoryBudget) -> FsResult<()> {
        let make = || async {
            let bytes = self.writes + READS;
            if bytes > budget.total() / 4 * 3 {
                return Ok(None);
            }
            Ok(Some(Stock {
                reads: MemoryBudget::new(READS),
                writes: MemoryBudget::new(self.writes),
                turn: Arc::default(),
                _reservation: budget.reserve(bytes).await?,
            }))
        };
        self.stock.get_or_try_init(make).await.map(|_| ())
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
                memory = stock.reads.reserve(bytes) => memory,
            },
            _ => budget.reserve(bytes).await,
        }
    }

    /// Memory for a write: from `budget`, or from what is set aside for writes, which takes the
    /// `turn`.
    pub(crate) async fn for_write(
        &self,
        budget: &MemoryBudget,
        bytes: u64,
        turn: &mut Option<Turn>,
    ) -> FsResult<WriteMemory> {
        let Some(stock) = self.stock() else {
            return budget.reserve(bytes).await.map(WriteMemory::Shared);
        };
        tokio::select! {
            memory = budget.reserve(bytes) => memory.map(WriteMemory::Shared),
            memory = stock.reserve_in_turn(bytes, turn) => memory.map(WriteMemory::SetAside),
        }
    }

    fn stock(&self) -> Option<&Stock> {
        self.stock.get().and_then(Option::as_ref)
    }
}

impl Stock {
    async fn reserve_in_turn(&self, bytes: u64, turn: &mut Option<Turn>) -> FsResult<Reservation> {
        if turn.is_some() {
            return self.writes.reserve(bytes).await;
        }
        let mine = Arc::clone(&self.turn).lock_owned().await;
        let memory = self.writes.reserve(bytes).await?;
        *turn = Some(mine);
        Ok(memory)
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
        let costs = [0, 4 * KIB, 128 * KIB, MIB, MIB, MIB + KIB, 8 * MIB];
        assert_eq!(lengths.map(cost), costs);
    }

    #[tokio::test]
    async fn when_all_is_held_one_writer_at_a_time_goes_on_and_reads_too() {
        let budget = MemoryBudget::new(16 * MIB);
        let set_aside = SetAside::new(5 * MIB);
        set_aside.prepare(&budget).await.expect("enough");
        let _held = budget.try_reserve(budget.available()).expect("free");
        let (mut first, mut second) = (None, None);
        let memory = set_aside.for_write(&budget, MIB, &mut first).await;
        assert!(matches!(memory, Ok(WriteMemory::SetAside(_))));
        let wait = Duration::from_millis(5);
        let other = set_aside.for_write(&budget, MIB, &mut second);
        assert!(in_time(wait, other).await.is_err(), "it is not its turn");
        assert!(set_aside.for_read(&budget, MIB).await.is_ok());
        drop(first);
        let memory = set_aside.for_write(&budget, MIB, &mut second).await;
        assert!(matches!(memory, Ok(WriteMemory::SetAside(_))));
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
