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

/// Bytes of memory that they need.
const MEMORY_AT_ONCE: usize = memory_of(SENT_AT_ONCE);

/// Bytes of records that may wait to be sent: what is sealed at once, and answers to renewed keys.
const WAITING_MAX: usize = 2 * SENT_AT_ONCE;

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
        if wanted <= PLAIN_MAX || self.has_much_memory() {
            return wanted.min(SENT_AT_ONCE);
        }
        PLAIN_MAX
    }

    fn has_much_memory(&mut self) -> bool {
        if let Some(budget) = &self.budget
            && self.reserved.is_none()
        {
            self.reserved = budget.try_reserve(MEMORY_AT_ONCE as u64);
        }
        self.budget.is_none() || self.reserved.is_some()
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

    #[test]
    fn many_connections_seal_within_the_memory_budget() {
        for version in [ProtocolVersion::TLSv1_2, ProtocolVersion::TLSv1_3] {
            let budget = MemoryBudget::new(16 * MEMORY_AT_ONCE as u64);
            let mut many: Vec<_> = (0..100).map(|_| outgoing(version, Some(&budget))).collect();
            let mut of_one = 0;
            for outgoing in &mut many {
                let is_paid = match taken(outgoing) {
                    SENT_AT_ONCE => true,
                    PLAIN_MAX => false,
                    other => panic!("{other} bytes"),
                };
                let allowed = if is_paid {
                    MEMORY_AT_ONCE
                } else {
                    memory_of(PLAIN_MAX)
                };
                assert!(outgoing.capacity() <= allowed, "{}", outgoing.capacity());
                of_one += usize::from(!is_paid);
            }
            let paid = (100 - of_one) as u64;
            assert!(paid > 10 && budget.used() >= paid * MEMORY_AT_ONCE as u64);
            assert!(budget.available() < MEMORY_AT_ONCE as u64);
            many.iter_mut().for_each(Outgoing::release);
            assert_eq!(budget.used(), 0);
            assert!(many.iter().all(|outgoing| outgoing.capacity() == 0));
        }
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
