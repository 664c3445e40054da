//! What says that this session is alive, and how long it certainly is.
//!
//! Nothing else that the session does, and no refusal of what it changes, keeps the pulse from being heard. Others end a session that they did not hear of for its lease. So a session is certain to live until
//! its lease is over since it **sent** the last beat that was answered, less a part for clocks that differ; behind that it answers
//! nothing until another beat is answered, or says that the session is over. A database that was away ends nobody.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use penstock_base::clock;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;

use super::{
    driver::over,
    lives::Lives,
    worker::{BEATS, PAUSE, Shared, rest},
};
use crate::engine::{EngineError, EngineResult};

/// Time since the machine was started, with what it slept of it.
pub(super) fn awake() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
}

/// How long a session lives.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) lease: Duration,
    /// When the last beat was sent that was answered, in milliseconds.
    sent: AtomicU64,
    doubt: Notify,
}

impl Life {
    /// Its session sent a beat at `sent`, which was answered.
    pub(super) fn new(lease: Duration, sent: Duration) -> Self {
        Self {
            lease,
            sent: AtomicU64::new(sent.as_millis() as u64),
            doubt: Notify::new(),
        }
    }

    /// A beat that was sent then was answered.
    fn beat(&self, sent: Duration) {
        self.sent.store(sent.as_millis() as u64, Ordering::Release);
    }

    /// Whether nobody can have ended it for its silence.
    pub(super) fn is_certain(&self) -> bool {
        let sent = Duration::from_millis(self.sent.load(Ordering::Acquire));
        awake().saturating_sub(sent) < self.lease - self.lease / BEATS
    }

    /// Somebody waits to hear whether it is.
    pub(super) fn doubt(&self) {
        self.doubt.notify_one();
    }
}

/// See the module.
pub(super) struct Pulse {
    shared: Arc<Shared>,
    lives: Lives,
}

impl Pulse {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            lives: Lives::of(shared.own.id, shared.life.lease),
            shared,
        }
    }

    /// Beats until the session is over, and returns how that is told.
    pub(super) async fn run(mut self) -> EngineError {
        let lease = self.shared.life.lease;
        let mut pause = PAUSE;
        loop {
            match clock::deadline(lease / 3, Box::pin(self.beat())).await {
                Ok(Ok(())) => {
                    pause = PAUSE;
                    tokio::select! {
                        () = clock::sleep(lease / BEATS) => {}
                        () = self.shared.life.doubt.notified() => {}
                    }
                }
                Ok(Err(error @ EngineError::Fenced(_))) => return error,
                _ => rest(&mut pause).await,
            }
        }
    }

    /// Says that this session is alive, and looks whether the others are.
    async fn beat(&mut self) -> EngineResult<()> {
        let shared = Arc::clone(&self.shared);
        let took_in = shared.read().feed.taken_in();
        let sent = awake();
        if !shared.database.beat(shared.own, took_in).await? {
            return Err(over());
        }
        shared.life.beat(sent);
        // Who waits for it finds out.
        shared.progress.send_modify(|_| ());
        let others = self.lives.look(&*shared.database).await?;
        shared.sees_others(others.count > 0);
        Ok(())
    }
}
