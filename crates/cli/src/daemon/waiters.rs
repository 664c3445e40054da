//! Commands that wait for the end of a mount.
//!
//! Each `penstock umount` that gave an order is kept here until it is refused or hears the last word,
//! whatever made the mount end. One that lost patience is forgotten when the next comes.

use std::{path::Path, time::Duration};

use penstock_base::clock;
use tokio::sync::mpsc;

use crate::control::{Progress, Refusal, Reply, server::UnmountOrder};

/// Commands that wait at once. The control socket has places for more, so that `penstock stats` is
/// answered meanwhile.
const WAITERS_MAX: usize = 8;

/// How long the last word to all of them may take.
const LAST_WORD_DEADLINE: Duration = Duration::from_secs(2);

/// Those who wait.
#[derive(Debug, Default)]
pub(super) struct Waiters(Vec<UnmountOrder>);

impl Waiters {
    pub(super) fn add(&mut self, order: UnmountOrder) {
        self.0.retain(|order| !order.replies.is_closed());
        if self.0.len() < WAITERS_MAX {
            return self.0.push(order);
        }
        answer(
            order,
            Reply::Refused(Refusal {
                cause: format!("{WAITERS_MAX} commands wait for the end of this mount already"),
                remedy: "wait until they have ended, or watch it with `penstock stats`".to_owned(),
            }),
        );
    }

    /// The mount point that the first order is about, or the whole mount; nothing where nobody gave one.
    pub(super) fn first(&self) -> Option<Option<&Path>> {
        let first = self.0.first()?;
        Some(first.mountpoint.as_deref())
    }

    /// Whether all have gone.
    pub(super) fn are_gone(&self) -> bool {
        self.0.iter().all(|order| order.replies.is_closed())
    }

    /// Whether one of those about a mount point wants it out of sight even while files are open.
    pub(super) fn is_lazy(&self, place: Option<&Path>) -> bool {
        let mut orders = self.0.iter();
        orders.any(|order| order.lazy && order.mountpoint.as_deref() == place)
    }

    /// Takes those about a mount point out: they are answered by the caller.
    pub(super) fn take(&mut self, place: Option<&Path>) -> Self {
        let taken = self
            .0
            .extract_if(.., |order| order.mountpoint.as_deref() == place);
        Self(taken.collect())
    }

    /// Tells all of them, but those who have not read what came before.
    pub(super) fn tell(&self, progress: Progress) {
        for order in &self.0 {
            let _ = order.replies.try_send(Reply::Progress(progress));
        }
    }

    /// Ends the wait of all of them.
    pub(super) fn answer(&mut self, reply: &Reply) {
        for order in self.0.drain(..) {
            answer(order, reply.clone());
        }
    }

    /// Gives the last word to all of them, and to those who are on their way. Waits until it was heard,
    /// since the process may end right after: no client is left when no order can come any more.
    pub(super) async fn end(mut self, orders: &mut mpsc::Receiver<UnmountOrder>, reply: Reply) {
        self.answer(&reply);
        let heard = async {
            while let Some(order) = orders.recv().await {
                answer(order, reply.clone());
            }
        };
        let _ = clock::deadline(LAST_WORD_DEADLINE, heard).await;
    }
}

/// Sends a final reply without waiting: a client that reads slowly holds up nobody else.
fn answer(order: UnmountOrder, reply: Reply) {
    tokio::spawn(async move { order.replies.send(reply).await });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(lazy: bool) -> (UnmountOrder, mpsc::Receiver<Reply>) {
        let (replies, received) = mpsc::channel(1);
        let order = UnmountOrder {
            lazy,
            mountpoint: None,
            replies,
        };
        (order, received)
    }

    #[tokio::test]
    async fn who_waits_is_bounded_and_who_left_makes_room() {
        let mut waiters = Waiters::default();
        let mut waiting = Vec::new();
        for _ in 0..WAITERS_MAX {
            let (order, received) = order(false);
            waiters.add(order);
            waiting.push(received);
        }
        let (refused, mut heard) = order(true);
        waiters.add(refused);
        let answer = heard.recv().await;
        assert!(matches!(answer, Some(Reply::Refused(_))), "{answer:?}");
        assert!(!waiters.is_lazy(None));

        waiting.pop();
        let (next, _received) = order(true);
        waiters.add(next);
        assert!(waiters.is_lazy(None));
        assert!(!waiters.is_lazy(Some(Path::new("/mnt/y"))));
    }

    #[tokio::test]
    async fn the_last_word_reaches_also_those_who_come_late_and_do_not_read() {
        let ended = Reply::Ended {
            unsaved: Vec::new(),
            cause: None,
        };
        let (sender, mut orders) = mpsc::channel(1);
        let mut waiters = Waiters::default();
        let (first, mut heard_first) = order(false);
        let (late, mut heard_late) = order(false);
        waiters.add(first);
        waiters.tell(Progress::default());
        sender.send(late).await.expect("room");
        drop(sender);
        waiters.end(&mut orders, ended.clone()).await;
        assert!(matches!(heard_first.recv().await, Some(Reply::Progress(_))));
        assert_eq!(heard_first.recv().await, Some(ended.clone()));
        assert_eq!(heard_late.recv().await, Some(ended));
    }
}
