//! A multipart upload with parts on their way, and its removal when it comes to nothing.

use std::{fmt, sync::Arc};

use penstock_base::Payload;
use penstock_object::{
    CompleteOptions, ETag, ErrorKind, Key, ObjectError, ObjectResult, Operation, Part, PartCopy,
    PutOptions, Stored, UploadId, tags_of_parts,
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::{JoinError, JoinSet},
};

use super::{
    clean_up::{Leftover, clean_up},
    copied::{self, Copying, Numbers},
};
use crate::{Transfer, TransferResult};

/// Parts of one upload that the store copies at once. They cost us nothing, but the store.
const COPIES_MAX: usize = 8;

/// Remembers an upload until it ended, so that one that a crash cuts off can be removed.
pub(crate) trait UploadNote: fmt::Debug + Send + Sync {
    /// The store gave it this name.
    fn named(&self, upload: &UploadId);

    /// It was completed or removed, or nobody knows of one that was made.
    fn ended(&self);
}

/// The answer to the creation of an upload, once there is one.
pub(super) type Created = watch::Receiver<Option<ObjectResult<UploadId>>>;

/// Where parts go.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) transfer: Arc<Transfer>,
    pub(super) key: Key,
}

#[derive(Debug)]
pub(super) struct Upload {
    target: Target,
    created: Created,
    tasks: JoinSet<TransferResult<Vec<Part>>>,
    parts: Vec<Part>,
    next: Numbers,
    copying: Copying,
    /// What parts are copied from: all of them from one object, of one version.
    copied: Option<(Key, ETag)>,
    copies: Arc<Semaphore>,
    runtime: Handle,
    /// Whether there is nothing to remove any more.
    ended: bool,
    note: Option<Arc<dyn UploadNote>>,
}

impl Upload {
    /// Begins an upload, in the background. The creation is never cancelled: an upload that was
    /// created and whose name we do not know could not be removed.
    pub(super) fn begin(transfer: &Arc<Transfer>, key: &Key, options: PutOptions) -> Self {
        Self::begin_noted(transfer, key, options, None)
    }

    /// The same, remembered by `note`.
    pub(super) fn begin_noted(
        transfer: &Arc<Transfer>,
        key: &Key,
        options: PutOptions,
        note: Option<Arc<dyn UploadNote>>,
    ) -> Self {
        let (sender, created) = watch::channel(None);
        let (store, target) = (Arc::clone(transfer.store()), key.clone());
        let named = note.clone();
        tokio::spawn(async move {
            let created = store.create_upload(&target, options).await;
            match (&named, &created) {
                (Some(note), Ok(upload)) => note.named(upload),
                (Some(note), Err(_)) => note.ended(),
                (None, _) => {}
            }
            sender.send_replace(Some(created));
        });
        Self {
            target: Target {
                transfer: Arc::clone(transfer),
                key: key.clone(),
            },
            created,
            tasks: JoinSet::new(),
            parts: Vec::new(),
            next: Numbers::FIRST,
            copying: Copying::new(transfer),
            copied: None,
            copies: Arc::new(Semaphore::new(COPIES_MAX)),
            runtime: Handle::current(),
            ended: false,
            note,
        }
    }

    /// Sends the next part in the background; `slot` is given back when it has arrived.
    pub(super) fn send(&mut self, body: Payload, slot: OwnedSemaphorePermit) {
        let numbers = self.next;
        self.next = numbers.after(1);
        let (target, copying) = (self.target.clone(), self.copying.clone());
        let created = self.created.clone();
        self.tasks.spawn(async move {
            let Target { transfer, key } = target;
            let _slot = slot;
            let _shown = InFlight::begin(&transfer);
            let upload = name_of(created).await?;
            let number = copying.number(numbers).await?;
            let store = transfer.store();
            let sent = store.upload_part(&key, &upload, number, body).await;
            Ok(vec![sent?])
        });
    }

