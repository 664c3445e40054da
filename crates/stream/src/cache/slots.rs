//! Which objects are held or coming, and which of them goes first.

use std::collections::{BTreeMap, HashMap};

use futures_util::future::{BoxFuture, WeakShared};
use penstock_base::Payload;
use penstock_transfer::TransferResult;

use super::{Flight, Found};

/// A GET that ends when nobody waits for it.
type WeakFlight = WeakShared<BoxFuture<'static, TransferResult<Payload>>>;

#[derive(Debug)]
enum Slot {
    Coming {
        flight: u64,
        get: WeakFlight,
        ahead: u64,
    },
    Held {
        payload: Payload,
        cost: u64,
        /// Its place in the order of reads.
        tick: u64,
        ahead: u64,
    },
}

/// The objects by number. `ahead` of each is its cost as long as nobody asked for it, else 0.
#[derive(Debug)]
pub(super) struct Slots {
    capacity: u64,
    slots: HashMap<u32, Slot>,
    /// Numbers of held objects, the least recently read first.
    order: BTreeMap<u64, u32>,
    last_tick: u64,
    last_flight: u64,
    held: u64,
    ahead: u64,
}

/// What was given up. Its payloads are to be dropped when no lock is held.
#[derive(Debug, Default)]
pub(super) struct Evicted {
    pub(super) payloads: Vec<Payload>,
    pub(super) bytes: u64,
    /// Objects that nobody had read.
    pub(super) wasted: u64,
    /// Bytes that are left.
    pub(super) held_now: u64,
}

impl Slots {
    pub(super) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            slots: HashMap::new(),
            order: BTreeMap::new(),
            last_tick: 0,
            last_flight: 0,
            held: 0,
            ahead: 0,
        }
    }

    /// Bytes that were fetched, or are being fetched, and that nobody asked for.
    pub(super) fn ahead(&self) -> u64 {
        self.ahead
    }

    /// Whether the object is held or coming.
    pub(super) fn contains(&self, number: u32) -> bool {
        self.slots.contains_key(&number)
    }

    /// The object for somebody who reads it.
    pub(super) fn find(&mut self, number: u32) -> Option<Found> {
        let tick = self.last_tick + 1;
        let (found, ahead) = match self.slots.get_mut(&number)? {
            Slot::Coming { get, ahead, .. } => (Found::Coming(get.upgrade()?), ahead),
            Slot::Held {
                payload,
                tick: last,
                ahead,
                ..
            } => {
                self.order.remove(last);
                self.order.insert(tick, number);
                *last = tick;
                (Found::Held(payload.clone()), ahead)
            }
        };
        self.ahead -= std::mem::take(ahead);
        self.last_tick = tick;
        Some(found)
    }

    /// A name for a new GET.
    pub(super) fn next_flight(&mut self) -> u64 {
        self.last_flight += 1;
        self.last_flight
    }

    /// The GET that was named last brings the object; `ahead` is its cost if nobody asked for it.
    pub(super) fn is_coming(&mut self, number: u32, flight: &Flight, ahead: u64) {
        let Some(get) = flight.downgrade() else {
            return;
        };
        let slot = Slot::Coming {
            flight: self.last_flight,
            get,
            ahead,
        };
        self.forget(number);
        self.ahead += ahead;
        self.slots.insert(number, slot);
    }

    /// A GET has brought the object, which costs `cost` to keep.
    pub(super) fn land(
        &mut self,
        number: u32,
        flight: u64,
        payload: Payload,
        cost: u64,
    ) -> Evicted {
        let Some(ahead) = self.ahead_of_flight(number, flight) else {
            return self.evict(0);
        };
        self.forget(number);
        let over = (self.held + cost).saturating_sub(self.capacity);
        let evicted = self.evict(over);
        if cost > self.capacity {
            return evicted;
        }
        self.last_tick += 1;
        let tick = self.last_tick;
        self.order.insert(tick, number);
        self.held += cost;
        let ahead = if ahead > 0 { cost } else { 0 };
        self.ahead += ahead;
        let slot = Slot::Held {
            payload,
            cost,
            tick,
            ahead,
        };
        self.slots.insert(number, slot);
        Evicted {
            held_now: self.held,
            ..evicted
        }
    }

    /// A GET was given up or has failed. Returns whether nobody had asked for it.
    pub(super) fn abandon(&mut self, number: u32, flight: u64) -> bool {
        let ahead = self.ahead_of_flight(number, flight);
        if ahead.is_some() {
            self.forget(number);
        }
        ahead.is_some_and(|ahead| ahead > 0)
    }

    /// Gives up about `bytes` of what is held.
    pub(super) fn evict(&mut self, bytes: u64) -> Evicted {
        let mut evicted = Evicted::default();
        while evicted.bytes < bytes {
            let Some((_, number)) = self.order.pop_first() else {
                break;
            };
            if let Some(Slot::Held {
                payload,
                cost,
                ahead,
                ..
            }) = self.slots.remove(&number)
            {
                self.held -= cost;
                self.ahead -= ahead;
                evicted.bytes += cost;
                evicted.wasted += u64::from(ahead > 0);
                evicted.payloads.push(payload);
            }
        }
        evicted.held_now = self.held;
        evicted
    }

    fn ahead_of_flight(&self, number: u32, flight: u64) -> Option<u64> {
        match self.slots.get(&number)? {
            Slot::Coming {
                flight: found,
                ahead,
                ..
            } if *found == flight => Some(*ahead),
            _ => None,
        }
    }

    /// Forgets a GET, which is not dropped by this.
    fn forget(&mut self, number: u32) {
        if let Some(Slot::Coming { ahead, .. }) = self.slots.remove(&number) {
            self.ahead -= ahead;
        }
    }
}
