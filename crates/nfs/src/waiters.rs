//! Locks that clients wait for.
//!
//! ```text
//! Waiting --- the volume gives it ---> Given --- the client knows ---> Taken
//!    |                                   |
//!    '-- it asks no more, or is gone --> GivenUp: what was given is taken back
//! ```
//!
//! The task of the lock makes the first step and cleans up after the last; calls of the client make the others, and wait
//! for [`Waiter::over`] where what comes next must find the volume as it will stay.

use std::{collections::HashMap, net::IpAddr, ops::Range, sync::Arc};

use penstock_base::{Mutex, metrics::Gauge};
use penstock_vfs::LockOwner;
use tokio::sync::watch;

use crate::{
    limits::{WAITING_LOCKS_MAX, WAITING_LOCKS_OF_ADDRESS_MAX},
    lockers::OwnerName,
};

/// Which lock, of whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Awaited {
    pub(crate) owner: OwnerName,
    /// The handle of the file.
    pub(crate) file: Box<[u8]>,
    pub(crate) range: Range<u64>,
    pub(crate) is_exclusive: bool,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    /// The volume gave it, and the client does not know.
    Given,
    /// The client knows that it has it.
    Taken,
    /// The client does not want it any more, or cannot be told.
    GivenUp,
    /// Nothing is done about it any more.
    Over,
}

/// What a lock is for a client that asks for it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It waits for it.
    Waits,
    /// It has it.
    Has,
    /// What was done about it ends.
    Ends,
}

/// What becomes of a lock that a client begins to wait for.
#[derive(Debug)]
pub(crate) enum Begun {
    New(Arc<Waiter>),
    /// The client waits for it already.
    Before,
    TooMany,
}

/// A lock that a client waits for.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) awaited: Awaited,
    /// The owner as the volume knows it.
    pub(crate) owner: LockOwner,
    address: IpAddr,
    state: watch::Sender<State>,
}

impl Waiter {
    fn change(&self, from: &[State], to: State) -> bool {
        self.state.send_if_modified(|state| {
            let is_right = from.contains(state);
            if is_right {
                *state = to;
            }
            is_right
        })
    }

    /// The volume gave it. Says whether it is still wanted.
    pub(crate) fn give(&self) -> bool {
        self.change(&[State::Waiting], State::Given)
    }

    /// The client knows that it has it, if it was given.
    pub(crate) fn take(&self) {
        self.change(&[State::Given], State::Taken);
    }

    /// The client does something else about what it holds there: that is not taken back any more, also where the client
    /// did not want this one.
    fn touch(&self) {
        self.change(&[State::Given, State::GivenUp], State::Taken);
    }

    /// The client does not want it any more.
    pub(crate) fn give_up(&self) {
        self.change(&[State::Waiting, State::Given], State::GivenUp);
    }

    /// The client asks for it once more. Who knew before that he has it may have given it back since.
    pub(crate) fn again(&self) -> Again {
        if self.change(&[State::Given], State::Taken) {
            return Again::Has;
        }
        match *self.state.borrow() {
            State::Waiting => Again::Waits,
            State::Given | State::Taken | State::GivenUp | State::Over => Again::Ends,
        }
    }

    pub(crate) fn is_taken(&self) -> bool {
        *self.state.borrow() == State::Taken
    }

    /// Whether the volume is to give it.
    pub(crate) fn is_awaited(&self) -> bool {
        *self.state.borrow() == State::Waiting
    }

    /// Whether the client waits for it, or will be told that it has it.
    fn is_wanted(&self) -> bool {
        matches!(*self.state.borrow(), State::Waiting | State::Given)
    }

    /// Returns when the client knows that it has it, or does not want it.
    pub(crate) async fn settled(&self) {
        self.reached(|state| !matches!(state, State::Waiting | State::Given))
            .await;
    }

    /// Returns when nothing is done about it any more.
    pub(crate) async fn over(&self) {
        self.reached(|state| *state == State::Over).await;
    }

    async fn reached(&self, is_reached: impl FnMut(&State) -> bool) {
        // The sender is in `self`, so waiting cannot fail.
        let _ = self.state.subscribe().wait_for(is_reached).await;
    }
}

/// All locks that clients wait for, by the numbers of the clients.
#[derive(Debug)]
pub(crate) struct Waiters {
    clients: Mutex<HashMap<u64, Vec<Arc<Waiter>>>>,
    count: Arc<Gauge>,
}

impl Waiters {
    /// `count` shows how many there are.
    pub(crate) fn new(count: Arc<Gauge>) -> Self {
        Self {
            clients: Mutex::default(),
            count,
        }
    }

