//! An object that is put together from parts in order: sent ones and ones that the store copies.

use std::sync::Arc;

use penstock_base::Payload;
use penstock_object::{CompleteOptions, Key, PartCopy, PutOptions, Stored};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::upload::Upload;
use crate::{Transfer, TransferResult};

/// An object that is being put together. Parts are added in order and travel in the background,
/// several at once. Nothing is visible before [`Assembly::complete`]; one that is dropped before
/// leaves nothing behind.
#[derive(Debug)]
pub struct Assembly {
    upload: Upload,
    slots: Arc<Semaphore>,
}

/// Room for one more part on its way.
#[derive(Debug)]
pub struct Slot(OwnedSemaphorePermit);

impl Assembly {
    /// Begins to put an object together.
    pub fn begin(transfer: &Arc<Transfer>, key: &Key, options: PutOptions) -> Self {
        Self {
            upload: Upload::begin(transfer, key, options),
            slots: Arc::new(Semaphore::new(transfer.settings().uploads_in_flight)),
        }
    }

    /// Waits until one more part may be sent. Ask before memory is taken for it.
    pub async fn slot(&mut self) -> TransferResult<Slot> {
        self.upload.collect()?;
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        Ok(Slot(slot.expect("the semaphore is never closed")))
    }

    /// Sends the next part.
    pub fn send(&mut self, body: Payload, slot: Slot) {
        self.upload.send(body, slot.0);
    }

    /// Lets the store copy the next part.
    pub fn copy(&mut self, copy: PartCopy) {
        self.upload.copy(copy);
    }

    /// Waits for all parts and makes them the object. Must not be cancelled half way: run it in a
    /// task of its own.
    pub async fn complete(self, options: CompleteOptions) -> TransferResult<Stored> {
        Ok(self.upload.complete(options).await?)
    }
}
