//! What is kept occupies about as much as it holds.
//!
//! Bodies of more than 128 KiB are received into blocks of a mebibyte. To keep one of 200 KiB that
//! way would cost five times its size, so it is copied into buffers of its own size. That costs a
//! tenth of what receiving it did.

use std::sync::Arc;

use penstock_base::{BLOCK_SIZE, BufferPool, HEAP_BUFFER_MAX, Payload};

/// The least part of a block, in percent, that a payload must fill to be kept in it.
const FILL_MIN: usize = 80;

/// Bytes in a page of the budget.
const PAGE: u64 = 4096;

/// Bytes of the budget that a kept `payload` occupies.
pub(super) fn cost(payload: &Payload) -> u64 {
    let slices = payload.slices().iter();
    let costs = slices.map(|slice| BufferPool::cost(slice.len()));
    costs.map(|cost| cost.next_multiple_of(PAGE)).sum()
}

/// The payload in memory that fits it, or `None` when there is none.
pub(super) fn compacted(payload: &Payload, pool: &Arc<BufferPool>) -> Option<Payload> {
    let fits = |length: usize| length <= HEAP_BUFFER_MAX || length * 100 >= BLOCK_SIZE * FILL_MIN;
    if payload.slices().iter().all(|slice| fits(slice.len())) {
        return Some(payload.clone());
    }
    let mut kept = Payload::new();
    for slice in payload.slices() {
        for piece in slice.chunks(HEAP_BUFFER_MAX) {
            let (mut writer, view) = pool.try_take(piece.len())?.share();
            writer.copy_from(piece);
            kept.push(view.slice(0..piece.len()));
        }
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use penstock_base::{KIB, MIB, MemoryBudget};

    use super::*;

    async fn kept(length: usize) -> (u64, Vec<u8>) {
        let budget = MemoryBudget::new(8 * MIB);
        let pool = BufferPool::new(Arc::clone(&budget));
        let (mut writer, view) = pool.take(length).await.expect("free").share();
        let body: Vec<u8> = (0..length).map(|index| (index / 3) as u8).collect();
        writer.copy_from(&body);
        let payload = Payload::from(view.slice(0..length));
        drop((writer, view));
        let kept = compacted(&payload, &pool).expect("free");
        drop(payload);
        assert_eq!(budget.used(), cost(&kept));
        assert_eq!(kept.to_vec(), body);
        (cost(&kept), body)
    }

    #[tokio::test]
    async fn what_is_kept_costs_about_what_it_holds() {
        let costs = [(100, 100), (128, 128), (200, 200), (819, 820), (900, 1024)];
        for (length, cost) in costs {
            let bytes = length * KIB as usize - 10;
            assert_eq!(kept(bytes).await.0, cost * KIB, "{length} KiB");
        }
    }
}
