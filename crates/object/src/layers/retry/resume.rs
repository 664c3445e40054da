//! Going on with a body that was cut.

use std::mem::MaybeUninit;

use penstock_base::{Checksum, Summing};

use crate::{
    BodySink, ErrorKind, GetOptions, Got, Key, ObjectError, ObjectResult, Operation,
    sink::SUMMED_AT_ONCE_MAX,
};

/// A sink that turns several responses into one.
///
/// The first response fixes the object's version and the range; what the caller's sink learns in
/// `begin` is that. Each further response must be of the same version and begin where the bytes
/// stopped; one that is not is not let in.
///
/// A whole object is summed up here, for it may come in several responses. The store that answers
/// verifies one that comes in one response, by this sum.
///
/// A body whose checksum did not match is not read again once some of it reached the sink:
/// bytes cannot be taken back from there.
pub(super) struct Resumed<'a> {
    sink: &'a mut dyn BodySink,
    /// What the sink held before.
    start: u64,
    pinned: Option<Got>,
    /// What is to come out of a whole object, and what has come.
    sum: Option<(Checksum, Summing)>,
    /// Why the present response is not let in.
    refused: bool,
}

impl<'a> Resumed<'a> {
    pub(super) fn new(sink: &'a mut dyn BodySink) -> Self {
        Self {
            start: sink.filled(),
            sink,
            pinned: None,
            sum: None,
            refused: false,
        }
    }

    /// Bytes of the body that have reached the sink.
    pub(super) fn received(&self) -> u64 {
        self.sink.filled() - self.start
    }

    /// What to ask for next, or `None` when everything is there.
    pub(super) fn next(&self, options: &GetOptions) -> Option<GetOptions> {
        let Some(pinned) = &self.pinned else {
            return Some(options.clone());
        };
        let position = pinned.range.start + self.received();
        (position < pinned.range.end).then(|| GetOptions {
            range: Some(position..pinned.range.end),
            if_match: Some(pinned.info.etag.clone()),
            fresh: true,
            ..GetOptions::default()
        })
    }

    /// The answer when everything is there.
    pub(super) fn finish(&mut self) -> ObjectResult<Got> {
        let mut got = self.pinned.take().ok_or_else(|| {
            let message = "the body ended before its description arrived";
            ObjectError::new(ErrorKind::Protocol, Operation::Get, message)
        })?;
        got.range.end = got.range.start + self.received();
        if got.range.end == got.info.size {
            self.verify()?;
        }
        Ok(got)
    }

    fn verify(&self) -> ObjectResult<()> {
        match &self.sum {
            Some((expected, sum)) if sum.checksum() != *expected => {
                let message = "what arrived in pieces does not match the object's checksum";
                let kind = ErrorKind::ChecksumMismatch;
                Err(ObjectError::new(kind, Operation::Get, message))
            }
            _ => Ok(()),
        }
    }

    /// What the outcome of a response means for the whole read.
    pub(super) fn judge(&mut self, key: &Key, got: ObjectResult<Got>) -> Verdict {
        let finished = match got {
            _ if self.refused => Err(replaced(key)),
            Ok(got) if self.pinned.is_none() => Ok(got),
            Ok(_) => self.finish(),
            Err(error) if error.kind == ErrorKind::NotFound && self.pinned.is_some() => {
                Err(replaced(key))
            }
            Err(error) if error.kind == ErrorKind::ChecksumMismatch && self.received() > 0 => {
                Err(error)
            }
            Err(error) => return Verdict::GoOn(error),
        };
        finished.map_or_else(Verdict::Failed, Verdict::Done)
    }
}

/// What to do after a response.
pub(super) enum Verdict {
    /// The read is complete.
    Done(Got),
    /// It may go on if such an error may be tried again.
    GoOn(ObjectError),
    /// Going on would not help.
    Failed(ObjectError),
}

// SAFETY: `unfilled` is the front of another sink's.
#[allow(unsafe_code)]
unsafe impl BodySink for Resumed<'_> {
    fn begin(&mut self, got: &Got) {
        match &self.pinned {
            None => {
                let whole = got.range == (0..got.info.size);
                let expected = got.info.checksum.filter(|_| whole);
                self.sum = expected.map(|expected| (expected, Summing::new(expected.kind())));
                self.pinned = Some(got.clone());
                self.sink.begin(got);
            }
            Some(pinned) => {
                let position = pinned.range.start + self.received();
                self.refused = got.info.etag != pinned.info.etag || got.range.start != position;
            }
        }
    }

    fn filled(&self) -> u64 {
        self.sink.filled()
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        if self.refused {
            return &mut [];
        }
        let room = self.sink.unfilled();
        let length = match self.sum {
            Some(_) => room.len().min(SUMMED_AT_ONCE_MAX),
            None => room.len(),
        };
        &mut room[..length]
    }

    unsafe fn advance(&mut self, count: usize) {
        if let Some((_, sum)) = &mut self.sum {
            let received = &self.sink.unfilled()[..count];
            // SAFETY: the caller initialised the first `count` bytes of `unfilled`, which is the
            // sink's own.
            sum.add(unsafe { received.assume_init_ref() });
        }
        // SAFETY: `unfilled` is the sink's own, so the caller's promise holds for it.
        unsafe { self.sink.advance(count) }
    }

    fn summed(&self) -> Option<Checksum> {
        self.sum.as_ref().map(|(_, sum)| sum.checksum())
    }
}

fn replaced(key: &Key) -> ObjectError {
    let message = "the object was replaced while it was read";
    ObjectError::new(ErrorKind::PreconditionFailed, Operation::Get, message).about(key)
}
