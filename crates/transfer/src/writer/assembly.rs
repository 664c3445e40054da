//! An object that is put together from parts in order: sent ones and ones that the store copies.

use std::sync::Arc;

use penstock_base::Payload;
use penstock_object::{CompleteOptions, ETag, Key, PartCopy, PutOptions, Stored};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::upload::{Upload, UploadNote};
use crate::{Transfer, TransferResult};

/// An object that is being put together. Parts are added in order and travel in the background,
/// several at once. Nothing is visible before [`Assembly::complete`]; one that is dropped before
/// leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Assembly {
    upload: Upload,
    slots: Slots,
}

/// Room for one more part on its way.
#[derive(Debug)]
pub(crate) struct Slot(OwnedSemaphorePermit);

/// Where there is room for parts.
#[derive(Debug, Clone)]
pub(crate) struct Slots(Arc<Semaphore>);

impl Slots {
    /// Waits until one more part may be sent. Ask before memory is taken for it.
    pub(crate) async fn take(&self) -> Slot {
        let slot = Arc::clone(&self.0).acquire_owned().await;
        Slot(slot.expect("the semaphore is never closed"))
    }
}

impl Assembly {
    /// Begins to put an object together, which `note` remembers until it ended.
    pub(crate) fn begin(
        transfer: &Arc<Transfer>,
        key: &Key,
        options: PutOptions,
        note: Option<Arc<dyn UploadNote>>,
    ) -> Self {
        Self {
            upload: Upload::begin_noted(transfer, key, options, note),
            slots: Slots(Arc::new(Semaphore::new(
                transfer.settings().uploads_in_flight,
            ))),
        }
    }

    /// Room for the parts that are sent.
    pub(crate) fn slots(&self) -> Slots {
        self.slots.clone()
    }

    /// Sends the next part. Fails if an earlier one could not be sent.
    pub(crate) fn send(&mut self, body: Payload, slot: Slot) -> TransferResult<()> {
        self.upload.collect()?;
        self.upload.send(body, slot.0);
        Ok(())
    }

    /// Lets the store copy the next part.
    pub(crate) fn copy(&mut self, copy: PartCopy) {
        self.upload.copy(copy);
    }

    /// Waits until all parts have arrived; before it succeeds the store cannot have the object. Returns
    /// the tags of which the object will have one: none where the parts' tell nothing of it.
    pub(crate) async fn arrive(&mut self) -> TransferResult<Vec<ETag>> {
        self.upload.arrive().await
    }

    /// Waits for all parts and makes them the object. Must not be cancelled half way: run it in a
    /// task of its own.
    pub(crate) async fn complete(self, options: CompleteOptions) -> TransferResult<Stored> {
        self.upload.complete(options).await
    }
}
