//! What goes on behind a volume: orphans are collected, garbage is deleted, what could not be saved is tried again,
//! and once a day objects are looked for that a crash left in the bucket.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use penstock_base::{FsResult, clock};

use crate::{
    calls,
    garbage::{LEAK_GRACE, Sweep, collect, delete_garbage, sweep_bucket},
    quotas::{self, Counting},
    snapshots,
    volume::Parts,
};

/// How often files that could not be saved when they were closed are tried again, and garbage that could not be
/// deleted.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// How often it is asked whether all machines have heard of what is to be cleared away.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Steps of a count of files before something else has its turn.
const COUNTS_AT_ONCE: usize = 16;

/// How often the bucket is listed for objects that leaked. A crash leaves some, so the first time is soon.
const SWEEP_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
/// What is old enough by the first time was left by who came before.
const FIRST_SWEEP: Duration = Duration::from_secs(2 * 60 * 60);

/// How often calls are forgotten that no client will repeat.
const FORGET_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Works until the volume is gone.
pub(crate) async fn run(parts: Weak<Parts>) {
    let mut next_sweep = clock::now() + FIRST_SWEEP;
    let mut next_forgetting = clock::now() + FORGET_INTERVAL;
    let (mut next_retry, mut waits) = (clock::now() + RETRY_INTERVAL, false);
    loop {
        let Some(held) = parts.upgrade().map(|parts| Arc::clone(&parts.held)) else {
            return;
        };
        let left = next_retry.saturating_duration_since(clock::now());
        let wait = match waits {
            true => POLL_INTERVAL.min(left),
            false => left,
        };
        let rung = clock::deadline(wait, held.bell.notified()).await;
        let Some(parts) = parts.upgrade() else { return };
        let is_due = clock::now() >= next_retry;
        if is_due {
            next_retry = clock::now() + RETRY_INTERVAL;
        }
        if rung.is_ok() || is_due {
            if let Err(error) = snapshots::clear(&*parts.engine).await {
                let what = "what removed snapshots kept could not be cleared away";
                parts.failures.task(&error, what);
            }
            if let Err(error) = count_some(&parts).await {
                let what = "files could not be counted to their owners";
                parts.failures.task(&error, what);
            }
        }
        waits = match work(&parts, is_due).await {
            Ok(waits) => waits,
            Err(error) => {
                let what = "what removed files left could not be cleared away";
                parts.failures.task(&error, what);
                false
            }
        };
        if is_due {
            parts.files.save_all().await;
        }
        if clock::now() >= next_forgetting {
            next_forgetting = clock::now() + FORGET_INTERVAL;
            if parts.is_elected().await {
                forget_calls(&parts).await;
            }
        }
        if clock::now() >= next_sweep {
            next_sweep = clock::now() + SWEEP_INTERVAL;
            if parts.is_elected().await {
                sweep(&parts).await;
            }
        }
    }
}

/// Counts files to their owners where that is to be done: some, and the rest when the bell rings again.
async fn count_some(parts: &Parts) -> FsResult<()> {
    for _ in 0..COUNTS_AT_ONCE {
        if quotas::count_some(&*parts.engine).await? == Counting::Done {
            return Ok(());
        }
    }
    parts.held.bell.notify_one();
    Ok(())
}

async fn forget_calls(parts: &Parts) {
    if let Err(error) = calls::forget_old(&*parts.engine, clock::wall_time()).await {
        let what = "calls that clients will not repeat are still remembered";
        parts.failures.task(&error, what);
    }
}

async fn sweep(parts: &Parts) {
    // The objects of another one would look like leaked ones.
    if let Err(error) = parts.label().await {
        parts
            .failures
            .task(&error, "the bucket is not looked through");
        return;
    }
    let how = Sweep {
        grace: LEAK_GRACE,
        dry_run: false,
    };
    match sweep_bucket(&*parts.engine, &parts.objects, how).await {
        Ok(found) if found.deleted > 0 => {
            tracing::info!(
                objects = found.deleted,
                "objects that a crash left were deleted"
            );
        }
        Ok(_) => {}
        Err(error) => {
            let what = "the bucket could not be looked through";
            parts.failures.task(&error, what);
        }
    }
}

/// Collects what waits and deletes all garbage. What removed snapshots kept takes longer than an unmount may. `is_due`: it
/// is time to look after what others left. Returns whether something waits for other machines.
pub(crate) async fn work(parts: &Parts, is_due: bool) -> FsResult<bool> {
    if let Some(machines) = &parts.machines {
        return machines.collect(parts, is_due).await;
    }
    let mut outcome = Ok(());
    for inode in parts.held.waiting() {
        parts.files.discard(inode);
        match collect(&parts.engine, inode).await {
            Ok(()) => parts.held.gone(inode),
            Err(error) => {
                // One that is damaged keeps no other.
                parts.held.put_back(inode);
                outcome = Err(error);
            }
        }
    }
    while delete_garbage(&*parts.engine, &parts.objects).await? {}
    outcome.map(|()| false)
}
