//! Decides whether a piece is kept or copied, and gets the memory for it.
//!
//! A large piece is kept where it is, and the writer pays for what it pins: who handed it in has
//! paid only until the writer accepts it. A small piece is copied. While a writer lives on its turn
//! (see `memory`) large pieces are copied, too.

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::{BLOCK_SIZE, Buffer, BufferPool, Reservation};

use super::{Writer, tail::KEEP_MIN};
use crate::{
    TransferResult,
    memory::{Demand, WriteMemory},
};

/// Memory for one piece.
pub(super) enum Grant {
    /// There is room in the tail.
    None,
    /// The piece is kept.
    Keep(Reservation),
    Copy(Buffer),
}

impl Writer {
    /// Waits for the memory that `piece` needs.
    pub(super) async fn grant(&mut self, piece: &Bytes) -> TransferResult<Grant> {
        // What the turn gives suffices for one part only if it is filled to the last byte.
        let keep = piece.len() >= KEEP_MIN && self.turn.is_none();
        if !keep && piece.len() <= self.tail.room() {
            return Ok(Grant::None);
        }
        let capacity = if keep {
            BLOCK_SIZE
        } else {
            self.tail.next_capacity(piece.len())
        };
        let memory = self.wait_for_memory(BufferPool::cost(capacity)).await?;
        let pool = self.transfer.pool();
        Ok(match memory {
            WriteMemory::Shared(memory) if keep => Grant::Keep(memory),
            WriteMemory::Shared(memory) => {
                if self.room_is_set_aside {
                    // Else what is left in it would stay with this writer beyond its turn.
                    self.tail.close();
                    self.room_is_set_aside = false;
                }
                Grant::Copy(pool.take_reserved(capacity, memory))
            }
            WriteMemory::SetAside(memory) => {
                self.room_is_set_aside = true;
                Grant::Copy(pool.take_reserved(capacity, memory))
            }
        })
    }

    pub(super) async fn wait_for_memory(&mut self, cost: u64) -> TransferResult<WriteMemory> {
        let budget = Arc::clone(self.transfer.pool().budget());
        if let Some(memory) = budget.try_reserve(cost) {
            return Ok(WriteMemory::Shared(memory));
        }
        self.transfer.metrics().write_memory_waits.increment();
        let early = self.early_parts < self.schedule.early_max();
        if early && self.tail.len() >= self.part_min() {
            let slot = self.slot().await;
            self.early_parts += 1;
            self.tail.close();
            self.send(slot);
        }
        let demand = self.demand(cost);
        let limit = self.transfer.settings().memory_wait;
        let set_aside = self.transfer.set_aside();
        set_aside
            .for_write(&budget, demand, &mut self.turn, limit)
            .await
    }

    /// What the writer needs when the next piece costs that much: blocks for the rest of the part,
    /// and one that is not filled when it ends.
    fn demand(&self, cost: u64) -> Demand {
        let block = BLOCK_SIZE as u64;
        let rest = self.part_min().saturating_sub(self.tail.len());
        let blocks = rest.div_ceil(block) * block;
        Demand {
            bytes: cost,
            part: (blocks + block).max(cost + block),
        }
    }
}
