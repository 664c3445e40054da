//! Trips to the database: groups of a worker, and all that reads.

use super::{At, BEAT, POLL, Step, World, history::keys_of, machine::Group, nanoseconds};
use crate::load::Kind;

/// What a trip reads, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Poll,
    CatchUp(usize),
    Page(usize),
    Beat,
}

/// A trip that reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    machine: usize,
    /// Which of the machine's connections it takes.
    turn: usize,
    purpose: Purpose,
    since: usize,
    until: usize,
    told: u64,
    /// The connection was busy when it came: nobody has to wake up for it.
    is_behind: bool,
}

impl World {
    /// A change was run on what is known: it waits in the group, if all that it looks at is known.
    pub(super) fn apply(&mut self, machine: usize, caller: usize) {
        let one = self.machines[machine].callers[caller];
        let is_shared = one.kind == Kind::CloseShared;
        let changed = self.history.changed_by_others(machine, one.file);
        if is_shared && !self.machines[machine].knows(one.file, changed) {
            self.read(machine, Purpose::Page(caller));
            return;
        }
        let state = &mut self.machines[machine];
        if state.waiting.callers.is_empty() {
            state.waiting.seen = state.seen;
        }
        state.waiting.callers.push(caller);
        if is_shared {
            state.waiting.shared.push(one.file);
        }
        if !state.is_busy {
            self.next_group(machine);
        }
    }

    /// The worker sends what waits, or rests.
    fn next_group(&mut self, machine: usize) {
        let state = &mut self.machines[machine];
        state.turn += 1;
        state.is_busy = !state.waiting.callers.is_empty();
        if !state.is_busy {
            let turn = state.turn;
            self.plan(POLL, Step::Poll(machine, turn));
            return;
        }
        let mut group = std::mem::take(&mut state.waiting);
        group.since = state.seen;
        state.sending = group;
        self.work(
            At::Machine(machine),
            self.costs.machine_group,
            Step::GroupReady(machine),
        );
    }

    pub(super) fn send_group(&mut self, machine: usize) {
        let operations = self.machines[machine].sending.callers.len() as f64;
        let bytes = self.costs.group_up + operations * self.costs.operation_up;
        self.send(true, bytes, Step::GroupArrived(machine));
        self.work(
            At::Machine(machine),
            self.costs.machine_beside,
            Step::Nothing,
        );
    }

    pub(super) fn take_lock(&mut self, machine: usize) {
        if self.database.is_locked {
            self.database.waiting.push(machine);
        } else {
            self.database.is_locked = true;
            self.make_group(machine);
        }
    }

    /// Compares a group with what others changed, and makes it unless they meet; its news are behind that.
    fn make_group(&mut self, machine: usize) {
        let waiting = self.database.waiting.len();
        let state = &mut self.machines[machine];
        let group = &mut state.sending;
        let history = &self.history;
        let is_outdated = |file: &usize| history.changed_by_others(machine, *file) > group.seen;
        group.is_refused = group.shared.iter().any(is_outdated);
        group.locked = self.now;
        let operations = group.callers.len();
        let own = match group.is_refused {
            true => 0,
            false => operations,
        };
        group.told = history.behind(group.since) + keys_of(own);
        group.until = history.last() + usize::from(own > 0);
        let compared = history.behind_of_others(machine, group.seen);
        let costs = &self.costs;
        let work = costs.group
            + own as f64 * costs.operation
            + group.told as f64 * costs.key
            + compared as f64 * costs.compared
            + waiting as f64 * costs.waiter
            + if waiting > 0 { costs.contended } else { 0.0 };
        self.work(At::Database, work, Step::GroupMade(machine));
    }

    pub(super) fn leave_lock(&mut self, machine: usize) {
        let group = &self.machines[machine].sending;
        let operations = group.callers.len();
        if !group.is_refused {
            self.history.change(machine, operations, &group.shared);
        }
        self.counts.groups += 1;
        self.counts.refused += u64::from(group.is_refused);
        self.counts.told += group.told;
        self.counts.locked += self.now - group.locked;
        let bytes = self.costs.group_down
            + operations as f64 * self.costs.operation_down
            + group.told as f64 * self.costs.key_down;
        self.send(false, bytes, Step::GroupAnswered(machine));
        match self.database.waiting.len() {
            0 => self.database.is_locked = false,
            count => {
                let next = self
                    .database
                    .waiting
                    .swap_remove(self.chance.usize(..count));
                self.make_group(next);
            }
        }
    }

    pub(super) fn take_in_group(&mut self, machine: usize) {
        let told = self.machines[machine].sending.told;
        let work = told as f64 * self.costs.machine_key;
        self.work(At::Machine(machine), work, Step::GroupTaken(machine));
    }

