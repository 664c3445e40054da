//! Finding out whether a write that failed has happened.
//!
//! A put that left its body damaged is no such riddle: the answer told the tag of what it left, and the next
//! attempt replaces that version only.
//!
//! A write that insists on a state (the key is free or has a version, the object ends here, the
//! upload exists) destroys that state itself. When an attempt ended so that it may have taken effect, and a
//! later one is told that the state is gone, this is either the earlier attempt's doing or
//! somebody else's. The layer looks:
//!
//! - a put or an append: whether the bytes that it sent are there;
//! - a copy: whether the source still is the version that was to be copied, and the target has its tag or
//!   checksum, or the same bytes;
//! - the end of an upload: whether the object is the one that the parts make, by its checksum or
//!   its tag. Where a store has neither and the write had no condition, by its size: an upload's name
//!   is known to nobody else, so it can only have ended with this object or been aborted. With a
//!   condition, by what was sent of it, if that is enough for the writer ([`super::sent`]);
//! - a link: whether it has that target.
//!
//! and whether it is no older than the operation. Two writers that write the same bytes under one
//! key within minutes, of whom one loses an answer, may both be told that they were first.

use std::{
    mem::MaybeUninit,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use penstock_base::{MIB, Mutex, Payload, clock};

use super::{Retry, backoff::Retries};
use crate::{
    Appended, BodySink, CompleteOptions, ETag, ErrorKind, GetOptions, HeadOptions, Key, ObjectInfo,
    ObjectKind, ObjectResult, Part, PutOptions, Store, Stored, WriteCondition,
    assembled::{self, Likeness},
    layers::Work,
};

/// How often bytes are fetched and must differ before they count as somebody else's. A checksum does not
/// always tell those that arrived damaged: the comparison may read a piece, and it ends where they differ.
const LOOKS_MAX: usize = 3;

/// Bytes that are compared at once.
const COMPARED_AT_ONCE: usize = 64 << 10;

/// Bytes up to which a copy is compared with its source where neither tag nor checksum says that
/// they are the same.
const COPY_COMPARED_MAX: u64 = 64 * MIB;

/// How far a store's clock may be off ours: signed requests are refused beyond that.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(15 * 60);

impl Retry {
    /// Repeats `attempt`. When one that may have happened is followed by one of the errors
    /// `telltales`, `found` says what it achieved, if it did.
    async fn settle<'a, T>(
        &self,
        mut retries: Retries<'_>,
        attempt: impl Fn() -> Work<'a, T>,
        telltales: &[ErrorKind],
        found: impl Future<Output = ObjectResult<Option<T>>> + Send,
    ) -> ObjectResult<T> {
        let mut uncertain = false;
        loop {
            match attempt().await {
                Ok(value) => {
                    retries.succeeded();
                    return Ok(value);
                }
                Err(error) if uncertain && telltales.contains(&error.kind) => {
                    return found.await?.ok_or(error);
                }
                Err(error) => {
                    uncertain |= error.kind.is_doubtful();
                    retries.pause(error).await?;
                }
            }
        }
    }

    pub(super) async fn put_once(
        &self,
        key: &Key,
        body: &Payload,
        options: &PutOptions,
    ) -> ObjectResult<Stored> {
        let began = clock::wall_time();
        let condition = Mutex::new(options.condition.clone());
        let present = || condition.lock();
        let attempt = || -> Work<'_, Stored> {
            Box::pin(async {
                let options = PutOptions {
                    condition: present().clone(),
                    ..options.clone()
                };
                let put = self.inner.put(key, body.clone(), options).await;
                // OSS stores a body as it arrived and then tells its checksum.
                if let Some(left) = put.as_ref().err().and_then(|error| error.left.as_deref()) {
                    *present() = WriteCondition::IfMatch(left.clone());
                }
                put
            })
        };
        let found = async {
            let info = self.ends_with(key, 0, body).await?;
            Ok(info
                .filter(|info| is_fresh(info, began))
                .map(|info| stored(&info)))
        };
        let telltales = [ErrorKind::AlreadyExists, ErrorKind::PreconditionFailed];
        self.settle(self.begin().sending(body.len()), attempt, &telltales, found)
            .await
    }

    pub(super) async fn append_once<'a>(
        &self,
        key: &Key,
        position: u64,
        body: &Payload,
        attempt: impl Fn() -> Work<'a, Appended>,
    ) -> ObjectResult<Appended> {
        let began = clock::wall_time();
        let found = async {
            let info = self.ends_with(key, position, body).await?;
            let ours =
                |info: &ObjectInfo| info.kind == ObjectKind::Appendable && is_fresh(info, began);
            Ok(info.filter(ours).map(|info| Appended {
                next_position: info.size,
                checksum: info.checksum,
                etag: Some(info.etag),
            }))
        };
        self.settle(
            self.begin().sending(body.len()),
            attempt,
            &[ErrorKind::PositionMismatch],
            found,
        )
        .await
    }

    pub(super) async fn copy_once<'a>(
        &self,
        (source, wanted): (&Key, Option<&ETag>),
        target: &Key,
        attempt: impl Fn() -> Work<'a, Stored>,
    ) -> ObjectResult<Stored> {
        let began = clock::wall_time();
        let found = async {
            let from = self.head(source, HeadOptions::default()).await?;
            let to = self.head(target, HeadOptions::default()).await?;
            // Some stores copy whatever is there.
            let is_wanted = wanted.is_none_or(|tag| from.etag == *tag);
            if source == target || !is_wanted || !is_fresh(&to, began) {
                return Ok(None);
            }
            let same = self.is_copy((source, &from), (target, &to)).await?;
            Ok(same.then(|| stored(&to)))
        };
        let telltales = [ErrorKind::AlreadyExists, ErrorKind::PreconditionFailed];
        self.settle(self.begin(), attempt, &telltales, found).await
    }

    pub(super) async fn complete_once<'a>(
        &self,
        key: &Key,
        (parts, options): (&[Part], &CompleteOptions),
        attempt: impl Fn() -> Work<'a, Stored>,
    ) -> ObjectResult<Stored> {
        let began = clock::wall_time();
        let found = async {
            let info = self.head_if_any(key).await?;
            let Some(info) = info.filter(|info| is_fresh(info, began)) else {
                return Ok(None);
            };
            let is_ours = match assembled::compare(&info, parts, options.checksum) {
                Likeness::Same => true,
                Likeness::Other => false,
                Likeness::Unknown if options.condition == WriteCondition::Always => true,
                // Who insists on a state had rather be told of a conflict that is none than
                // take another's object for his own.
                Likeness::Unknown => {
                    options.sent_tells && self.has_sent((key, &info), parts).await?
                }
            };
            Ok(is_ours.then(|| stored(&info)))
        };
        let telltales: &[ErrorKind] = match options.condition {
            // It is refused for what it was copied from, which says nothing of an earlier attempt.
            WriteCondition::Always => &[ErrorKind::NoSuchUpload],
            // The others are met by whoever insists on what his own object has ended: a version, or none.
            WriteCondition::IfAbsent | WriteCondition::IfMatch(_) => &[
                ErrorKind::NoSuchUpload,
                ErrorKind::PreconditionFailed,
                ErrorKind::AlreadyExists,
            ],
        };
        self.settle(self.begin(), attempt, telltales, found).await
    }

    pub(super) async fn link_once<'a>(
        &self,
        key: &Key,
        target: &Key,
        attempt: impl Fn() -> Work<'a, Stored>,
    ) -> ObjectResult<Stored> {
        let found = async {
            if self.get_symlink(key).await? != *target {
                return Ok(None);
            }
            let info = self.head(key, HeadOptions::default()).await?;
            Ok(Some(stored(&info)))
        };
        let telltales = [ErrorKind::AlreadyExists, ErrorKind::PreconditionFailed];
        self.settle(self.begin(), attempt, &telltales, found).await
    }

    /// The object, if there is one.
    async fn head_if_any(&self, key: &Key) -> ObjectResult<Option<ObjectInfo>> {
        match self.head(key, HeadOptions::default()).await {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            info => info.map(Some),
        }
    }

    /// The object, if it ends with `body` at `position`.
    async fn ends_with(
        &self,
        key: &Key,
        position: u64,
        body: &Payload,
    ) -> ObjectResult<Option<ObjectInfo>> {
        let Some(info) = self.head_if_any(key).await? else {
            return Ok(None);
        };
        let fits = info.size == position + body.len() as u64;
        let same = fits && self.has_at((key, &info), position, body).await?;
        Ok(same.then_some(info))
    }

    /// Whether one object has the bytes of another.
    async fn is_copy(
        &self,
        (source, from): (&Key, &ObjectInfo),
        (target, to): (&Key, &ObjectInfo),
    ) -> ObjectResult<bool> {
        if from.size != to.size {
            return Ok(false);
        }
        let same_sum = from.checksum.is_some() && from.checksum == to.checksum;
        if from.etag == to.etag || same_sum {
            return Ok(true);
        }
        if from.size > COPY_COMPARED_MAX {
            return Ok(false);
        }
        let mut position = 0;
        while position < from.size {
            let end = from.size.min(position + MIB);
            let options = GetOptions {
                range: Some(position..end),
                if_match: Some(from.etag.clone()),
                fresh: true,
                ..GetOptions::default()
            };
            let mut piece = Vec::with_capacity((end - position) as usize);
            self.get(source, options, &mut piece).await?;
            if !self.has_at((target, to), position, &piece.into()).await? {
                return Ok(false);
            }
            position = end;
        }
        Ok(true)
    }

    /// Whether that version of an object has `bytes` at `position`.
    async fn has_at(
        &self,
        (key, info): (&Key, &ObjectInfo),
        position: u64,
        bytes: &Payload,
    ) -> ObjectResult<bool> {
        if bytes.is_empty() {
            return Ok(true);
        }
        for _ in 0..LOOKS_MAX {
            let options = GetOptions {
                range: Some(position..position + bytes.len() as u64),
                if_match: Some(info.etag.clone()),
                fresh: true,
                ..GetOptions::default()
            };
            let mut comparison = Comparison::new(bytes);
            match self.get(key, options, &mut comparison).await {
                Ok(_) if comparison.is_equal() => return Ok(true),
                Ok(_) => {}
                Err(error) if error.kind == ErrorKind::ChecksumMismatch => {}
                Err(error) if error.kind == ErrorKind::PreconditionFailed => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// Whether the object can have been written since `began`.
fn is_fresh(info: &ObjectInfo, began: SystemTime) -> bool {
    info.modified + CLOCK_SKEW_MAX >= began
}

fn stored(info: &ObjectInfo) -> Stored {
    Stored {
        etag: info.etag.clone(),
        checksum: info.checksum,
    }
}

/// A sink that compares what arrives with what is expected and keeps none of it.
struct Comparison<'a> {
    expected: std::slice::Iter<'a, Bytes>,
    /// What of the present slice has not been compared.
    slice: &'a [u8],
    compared: u64,
    wanted: u64,
    differs: bool,
    piece: Vec<u8>,
}

impl<'a> Comparison<'a> {
    fn new(expected: &'a Payload) -> Self {
        Self {
            expected: expected.slices().iter(),
            slice: &[],
            compared: 0,
            wanted: expected.len() as u64,
            differs: false,
            piece: Vec::with_capacity(COMPARED_AT_ONCE),
        }
    }

    fn is_equal(&self) -> bool {
        !self.differs && self.compared == self.wanted
    }

    fn compare_piece(&mut self) {
        let mut piece = &self.piece[..];
        while !piece.is_empty() && !self.differs {
            if self.slice.is_empty() {
                match self.expected.next() {
                    Some(next) => self.slice = next,
                    None => self.differs = true,
                }
                continue;
            }
            let count = piece.len().min(self.slice.len());
            self.differs = piece[..count] != self.slice[..count];
            self.compared += count as u64;
            (piece, self.slice) = (&piece[count..], &self.slice[count..]);
        }
        self.piece.clear();
    }
}

// SAFETY: `unfilled` is the same memory until it is advanced over.
#[allow(unsafe_code)]
unsafe impl BodySink for Comparison<'_> {
    fn filled(&self) -> u64 {
        self.compared
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        if self.differs {
            return &mut [];
        }
        self.piece.spare_capacity_mut()
    }

    unsafe fn advance(&mut self, count: usize) {
        // SAFETY: the caller initialised `count` bytes of the spare capacity of the piece, which
        // is empty.
        unsafe { self.piece.set_len(count) };
        self.compare_piece();
    }
}
