//! What brings into the bucket what waits for it ([`Ahead`]): sealed objects, a few at once, until the bucket has them.
//!
//! The metadata is asked first: what no file needs any more, and what a crash left without anybody who refers to it, is
//! dropped without a request, and is garbage like any other if its upload was begun before. Once the bucket has an object
//! of the spool its file goes, which may be what fills the disk, and its length is told to the metadata, which did not know
//! it: with the next one's if it cannot be told. What was with the metadata goes from there in one operation, which also
//! tells the length.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use penstock_base::{FsError, FsResult, Payload, clock};
use penstock_object::PutOptions;
use penstock_transfer::Transfer;

use crate::{
    data::{Ahead, Due, Inlined, ObjectId, Spool, key},
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
    let ahead = parts
        .upgrade()
        .and_then(|parts| parts.objects.ahead().cloned());
    let Some(ahead) = ahead else { return };
    let unsent = ahead.unsent();
    loop {
        let Some(parts) = parts.upgrade() else { return };
        while !unsent.is_draining()
            && let Some(due) = unsent.due(clock::now(), || parts.objects.held())
        {
            tokio::spawn(behind(Arc::clone(&parts), ahead.clone(), due));
        }
        drop(parts);
        let wait = unsent
            .next_due()
            .map_or(IDLE, |due| due.saturating_duration_since(clock::now()));
        // Either way it is looked again.
        let _ = clock::deadline(wait, unsent.rung()).await;
    }
}

async fn behind(parts: Arc<Parts>, ahead: Ahead, due: Due) {
    if let Err(error) = upload(&parts, &ahead, &due).await {
        tracing::warn!(object = %due.object, %error, "bytes that no object in the bucket has are sent again later");
    }
}

/// Uploads all that is here. Fails with the first thing that cannot be, after all that is under way has ended.
pub(crate) async fn drain(parts: &Parts) -> FsResult<()> {
    let Some(ahead) = parts.objects.ahead() else {
        return Ok(());
    };
    let unsent = ahead.unsent();
    unsent.drain();
    let mut uploads = FuturesUnordered::new();
    let mut outcome = Ok(());
    loop {
        // What failed a moment ago is tried once more, and what is held is asked for again.
        let all = clock::now() + IDLE;
        while outcome.is_ok()
            && let Some(due) = unsent.due(all, || parts.objects.held())
        {
            uploads.push(async move { upload(parts, ahead, &due).await });
        }
        match uploads.next().await {
            Some(ended) => outcome = outcome.and(ended),
            None if outcome.is_err() || unsent.waiting().1 == 0 => return outcome,
            None => clock::sleep(LOOK).await,
        }
    }
}

/// Returns when objects in the bucket have all that waits for that now and is needed. Fails if that takes too long.
pub(crate) async fn sent(parts: &Parts) -> FsResult<()> {
    let Some(ahead) = parts.objects.ahead() else {
        return Ok(());
    };
    let unsent = ahead.unsent();
    let waiting = unsent.objects();
    let gone = async {
        while waiting.iter().any(|object| unsent.has(*object)) {
            clock::sleep(LOOK).await;
        }
    };
    let late = "bytes that no object in the bucket has could not be sent in time".to_owned();
    let sent = clock::deadline(SEND_WAIT, gone).await;
    sent.map_err(|_| FsError::TimedOut(late))
}

async fn upload(parts: &Parts, ahead: &Ahead, due: &Due) -> FsResult<()> {
    let uploaded = try_upload(parts, ahead, due).await;
    if uploaded.is_err() {
        parts.failures.uploads.increment();
        ahead.unsent().failed(due);
    }
    if let Ahead::Spool(spool) = ahead {
        tell_lengths(parts, spool).await;
    }
    uploaded
}

async fn try_upload(parts: &Parts, ahead: &Ahead, due: &Due) -> FsResult<()> {
    let object = due.object;
    match query(&*parts.engine, |reads| standing(reads, object)).await? {
        Standing::Used(_) | Standing::Held => {}
        Standing::Unknown | Standing::Garbage => {
            forget(parts, due).await?;
            gone(ahead, object);
            return Ok(());
        }
    }
    put(parts, ahead, due).await?;
    match ahead {
        Ahead::Spool(spool) => spool.arrived(due),
        Ahead::Inlined(inlined) => arrived(parts, inlined, due).await?,
    }
    Ok(())
}

/// Stores the bytes of an object, which memory is held for.
async fn put(parts: &Parts, ahead: &Ahead, due: &Due) -> FsResult<()> {
    let transfer = parts.objects.transfer();
    let memory = transfer
        .read_memory(Transfer::cost(u64::from(due.length)))
        .await;
    let _memory = memory.map_err(|error| transfer_failure(&error))?;
    let bytes = match ahead {
        Ahead::Spool(spool) => {
            let read = spool.read(due);
            read.map_err(|error| FsError::Io(error.to_string()))?
        }
        Ahead::Inlined(inlined) => inlined.read(due).await?,
    };
    let mut payload = Payload::new();
    payload.push(bytes);
    let key = key(due.object)?;
    let put = transfer.store().put(&key, payload, PutOptions::default());
    put.await.map_err(|error| object_failure(&error))?;
    Ok(())
}

/// The bucket has what was with the metadata.
async fn arrived(parts: &Parts, inlined: &Inlined, due: &Due) -> FsResult<()> {
    let Due { object, length, .. } = *due;
    let told = move |transaction: &mut dyn Transaction| {
        operations::drop_content(transaction, object)?;
        operations::set_lengths(transaction, &[(object, length)])
    };
    transact(&*parts.engine, told).await?;
    inlined.gone(object);
    Ok(())
}

fn gone(ahead: &Ahead, object: ObjectId) {
    match ahead {
        Ahead::Spool(spool) => spool.gone(object),
        Ahead::Inlined(inlined) => inlined.gone(object),
    }
}

/// What no object in the bucket ever had needs no deletion there. A crash must not bring back what refers to it.
async fn forget(parts: &Parts, due: &Due) -> FsResult<()> {
    let Due {
        object,
        may_be_there,
        ..
    } = *due;
    let forget = move |transaction: &mut dyn Transaction| {
        operations::drop_content(transaction, object)?;
        match may_be_there {
            // It is garbage like any other then.
            true => Ok(()),
            false => operations::drop_garbage(transaction, &[object]),
        }
    };
    transact(&*parts.engine, forget).await?;
    Ok(parts.engine.sync().await?)
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
