//! One machine: its callers, what it knows, the group that waits and the one under way.

use crate::load::{Kind, SHARED_FILES};

/// Who does one operation after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    pub(super) kind: Kind,
    /// The shared file that it is about.
    pub(super) file: usize,
    pub(super) begun: u64,
    /// Pages that it still needs.
    pub(super) pages: u32,
}

/// Operations that are made at once.
#[derive(Debug, Clone, Default)]
pub(super) struct Group {
    pub(super) callers: Vec<usize>,
    /// Shared files that they change.
    pub(super) shared: Vec<usize>,
    /// What they build on is as of this number.
    pub(super) seen: usize,
    /// From which number on the trip asked for news, as of which it brings them, and how many keys.
    pub(super) since: usize,
    pub(super) until: usize,
    pub(super) told: u64,
    pub(super) is_refused: bool,
    /// When it got the lock.
    pub(super) locked: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) callers: Vec<Caller>,
    /// What is known is as of this number.
    pub(super) seen: usize,
    /// Since which number each shared file is known, unless others changed it since.
    pub(super) known: Vec<usize>,
    pub(super) waiting: Group,
    pub(super) sending: Group,
    /// The worker is on a trip.
    pub(super) is_busy: bool,
    /// Trips of the worker so far.
    pub(super) turn: u64,
    /// Trips that read so far, which go over the connections in turn.
    pub(super) reads: usize,
}

impl Machine {
    pub(super) fn new(callers: usize) -> Self {
        let caller = Caller {
            kind: Kind::Stat,
            file: 0,
            begun: 0,
            pages: 0,
        };
        Self {
            callers: vec![caller; callers],
            seen: 0,
            known: vec![0; SHARED_FILES as usize],
            waiting: Group::default(),
            sending: Group::default(),
            is_busy: false,
            turn: 0,
            reads: 0,
        }
    }

    pub(super) fn shared_files(&self) -> usize {
        self.known.len()
    }

    /// A trip brought all that was changed up to this number.
    pub(super) fn go_on(&mut self, until: usize) {
        self.seen = self.seen.max(until);
    }

    /// Whether a shared file is known that others changed last under this number.
    pub(super) fn knows(&self, file: usize, changed: usize) -> bool {
        changed <= self.known[file] || changed > self.seen
    }
}
