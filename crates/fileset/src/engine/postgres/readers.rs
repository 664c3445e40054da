//! Connections that read, a bounded number of them. Several trips share one.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use tokio::sync::{Mutex, Semaphore};

use super::session::{Connector, Reader};
use crate::engine::{
    EngineResult,
    database::{News, Page, Since},
};

/// Trips under way on a connection, one behind the other.
const TRIPS: usize = 16;

/// See the module.
pub(super) struct Readers {
    connector: Connector,
    places: Vec<Mutex<Option<Arc<Reader>>>>,
    next: AtomicUsize,
    trips: Semaphore,
}

impl Readers {
    /// At most so many. None is made before it is needed.
    pub(super) fn new(connector: Connector, count: usize) -> Self {
        Self {
            connector,
            places: (0..count.max(1)).map(|_| Mutex::default()).collect(),
            next: AtomicUsize::new(0),
            trips: Semaphore::new(count.max(1) * TRIPS),
        }
    }

    /// The first keys of a range, at most so many, in one trip.
    pub(super) async fn page(
        &self,
        since: Since,
        range: &Range<Bytes>,
        count: i64,
    ) -> EngineResult<Page> {
        let _permit = self.trips.acquire().await;
        self.reader().await?.page(since, range, count).await
    }

    /// What others changed.
    pub(super) async fn news(&self, since: Since) -> EngineResult<News> {
        let _permit = self.trips.acquire().await;
        self.reader().await?.news(since).await
    }

    async fn reader(&self) -> EngineResult<Arc<Reader>> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let mut place = self.places[turn % self.places.len()].lock().await;
        if let Some(reader) = place.as_ref().filter(|reader| reader.session.is_alive()) {
            return Ok(Arc::clone(reader));
        }
        let reader = Arc::new(Reader::connect(&self.connector).await?);
        *place = Some(Arc::clone(&reader));
        Ok(reader)
    }
}
