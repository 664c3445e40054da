//! Takes in the object that a writer continues.

use penstock_base::MIB;
use penstock_object::PartCopy;

use super::{WriteStart, Writer};
use crate::{
    ObjectVersion, TransferResult,
    memory::{self, WriteMemory},
    reader::fetch_whole,
};

/// Bytes in a part that the store copies from an existing object: enough that a request more does
/// not matter, and little enough that the parts of a large object are copied at the same time.
const COPY_PART: u64 = 256 * MIB;

impl Writer {
    /// Takes in what the object begins with, once.
    pub(super) async fn begin(&mut self) -> TransferResult<()> {
        let budget = self.transfer.pool().budget();
        let prepared = self.transfer.set_aside().prepare(budget);
        memory::in_time(self.transfer.settings().memory_wait, prepared).await?;
        let WriteStart::After(version) = &self.start else {
            return Ok(());
        };
        let version = version.clone();
        if version.size >= self.part_min() {
            self.copy_all(&version);
        } else if version.size > 0 {
            self.read_back(version).await?;
        }
        self.start = WriteStart::Empty;
        Ok(())
    }

    async fn read_back(&mut self, version: ObjectVersion) -> TransferResult<()> {
        let cost = memory::cost(version.size);
        let memory = match self.wait_for_memory(cost).await? {
            WriteMemory::Shared(memory) | WriteMemory::SetAside(memory) => memory,
        };
        let beginning = fetch_whole(&self.transfer, version, memory).await?;
        for slice in beginning.slices() {
            self.tail.keep(slice.clone());
        }
        Ok(())
    }

    fn copy_all(&mut self, version: &ObjectVersion) {
        let capabilities = self.transfer.store().capabilities();
        let parts_max = u64::from(capabilities.parts_max / 4).max(1);
        let longest = COPY_PART
            .max(version.size.div_ceil(parts_max))
            .min(capabilities.part_size_max);
        let parts = version.size.div_ceil(longest);
        let mut start = 0;
        for part in 1..=parts {
            // Equal parts: a short last one could be below the store's minimum.
            let end = (u128::from(version.size) * u128::from(part) / u128::from(parts)) as u64;
            self.upload().copy(PartCopy {
                source: version.key.clone(),
                range: start..end,
                if_match: Some(version.etag.clone()),
            });
            start = end;
        }
    }
}
