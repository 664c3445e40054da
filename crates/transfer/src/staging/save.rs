//! Saving a staged file as one object.
//!
//! A save is three steps. [`StagedFile::begin_snapshot`] takes a snapshot of what is unsaved and notes in the journal
//! that a save begins. [`StagedFile::store`] sends what the [`plan`](crate::staging::plan) says, and notes before
//! the request that commits it what was sent, so that a lost answer is known again
//! ([`crate::staging::recognize`]). [`StagedFile::end_snapshot`] makes the stored version the base. What is changed
//! in between stays unsaved. One save of a file at a time: the owner of the file sees to that.

use std::{pin::pin, sync::Arc};

use futures_util::{StreamExt, stream};
use penstock_base::{FsError, MIB, Payload};
use penstock_object::{CompleteOptions, Key, PartCopy, PutOptions, Stored};

use crate::{
    ObjectVersion, Transfer,
    lock::lock,
    staging::{
        attempt::{SUMS_MAX, Sum, Trace},
        content::{Content, Replacing, Snapshot},
        disk::on_worker,
        error::StagedError,
        file::StagedFile,
        journal::{Journal, Record},
        plan::{Limits, Part, Plan, Source, plan},
    },
    writer::{Assembly, Slot, Slots},
};

/// Bytes in a part that the store copies: enough that a request more does not matter, and little
/// enough that the parts of a large file are copied at the same time.
const COPY_PART: u64 = 256 * MIB;
/// The smallest part that is sent or copied, where the store would take an even smaller one.
const PART_MIN: u64 = MIB;
/// Parts of one file that are put together at once: one connection does not fetch as fast as several.
const GATHERED_AHEAD: usize = 4;
/// A part that is sent may occupy this fraction of the memory budget.
const PARTS_PER_BUDGET: u64 = 4;

/// A part that can be made.
enum Ready {
    Copy(PartCopy),
    Send(Sum, Payload, Slot),
}

impl StagedFile {
    /// Begins a save of what is unsaved, if anything is.
    pub async fn begin_snapshot(&self, replacing: Replacing) -> Option<Snapshot> {
        let _alone = self.hold_alone().await;
        on_worker(|| self.begin_snapshot_alone(replacing)).await
    }

    /// The same. The caller has the file alone. Blocks.
    fn begin_snapshot_alone(&self, replacing: Replacing) -> Option<Snapshot> {
        let mut journal = lock(&self.journal);
        let is_closed = |journal: &Journal| !journal.takes_records();
        if journal.as_ref().is_some_and(is_closed) {
            self.rewrite(&mut journal);
        }
        let (snapshot, abandoned) = {
            let mut state = self.state();
            let state = state.as_mut()?;
            (state.content.begin_snapshot(replacing)?, state.abandoned)
        };
        if !abandoned {
            note(&mut journal, &Record::Saving(snapshot.size));
        }
        Some(snapshot)
    }

    /// Stores what a snapshot says, whole or not at all.
    /// `options` describe the object; the condition is that of the snapshot. Must not be cancelled half way: run
    /// it in a task of its own.
    pub async fn store(
        &self,
        transfer: &Arc<Transfer>,
        key: Key,
        options: PutOptions,
        snapshot: &Snapshot,
    ) -> Result<ObjectVersion, StagedError> {
        let limits = limits(transfer, self.staging().put_max());
        let plan = plan(snapshot.size, &snapshot.unsaved, &limits).ok_or(FsError::FileTooLarge)?;
        let options = PutOptions {
            condition: snapshot.condition.clone(),
            ..options
        };
        let stored = match plan {
            Plan::Put => {
                let base = snapshot.base.version();
                let range = 0..snapshot.size;
                let body = self.gather(transfer, base, range.clone()).await?;
                let (sum, body) = Sum::of(range, body, transfer.store().checksum_kind());
                let trace = Trace {
                    sums: vec![sum],
                    tags: Vec::new(),
                };
                on_worker(|| self.announce(trace)).await;
                transfer.store().put(&key, body, options).await?
            }
            Plan::Parts(parts) => {
                self.assemble(transfer, &key, options, snapshot.base.version(), parts)
                    .await?
            }
        };
        Ok(ObjectVersion {
            key,
            etag: stored.etag,
            size: snapshot.size,
        })
    }

