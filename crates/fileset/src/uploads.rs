//! What brings the spool of a volume into the bucket: sealed objects, a few at once, until the bucket has them.
//!
//! The metadata is asked first: what no file needs any more, and what a crash left without anybody who refers to it, is
//! dropped without a request. Once the bucket has an object its file goes, which may be what fills the disk, and its length is
//! told to the metadata, which did not know it: with the next one's if it cannot be told.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use penstock_base::{FsError, FsResult, Payload, clock};
use penstock_object::PutOptions;
use penstock_transfer::Transfer;

use crate::{
    data::{Due, ObjectId, Spool, key},
    engine::{Engine, Transaction, query, transact},
    errors::{object_failure, transfer_failure},
    garbage::{Standing, standing},
    operations,
    volume::Parts,
};

/// How long nothing is looked at when nothing waits.
const IDLE: Duration = Duration::from_secs(60);
/// Between looks at uploads that somebody else makes.
const LOOK: Duration = Duration::from_millis(20);
/// How long a dump waits for what it refers to.
const SEND_WAIT: Duration = Duration::from_secs(60 * 60);

/// Works until the volume is gone.
pub(crate) async fn run(parts: Weak<Parts>) {
    let waiting = parts
        .upgrade()
        .and_then(|parts| parts.objects.waiting().cloned());
    let Some(spool) = waiting else { return };
    loop {
        let Some(parts) = parts.upgrade() else { return };
        while !spool.is_draining()
            && let Some(due) = spool.due(clock::now(), || parts.objects.held())
        {
            tokio::spawn(behind(Arc::clone(&parts), Arc::clone(&spool), due));
        }
        drop(parts);
        let wait = spool
            .next_due()
            .map_or(IDLE, |due| due.saturating_duration_since(clock::now()));
        // Either way it is looked again.
        let _ = clock::deadline(wait, spool.rung()).await;
    }
}

async fn behind(parts: Arc<Parts>, spool: Arc<Spool>, due: Due) {
    if let Err(error) = upload(&parts, &spool, &due).await {
        tracing::warn!(object = %due.object, %error, "bytes that are on this disk alone are sent again later");
    }
}

/// Uploads all that is here. Fails with the first thing that cannot be, after all that is under way has ended.
pub(crate) async fn drain(parts: &Parts) -> FsResult<()> {
    let Some(spool) = parts.objects.waiting() else {
        return Ok(());
    };
    spool.drain();
    let mut uploads = FuturesUnordered::new();
    let mut outcome = Ok(());
    loop {
        // What failed a moment ago is tried once more, and what is held is asked for again.
        let all = clock::now() + IDLE;
        while outcome.is_ok()
            && let Some(due) = spool.due(all, || parts.objects.held())
        {
            uploads.push(async move { upload(parts, spool, &due).await });
        }
        match uploads.next().await {
            Some(ended) => outcome = outcome.and(ended),
            None if outcome.is_err() || spool.waiting().1 == 0 => return outcome,
            None => clock::sleep(LOOK).await,
        }
    }
}

/// Returns when the bucket has all that is on this disk alone now and is needed. Fails if that takes too long.
pub(crate) async fn sent(parts: &Parts) -> FsResult<()> {
    let Some(spool) = parts.objects.waiting() else {
        return Ok(());
    };
    let waiting = spool.objects();
    let gone = async {
        while waiting.iter().any(|object| spool.has(*object)) {
            clock::sleep(LOOK).await;
        }
    };
    let late = "bytes that are on this disk alone could not be sent in time".to_owned();
    let sent = clock::deadline(SEND_WAIT, gone).await;
    sent.map_err(|_| FsError::TimedOut(late))
}

async fn upload(parts: &Parts, spool: &Spool, due: &Due) -> FsResult<()> {
    let uploaded = try_upload(parts, spool, due).await;
    match uploaded {
        Ok(Sent::ToBucket) => spool.arrived(due),
        Ok(Sent::Nowhere) => spool.gone(due.object),
        Err(_) => {
            parts.failures.uploads.increment();
            spool.failed(due);
        }
    }
    tell_lengths(parts, spool).await;
    uploaded.map(drop)
}

/// Where an object went.
#[derive(Debug, Clone, Copy)]
enum Sent {
    ToBucket,
    /// No file needs it.
    Nowhere,
}

async fn try_upload(parts: &Parts, spool: &Spool, due: &Due) -> FsResult<Sent> {
    let object = due.object;
    match query(&*parts.engine, |reads| standing(reads, object)).await? {
        Standing::Used(_) | Standing::Held => {}
        Standing::Unknown | Standing::Garbage => return forget(parts, object).await,
    }
    let transfer = parts.objects.transfer();
    let memory = transfer
        .read_memory(Transfer::cost(u64::from(due.length)))
        .await;
    let _memory = memory.map_err(|error| transfer_failure(&error))?;
    let bytes = spool.read(due);
    let bytes = bytes.map_err(|error| FsError::Io(error.to_string()))?;
    let mut payload = Payload::new();
    payload.push(bytes);
    let key = key(object)?;
    let put = transfer.store().put(&key, payload, PutOptions::default());
    put.await.map_err(|error| object_failure(&error))?;
    Ok(Sent::ToBucket)
}

/// The bucket never had it, so there is nothing to delete. A crash must not bring back what refers to it.
async fn forget(parts: &Parts, object: ObjectId) -> FsResult<Sent> {
    transact(&*parts.engine, move |transaction| {
        operations::drop_garbage(transaction, &[object])
    })
    .await?;
    parts.engine.sync().await?;
    Ok(Sent::Nowhere)
}

async fn tell_lengths(parts: &Parts, spool: &Spool) {
    let untold = spool.take_untold();
    if untold.is_empty() {
        return;
    }
    let lengths = untold.clone();
    let tell =
        move |transaction: &mut dyn Transaction| operations::set_lengths(transaction, &lengths);
    if let Err(error) = transact(&*parts.engine, tell).await {
        tracing::debug!(%error, "how long objects became is told later");
        spool.still_untold(untold);
    }
}
