//! Saves of which nobody knows whether the store has them.
//!
//! Between the request that makes a save the object and the moment in which the journal says so, the
//! process may die, or the answer may be lost. The store then has a version that is not the base of
//! what is here, and that looks like another client's. So before that request the journal gets the
//! checksums of the bytes that are sent, and the tags that the object may have if the store makes some
//! of it by copying; what is written later is noted apart, as it may not be in them any more. Whoever
//! meets a version that he does not know compares it with these.
//! What he knows again becomes the base, and only what was changed since is unsaved.

use std::{ops::Range, sync::Arc};

use penstock_base::{Checksum, ChecksumKind, FsResult, MIB, Payload, Summing};
use penstock_object::{ETag, ErrorKind, Key};
use penstock_transfer::{ObjectVersion, Reader, TransferError};

use crate::{
    core::Core,
    errors::for_reading,
    staged::{
        StagedFile,
        content::{Content, Snapshot},
        disk::on_worker,
        journal::{Journal, Record},
        lock,
        save::SaveError,
        touched::Touched,
    },
};

/// Saves of a file that are remembered while nobody knows their outcome. Any of them may be the one that
/// is stored, so before there are more the store is asked.
pub(crate) const ATTEMPTS_MAX: usize = 4;
/// Checksums of a save that are remembered: enough to know it again.
const SUMS_MAX: usize = 1024;
/// Bytes that are compared at once.
const COMPARED: u64 = MIB;
/// What is made of bytes that are sent without a checksum.
const USUAL_KIND: ChecksumKind = ChecksumKind::Crc64Nvme;

/// The checksum of some bytes that a save sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) range: Range<u64>,
    pub(crate) checksum: Checksum,
}

/// From what the object of a save is known again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Trace {
    /// What was sent.
    pub(crate) sums: Vec<Sum>,
    /// The tags of which it has one, where those of its parts tell that.
    pub(crate) tags: Vec<ETag>,
}

/// A save that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Bytes in the object that it makes.
    pub(crate) size: u64,
    /// `None` while the store cannot have it.
    pub(crate) trace: Option<Trace>,
    /// What was changed since it began.
    pub(crate) touched: Touched,
}

impl Attempt {
    pub(crate) fn new(size: u64) -> Self {
        Self {
            size,
            trace: None,
            touched: Touched::default(),
        }
    }

    /// The checksum of the whole object, where all of it was sent.
    fn whole(&self) -> Option<Checksum> {
        let (first, rest) = self.trace.as_ref()?.sums.split_first()?;
        let (mut end, mut whole) = (first.range.end, first.checksum);
        for Sum { range, checksum } in rest {
            if range.start != end {
                return None;
            }
            whole = whole.followed_by(*checksum, range.end - range.start)?;
            end = range.end;
        }
        (first.range.start == 0 && end == self.size).then_some(whole)
    }
}

impl Sum {
    /// The bytes of a part with their checksum, which their sender then need not make.
    pub(super) fn of(
        range: Range<u64>,
        body: Payload,
        kind: Option<ChecksumKind>,
    ) -> (Self, Payload) {
        let checksum = body.checksum(kind.unwrap_or(USUAL_KIND));
        (Self { range, checksum }, body.with_checksum(checksum))
    }
}

impl StagedFile {
    /// Begins a save of what is unsaved, if anything is. Blocks; nobody changes the file meanwhile.
    pub(super) fn begin_save(&self) -> Option<Snapshot> {
        let mut journal = lock(&self.journal);
        let is_closed = |journal: &Journal| !journal.takes_records();
        if journal.as_ref().is_some_and(is_closed) {
            self.rewrite(&mut journal);
        }
        let (snapshot, abandoned) = {
            let mut state = self.state();
            let state = state.as_mut()?;
            (state.content.begin_save()?, state.abandoned)
        };
        if !abandoned {
            note(&mut journal, &Record::Saving(snapshot.size));
        }
        Some(snapshot)
    }

