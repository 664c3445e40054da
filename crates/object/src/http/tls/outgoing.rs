//! What waits to be sent: slices are gathered into records, which are sealed in place and leave several at a time.
//!
//! One record needs room whatever the memory of the process is, as a head does. More than one at a time is merely useful:
//! the room for it is of the memory budget, for as long as a request is sent, and where that has none records leave one by one.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use penstock_base::{MemoryBudget, Reservation};
use tokio::{io::AsyncWrite, net::TcpStream};

use super::{
    Broken,
    record_key::{Kind, PLAIN_MAX, RecordKey, seals_of},
};

/// Records that are sealed before they are sent.
const RECORDS_AT_ONCE: usize = 8;

/// Bytes of plaintext in them.
pub(super) const SENT_AT_ONCE: usize = RECORDS_AT_ONCE * PLAIN_MAX;

/// Bytes of records that may wait to be sent: what is sealed at once, and some answers to renewed keys.
const WAITING_MAX: usize = memory_of(SENT_AT_ONCE) + 1024;

/// A message that says that this side renews its key, too, and asks for nothing.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// Records that are sealed and not sent.
pub(super) struct Outgoing {
    key: RecordKey,
    memory: Vec<u8>,
    /// Bytes of `memory` that were sent.
    sent: usize,
    budget: Option<Arc<MemoryBudget>>,
    /// For more than one record at a time.
    reserved: Option<Reservation>,
}

impl Outgoing {
    /// Nothing yet. Without a budget there is always memory.
    pub(super) fn new(key: RecordKey, budget: Option<Arc<MemoryBudget>>) -> Self {
        Self {
            key,
            memory: Vec::new(),
            sent: 0,
            budget,
            reserved: None,
        }
    }

    /// Whether the key should seal nothing that is not begun.
    pub(super) fn is_worn(&self) -> bool {
        self.key.is_worn()
    }

