//! Trips that all share who asked before one began.
//!
//! Whoever wants to know how far the database is by now wants an answer that was given after he asked, whoever asked for it. So
//! as many as ask while trips are under way go with the next one.

use std::{
    pin::{Pin, pin},
    sync::{Arc, PoisonError},
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{Shared, WeakShared},
};
use penstock_base::clock;
use tokio::sync::Semaphore;

use crate::engine::EngineResult;

/// Trips under way at once: with one, who comes just behind its beginning would wait for two.
const UNDER_WAY: usize = 2;

/// A trip that takes longer keeps no other one from beginning: its connection may be dead.
const SLOW: Duration = Duration::from_secs(1);

type Trip = Pin<Box<dyn Future<Output = EngineResult<()>> + Send>>;

/// See the module.
#[derive(Debug)]
pub(super) struct Together {
    next: Arc<std::sync::Mutex<Option<WeakShared<Trip>>>>,
    under_way: Arc<Semaphore>,
}

impl Together {
    pub(super) fn new() -> Self {
        Self {
            next: Arc::default(),
            under_way: Arc::new(Semaphore::new(UNDER_WAY)),
        }
    }

    /// Returns what a trip brought that began after the call: the next one, which is made if nobody is about to. It goes on
    /// as long as anybody waits for it.
    pub(super) fn join(
        &self,
        trip: impl Future<Output = EngineResult<()>> + Send + 'static,
    ) -> Shared<Trip> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(joined) = next.as_ref().and_then(WeakShared::upgrade) {
            return joined;
        }
        let (waiting, under_way) = (Arc::clone(&self.next), Arc::clone(&self.under_way));
        let begun: Trip = Box::pin(async move {
            // It is never closed.
            let permit = under_way.acquire().await;
            // Who comes from now on goes with the one behind.
            waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let mut trip = pin!(trip);
            match clock::deadline(SLOW, trip.as_mut()).await {
                Ok(brought) => brought,
                Err(_) => {
                    drop(permit);
                    trip.await
                }
            }
        });
        let begun = begun.shared();
        *next = begun.downgrade();
        begun
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        task::Poll,
    };

    use futures_util::poll;
    use tokio::sync::Notify;

    use super::*;
    use crate::engine::EngineError;

    #[derive(Debug, Default)]
    struct Database {
        began: AtomicUsize,
        answers: Notify,
    }

    async fn trip(database: Arc<Database>) -> EngineResult<()> {
        database.began.fetch_add(1, Ordering::SeqCst);
        database.answers.notified().await;
        Ok(())
    }

    #[tokio::test]
    async fn who_asks_while_trips_are_under_way_goes_with_the_next_one() {
        let (together, database) = (Together::new(), Arc::new(Database::default()));
        let join = || Box::pin(together.join(trip(Arc::clone(&database))));
        let began = || database.began.load(Ordering::SeqCst);
        let mut first = join();
        assert!(poll!(&mut first).is_pending());
        let mut second = join();
        assert!(poll!(&mut second).is_pending());
        assert_eq!(began(), 2, "what began before a call tells it nothing");
        let mut others: Vec<_> = (0..10).map(|_| join()).collect();
        for other in &mut others {
            assert!(poll!(other).is_pending());
        }
        assert_eq!(began(), 2);
        // Who was to make it gives up.
        drop(others.remove(0));
        database.answers.notify_one();
        assert_eq!(poll!(&mut first), Poll::Ready(Ok(())));
        for other in &mut others {
            assert!(poll!(other).is_pending());
        }
        assert_eq!(began(), 3, "one trip for all of them");
        let mut late = join();
        assert!(poll!(&mut late).is_pending());
        drop(second);
        assert!(poll!(&mut late).is_pending());
        assert_eq!(began(), 4, "theirs had begun");
        database.answers.notify_waiters();
        for other in others {
            assert_eq!(other.await, Ok(()));
        }
        assert_eq!(late.await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn trips_without_an_answer_keep_no_other_one_from_beginning() {
        let (together, database) = (Together::new(), Arc::new(Database::default()));
        for _ in 0..UNDER_WAY {
            let silent = together.join(trip(Arc::clone(&database)));
            tokio::spawn(silent);
            tokio::task::yield_now().await;
        }
        assert_eq!(together.join(async { Ok(()) }).await, Ok(()));
    }

    #[tokio::test]
    async fn all_hear_of_a_failure_and_the_next_one_asks_again() {
        let together = Together::new();
        let failing = || async { Err(EngineError::Database("away".to_owned())) };
        let (one, other) = (together.join(failing()), together.join(failing()));
        assert!(one.await.is_err() && other.await.is_err());
        assert_eq!(together.join(async { Ok(()) }).await, Ok(()));
        drop(together.join(failing()));
        assert_eq!(together.join(async { Ok(()) }).await, Ok(()));
    }
}
