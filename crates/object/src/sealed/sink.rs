//! Frames on their way out: each is received, opened where it lies, and what is wanted of it is passed on.

use std::{mem::MaybeUninit, ops::Range};

use super::frames::{FRAME_SEALED, Opener, plain_length};
use super::keys::DataKey;
use crate::{BodySink, ErrorKind, Got, Key, ObjectError, ObjectInfo, ObjectResult, Operation};

/// The same object as those see it who have the key.
pub(super) fn plain_info(info: ObjectInfo, size: u64) -> ObjectInfo {
    ObjectInfo {
        size,
        // That of what lies in the store.
        checksum: None,
        ..info
    }
}

/// An object that is not what was sealed under this name.
pub(super) fn broken(key: &Key, operation: Operation) -> ObjectError {
    let message =
        "it is not what was encrypted under this name with this key: it was damaged or replaced";
    ObjectError::new(ErrorKind::ChecksumMismatch, operation, message).about(key)
}

/// Receives frames for a sink that wants plaintext.
pub(super) struct Unsealing<'a> {
    sink: &'a mut dyn BodySink,
    data: &'a DataKey,
    key: &'a Key,
    /// The plaintext that was asked for; all of it if none.
    wanted: Option<Range<u64>>,
    /// What is being received, once its head is there.
    body: Option<(Got, Opener<'a>)>,
    /// The frame that is coming.
    frame: Vec<u8>,
    received: u64,
    /// Where in the plaintext the sink is.
    position: u64,
    is_full: bool,
    failure: Option<ObjectError>,
}

impl<'a> Unsealing<'a> {
    pub(super) fn new(
        sink: &'a mut dyn BodySink,
        data: &'a DataKey,
        (key, wanted): (&'a Key, Option<Range<u64>>),
    ) -> Self {
        Self {
            sink,
            data,
            key,
            wanted,
            body: None,
            frame: Vec::new(),
            received: 0,
            position: 0,
            is_full: false,
            failure: None,
        }
    }

    /// The answer, after all that came has come.
    pub(super) fn finish(self, received: ObjectResult<Got>) -> ObjectResult<Got> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        received?;
        let missing = || {
            let message = "the body ended before its last frame";
            ObjectError::new(ErrorKind::Interrupted, Operation::Get, message).about(self.key)
        };
        let (mut got, _) = self.body.ok_or_else(missing)?;
        if self.position < got.range.end && !self.is_full {
            return Err(missing());
        }
        got.range.end = self.position;
        Ok(got)
    }

    fn start(&mut self, sealed: &Got) -> ObjectResult<()> {
        let whole = 0..u64::MAX;
        let size =
            plain_length(sealed.info.size).ok_or_else(|| broken(self.key, Operation::Get))?;
        let wanted = self.wanted.as_ref().unwrap_or(&whole);
        if self.wanted.is_some() && wanted.start >= size {
            let message = format!("it has {size} bytes");
            let error = ObjectError::new(ErrorKind::InvalidRange, Operation::Get, message);
            return Err(error.about(self.key));
        }
        let first = sealed.range.start / FRAME_SEALED;
        let got = Got {
            info: plain_info(sealed.info.clone(), size),
            range: wanted.start..wanted.end.min(size),
        };
        self.position = got.range.start;
        self.frame = Vec::with_capacity(FRAME_SEALED.min(sealed.info.size) as usize);
        self.sink.begin(&got);
        let opener = Opener::new(self.data, self.key.as_str(), (size, first));
        self.body = Some((got, opener));
        Ok(())
    }

    /// Opens the frame if all of it is there, and passes on what is wanted of it.
    fn open(&mut self) -> ObjectResult<()> {
        let Some((got, opener)) = &mut self.body else {
            return Ok(());
        };
        if self.frame.len() < opener.frame_length() {
            return Ok(());
        }
        let start = opener.position();
        let opened = opener.open(&mut self.frame);
        let plain = opened.map_err(|_| broken(self.key, Operation::Get))?;
        let from = self.position.saturating_sub(start) as usize;
        let to = got.range.end.saturating_sub(start).min(plain.len() as u64) as usize;
        let wanted = plain.get(from..to).unwrap_or_default();
        let copied = self.sink.copy_from(wanted);
        self.position += copied as u64;
        self.is_full = copied < wanted.len();
        self.frame.clear();
        Ok(())
    }

    /// Bytes that the next frame still lacks; none when no more is wanted or fits.
    fn missing(&mut self) -> usize {
        let Some((got, opener)) = &self.body else {
            return 0;
        };
        let is_complete = match got.range.is_empty() {
            true => opener.position() > got.range.start,
            false => self.position >= got.range.end,
        };
        if is_complete || self.is_full || self.failure.is_some() {
            return 0;
        }
        // Nothing has to fit where nothing comes.
        self.is_full = !got.range.is_empty() && self.sink.unfilled().is_empty();
        match self.is_full {
            true => 0,
            false => opener.frame_length() - self.frame.len(),
        }
    }
}

// SAFETY: `unfilled` is the free part of a vector whose room does not change until it is advanced over.
#[allow(unsafe_code)]
unsafe impl BodySink for Unsealing<'_> {
    fn begin(&mut self, got: &Got) {
        self.failure = self.start(got).err();
    }

    fn filled(&self) -> u64 {
        self.received
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        let missing = self.missing();
        &mut self.frame.spare_capacity_mut()[..missing]
    }

    unsafe fn advance(&mut self, count: usize) {
        // SAFETY: the caller initialised `count` bytes of the free part.
        unsafe { self.frame.set_len(self.frame.len() + count) }
        self.received += count as u64;
        if let Err(failure) = self.open() {
            self.failure = Some(failure);
        }
    }
}