    /// Makes the next part from what the store has, in the background.
    pub(super) fn copy(&mut self, copy: PartCopy) {
        let version = copy.if_match.clone();
        self.copied = version.map(|tag| (copy.source.clone(), tag));
        let numbers = self.next;
        self.next = numbers.after(copied::pieces(&self.target.transfer, &copy));
        let (target, copying) = (self.target.clone(), self.copying.clone());
        let (created, copies) = (self.created.clone(), Arc::clone(&self.copies));
        self.tasks.spawn(async move {
            let _slot = copies.acquire_owned().await;
            let _shown = InFlight::begin(&target.transfer);
            let upload = name_of(created).await?;
            copied::copy(&target, &upload, &copying, (copy, numbers)).await
        });
    }

    /// Takes in the parts that have arrived meanwhile. Fails if one could not be sent.
    pub(super) fn collect(&mut self) -> TransferResult<()> {
        while let Some(joined) = self.tasks.try_join_next() {
            self.parts.extend(outcome(joined)?);
        }
        Ok(())
    }

    /// Waits for all parts, and returns the tags that the object of them may have.
    pub(super) async fn arrive(&mut self) -> TransferResult<Vec<ETag>> {
        while let Some(joined) = self.tasks.join_next().await {
            self.parts.extend(outcome(joined)?);
        }
        self.parts.sort_by_key(|part| part.number);
        Ok(tags_of_parts(&self.parts))
    }

    /// Waits for all parts and makes the object of them.
    pub(super) async fn complete(mut self, options: CompleteOptions) -> TransferResult<Stored> {
        self.arrive().await?;
        let upload = name_of(self.created.clone()).await?;
        let options = CompleteOptions {
            copied: self.copied.take(),
            ..options
        };
        let store = self.target.transfer.store();
        let stored = store
            .complete_upload(&self.target.key, &upload, &self.parts, options)
            .await?;
        self.ended = true;
        if let Some(note) = &self.note {
            note.ended();
        }
        Ok(stored)
    }

    /// Removes the upload and waits until it is gone. Dropping the future only ends the waiting.
    pub(super) async fn abort(mut self) {
        let leftover = self.leftover();
        let removal = self.runtime.spawn(clean_up(leftover));
        // It fails only when the runtime ends, and then nobody is left to tell.
        let _ = removal.await;
    }

    fn leftover(&mut self) -> Leftover {
        self.ended = true;
        Leftover {
            transfer: Arc::clone(&self.target.transfer),
            key: self.target.key.clone(),
            created: self.created.clone(),
            tasks: std::mem::take(&mut self.tasks),
            note: self.note.clone(),
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.ended {
            let leftover = self.leftover();
            self.target
                .transfer
                .clean_ups()
                .spawn(&self.runtime, clean_up(leftover));
        }
    }
}

/// Shows a part in the metrics while it is on its way.
struct InFlight(Arc<Transfer>);

impl InFlight {
    fn begin(transfer: &Arc<Transfer>) -> Self {
        transfer.metrics().uploads_in_flight.add(1);
        Self(Arc::clone(transfer))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.metrics().uploads_in_flight.subtract(1);
    }
}

/// The name of an upload, once it was created.
pub(super) async fn name_of(mut created: Created) -> ObjectResult<UploadId> {
    match created.wait_for(Option::is_some).await {
        Ok(answer) => answer.clone().expect("waited for it"),
        Err(_) => Err(gave_up(Operation::CreateUpload)),
    }
}

fn outcome(joined: Result<TransferResult<Vec<Part>>, JoinError>) -> TransferResult<Vec<Part>> {
    joined.unwrap_or_else(|_| Err(gave_up(Operation::UploadPart).into()))
}

/// The task of a request ended without an answer: it panicked, or the runtime is shutting down.
pub(super) fn gave_up(operation: Operation) -> ObjectError {
    ObjectError::new(
        ErrorKind::Interrupted,
        operation,
        "the request was given up",
    )
}
