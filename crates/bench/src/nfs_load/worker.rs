//! One connection that keeps so many operations under way.
//!
//! Calls that come of replies which are there already go with one system call, before the next reply is waited for.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use penstock_base::clock::{self, Instant};

use super::{
    Amount,
    connection::{Connection, unexpected},
    latencies::Latencies,
    work::{Stage, Work},
};
use crate::BenchResult;

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) latencies: Latencies,
    pub(super) bytes: u64,
}

impl Done {
    pub(super) fn add(&mut self, other: &Self) {
        self.latencies.add(&other.latencies);
        self.bytes += other.bytes;
    }
}

pub(super) struct Worker {
    connection: Connection,
    work: Box<dyn Work>,
    /// What is under way; nothing in a slot that is free.
    slots: Vec<Option<UnderWay>>,
    /// Bits of a call's number that tell its slot.
    slot_bits: u32,
    done: Done,
}

struct UnderWay {
    /// The number of the call that is not answered yet.
    call: u32,
    stage: Stage,
    began: Instant,
}

impl Worker {
    pub(super) fn new(connection: Connection, work: Box<dyn Work>, depth: usize) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(depth, || None);
        Self {
            connection,
            work,
            slots,
            slot_bits: usize::BITS - (depth - 1).leading_zeros(),
            done: Done::default(),
        }
    }

    /// Works until `amount` is done and nothing is under way, or another connection has failed.
    pub(super) fn run(mut self, amount: Amount, has_failed: &AtomicBool) -> BenchResult<Done> {
        let (mut left, limit) = match amount {
            Amount::Time(limit) => (u64::MAX, limit),
            Amount::Operations(count) => (count, Duration::MAX),
        };
        let started = clock::now();
        let mut under_way = 0;
        for slot in 0..self
            .slots
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX))
        {
            self.begin(slot, started)?;
            (left, under_way) = (left - 1, under_way + 1);
        }
        while under_way > 0 {
            if !self.connection.replies.is_there() {
                self.connection.calls.send()?;
            }
            let Some((slot, now)) = self.receive()? else {
                continue;
            };
            let goes_on = left > 0
                && now.duration_since(started) < limit
                && !has_failed.load(Ordering::Relaxed);
            match goes_on {
                true => {
                    self.begin(slot, now)?;
                    left -= 1;
                }
                false => under_way -= 1,
            }
        }
        self.finish()?;
        Ok(self.done)
    }

    fn begin(&mut self, slot: usize, now: Instant) -> BenchResult<()> {
        let call = self.number(slot);
        let stage = self.work.begin(&mut self.connection.calls, call)?;
        self.slots[slot] = Some(UnderWay {
            call,
            stage,
            began: now,
        });
        Ok(())
    }

    fn number(&mut self, slot: usize) -> u32 {
        self.connection.calls.number(slot as u32, self.slot_bits)
    }

    /// Takes the next reply, and returns the slot whose operation is done with it, and when.
    fn receive(&mut self) -> BenchResult<Option<(usize, Instant)>> {
        let Connection { calls, replies } = &mut self.connection;
        let (answered, results) = replies.next()?;
        let slot = (answered & ((1 << self.slot_bits) - 1)) as usize;
        let under_way = self.slots.get_mut(slot).and_then(Option::take);
        let Some(under_way) = under_way.filter(|it| it.call == answered) else {
            return Err(unexpected("a reply to no call"));
        };
        let call = calls.number(slot as u32, self.slot_bits);
        let next = (&mut *calls, call);
        if let Some(stage) = self.work.answered(under_way.stage, results, next)? {
            let began = under_way.began;
            self.slots[slot] = Some(UnderWay { call, stage, began });
            return Ok(None);
        }
        let now = clock::now();
        self.done.latencies.record(now - under_way.began);
        self.done.bytes += self.work.bytes();
        Ok(Some((slot, now)))
    }

    /// Makes the call that ends all, and waits for it. It is no operation.
    fn finish(&mut self) -> BenchResult<()> {
        let Connection { calls, replies } = &mut self.connection;
        let number = calls.number(0, self.slot_bits);
        if let Some(stage) = self.work.finish(calls, number)? {
            calls.send()?;
            let (_, results) = replies.next()?;
            self.work.answered(stage, results, (calls, number))?;
        }
        Ok(())
    }
}