    /// From now on the store may have the save that was begun, which leaves this trace.
    pub(super) fn announce(&self, mut trace: Trace) {
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

    /// The save that was begun has stored `version`. `show` sees what is unsaved now.
    pub(super) fn end_save(&self, version: ObjectVersion, show: impl FnOnce(Option<&Content>)) {
        let mut state = self.state();
        if let Some(state) = state.as_mut() {
            state.content.end_save(version);
            state.payment.settle(&state.content);
        }
        show(state.as_ref().map(|state| &state.content));
    }
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

impl Core {
    /// Makes room for the save that was begun, where too many before it are remembered: returns the
    /// version that the store has if one of them made it, and else forgets them. The newest of them stays,
    /// as it may be on its way yet.
    pub(super) async fn find_among_many(
        &self,
        staged: &StagedFile,
        key: &Key,
    ) -> FsResult<Option<ObjectVersion>> {
        if staged.look(|content| content.attempts().len())? <= ATTEMPTS_MAX {
            return Ok(None);
        }
        let found = self.find_attempt(staged, key).await?;
        if found.is_none() {
            if let Some(state) = staged.state().as_mut() {
                state.content.forget_attempts();
            }
            on_worker(|| staged.settle_journal()).await;
        }
        Ok(found)
    }

    /// The version that the store has, if one of the saves that were begun made it. That one is the
    /// newest then, as if none had followed.
    pub(super) async fn find_attempt(
        &self,
        staged: &StagedFile,
        key: &Key,
    ) -> FsResult<Option<ObjectVersion>> {
        let attempts = staged.look(|content| content.attempts().to_vec())?;
        if attempts.is_empty() {
            return Ok(None);
        }
        let Some(info) = for_reading(self.head(key).await)? else {
            return Ok(None);
        };
        let theirs = ObjectVersion {
            key: key.clone(),
            etag: info.etag,
            size: info.size,
        };
        for (number, attempt) in attempts.iter().enumerate().rev() {
            if attempt.size == theirs.size
                && self.is_made_by(&theirs, info.checksum, attempt).await?
            {
                if let Some(state) = staged.state().as_mut() {
                    state.content.believe(number);
                }
                return Ok(Some(theirs));
            }
        }
        Ok(None)
    }

    /// Whether an object with the checksum `told`, if the store tells one, is what a save made. What
    /// was sent does not decide where the rest was copied and the tags say that it is another's.
    async fn is_made_by(
        &self,
        theirs: &ObjectVersion,
        told: Option<Checksum>,
        attempt: &Attempt,
    ) -> FsResult<bool> {
        let Some(Trace { sums, tags }) = &attempt.trace else {
            return Ok(false);
        };
        let has_tag = |tag: &ETag| tag.as_str().eq_ignore_ascii_case(theirs.etag.as_str());
        if tags.iter().any(has_tag) {
            return Ok(true);
        }
        if attempt.whole().is_none() && (sums.is_empty() || !tags.is_empty()) {
            return Ok(false);
        }
        if let (Some(told), Some(whole)) = (told, attempt.whole())
            && told.kind() == whole.kind()
        {
            return Ok(told == whole);
        }
        let reader = Arc::new(self.transfer.reader(theirs.clone()));
        for sum in sums {
            match checksum_of(&reader, sum).await {
                Ok(checksum) if checksum == sum.checksum => {}
                Ok(_) => return Ok(false),
                Err(TransferError::Object(error))
                    if error.kind == ErrorKind::PreconditionFailed =>
                {
                    return Ok(false);
                }
                Err(error) => return Err(SaveError::from(error).into()),
            }
        }
        Ok(true)
    }
}

/// The checksum of the bytes that the store has where `sum` is of.
async fn checksum_of(reader: &Arc<Reader>, sum: &Sum) -> Result<Checksum, TransferError> {
    let mut summing = Summing::new(sum.checksum.kind());
    let mut at = sum.range.start;
    while at < sum.range.end {
        let end = sum.range.end.min(at + COMPARED);
        for slice in reader.read(at, (end - at) as u32).await?.slices() {
            summing.add(slice);
        }
        at = end;
    }
    Ok(summing.checksum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(bytes: &'static [u8], at: u64) -> Sum {
        let range = at..at + bytes.len() as u64;
        Sum::of(range, Payload::from(bytes.to_vec()), None).0
    }

    #[test]
    fn the_checksum_of_an_object_is_known_where_all_of_it_was_sent() {
        let attempt = |sums: &[Sum]| Attempt {
            trace: Some(Trace {
                sums: sums.to_vec(),
                tags: Vec::new(),
            }),
            ..Attempt::new(6)
        };
        let whole = sum(b"abcdef", 0).checksum;
        let (first, second) = (sum(b"abc", 0), sum(b"def", 3));
        assert_eq!(attempt(&[sum(b"abcdef", 0)]).whole(), Some(whole));
        assert_eq!(
            attempt(&[first.clone(), second.clone()]).whole(),
            Some(whole)
        );
        for part in [vec![first.clone()], vec![second], vec![]] {
            assert_eq!(attempt(&part).whole(), None);
        }
        assert_eq!(attempt(&[first, sum(b"ef", 4)]).whole(), None);
        assert_eq!(Attempt::new(6).whole(), None);
    }
}
