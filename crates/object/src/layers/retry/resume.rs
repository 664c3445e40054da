//! Going on with a body that was cut.

use std::mem::MaybeUninit;

use crate::{BodySink, ErrorKind, GetOptions, Got, Key, ObjectError, ObjectResult, Operation};

/// A sink that turns several responses into one.
///
/// The first response fixes the object's version and the range; what the caller's sink learns in
/// `begin` is that. Each further response must be of the same version and begin where the bytes
/// stopped; one that is not is not let in.
///
/// A body whose checksum did not match is not read again once some of it reached the sink:
/// bytes cannot be taken back from there.
pub(super) struct Resumed<'a> {
    sink: &'a mut dyn BodySink,
    /// What the sink held before.
    start: u64,
    pinned: Option<Got>,
    /// Why the present response is not let in.
    refused: bool,
}

impl<'a> Resumed<'a> {
    pub(super) fn new(sink: &'a mut dyn BodySink) -> Self {
        Self {
            start: sink.filled(),
            sink,
            pinned: None,
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
        })
    }

    /// The answer when everything is there.
    pub(super) fn finish(&mut self) -> ObjectResult<Got> {
        let mut got = self.pinned.take().ok_or_else(|| {
            let message = "the body ended before its description arrived";
            ObjectError::new(ErrorKind::Protocol, Operation::Get, message)
        })?;
        got.range.end = got.range.start + self.received();
        Ok(got)
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

impl BodySink for Resumed<'_> {
    fn begin(&mut self, got: &Got) {
        match &self.pinned {
            None => {
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
        self.sink.unfilled()
    }

    #[allow(unsafe_code)]
    unsafe fn advance(&mut self, count: usize) {
        // SAFETY: `unfilled` is the sink's own, so the caller's promise holds for it.
        unsafe { self.sink.advance(count) }
    }
}

fn replaced(key: &Key) -> ObjectError {
    let message = "the object was replaced while it was read";
    ObjectError::new(ErrorKind::PreconditionFailed, Operation::Get, message).about(key)
}