    async fn assemble(
        &self,
        transfer: &Arc<Transfer>,
        key: &Key,
        options: PutOptions,
        base: Option<&ObjectVersion>,
        parts: Vec<Part>,
    ) -> Result<Stored, StagedError> {
        let completion = CompleteOptions {
            condition: options.condition.clone(),
            ..CompleteOptions::default()
        };
        let note = self.staging().uploads().note(key);
        let mut assembly = Assembly::begin(transfer, key, options, note);
        let (slots, mut sums) = (assembly.slots(), Vec::new());
        let ready = parts
            .into_iter()
            .map(|part| self.make_ready(transfer, base, part, &slots));
        let mut ready = pin!(stream::iter(ready).buffered(GATHERED_AHEAD));
        while let Some(part) = ready.next().await {
            match part? {
                Ready::Copy(copy) => assembly.copy(copy),
                Ready::Send(sum, body, slot) => {
                    sums.push(sum);
                    assembly.send(body, slot)?;
                }
            }
        }
        let tags = assembly.arrive().await?;
        on_worker(|| self.announce(Trace { sums, tags })).await;
        Ok(assembly.complete(completion).await?)
    }

    async fn make_ready(
        &self,
        transfer: &Arc<Transfer>,
        base: Option<&ObjectVersion>,
        Part { range, source }: Part,
        slots: &Slots,
    ) -> Result<Ready, StagedError> {
        if let (Source::Copy, Some(base)) = (source, base) {
            return Ok(Ready::Copy(PartCopy {
                source: base.key.clone(),
                range,
                if_match: (!base.etag.as_str().is_empty()).then(|| base.etag.clone()),
            }));
        }
        let slot = slots.take().await;
        let body = self.gather(transfer, base, range.clone()).await?;
        let (sum, body) = Sum::of(range, body, transfer.store().checksum_kind());
        Ok(Ready::Send(sum, body, slot))
    }

    /// From now on the store may have the save that was begun, which leaves this trace.
    fn announce(&self, mut trace: Trace) {
        trace.sums.truncate(SUMS_MAX);
        let mut journal = lock(&self.journal);
        let is_noted = self.state().as_ref().is_some_and(|state| !state.abandoned);
        if is_noted {
            note(&mut journal, &Record::Sent(trace.clone()));
        }
        if let Some(state) = self.state().as_mut() {
            state.content.announce(trace);
        }
    }

    /// The save that was begun has stored `version`. `show` sees what is unsaved now. To be followed by
    /// [`StagedFile::trim_journal`].
    pub fn end_snapshot(&self, version: ObjectVersion, show: impl FnOnce(Option<&Content>)) {
        let mut state = self.state();
        if let Some(state) = state.as_mut() {
            state.content.end_snapshot(version);
            state.settle_payment();
        }
        show(state.as_ref().map(|state| &state.content));
    }

    /// The version that the content was to replace as a whole is gone: it replaces nothing from now on.
    pub fn forget_replaced(&self) {
        if let Some(state) = self.state().as_mut() {
            state.content.take_place_of(None);
        }
    }

    /// The save that was begun has failed. It is forgotten if the store cannot have it.
    pub fn give_up_snapshot(&self) {
        if let Some(state) = self.state().as_mut() {
            state.content.give_up_snapshot();
        }
    }
}

/// What the store and memory allow of a save whose file goes in one request up to `put_max` bytes.
fn limits(transfer: &Transfer, put_max: u64) -> Limits {
    let capabilities = transfer.store().capabilities();
    let affordable = affordable_part(transfer);
    let part_min = capabilities
        .part_size_min
        .max(PART_MIN.min(capabilities.part_size_max));
    let copy_max = capabilities.part_size_max.min(capabilities.copy_size_max);
    let wanted = transfer.settings().upload_part_size;
    Limits {
        put_max: put_max.min(capabilities.put_size_max),
        part_min,
        part_size: wanted.clamp(part_min, affordable.max(part_min)),
        part_max: affordable.max(part_min),
        copy_size: COPY_PART.min(copy_max),
        copy_max,
        parts_max: capabilities.parts_max.into(),
    }
}

/// Bytes in the largest part that memory allows.
fn affordable_part(transfer: &Transfer) -> u64 {
    let affordable = transfer.pool().budget().total() / PARTS_PER_BUDGET;
    affordable.min(transfer.store().capabilities().part_size_max)
}

/// Bytes in the largest file: all of it may have to be sent.
pub fn staged_size_max(transfer: &Transfer) -> u64 {
    let capabilities = transfer.store().capabilities();
    let parts = affordable_part(transfer).saturating_mul(capabilities.parts_max.into());
    // Parts are equal, so some are smaller than they might be.
    capabilities.object_size_max.min(parts / 2)
}

/// Adds a record to the journal, if there is one that takes it. Without it a kill costs more, but no
/// bytes.
fn note(journal: &mut Option<Journal>, record: &Record) {
    let takes = |journal: &&mut Journal| journal.takes_records();
    let Some(journal) = journal.as_mut().filter(takes) else {
        return;
    };
    if let Err(error) = journal.append(record) {
        tracing::debug!(%error, "the staging directory does not take the record of a save");
    }
}
