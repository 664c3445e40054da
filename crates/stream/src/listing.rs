//! Listing all keys of a path in parallel.
//!
//! A listing is a chain: each page says where the next begins, so one at a time a million keys take
//! a thousand round trips. But a listing may begin anywhere. Here the keys are one range at first;
//! whoever has nothing to do takes the upper half of the range that seems to have the most left
//! ([`board`]), and lists that from its middle on.
//!
//! - **Where the middle is** nobody knows. Directories that were seen ([`scout`]) are the best
//!   places, else it is interpolated over the characters that stood at each position of the keys
//!   so far ([`penstock_object::Alphabet`]). A bad guess costs a request, never a key: the two halves are the whole,
//!   wherever the cut is, and a half without keys ends with its first page.
//! - **A probe is a page.** The first request of a new half brings its first thousand keys, so that
//!   a good guess costs nothing.
//! - **Requests are bounded** ([`limits`]): those that split ranges may only be a share of the pages
//!   that were received, on top of a number that goes with the concurrency; and there is an absolute
//!   bound, which counts requests for links as well. The layers of the store repeat what fails in passing; what still gets here lowers the
//!   number of requests under way, and successes raise it again.
//! - **Order.** Each range is written to runs of the [`Spool`] as its pages arrive. A page is cut at
//!   the end of its range, which may have come nearer while it was under way; so each key that
//!   stays while it is listed comes exactly once. Keys that come or go meanwhile are there or not.
//! - **Symbolic links**, which OSS has as objects, are asked where they lead ([`links`]).
//!
//! Requests run as tasks of their own, where pages are parsed in parallel; everything else happens in
//! the task of the caller. Dropping the future ends all requests. What is finished by then stays in the spool.

mod board;
mod limits;
mod links;
mod progress;
mod range;
mod scout;
#[cfg(test)]
mod tests;
mod worker;

use std::{pin::Pin, sync::Arc};

use futures_util::{StreamExt, stream::FuturesUnordered};
use penstock_object::Store;

pub use progress::{ListingProgress, ListingStatus};

use crate::{SnapshotError, Spool, SpoolSource};
use worker::Shared;

/// Requests under way at once if nobody says; more gain nothing.
pub const LIST_CONCURRENCY_DEFAULT: usize = 64;

/// The most that can be asked for.
pub const LIST_CONCURRENCY_MAX: usize = 1024;

/// Requests at most if nobody says: enough for a thousand million keys, if few of them are links.
pub const LIST_REQUESTS_MAX_DEFAULT: u64 = 2_000_000;

/// What can be set about a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListingSettings {
    /// Requests under way at once, 1 to [`LIST_CONCURRENCY_MAX`].
    pub concurrency: usize,
    /// Requests in all, for pages and for where links lead, after which the listing fails.
    pub requests_max: u64,
    /// Keys in a page, 1 to 1000; for stores that answer small pages faster.
    pub page_keys: u32,
    /// Keys in a run: what is at most listed again after an interruption, for each request that was
    /// under way.
    pub run_keys: u64,
}

impl Default for ListingSettings {
    fn default() -> Self {
        Self {
            concurrency: LIST_CONCURRENCY_DEFAULT,
            requests_max: LIST_REQUESTS_MAX_DEFAULT,
            page_keys: 1000,
            run_keys: 100_000,
        }
    }
}

/// Lists every key of `store` that `spool` does not have yet, into `spool`, and returns all in
/// order. `progress` is kept up to date meanwhile.
///
/// Fails when the store refuses, when it fails again and again, when it does not list in byte
/// order, when [`ListingSettings::requests_max`] is reached and when the spool's disk fails.
pub async fn list_all(
    store: &Arc<dyn Store>,
    spool: Spool,
    settings: &ListingSettings,
    progress: &Arc<ListingProgress>,
) -> Result<SpoolSource, SnapshotError> {
    progress.begin(spool.objects());
    let shared = Shared::new(store, spool, settings, progress);
    {
        let mut everybody: FuturesUnordered<Job<'_>> = FuturesUnordered::new();
        everybody.push(Box::pin(scout::run(&shared)));
        for _ in 0..settings.concurrency.clamp(1, LIST_CONCURRENCY_MAX) {
            everybody.push(Box::pin(worker::run(&shared)));
        }
        while let Some(done) = everybody.next().await {
            done?;
        }
    }
    shared.into_spool().into_source()
}

type Job<'a> = Pin<Box<dyn Future<Output = Result<(), SnapshotError>> + Send + 'a>>;
