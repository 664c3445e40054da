//! How much is under way.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{
    CALLS_MAX, CALLS_OF_CONNECTION_MAX, CONTENT_OF_CONNECTION_MAX, CONTENT_SHARE, CONTENT_UNIT,
    TRANSFER_MAX, VOLUMES_SHARE,
};

/// A number of calls with their content.
#[derive(Debug, Clone)]
struct Bound {
    calls: Arc<Semaphore>,
    content: Arc<Semaphore>,
    content_max: u64,
}

impl Bound {
    /// So many calls, and so much content, but always one READ or WRITE.
    fn new(calls: usize, content: u64) -> Self {
        let content_max = content.max(TRANSFER_MAX.into());
        Self {
            calls: Arc::new(Semaphore::new(calls)),
            content: Arc::new(Semaphore::new((content_max / CONTENT_UNIT) as usize)),
            content_max,
        }
    }
}

async fn take(semaphore: &Arc<Semaphore>, count: u32) -> OwnedSemaphorePermit {
    let permit = Arc::clone(semaphore).acquire_many_owned(count).await;
    permit.expect("these semaphores are never closed")
}

/// What may be under way of one volume: if all others hang, there is something left for the last one.
#[derive(Debug, Clone)]
pub(crate) struct Share(Bound);

/// The turn of a connection to have one more call under way.
pub(crate) struct OwnTurn(OwnedSemaphorePermit);

/// What may be under way, of the server and of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    server: Bound,
    connection: Bound,
}

/// What is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct Underway {
    /// Of the connection, of the volume if it is about one, and of the server.
    _permits: (
        OwnedSemaphorePermit,
        Option<OwnedSemaphorePermit>,
        OwnedSemaphorePermit,
    ),
}

impl Load {
    /// What a server with `memory` bytes bears.
    pub(crate) fn new(memory: u64) -> Self {
        let content = memory / CONTENT_SHARE;
        Self {
            server: Bound::new(CALLS_MAX, content),
            connection: Self::of_connection(content),
        }
    }

    /// The same for another connection.
    pub(crate) fn another(&self) -> Self {
        Self {
            server: self.server.clone(),
            connection: Self::of_connection(self.server.content_max),
        }
    }

    /// The share of each of so many volumes.
    pub(crate) fn share(&self, volumes: usize) -> Share {
        let others = volumes.saturating_sub(1) as u64;
        let part = |all: u64| match others {
            0 => all,
            others => all * (VOLUMES_SHARE - 1) / VOLUMES_SHARE / others,
        };
        let calls = part(CALLS_MAX as u64).max(1);
        Share(Bound::new(calls as usize, part(self.server.content_max)))
    }

    fn of_connection(content: u64) -> Bound {
        let content = CONTENT_OF_CONNECTION_MAX.min(content / 2);
        Bound::new(CALLS_OF_CONNECTION_MAX, content)
    }

    /// Waits for the own turn, which comes first, so that who waits for it keeps nobody else waiting.
    pub(crate) async fn turn(&self) -> OwnTurn {
        OwnTurn(take(&self.connection.calls, 1).await)
    }

    /// Waits for room for one more call, of a volume if it is about one.
    pub(crate) async fn call(&self, OwnTurn(own): OwnTurn, of: Option<&Share>) -> Underway {
        let of = match of {
            Some(Share(bound)) => Some(take(&bound.calls, 1).await),
            None => None,
        };
        let servers = take(&self.server.calls, 1).await;
        Underway {
            _permits: (own, of, servers),
        }
    }

    /// Waits for room for so much content, of a volume if it is about one.
    pub(crate) async fn content(&self, bytes: u64, of: Option<&Share>) -> Underway {
        let units = bytes.min(TRANSFER_MAX.into()).div_ceil(CONTENT_UNIT) as u32;
        let own = take(&self.connection.content, units).await;
        let of = match of {
            Some(Share(bound)) => Some(take(&bound.content, units).await),
            None => None,
        };
        let servers = take(&self.server.content, units).await;
        Underway {
            _permits: (own, of, servers),
        }
    }

    /// Whether nothing of the connection is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.connection.calls.available_permits() == CALLS_OF_CONNECTION_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, task::Context};

    use super::*;

    fn is_ready(future: impl Future) -> bool {
        let mut context = Context::from_waker(std::task::Waker::noop());
        pin!(future).poll(&mut context).is_ready()
    }

    #[test]
    fn one_connection_cannot_have_it_all() {
        let load = Load::new(64 << 20);
        let transfer = u64::from(TRANSFER_MAX);
        let mut held = Vec::new();
        let mut fill = |load: &Load| {
            let before = held.len();
            loop {
                let mut context = Context::from_waker(std::task::Waker::noop());
                let mut content = Box::pin(load.content(transfer, None));
                match content.as_mut().poll(&mut context) {
                    std::task::Poll::Ready(underway) => held.push(underway),
                    std::task::Poll::Pending => return held.len() - before,
                }
            }
        };
        assert_eq!(fill(&load), 8, "half of a quarter of the memory");
        let another = load.another();
        assert_eq!(fill(&another), 8);
        assert_eq!(fill(&load.another()), 0);
        drop(held);
        assert!(is_ready(load.content(transfer, None)));
    }

    #[test]
    fn volumes_that_hang_leave_something_for_the_last_one() {
        let load = Load::new(64 << 20);
        let transfer = u64::from(TRANSFER_MAX);
        for volumes in [2, 3, 9] {
            let mut held = Vec::new();
            for share in (1..volumes).map(|_| load.share(volumes)) {
                for connection in (0..4).map(|_| load.another()) {
                    let mut context = Context::from_waker(std::task::Waker::noop());
                    let mut more = || {
                        let content = pin!(connection.content(transfer, Some(&share)));
                        match content.poll(&mut context) {
                            std::task::Poll::Ready(underway) => Some(underway),
                            std::task::Poll::Pending => None,
                        }
                    };
                    held.extend(std::iter::from_fn(&mut more));
                }
            }
            assert!(held.len() >= 8, "{} of {volumes}", held.len());
            let last = load.another();
            let share = load.share(volumes);
            assert!(is_ready(last.content(transfer, Some(&share))), "{volumes}");
        }
        let alone = load.share(1);
        assert_eq!(alone.0.content_max, load.server.content_max);
    }

    #[test]
    fn a_connection_is_idle_when_none_of_its_calls_is_under_way() {
        let load = Load::new(64 << 20);
        assert!(load.is_idle());
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut call = Box::pin(async { load.call(load.turn().await, None).await });
        let std::task::Poll::Ready(underway) = call.as_mut().poll(&mut context) else {
            panic!("there is room");
        };
        assert!(!load.is_idle() && load.another().is_idle());
        drop(underway);
        assert!(load.is_idle());
    }
}
