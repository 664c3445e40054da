//! A spool as the store that a volume reads through.

use std::{fs::File, io, ops::Range, os::unix::fs::FileExt};

use async_trait::async_trait;
use penstock_base::run_blocking;
use penstock_object::{
    AtHand, Below, BodySink, ByteRange, DeleteFailure, ETag, ErrorKind, GetOptions, Got, Key,
    ObjectError, ObjectResult, Operation, Store,
};

use super::{Spool, SpooledFile};
use crate::data::{
    ObjectId,
    unsent::{beyond, info},
};

/// Bytes that are read from a file at once.
const PIECE: usize = 128 << 10;

impl Spool {
    /// The file of a key that is here, with its length.
    fn find(&self, key: &Key) -> Option<(std::sync::Arc<SpooledFile>, u64)> {
        let object = ObjectId::of_key(key.as_str())?;
        let length = self.unsent.length(object)?;
        Some((self.file(object).ok()?, u64::from(length)))
    }

    /// What is here goes from here.
    fn takes_care_of(&self, key: &Key) -> bool {
        let object = ObjectId::of_key(key.as_str());
        object.is_some_and(|object| self.unsent.takes_care_of(object))
    }
}

#[async_trait]
impl Store for Spool {
    fn below(&self) -> Below<'_> {
        Below::Store(&*self.below)
    }

    fn at_hand(&self, key: &Key, range: &ByteRange, if_match: Option<&ETag>) -> Option<AtHand> {
        self.below.at_hand(key, range, if_match)
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        let Some((spooled, length)) = self.find(key) else {
            return self.below.get(key, options, sink).await;
        };
        let range = options.range.unwrap_or(0..length);
        if range.start >= length {
            return Err(beyond(key, length));
        }
        let mut got = Got {
            info: info(length),
            range: range.start..range.end.min(length),
        };
        sink.begin(&got);
        let delivered = run_blocking(|| deliver(&spooled.file, got.range.clone(), sink));
        got.range.end = delivered.map_err(|error| {
            let text = error.to_string();
            ObjectError::new(ErrorKind::Unavailable, Operation::Get, text).about(key)
        })?;
        Ok(got)
    }

    async fn delete(&self, key: &Key) -> ObjectResult<()> {
        match self.takes_care_of(key) {
            true => Err(busy(key)),
            false => self.below.delete(key).await,
        }
    }

    async fn delete_many(&self, keys: &[Key]) -> ObjectResult<Vec<DeleteFailure>> {
        let (mut failed, mut others) = (Vec::new(), Vec::new());
        for key in keys {
            match self.takes_care_of(key) {
                false => others.push(key.clone()),
                true => failed.push(DeleteFailure {
                    key: key.clone(),
                    kind: ErrorKind::Unavailable,
                    code: String::new(),
                    message: busy(key).message,
                }),
            }
        }
        if !others.is_empty() {
            failed.extend(self.below.delete_many(&others).await?);
        }
        Ok(failed)
    }
}

fn busy(key: &Key) -> ObjectError {
    let message = "it is on this disk, and goes from there";
    ObjectError::new(ErrorKind::Unavailable, Operation::Delete, message).about(key)
}

/// Reads a range into a sink. Returns where it was full.
fn deliver(file: &File, range: Range<u64>, sink: &mut dyn BodySink) -> io::Result<u64> {
    let mut piece = vec![0; PIECE.min((range.end - range.start) as usize)];
    let mut at = range.start;
    while at < range.end {
        let length = piece.len().min((range.end - at) as usize);
        file.read_exact_at(&mut piece[..length], at)?;
        let copied = sink.copy_from(&piece[..length]);
        at += copied as u64;
        if copied < length {
            break;
        }
    }
    Ok(at)
}
