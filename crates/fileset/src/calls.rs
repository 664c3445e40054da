//! Calls in which names are changed, each of which is carried out once.
//!
//! A client of a mount target that hears no answer asks again, and whom it asks then need not be who carried the call out:
//! that process may be dead, or the address another machine's by now. So the change and the call are written down in one
//! transaction, and a call that may be a repeat looks for itself in its own: whichever of two comes second finds the other.
//! What was found is told as the success that it was.
//!
//! A call is remembered for [`REMEMBERED_FOR`]; of those that one process carried out the last [`CALLS_KEPT`] are kept, as many
//! as a server has under way at once. What a process left that ended goes with the leaked objects, once a day.

use std::{
    collections::VecDeque,
    ops::ControlFlow,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use penstock_base::{FsResult, Mutex};
use penstock_vfs::{CallId, Inode};
use tokio::sync::OnceCell;

use crate::{
    engine::{Engine, Reads, Transaction, query, transact},
    operations::{Asked, raise_format},
    schema::{self, CarriedOut, Format, kind},
};

/// How long a call is remembered at least: clients ask again within seconds after they lost their connection.
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
    is_announced: OnceCell<()>,
    carried_out: Mutex<VecDeque<CallId>>,
}

impl Calls {
    /// Makes a change, and remembers the file that it says, if it is asked for in a call; but not a second time in one call.
    pub(crate) async fn once<T: Send + 'static>(
        &self,
        engine: &dyn Engine,
        asked: &Asked,
        mut change: impl FnMut(&mut dyn Transaction) -> FsResult<(T, Inode)> + Send + 'static,
    ) -> FsResult<Once<T>> {
        let Some(call) = asked.by.call else {
            let changed = transact(engine, change).await?;
            return Ok(Once::Now(changed.0));
        };
        self.announce(engine).await?;
        let now = asked.now;
        let outcome: FsResult<_> = transact(engine, move |transaction| {
            if call.may_be_repeat
                && let Some(before) = find(transaction, &call.id, now)?
            {
                return Ok(Once::Before(before.inode));
            }
            let (changed, inode) = change(transaction)?;
            let carried_out = CarriedOut {
                sum: call.id.sum,
                inode,
                at: now,
            };
            transaction.put(&schema::call(&call.id), carried_out.encode());
            Ok(Once::Now(changed))
        })
        .await;
        let outcome = outcome?;
        if matches!(outcome, Once::Now(_)) {
            self.forget_some(engine, call.id).await;
        }
        Ok(outcome)
    }

    async fn announce(&self, engine: &dyn Engine) -> FsResult<()> {
        let announce = || {
            transact(engine, |transaction| {
                raise_format(transaction, Format::with_calls)
            })
        };
        self.is_announced.get_or_try_init(announce).await.copied()
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
    let Some(value) = reads.get(&schema::call(id))? else {
        return Ok(None);
    };
    let found = CarriedOut::decode(&value)?;
    Ok((found.sum == id.sum && !is_old(&found, now)).then_some(found))
}

/// Clocks of several machines differ: what is of the future is new.
fn is_old(carried_out: &CarriedOut, now: SystemTime) -> bool {
    let age = now.duration_since(carried_out.at);
    age.is_ok_and(|age| age > REMEMBERED_FOR)
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
        from.clear();
        from.extend_from_slice(&last);
        from.push(0);
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

fn forget_if_old(transaction: &mut dyn Transaction, key: &[u8], now: SystemTime) -> FsResult<()> {
    let Some(value) = transaction.get(key)? else {
        return Ok(());
    };
    if is_old(&CarriedOut::decode(&value)?, now) {
        transaction.delete(key);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use penstock_base::clock;
    use penstock_vfs::{Call, Identity};

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
        let call = Call {
            id,
            may_be_repeat: true,
        };
        Asked {
            by: Identity {
                call: Some(call),
                ..Identity::root()
            },
            now,
            session: None,
        }
    }

    async fn carry_out(engine: &MemoryEngine, id: CallId, now: SystemTime) -> bool {
        let calls = Calls::default();
        let change = |_: &mut dyn Transaction| Ok(((), Inode(5)));
        let outcome = calls.once(engine, &asked(id, now), change).await.unwrap();
        matches!(outcome, Once::Now(()))
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
        assert!(carry_out(&engine, id(1, 1), now).await);
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
