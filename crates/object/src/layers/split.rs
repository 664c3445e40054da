//! Reading from one endpoint and doing everything else at another.
//!
//! Some buckets are reached by two addresses: one that is close or cheap to read from (a cache, an
//! accelerator, a network of its own) and the one that takes writes. [`Split`] sends GETs of
//! objects, and nothing else, to the first. Listings, HEADs and links stay with the main store, so
//! that what is known about an object is always its word.
//!
//! The read endpoint is trusted to speed things up, never to decide:
//!
//! - What it does not have, or has in another version or of another length than a pinned read
//!   asks for, is asked of the main store in the same call. A copy that lags is thus noticed where
//!   reads carry an ETag, as every read of an open file does. A read without one gets what the
//!   copy holds.
//! - A read that is to prove which version there is now ([`GetOptions::fresh`]) goes to the main
//!   store at once.
//! - Where it fails, the main store answers in the same call, as long as no byte has reached the
//!   sink; else the error goes up and the layer that resumes reads comes back. For [`REST`] nobody
//!   asks it again. Then one read tries.
//! - Where it asks for fewer requests, or bytes do not match their checksum, the error goes up:
//!   the layer above waits or tries again, here.
//!
//! It stands below the layers that retry, bound and count, once for both.

use std::{mem::MaybeUninit, sync::Arc, time::Duration};

use async_trait::async_trait;
use penstock_base::{
    Checksum, Mutex, clock,
    metrics::{Counter, Registry, table},
};

use crate::{Below, BodySink, ErrorKind, GetOptions, Got, Key, ObjectError, ObjectResult, Store};

/// How long a read endpoint that failed is left alone.
pub const REST: Duration = Duration::from_secs(30);

/// A store whose objects are read through another one.
#[derive(Debug)]
pub struct Split {
    main: Arc<dyn Store>,
    reads: Arc<dyn Store>,
    /// Until when the read endpoint is left alone.
    rests_until: Mutex<Option<clock::Instant>>,
    elsewhere: Arc<Counter>,
}

/// What to make of an error of the read endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judgement {
    /// The main store knows better.
    AskMain,
    /// The main store stands in, and goes on doing so for a while.
    Fails,
    /// It is the answer.
    Stands,
}

fn judge(kind: ErrorKind) -> Judgement {
    match kind {
        ErrorKind::NotFound | ErrorKind::PreconditionFailed | ErrorKind::InvalidRange => {
            Judgement::AskMain
        }
        ErrorKind::Throttled
        | ErrorKind::ChecksumMismatch
        | ErrorKind::Archived
        | ErrorKind::ClockSkew
        | ErrorKind::NoCredentials => Judgement::Stands,
        _ => Judgement::Fails,
    }
}

/// A sink that knows whether anything has arrived in it.
struct Watched<'a> {
    sink: &'a mut dyn BodySink,
    /// Whether the read endpoint has described the object.
    begun: bool,
}

// SAFETY: `unfilled` is the front of another sink's.
#[allow(unsafe_code)]
unsafe impl BodySink for Watched<'_> {
    fn begin(&mut self, got: &Got) {
        self.begun = true;
        self.sink.begin(got);
    }

    fn filled(&self) -> u64 {
        self.sink.filled()
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        self.sink.unfilled()
    }

    unsafe fn advance(&mut self, count: usize) {
        // SAFETY: `unfilled` is the sink's own, so the caller's promise holds for it.
        unsafe { self.sink.advance(count) }
    }

    fn summed(&self) -> Option<Checksum> {
        self.sink.summed()
    }
}

impl Split {
    /// `main`, but objects are read through `reads`, which leads to the same bucket.
    pub fn new(main: Arc<dyn Store>, reads: Arc<dyn Store>, metrics: &Registry) -> Self {
        Self {
            main,
            reads,
            rests_until: Mutex::default(),
            elsewhere: metrics.counter(&table::OBJECT_READ_ENDPOINT_BYPASSED, &[]),
        }
    }

    fn rests(&self) -> bool {
        let mut until = self.rests_until.lock();
        let rests = until.is_some_and(|until| clock::now() < until);
        if !rests {
            *until = None;
        }
        rests
    }

    fn leave_alone(&self, error: &ObjectError) {
        tracing::warn!(
            "the read endpoint fails; the main endpoint answers reads for {REST:?}: {error}"
        );
        let mut until = self.rests_until.lock();
        *until = Some(clock::now() + REST);
    }

    async fn get_from_main(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        self.elsewhere.increment();
        self.main.get(key, options, sink).await
    }
}

#[async_trait]
impl Store for Split {
    fn below(&self) -> Below<'_> {
        Below::Store(&*self.main)
    }

    async fn get(
        &self,
        key: &Key,
        options: GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        if options.fresh || self.rests() {
            return self.get_from_main(key, options, sink).await;
        }
        let before = sink.filled();
        let mut watched = Watched { sink, begun: false };
        let got = self.reads.get(key, options.clone(), &mut watched).await;
        let Watched { sink, begun } = watched;
        let Err(error) = got else {
            return got;
        };
        let judgement = judge(error.kind);
        if judgement == Judgement::Fails {
            self.leave_alone(&error);
        }
        // A sink that was told of one object must not be told of another.
        let untouched = !begun && sink.filled() == before;
        if judgement == Judgement::Stands || !untouched {
            return Err(error);
        }
        self.get_from_main(key, options, sink).await
    }
}
