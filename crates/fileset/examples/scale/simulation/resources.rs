//! What trips wait for: cores, and wires.

use std::collections::VecDeque;

use super::Step;

/// Cores that take work in the order in which it comes.
#[derive(Debug)]
pub(super) struct Processor {
    cores: usize,
    running: usize,
    waiting: VecDeque<(u64, Step)>,
}

impl Processor {
    pub(super) fn new(cores: usize) -> Self {
        Self {
            cores,
            running: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Begins work if a core is free; else it is next.
    pub(super) fn begin(&mut self, work: u64, then: Step) -> bool {
        let is_free = self.running < self.cores;
        match is_free {
            true => self.running += 1,
            false => self.waiting.push_back((work, then)),
        }
        is_free
    }

    /// A core has done its work; returns what it does next.
    pub(super) fn end(&mut self) -> Option<(u64, Step)> {
        let next = self.waiting.pop_front();
        if next.is_none() {
            self.running -= 1;
        }
        next
    }
}

/// Carries one message after the other.
#[derive(Debug)]
pub(super) struct Wire {
    bytes_per_second: f64,
    free_at: u64,
    bytes: f64,
}

impl Wire {
    pub(super) fn new(bytes_per_second: f64) -> Self {
        Self {
            bytes_per_second,
            free_at: 0,
            bytes: 0.0,
        }
    }

    /// When the last byte is on the wire.
    pub(super) fn send(&mut self, now: u64, bytes: f64) -> u64 {
        self.bytes += bytes;
        let took = (bytes / self.bytes_per_second * 1e9).round() as u64;
        self.free_at = self.free_at.max(now) + took;
        self.free_at
    }

    pub(super) fn bytes(&self) -> f64 {
        self.bytes
    }

    /// Which part of what it can carry in this time it carried.
    pub(super) fn share(&self, seconds: f64) -> f64 {
        self.bytes / seconds / self.bytes_per_second
    }

    pub(super) fn forget(&mut self) {
        self.bytes = 0.0;
    }
}