    /// Seals bytes from the front of `slices`; returns how many.
    pub(super) fn seal(&mut self, slices: &[io::IoSlice<'_>]) -> Result<usize, Broken> {
        let mut rest = Rest {
            slices,
            offset: 0,
            taken: 0,
        };
        let limit = self.limit(slices);
        self.memory.reserve_exact(memory_of(limit));
        while rest.taken < limit && rest.has_some() {
            let at_once = PLAIN_MAX.min(limit - rest.taken);
            self.key.seal(Kind::DATA, &mut self.memory, |out| {
                rest.copy_to(out, at_once);
            })?;
        }
        Ok(rest.taken)
    }

    /// Bytes that are sealed now of those in `slices`.
    fn limit(&mut self, slices: &[io::IoSlice<'_>]) -> usize {
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut limit = wanted.min(SENT_AT_ONCE);
        while limit > PLAIN_MAX && !self.has_memory(memory_of(limit) as u64) {
            limit = PLAIN_MAX.max(limit / 2);
        }
        limit
    }

    /// Whether so much of the budget is for what leaves at once.
    fn has_memory(&mut self, needed: u64) -> bool {
        let Some(budget) = &self.budget else {
            return true;
        };
        let reserved = self.reserved.as_ref().map_or(0, Reservation::bytes);
        if reserved < needed
            && let Some(larger) = budget.try_reserve(needed)
        {
            self.reserved = Some(larger);
            return true;
        }
        reserved >= needed
    }

    /// Seals that the key is renewed with the last record of the old one, and goes on with the `renewed` one.
    pub(super) fn renew(&mut self, renewed: RecordKey) -> Result<(), Broken> {
        if self.memory.len() >= WAITING_MAX {
            return Err(Broken::new("the server renews keys and takes nothing"));
        }
        self.key.seal(Kind::HANDSHAKE, &mut self.memory, |out| {
            out.extend_from_slice(&KEY_UPDATE);
        })?;
        self.key = renewed;
        Ok(())
    }

    /// Ready when everything that was sealed is sent.
    pub(super) fn poll_drain(
        &mut self,
        tcp: &mut TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.sent < self.memory.len() {
            let unsent = &self.memory[self.sent..];
            match ready!(Pin::new(&mut *tcp).poll_write(cx, unsent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.sent += count,
            }
        }
        self.memory.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Gives the memory back once everything is sent: most connections are idle.
    pub(super) fn release(&mut self) {
        self.memory = Vec::new();
        self.reserved = None;
    }

    /// Bytes of memory that it occupies.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn capacity(&self) -> usize {
        self.memory.capacity()
    }
}

/// Bytes that the records of so much plaintext occupy.
const fn memory_of(plain: usize) -> usize {
    plain + seals_of(plain)
}

/// What of some slices was not taken.
struct Rest<'a, 'b> {
    slices: &'a [io::IoSlice<'b>],
    /// Bytes of the first slice that were taken.
    offset: usize,
    /// Bytes that were taken of all.
    taken: usize,
}

impl Rest<'_, '_> {
    fn has_some(&mut self) -> bool {
        while let Some(first) = self.slices.first()
            && first.len() == self.offset
        {
            (self.slices, self.offset) = (&self.slices[1..], 0);
        }
        !self.slices.is_empty()
    }

    fn copy_to(&mut self, out: &mut Vec<u8>, mut limit: usize) {
        while limit > 0 && self.has_some() {
            let piece = &self.slices[0][self.offset..];
            let count = piece.len().min(limit);
            out.extend_from_slice(&piece[..count]);
            self.offset += count;
            self.taken += count;
            limit -= count;
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls::{
        ConnectionTrafficSecrets, ProtocolVersion,
        crypto::cipher::{AeadKey, Iv},
    };

    use super::*;

    fn outgoing(version: ProtocolVersion, budget: Option<&Arc<MemoryBudget>>) -> Outgoing {
        let (key, iv) = (AeadKey::from([7; 32]), Iv::new([9; 12]));
        let secrets = ConnectionTrafficSecrets::Aes256Gcm { key, iv };
        let key = RecordKey::new(version, 0, &secrets).expect("a key");
        Outgoing::new(key, budget.cloned())
    }

    /// Bytes that are taken of 200 KiB in uneven slices.
    fn taken(outgoing: &mut Outgoing) -> usize {
        let bytes = vec![7; 200 << 10];
        let (front, back) = bytes.split_at(10_001);
        let slices = [io::IoSlice::new(front), io::IoSlice::new(back)];
        outgoing.seal(&slices).expect("a fresh key")
    }

    /// What the budget counts, which it does in pages, for so much plaintext.
    fn cost(plain: usize) -> u64 {
        memory_of(plain).next_multiple_of(4096) as u64
    }

    #[test]
    fn many_connections_seal_within_the_memory_budget() {
        for version in [ProtocolVersion::TLSv1_2, ProtocolVersion::TLSv1_3] {
            let budget = MemoryBudget::new(1 << 20);
            let mut many: Vec<_> = (0..100).map(|_| outgoing(version, Some(&budget))).collect();
            let (mut counts, mut paid) = (Vec::new(), 0);
            for outgoing in &mut many {
                let count = taken(outgoing);
                assert!(outgoing.capacity() <= memory_of(count), "{count}");
                paid += if count > PLAIN_MAX { cost(count) } else { 0 };
                counts.push(count);
            }
            // The first have all that they want, those that follow what is left, the last one record each.
            assert_eq!((counts[0], counts[99]), (SENT_AT_ONCE, PLAIN_MAX));
            assert!(counts.is_sorted_by(|one, next| one >= next), "{counts:?}");
            assert_eq!(budget.used(), paid);
            assert!(budget.available() < cost(2 * PLAIN_MAX));
            many.iter_mut().for_each(Outgoing::release);
            assert_eq!(budget.used(), 0);
            assert!(many.iter().all(|outgoing| outgoing.capacity() == 0));
        }
    }

    /// Room is taken for what is wanted, and more once more is.
    #[test]
    fn what_is_sent_pays_for_what_it_occupies() {
        let budget = MemoryBudget::new(1 << 20);
        let mut some = outgoing(ProtocolVersion::TLSv1_3, Some(&budget));
        let small = [7; 20_000];
        let sealed = some.seal(&[io::IoSlice::new(&small)]).expect("sealed");
        assert_eq!((sealed, budget.used()), (20_000, cost(20_000)));
        some.memory.clear();
        assert_eq!(taken(&mut some), SENT_AT_ONCE);
        assert_eq!(budget.used(), cost(SENT_AT_ONCE));
    }

    /// What fits into one record needs nothing of the budget, and a connection without a budget needs none.
    #[test]
    fn a_head_takes_no_reservation() {
        let budget = MemoryBudget::new(1 << 20);
        let mut small = outgoing(ProtocolVersion::TLSv1_3, Some(&budget));
        let head = [7; PLAIN_MAX];
        let sealed = small.seal(&[io::IoSlice::new(&head)]).expect("sealed");
        assert_eq!((sealed, budget.used()), (PLAIN_MAX, 0));
        let mut free = outgoing(ProtocolVersion::TLSv1_3, None);
        assert_eq!(taken(&mut free), SENT_AT_ONCE);
    }
}
