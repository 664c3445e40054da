//! Reads one version of one object.

use std::sync::Arc;

use penstock_base::Payload;
use penstock_object::GetOptions;

use crate::{ObjectVersion, Transfer, TransferResult};

/// Reads one version of one object, on behalf of one open handle.
#[derive(Debug)]
pub struct Reader {
    transfer: Arc<Transfer>,
    version: ObjectVersion,
}

impl Reader {
    pub(crate) fn new(transfer: Arc<Transfer>, version: ObjectVersion) -> Self {
        Self { transfer, version }
    }

    /// The version that is read.
    pub fn version(&self) -> &ObjectVersion {
        &self.version
    }

    /// Reads `length` bytes at `offset`; fewer only at the end of the object. Fails with
    /// `PreconditionFailed` when the object is another version now. May be called from many
    /// tasks at once; dropping the future gives up only this read.
    pub async fn read(&self, offset: u64, length: u32) -> TransferResult<Payload> {
        let end = self.version.size.min(offset + u64::from(length));
        if offset >= end {
            return Ok(Payload::new());
        }
        let options = GetOptions {
            range: Some(offset..end),
            if_match: Some(self.version.etag.clone()),
        };
        let mut body = Vec::with_capacity(length as usize);
        self.transfer
            .store()
            .get(&self.version.key, options, &mut body)
            .await?;
        Ok(body.into())
    }
}
