//! How much is under way.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{
    CALLS_MAX, CALLS_OF_CONNECTION_MAX, CONTENT_OF_CONNECTION_MAX, CONTENT_SHARE, CONTENT_UNIT,
    TRANSFER_MAX,
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

/// What may be under way, of the server and of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    server: Bound,
    connection: Bound,
}

/// What is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct Underway {
    _permits: [OwnedSemaphorePermit; 2],
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

    fn of_connection(content: u64) -> Bound {
        let content = CONTENT_OF_CONNECTION_MAX.min(content / 2);
        Bound::new(CALLS_OF_CONNECTION_MAX, content)
    }

    /// Waits for room for one more call.
    pub(crate) async fn call(&self) -> Underway {
        // The own turn first, so that who waits for it keeps nobody else waiting.
        let own = take(&self.connection.calls, 1).await;
        let servers = take(&self.server.calls, 1).await;
        Underway {
            _permits: [own, servers],
        }
    }

    /// Waits for room for so much content.
    pub(crate) async fn content(&self, bytes: u64) -> Underway {
        let units = bytes.min(TRANSFER_MAX.into()).div_ceil(CONTENT_UNIT) as u32;
        let own = take(&self.connection.content, units).await;
        let servers = take(&self.server.content, units).await;
        Underway {
            _permits: [own, servers],
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
                let mut content = Box::pin(load.content(transfer));
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
        assert!(is_ready(load.content(transfer)));
    }

    #[test]
    fn a_connection_is_idle_when_none_of_its_calls_is_under_way() {
        let load = Load::new(64 << 20);
        assert!(load.is_idle());
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut call = Box::pin(load.call());
        let std::task::Poll::Ready(underway) = call.as_mut().poll(&mut context) else {
            panic!("there is room");
        };
        assert!(!load.is_idle() && load.another().is_idle());
        drop(underway);
        assert!(load.is_idle());
    }
}
