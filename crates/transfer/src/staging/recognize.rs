//! Knowing a save again whose answer was lost.
//!
//! The store then has a version that is not the base of what is here, and that looks like another client's.
//! It is compared with the traces of the saves whose outcome is not known ([`crate::staging::attempt`]): by a
//! tag, by a checksum, or by the bytes that were sent, which are read for it.

use std::sync::Arc;

use penstock_base::{Checksum, MIB, Summing};
use penstock_object::{ETag, ErrorKind, HeadOptions, Key, ObjectInfo};

use crate::{
    ObjectVersion, Reader, Transfer, TransferError, TransferResult,
    staging::{
        attempt::{ATTEMPTS_MAX, Attempt, Sum, Trace},
        content::Snapshot,
        disk::on_worker,
        error::StagedError,
        file::StagedFile,
    },
};

/// Bytes that are compared at once.
const COMPARED: u64 = MIB;

impl StagedFile {
    /// Makes room for the save that was begun, where too many before it are remembered: returns the
    /// version that the store has if one of them made it, and else forgets them. The newest of them stays,
    /// as it may be on its way yet.
    pub async fn find_among_many(
        &self,
        transfer: &Arc<Transfer>,
        key: &Key,
    ) -> Result<Option<ObjectVersion>, StagedError> {
        if self.look(|content| content.attempts().len())? <= ATTEMPTS_MAX {
            return Ok(None);
        }
        let found = self.find_attempt(transfer, key).await?;
        if found.is_none() {
            if let Some(state) = self.state().as_mut() {
                state.content.forget_attempts();
            }
            on_worker(|| self.trim_journal()).await;
        }
        Ok(found)
    }

    /// The version that the store has, if one of the saves that were begun made it. That one is the
    /// newest then, as if none had followed.
    pub async fn find_attempt(
        &self,
        transfer: &Arc<Transfer>,
        key: &Key,
    ) -> Result<Option<ObjectVersion>, StagedError> {
        let attempts = self.look(|content| content.attempts().to_vec())?;
        if attempts.is_empty() {
            return Ok(None);
        }
        let Some(info) = present(transfer, key).await? else {
            return Ok(None);
        };
        let theirs = version_of(key, &info);
        for (number, attempt) in attempts.iter().enumerate().rev() {
            if attempt.size == theirs.size
                && is_made_by(transfer, &theirs, info.checksum, attempt).await?
            {
                if let Some(state) = self.state().as_mut() {
                    state.content.believe(number);
                }
                return Ok(Some(theirs));
            }
        }
        Ok(None)
    }

    /// The version that the store has, if it is what a snapshot says: the save of it succeeded, and
    /// only its answer was lost. What is clean cannot be compared, as its base is gone, so a snapshot that
    /// leaves something to the base is never found.
    pub async fn find_snapshot(
        &self,
        transfer: &Arc<Transfer>,
        key: &Key,
        snapshot: &Snapshot,
    ) -> Result<Option<ObjectVersion>, StagedError> {
        let Some(info) = present(transfer, key).await? else {
            return Ok(None);
        };
        if info.size != snapshot.size || !snapshot.is_whole() {
            return Ok(None);
        }
        let theirs = version_of(key, &info);
        let reader = Arc::new(transfer.reader(theirs.clone()));
        for range in &snapshot.unsaved {
            let mut at = range.start;
            while at < range.end {
                let end = range.end.min(at + COMPARED);
                let ours = self.gather(transfer, None, at..end).await?;
                let stored = if_same_version(reader.read(at, (end - at) as u32).await)?;
                if stored.is_none_or(|stored| stored.to_vec() != ours.to_vec()) {
                    return Ok(None);
                }
                at = end;
            }
        }
        Ok(Some(theirs))
    }
}

/// What the store has under a name.
async fn present(transfer: &Transfer, key: &Key) -> TransferResult<Option<ObjectInfo>> {
    match transfer.store().head(key, HeadOptions::default()).await {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn version_of(key: &Key, info: &ObjectInfo) -> ObjectVersion {
    ObjectVersion {
        key: key.clone(),
        etag: info.etag.clone(),
        size: info.size,
    }
}

/// What a request for a version came to; nothing if the object is another one by now.
fn if_same_version<T>(answer: TransferResult<T>) -> TransferResult<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(TransferError::Object(error)) if error.kind == ErrorKind::PreconditionFailed => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether an object with the checksum `told`, if the store tells one, is what a save made. What
/// was sent does not decide where the rest was copied and the tags say that it is another's.
async fn is_made_by(
    transfer: &Arc<Transfer>,
    theirs: &ObjectVersion,
    told: Option<Checksum>,
    attempt: &Attempt,
) -> TransferResult<bool> {
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
    let reader = Arc::new(transfer.reader(theirs.clone()));
    for sum in sums {
        let stored = if_same_version(checksum_of(&reader, sum).await)?;
        if stored != Some(sum.checksum) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The checksum of the bytes that the store has where `sum` is of.
async fn checksum_of(reader: &Arc<Reader>, sum: &Sum) -> TransferResult<Checksum> {
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
