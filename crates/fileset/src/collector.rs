//! What goes on behind a volume: orphans are collected, garbage is deleted, what could not be saved is tried again.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use penstock_base::{FsResult, clock};

use crate::{
    engine::{query, transact},
    operations,
    volume::Parts,
};

/// How often files that could not be saved when they were closed are tried again, and garbage that could not be
/// deleted.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Works until the volume is gone.
pub(crate) async fn run(parts: Weak<Parts>) {
    loop {
        let Some(held) = parts.upgrade().map(|parts| Arc::clone(&parts.held)) else {
            return;
        };
        let rung = clock::deadline(RETRY_INTERVAL, held.bell.notified()).await;
        let Some(parts) = parts.upgrade() else { return };
        if let Err(error) = work(&parts).await {
            tracing::warn!(%error, "what removed files left could not be cleared away; it is tried again");
        }
        if rung.is_err() {
            parts.files.save_all().await;
        }
    }
}

/// Collects what waits and deletes all garbage.
pub(crate) async fn work(parts: &Parts) -> FsResult<()> {
    let mut waiting = parts.held.waiting();
    while let Some(inode) = waiting.pop() {
        parts.files.discard(inode);
        let collected = collect(parts, inode).await;
        if let Err(error) = collected {
            waiting.push(inode);
            waiting
                .into_iter()
                .for_each(|inode| parts.held.put_back(inode));
            return Err(error);
        }
        parts.held.gone(inode);
    }
    while delete_garbage(parts).await? {}
    Ok(())
}

async fn collect(parts: &Parts, inode: penstock_vfs::Inode) -> FsResult<()> {
    let step = move |transaction: &mut dyn crate::engine::Transaction| {
        operations::collect(transaction, inode)
    };
    while !transact(&*parts.engine, step).await? {}
    Ok(())
}

/// Deletes some garbage; returns whether there may be more.
async fn delete_garbage(parts: &Parts) -> FsResult<bool> {
    // Before the look: see there.
    let uncommitted = parts.objects.uncommitted();
    let mut garbage = query(&*parts.engine, |reads| operations::garbage(reads)).await?;
    garbage.retain(|object| !uncommitted.contains(object));
    if garbage.is_empty() {
        return Ok(false);
    }
    // A crash must not bring back what refers to them.
    parts.engine.sync().await?;
    let kept = parts.objects.delete(&garbage).await?;
    let all_went = kept.is_empty();
    let gone: Vec<_> = garbage
        .into_iter()
        .filter(|object| !kept.contains(object))
        .collect();
    transact(&*parts.engine, move |transaction| {
        operations::drop_garbage(transaction, &gone)
    })
    .await?;
    Ok(all_went)
}
