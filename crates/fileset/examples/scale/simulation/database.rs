//! The database: one lock, behind which groups go one after the other, and connections that read.
//!
//! PostgreSQL gives a row that many wait for to whoever comes upon its latest version first, which is nobody's turn: of
//! 48 sessions that waited the median waited 0.6 times the mean, and each tenth 2.3 times, as with lots. So lots are drawn.

use std::collections::VecDeque;

use super::trips::Read;

/// A connection serves one trip after the other.
#[derive(Debug, Clone, Default)]
pub(super) struct Connection {
    /// Trips on their way there or back.
    pub(super) trips: VecDeque<usize>,
    /// Those that arrived; the first one is at work.
    pub(super) served: VecDeque<usize>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Database {
    /// Somebody has the lock.
    pub(super) is_locked: bool,
    /// Machines whose groups wait for it.
    pub(super) waiting: Vec<usize>,
    connections: Vec<Connection>,
    each: usize,
}

impl Database {
    /// With so many connections of each machine that read.
    pub(super) fn new(machines: usize, each: usize) -> Self {
        Self {
            is_locked: false,
            waiting: Vec::new(),
            connections: vec![Connection::default(); machines * each],
            each,
        }
    }

    /// The connection of a machine whose turn it is.
    pub(super) fn connection(&mut self, machine: usize, turn: usize) -> &mut Connection {
        &mut self.connections[machine * self.each + turn % self.each]
    }
}

/// Trips under way that read, by number.
#[derive(Debug, Default)]
pub(super) struct Reads {
    places: Vec<Option<Read>>,
    free: Vec<usize>,
}

impl Reads {
    pub(super) fn insert(&mut self, read: Read) -> usize {
        if let Some(number) = self.free.pop() {
            self.places[number] = Some(read);
            return number;
        }
        self.places.push(Some(read));
        self.places.len() - 1
    }

    pub(super) fn get(&self, number: usize) -> &Read {
        self.places[number].as_ref().expect("it is under way")
    }

    pub(super) fn get_mut(&mut self, number: usize) -> &mut Read {
        self.places[number].as_mut().expect("it is under way")
    }

    pub(super) fn remove(&mut self, number: usize) -> Read {
        self.free.push(number);
        self.places[number].take().expect("it is under way")
    }
}
