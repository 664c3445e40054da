//! Calls that come again.
//!
//! A client that hears nothing asks again, and a call that cannot be repeated (REMOVE, RENAME, an exclusive CREATE) would
//! then fail though it was carried out; a WRITE that is carried out late once more would undo what was written since. So
//! the answer is kept for a while and given again; and a repeat that comes while the first is still running waits for it.
//! Only calls that change something are kept: a table of all would cost more than it saves. What is kept goes with the
//! process; of calls that change names a volume remembers which were carried out ([`penstock_vfs::CallId`]).

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    hash::{BuildHasher, RandomState},
    net::IpAddr,
};

use bytes::Bytes;
use penstock_base::{ChecksumKind, Mutex, Summing, clock};
use tokio::sync::watch;

use crate::limits::{DUPLICATE_DEADLINE, DUPLICATES_MAX};

/// Which call: of which client, its number, the procedure, and what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CallKey {
    client: IpAddr,
    xid: u32,
    procedure: u32,
    /// Another call may have the number that an old one had: another connection of the client, or another client behind
    /// its address, counts for itself.
    arguments: u64,
}

/// What is known of a call: its answer once there is one. An answer that never comes, since who had it is gone, closes
/// the channel.
type Known = watch::Receiver<Option<Bytes>>;

#[derive(Debug, Default)]
struct Table {
    calls: HashMap<CallKey, Known>,
    order: VecDeque<CallKey>,
}

/// The calls that came, with their answers.
#[derive(Debug, Default)]
pub(crate) struct Duplicates {
    table: Mutex<Table>,
    hasher: RandomState,
}

/// What a call is.
pub(crate) enum Arrival {
    /// Here for the first time: carry it out, and tell its answer.
    First(Running),
    /// A repeat, with the answer of the first.
    Repeat(Bytes),
    /// A repeat of one that takes too long: it is not answered.
    Late,
}

/// A call that is carried out.
pub(crate) struct Running {
    answer: watch::Sender<Option<Bytes>>,
}

impl Running {
    /// Keeps the answer.
    pub(crate) fn answered(self, reply: Bytes) {
        self.answer.send_replace(Some(reply));
    }
}

impl Duplicates {
    /// What tells a call from others: of a WRITE all that it writes, too, which may have been received `apart`.
    pub(crate) fn key(
        &self,
        client: IpAddr,
        (xid, procedure): (u32, u32),
        (arguments, apart): (&[u8], Option<&[u8]>),
    ) -> CallKey {
        CallKey {
            client,
            xid,
            procedure,
            arguments: self.hasher.hash_one((arguments, apart.map(sum_of))),
        }
    }

    /// Takes note of a call, and waits for its answer if it is a repeat.
    pub(crate) async fn arrive(&self, key: CallKey) -> Arrival {
        loop {
            let mut known = match self.look(key) {
                Ok(running) => return Arrival::First(running),
                Err(known) => known,
            };
            let answered = known.wait_for(Option::is_some);
            match clock::deadline(DUPLICATE_DEADLINE, answered).await {
                Ok(Ok(answer)) => return answer.clone().map_or(Arrival::Late, Arrival::Repeat),
                Ok(Err(_)) => self.forget(key),
                Err(_) => return Arrival::Late,
            }
        }
    }

    fn look(&self, key: CallKey) -> Result<Running, Known> {
        let mut table = self.table.lock();
        match table.calls.entry(key) {
            Entry::Occupied(known) => Err(known.get().clone()),
            Entry::Vacant(place) => {
                let (answer, known) = watch::channel(None);
                place.insert(known);
                table.order.push_back(key);
                table.trim();
                Ok(Running { answer })
            }
        }
    }

    /// Forgets a call whose answer never came.
    fn forget(&self, key: CallKey) {
        let mut table = self.table.lock();
        let is_lost = |known: &Known| known.borrow().is_none() && known.has_changed().is_err();
        if table.calls.get(&key).is_some_and(is_lost) {
            table.calls.remove(&key);
            table.order.retain(|other| *other != key);
        }
    }
}

