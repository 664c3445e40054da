//! Calls in which names are changed, each of which is carried out once.
//!
//! A client of a mount target that hears no answer asks again, and whom it asks then need not be who carried the call out:
//! that process may be dead, or only slow, or the address another machine's by now. So a change looks for its call in its own
//! transaction, and writes it down there: whichever of two comes second finds the other. What was found is told as the
//! success that it was, unless what the call made is not there any more: numbers of calls come again, and such a one makes
//! it anew.
//!
//! A call is remembered for [`REMEMBERED_FOR`], or until its process has carried out [`CALLS_KEPT`] others, as many as a server has
//! under way at once. What a process left that ended is forgotten every hour.

use std::{
    collections::VecDeque,
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use penstock_base::{FsResult, Mutex};
use penstock_vfs::{CallId, Inode};

use crate::{
    engine::{Engine, Reads, Transaction, query, transact},
    operations::{self, Asked, Place, raise_format},
    schema::{self, CarriedOut, Format, kind},
};

/// How long a call is remembered: longer than a server is away as a rule, and no longer than it takes that a client which
/// begins with the same numbers each time asks for the same.
const REMEMBERED_FOR: Duration = Duration::from_secs(10 * 60);
/// Calls of one process that are kept.
const CALLS_KEPT: usize = 8192;
/// Calls that are forgotten at once.
const STEP: usize = 512;

/// A change that is made once.
pub(crate) enum Once<T> {
    /// It was made just now.
    Now(T),
    /// It was made when the call came first; of this file, if one was made.
    Before(Inode),
}

/// The calls that this process carried out.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// Set when the head of the file system says that calls are remembered.
    is_announced: AtomicBool,
    carried_out: Mutex<VecDeque<CallId>>,
}

impl Calls {
    /// Makes a change, but not a second time in one call, unless what that made is not at `place` any more. The change says,
    /// beside what becomes of it, the file that is remembered; nothing is if it changed nothing.
    pub(crate) async fn once<T: Send + 'static>(
        &self,
        engine: &dyn Engine,
        (asked, place): (&Asked, Option<Place>),
        mut change: impl FnMut(&mut dyn Transaction) -> FsResult<(T, Option<Inode>)> + Send + 'static,
    ) -> FsResult<Once<T>> {
        let Some(call) = asked.by.call else {
            let changed = transact(engine, change).await?;
            return Ok(Once::Now(changed.0));
        };
        let (now, is_announced) = (asked.now, self.is_announced.load(Ordering::Relaxed));
        let outcome: FsResult<_> = transact(engine, move |transaction| {
            if let Some(before) = find(transaction, &call, now)?
                && is_there(transaction, place.as_ref(), before.inode)?
            {
                return Ok((Once::Before(before.inode), false));
            }
            let (changed, inode) = change(transaction)?;
            let Some(inode) = inode else {
                return Ok((Once::Now(changed), false));
            };
            if !is_announced {
                raise_format(transaction, Format::with_calls)?;
            }
            let carried_out = CarriedOut { inode, at: now };
            transaction.put(&schema::call(&call), carried_out.encode());
            Ok((Once::Now(changed), true))
        })
        .await;
        let (outcome, is_remembered) = outcome?;
        if is_remembered {
            self.is_announced.store(true, Ordering::Relaxed);
            self.forget_some(engine, call).await;
        }
        Ok(outcome)
    }

    /// Forgets the oldest calls when there are too many. What cannot be forgotten now goes with time.
    async fn forget_some(&self, engine: &dyn Engine, newest: CallId) {
        let oldest: Vec<CallId> = {
            let mut carried_out = self.carried_out.lock();
            carried_out.push_back(newest);
            match carried_out.len() >= CALLS_KEPT + STEP {
                true => carried_out.drain(..STEP).collect(),
                false => return,
            }
        };
        let forgotten: FsResult<()> = transact(engine, move |transaction| {
            oldest
                .iter()
                .for_each(|id| transaction.delete(&schema::call(id)));
            Ok(())
        })
        .await;
        if let Err(error) = forgotten {
            tracing::debug!(%error, "calls are remembered for longer than they need be");
        }
    }
}

/// What is remembered of a call.
pub(crate) fn find(
    reads: &dyn Reads,
    id: &CallId,
    now: SystemTime,
) -> FsResult<Option<CarriedOut>> {
    let value = reads.get(&schema::call(id))?;
    let found = value.and_then(|value| CarriedOut::decode(&value).ok());
    Ok(found.filter(|found| !is_old(found, now)))
}