    /// The group's callers go on, or begin again with those that wait behind it.
    pub(super) fn end_group(&mut self, machine: usize) {
        let state = &mut self.machines[machine];
        let group = std::mem::take(&mut state.sending);
        state.go_on(group.until);
        if group.is_refused {
            let Group { callers, .. } = std::mem::take(&mut state.waiting);
            self.next_group(machine);
            for caller in group.callers.into_iter().chain(callers) {
                let change = self.costs.machine_operation;
                self.work(At::Machine(machine), change, Step::Apply(machine, caller));
            }
            return;
        }
        for file in &group.shared {
            state.known[*file] = group.until;
        }
        self.next_group(machine);
        for caller in group.callers {
            self.end_operation(machine, caller);
        }
    }

    pub(super) fn poll(&mut self, machine: usize, turn: u64) {
        let state = &mut self.machines[machine];
        if state.is_busy || state.turn != turn {
            return;
        }
        state.is_busy = true;
        self.read(machine, Purpose::Poll);
    }

    /// Two trips each time: it says that it is alive, and looks at the others.
    pub(super) fn beat(&mut self, machine: usize) {
        self.read(machine, Purpose::Beat);
        self.read(machine, Purpose::Beat);
        self.plan(BEAT, Step::Beat(machine));
    }

    pub(super) fn read(&mut self, machine: usize, purpose: Purpose) {
        let state = &mut self.machines[machine];
        let (since, turn) = (state.seen, state.reads);
        state.reads += 1;
        let is_behind = {
            let trips = &self.database.connection(machine, turn).trips;
            !trips.is_empty()
        };
        let read = Read {
            machine,
            turn,
            purpose,
            since,
            until: since,
            told: 0,
            is_behind,
        };
        let number = self.reads.insert(read);
        self.database
            .connection(machine, turn)
            .trips
            .push_back(number);
        let work = match is_behind {
            true => self.costs.machine_read_behind,
            false => self.costs.machine_read,
        };
        self.work(At::Machine(machine), work, Step::ReadReady(number));
    }

    pub(super) fn send_read(&mut self, number: usize) {
        let bytes = match self.reads.get(number).purpose {
            Purpose::Page(_) => self.costs.page_up,
            _ => self.costs.news_up,
        };
        self.send(true, bytes, Step::ReadArrived(number));
    }

    pub(super) fn queue_read(&mut self, number: usize) {
        let Read { machine, turn, .. } = *self.reads.get(number);
        let served = &mut self.database.connection(machine, turn).served;
        served.push_back(number);
        if served.len() == 1 {
            self.make_read(number);
        }
    }

    /// It sees what was made by now.
    fn make_read(&mut self, number: usize) {
        let (until, costs) = (self.history.last(), &self.costs);
        let read = self.reads.get_mut(number);
        read.until = until;
        read.told = self.history.behind(read.since);
        let trip = match (read.purpose, read.is_behind) {
            (Purpose::Page(_), false) => costs.page,
            (Purpose::Page(_), true) => costs.page_behind,
            (_, false) => costs.news,
            (_, true) => costs.news_behind,
        };
        let work = trip + read.told as f64 * costs.key;
        self.work(At::Database, work, Step::ReadMade(number));
    }

    pub(super) fn answer_read(&mut self, number: usize) {
        let read = *self.reads.get(number);
        self.counts.told += read.told;
        let fixed = match read.purpose {
            Purpose::Page(_) => self.costs.page_down,
            _ => self.costs.news_down,
        };
        let bytes = fixed + read.told as f64 * self.costs.key_down;
        self.send(false, bytes, Step::ReadAnswered(number));
        let served = &mut self.database.connection(read.machine, read.turn).served;
        served.pop_front();
        if let Some(next) = served.front().copied() {
            self.make_read(next);
        }
    }

    pub(super) fn take_in_read(&mut self, number: usize) {
        let Read { machine, told, .. } = *self.reads.get(number);
        let work = told as f64 * self.costs.machine_key;
        self.work(At::Machine(machine), work, Step::ReadTaken(number));
    }

    pub(super) fn end_read(&mut self, number: usize) {
        let read = self.reads.remove(number);
        let machine = read.machine;
        let trips = &mut self.database.connection(machine, read.turn).trips;
        trips.retain(|trip| *trip != number);
        let state = &mut self.machines[machine];
        state.go_on(read.until);
        match read.purpose {
            Purpose::Poll => self.next_group(machine),
            Purpose::Beat => {}
            Purpose::CatchUp(caller) => {
                let look = self.costs.machine_look;
                self.work(At::Machine(machine), look, Step::Looked(machine, caller));
            }
            Purpose::Page(caller) => self.end_page(machine, caller, read.until),
        }
    }

    fn end_page(&mut self, machine: usize, caller: usize, until: usize) {
        let state = &mut self.machines[machine];
        let one = &mut state.callers[caller];
        if one.kind == Kind::CloseShared {
            state.known[one.file] = until;
            let change = self.costs.machine_operation;
            self.work(At::Machine(machine), change, Step::Apply(machine, caller));
            return;
        }
        one.pages -= 1;
        match one.pages {
            0 => self.plan(nanoseconds(0.0), Step::Looked(machine, caller)),
            _ => self.read(machine, Purpose::Page(caller)),
        }
    }
}