/// A megabyte is summed up some ten times as fast as it is hashed.
fn sum_of(content: &[u8]) -> u64 {
    let mut sum = Summing::new(ChecksumKind::Crc64Nvme);
    sum.add(content);
    sum.checksum().value()
}

impl Table {
    fn trim(&mut self) {
        let mut surplus = self.order.len().saturating_sub(DUPLICATES_MAX);
        let mut looked = self.order.len();
        while surplus > 0 && looked > 0 {
            let Some(key) = self.order.pop_front() else {
                return;
            };
            looked -= 1;
            let is_running = self
                .calls
                .get(&key)
                .is_some_and(|known| known.borrow().is_none());
            if is_running {
                self.order.push_back(key);
            } else {
                self.calls.remove(&key);
                surplus -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, sync::Arc};

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    async fn first(duplicates: &Duplicates, key: CallKey) -> Running {
        match duplicates.arrive(key).await {
            Arrival::First(running) => running,
            _ => panic!("it never came before"),
        }
    }

    #[tokio::test]
    async fn a_repeat_waits_for_the_first_and_has_its_answer() {
        let duplicates = Arc::new(Duplicates::default());
        let key = duplicates.key(CLIENT, (1, 12), (b"name", None));
        let running = first(&duplicates, key).await;
        let again = Arc::clone(&duplicates);
        let repeat = tokio::spawn(async move { again.arrive(key).await });
        tokio::task::yield_now().await;
        assert!(!repeat.is_finished());
        running.answered(Bytes::from_static(b"done"));
        let Arrival::Repeat(answer) = repeat.await.unwrap() else {
            panic!("a repeat");
        };
        assert_eq!(&answer[..], b"done");
    }

    #[tokio::test]
    async fn another_client_number_procedure_or_argument_is_another_call() {
        let duplicates = Duplicates::default();
        let other = IpAddr::V4(Ipv4Addr::BROADCAST);
        let keys = [
            duplicates.key(CLIENT, (1, 12), (b"name", None)),
            duplicates.key(other, (1, 12), (b"name", None)),
            duplicates.key(CLIENT, (2, 12), (b"name", None)),
            duplicates.key(CLIENT, (1, 13), (b"name", None)),
            duplicates.key(CLIENT, (1, 12), (b"nome", None)),
            duplicates.key(CLIENT, (1, 12), (b"name", Some(b"content"))),
            duplicates.key(CLIENT, (1, 12), (b"name", Some(b"another"))),
        ];
        for key in keys {
            first(&duplicates, key).await.answered(Bytes::new());
        }
    }

    #[tokio::test]
    async fn a_call_whose_answer_is_lost_is_carried_out_again() {
        let duplicates = Duplicates::default();
        let key = duplicates.key(CLIENT, (1, 12), (b"name", None));
        drop(first(&duplicates, key).await);
        first(&duplicates, key).await.answered(Bytes::new());
        assert!(matches!(duplicates.arrive(key).await, Arrival::Repeat(_)));
    }

    #[tokio::test]
    async fn the_oldest_answers_go_and_running_calls_stay() {
        let duplicates = Duplicates::default();
        let key = |xid| duplicates.key(CLIENT, (xid, 12), (b"", None));
        let running = first(&duplicates, key(0)).await;
        for xid in 1..=DUPLICATES_MAX as u32 + 10 {
            first(&duplicates, key(xid)).await.answered(Bytes::new());
        }
        assert_eq!(duplicates.table.lock().calls.len(), DUPLICATES_MAX);
        first(&duplicates, key(1)).await.answered(Bytes::new());
        running.answered(Bytes::new());
        assert!(matches!(
            duplicates.arrive(key(0)).await,
            Arrival::Repeat(_)
        ));
    }
}