/// Whether a file is still where a call put it. A name that was taken away stays so, whatever has it now.
fn is_there(reads: &dyn Reads, place: Option<&Place>, inode: Inode) -> FsResult<bool> {
    let Some(place) = place else { return Ok(true) };
    let found = operations::find(reads, place.dentry())?;
    Ok(found.is_some_and(|entry| entry.inode == inode))
}

/// The clocks of machines differ, but not as much.
fn is_old(carried_out: &CarriedOut, now: SystemTime) -> bool {
    let age = now.duration_since(carried_out.at);
    age.unwrap_or_else(|ahead| ahead.duration()) > REMEMBERED_FOR
}

/// Forgets the calls that are old by `now`, of all processes.
pub(crate) async fn forget_old(engine: &dyn Engine, now: SystemTime) -> FsResult<()> {
    let mut from = vec![kind::CALL];
    loop {
        let start = from.clone();
        let found = query(engine, move |reads| some_from(reads, &start)).await?;
        let Some(last) = found.last().cloned() else {
            return Ok(());
        };
        transact(engine, move |transaction| {
            found
                .iter()
                .try_for_each(|key| forget_if_old(transaction, key, now))
        })
        .await?;
        from = [&last[..], &[0]].concat();
    }
}

/// The keys of some calls, in order.
fn some_from(reads: &dyn Reads, start: &[u8]) -> FsResult<Vec<Bytes>> {
    let mut found = Vec::new();
    reads.scan(start..&[kind::CALL + 1], &mut |key, _| {
        found.push(Bytes::copy_from_slice(key));
        match found.len() < STEP {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(found)
}

/// Forgets a call that is old, or cannot be read.
fn forget_if_old(transaction: &mut dyn Transaction, key: &[u8], now: SystemTime) -> FsResult<()> {
    let Some(value) = transaction.get(key)? else {
        return Ok(());
    };
    if CarriedOut::decode(&value).map_or(true, |found| is_old(&found, now)) {
        transaction.delete(key);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use penstock_base::clock;
    use penstock_vfs::Identity;

    use super::*;
    use crate::engine::MemoryEngine;

    fn id(number: u32, sum: u64) -> CallId {
        CallId {
            client: [1; 16],
            number,
            sum,
        }
    }

    fn asked(id: CallId, now: SystemTime) -> Asked {
        Asked {
            by: Identity {
                call: Some(id),
                ..Identity::root()
            },
            now,
            session: None,
        }
    }

    async fn carry_out(engine: &MemoryEngine, id: CallId, now: SystemTime) -> bool {
        let calls = Calls::default();
        let change = |_: &mut dyn Transaction| Ok(((), Some(Inode(5))));
        let outcome = calls.once(engine, (&asked(id, now), None), change).await;
        matches!(outcome.unwrap(), Once::Now(()))
    }

    async fn formatted() -> MemoryEngine {
        let engine = MemoryEngine::default();
        let format = |transaction: &mut dyn Transaction| {
            transaction.put(schema::FORMAT, Format::new(1).encode());
            FsResult::Ok(())
        };
        transact(&engine, format).await.unwrap();
        engine
    }

    #[tokio::test]
    async fn a_number_that_is_used_again_is_another_call() {
        let (engine, now) = (formatted().await, clock::wall_time());
        assert!(carry_out(&engine, id(1, 1), now).await);
        assert!(!carry_out(&engine, id(1, 1), now).await);
        assert!(carry_out(&engine, id(1, 2), now).await);
        assert!(!carry_out(&engine, id(1, 1), now).await);
        let later = now + REMEMBERED_FOR + Duration::from_secs(1);
        assert!(carry_out(&engine, id(1, 1), later).await);
    }

    #[tokio::test]
    async fn what_is_old_is_forgotten() {
        let (engine, now) = (formatted().await, clock::wall_time());
        let long_ago = now - REMEMBERED_FOR - Duration::from_secs(1);
        let count = STEP as u32 + 10;
        for number in 0..count {
            let at = if number % 3 == 0 { now } else { long_ago };
            carry_out(&engine, id(number, 1), at).await;
        }
        forget_old(&engine, now).await.unwrap();
        let left = query(&engine, |reads| some_from(reads, &[kind::CALL])).await;
        assert_eq!(left.unwrap().len() as u32, count.div_ceil(3));
    }
}
