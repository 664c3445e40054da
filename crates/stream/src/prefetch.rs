//! Fetches the next objects before they are read.
//!
//! Programs that read a directory in order read objects in the order of their keys, which are
//! numbered in that order. Reads of numbers that rise are a stream, in spite of some disorder:
//! several threads take turns, and the kernel sends requests on several disks. Ahead of each
//! stream a window of objects is fetched into the cache.
//!
//! - `streams` tells streams from random reads and notices when one was given up.
//! - `pace` says how many objects the window has: as many as are worth having on their way.
//!
//! A stream that was given up takes with it what is still on its way. Memory is the cache's
//! business: when it has no room the window waits.

mod pace;
mod streams;

use std::sync::Arc;

use penstock_base::{Mutex, clock};
use tokio::task::AbortHandle;

use self::streams::Streams;
use crate::{ObjectMap, cache::ObjectCache, disk::SMALL_OBJECT_MAX};

/// Objects that one read may add to what is on its way.
const BATCH_MAX: u32 = 64;

/// Watches which objects are read and fetches those that come next.
#[derive(Debug)]
pub(crate) struct Prefetcher {
    map: Arc<ObjectMap>,
    cache: Arc<ObjectCache>,
    streams: Mutex<Streams>,
}

/// A GET that nobody waits for yet.
#[derive(Debug)]
struct Ahead {
    number: u32,
    get: AbortHandle,
}

impl Prefetcher {
    pub(crate) fn new(map: Arc<ObjectMap>, cache: Arc<ObjectCache>) -> Self {
        Self {
            map,
            cache,
            streams: Mutex::default(),
        }
    }

    /// A reader asked for an object and has to wait for it, or not.
    pub(crate) fn touched(&self, number: u32, waits: bool) {
        let mut streams = self.streams.lock();
        let Some(stream) = streams.touch(number, waits, clock::now()) else {
            return;
        };
        let wanted = stream.wanted(self.map.objects_count());
        let end = wanted.end.min(wanted.start.saturating_add(BATCH_MAX));
        for number in wanted.start..end {
            match self.fetch(number) {
                Outcome::NoRoom => break,
                Outcome::NotNeeded => {}
                Outcome::Begun(ahead) => stream.ahead.push_back(ahead),
            }
            stream.scheduled = number + 1;
        }
    }

    fn fetch(&self, number: u32) -> Outcome {
        let object = self.map.object(number).ok();
        let small = object.filter(|object| (1..=SMALL_OBJECT_MAX).contains(&object.size));
        let Some(Ok(version)) = small.map(|object| object.version()) else {
            return Outcome::NotNeeded;
        };
        match self.cache.ahead(number, version) {
            None => Outcome::NoRoom,
            Some(None) => Outcome::NotNeeded,
            Some(Some(flight)) => {
                let get = tokio::spawn(async move { drop(flight.await) }).abort_handle();
                Outcome::Begun(Ahead { number, get })
            }
        }
    }
}

/// What became of an object that is to be fetched.
enum Outcome {
    NoRoom,
    NotNeeded,
    Begun(Ahead),
}