    /// One more, unless the client waits for it already, or there are too many.
    pub(crate) fn begin(&self, awaited: Awaited, owner: LockOwner, address: IpAddr) -> Begun {
        let mut clients = self.clients.lock();
        let known = clients.get(&owner.client).into_iter().flatten();
        let mut same = known.filter(|waiter| waiter.awaited == awaited);
        if same.any(|waiter| waiter.is_wanted()) {
            return Begun::Before;
        }
        let all = || clients.values().flatten();
        let of_address = all().filter(|waiter| waiter.address == address).count();
        if all().count() >= WAITING_LOCKS_MAX || of_address >= WAITING_LOCKS_OF_ADDRESS_MAX {
            return Begun::TooMany;
        }
        let waiter = Arc::new(Waiter {
            awaited,
            owner,
            address,
            state: watch::Sender::new(State::Waiting),
        });
        let own = clients.entry(owner.client).or_default();
        own.push(Arc::clone(&waiter));
        self.count.add(1);
        Begun::New(waiter)
    }

    /// Forgets one, about which nothing is done any more.
    pub(crate) fn end(&self, waiter: &Arc<Waiter>) {
        let mut clients = self.clients.lock();
        let client = waiter.owner.client;
        if let Some(own) = clients.get_mut(&client) {
            let before = own.len();
            own.retain(|known| !Arc::ptr_eq(known, waiter));
            self.count.subtract((before - own.len()) as u64);
            if own.is_empty() {
                clients.remove(&client);
            }
        }
        waiter.state.send_replace(State::Over);
    }

    /// The one of a client for a lock, and of several the one that is not about to end.
    pub(crate) fn find(&self, client: u64, awaited: &Awaited) -> Option<Arc<Waiter>> {
        let clients = self.clients.lock();
        let own = clients.get(&client)?.iter();
        let same = own.filter(|waiter| waiter.awaited == *awaited);
        same.max_by_key(|waiter| waiter.is_wanted()).cloned()
    }

    /// The number of an owner that waits for something.
    pub(crate) fn owner(&self, client: u64, name: &OwnerName) -> Option<u64> {
        let clients = self.clients.lock();
        let mut own = clients.get(&client)?.iter();
        let known = own.find(|waiter| waiter.awaited.owner == *name)?;
        Some(known.owner.owner)
    }

    /// Something was done about a range of an owner: the client knows of what it holds there, and nothing of that is to
    /// be taken back.
    pub(crate) fn touched(
        &self,
        client: u64,
        (owner, file): (&OwnerName, &[u8]),
        range: &Range<u64>,
    ) {
        for waiter in self.of(client) {
            let Awaited {
                owner: of,
                file: at,
                range: awaited,
                ..
            } = &waiter.awaited;
            let overlaps = awaited.start < range.end && range.start < awaited.end;
            if of == owner && **at == *file && overlaps {
                waiter.touch();
            }
        }
    }

    /// All of a client.
    pub(crate) fn of(&self, client: u64) -> Vec<Arc<Waiter>> {
        self.clients
            .lock()
            .get(&client)
            .cloned()
            .unwrap_or_default()
    }

    /// All.
    pub(crate) fn all(&self) -> Vec<Arc<Waiter>> {
        self.clients.lock().values().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: LockOwner = LockOwner {
        client: 1,
        owner: 2,
    };
    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn awaited(range: Range<u64>) -> Awaited {
        Awaited {
            owner: OwnerName {
                process: 1,
                owner: Box::default(),
            },
            file: Box::default(),
            range,
            is_exclusive: true,
        }
    }

    fn begun(waiters: &Waiters, range: Range<u64>) -> Arc<Waiter> {
        match waiters.begin(awaited(range), OWNER, ADDRESS) {
            Begun::New(waiter) => waiter,
            other => panic!("{other:?}"),
        }
    }

    fn touch(waiters: &Waiters, range: Range<u64>) {
        let Awaited { owner, file, .. } = awaited(0..1);
        waiters.touched(OWNER.client, (&owner, &file), &range);
    }

    #[test]
    fn a_lock_that_two_threads_of_a_process_want_is_waited_for_once() {
        let waiters = Waiters::new(Arc::default());
        let first = begun(&waiters, 0..10);
        let again = || waiters.begin(awaited(0..10), OWNER, ADDRESS);
        assert!(matches!(again(), Begun::Before));
        assert!(first.give());
        assert!(matches!(again(), Begun::Before));
        begun(&waiters, 0..11);
        first.give_up();
        begun(&waiters, 0..10);
    }

    #[test]
    fn who_gave_a_lock_back_is_not_told_that_it_has_it_when_it_asks_again() {
        let waiters = Waiters::new(Arc::default());
        let waiter = begun(&waiters, 0..10);
        assert_eq!(waiter.again(), Again::Waits);
        assert!(waiter.give());
        touch(&waiters, 9..10);
        assert_eq!(waiter.again(), Again::Ends);
        let told = begun(&waiters, 20..30);
        assert!(told.give());
        assert_eq!(told.again(), Again::Has);
    }

    #[test]
    fn what_is_taken_anew_before_it_is_taken_back_stays() {
        let waiters = Waiters::new(Arc::default());
        let waiter = begun(&waiters, 0..10);
        assert!(waiter.give());
        waiter.give_up();
        touch(&waiters, 10..20);
        assert!(!waiter.is_taken());
        touch(&waiters, 0..1);
        assert!(waiter.is_taken());
    }
}
