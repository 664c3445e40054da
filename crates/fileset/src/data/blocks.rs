//! Bytes of runs, as they are read.
//!
//! A read that goes on where the last one ended fetches the whole run, in one request, and begins to fetch the next
//! ones; any other fetches the grains that it touches. What was fetched was compared with its checksums then, and is
//! kept as long as nobody else wants the memory: who waits for the same bytes waits for the one request.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Weak},
};

use penstock_base::{FsError, FsResult, Mutex, Payload, Reclaim};
use tokio::sync::OnceCell;

use super::{ObjectId, Objects, pack::checksums};
use crate::schema::{Extent, Stored};

/// Runs and parts of runs that are kept at most.
const KEPT_MAX: usize = 64;

/// Which bytes of which object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    object: ObjectId,
    /// Of the run, in the object.
    run: u32,
    /// Counted from the beginning of the run.
    start: u32,
    end: u32,
}

type Cell = Arc<OnceCell<Payload>>;

/// What was fetched, or is being.
#[derive(Debug, Default)]
struct Kept {
    cells: HashMap<Place, (Cell, u64)>,
    /// Counts uses; who was used longest ago goes first.
    uses: u64,
}

impl Kept {
    /// The cell of a place, if there is one.
    fn find(&mut self, place: &Place) -> Option<Cell> {
        self.uses += 1;
        let (cell, used) = self.cells.get_mut(place)?;
        *used = self.uses;
        Some(Arc::clone(cell))
    }

    fn add(&mut self, place: Place) -> Cell {
        if let Some(cell) = self.find(&place) {
            return cell;
        }
        while self.cells.len() >= KEPT_MAX && self.drop_oldest().is_some() {}
        let cell = Cell::default();
        self.cells.insert(place, (Arc::clone(&cell), self.uses));
        cell
    }

    /// Lets go of what was used longest ago and is not waited for; returns its bytes.
    fn drop_oldest(&mut self) -> Option<u64> {
        let idle = self
            .cells
            .iter()
            .filter(|(_, (cell, _))| cell.initialized());
        let (place, _) = idle.min_by_key(|(_, (_, used))| *used)?;
        let place = *place;
        self.cells.remove(&place);
        Some(u64::from(place.end - place.start))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Blocks {
    objects: Arc<Objects>,
    kept: Mutex<Kept>,
}

impl Blocks {
    pub(crate) fn new(objects: Arc<Objects>) -> Arc<Self> {
        let blocks = Arc::new(Self {
            objects,
            kept: Mutex::default(),
        });
        let weak: Weak<Self> = Arc::downgrade(&blocks);
        let budget = blocks.objects.transfer().pool().budget();
        budget.register(weak);
        blocks
    }

    /// The bytes of an extent. One that is read in sequence is fetched with all of its run.
    pub(crate) async fn read(&self, extent: &Extent, in_sequence: bool) -> FsResult<Payload> {
        let wanted = extent.skip..extent.skip + extent.length;
        let (place, cell) = self.cell(&extent.stored, &wanted, in_sequence);
        let fetched = self.fetched(&cell, &extent.stored, place).await;
        let payload = fetched.inspect_err(|_| self.forget(&place, &cell))?;
        let start = u64::from(wanted.start - place.start);
        Ok(payload.slice(&(start..start + u64::from(extent.length))))
    }

    /// Begins to fetch the run of an extent if there is memory for it that nobody needs more.
    pub(crate) fn prefetch(self: &Arc<Self>, extent: &Extent) {
        let budget = self.objects.transfer().pool().budget();
        if budget.available() < budget.total() / 2 {
            return;
        }
        let blocks = Arc::clone(self);
        let extent = extent.clone();
        tokio::spawn(async move {
            // Whoever reads it hears of a failure.
            let _ = blocks.read(&extent, true).await;
        });
    }

    fn cell(&self, stored: &Stored, wanted: &Range<u32>, in_sequence: bool) -> (Place, Cell) {
        let place = |range: Range<u32>| Place {
            object: stored.object,
            run: stored.offset,
            start: range.start,
            end: range.end,
        };
        let whole = place(0..stored.length);
        let mut kept = self.kept.lock();
        if let Some(cell) = kept.find(&whole) {
            return (whole, cell);
        }
        let place = match in_sequence {
            true => whole,
            false => place(stored.grains(wanted).0),
        };
        let cell = kept.add(place);
        (place, cell)
    }

    async fn fetched(&self, cell: &Cell, stored: &Stored, place: Place) -> FsResult<Payload> {
        let fetch = || async {
            let range = place.start..place.end;
            let payload = self.objects.fetch(stored, range.clone()).await?;
            let (_, expected) = stored.grains(&range);
            if checksums(payload.slices().iter()) != expected {
                let object = stored.object;
                let text =
                    format!("bytes of {object} in the bucket are not those that were written");
                tracing::error!("{text}: see `penstock fileset check`");
                return Err(FsError::Corrupt(text));
            }
            Ok(payload)
        };
        cell.get_or_try_init(fetch).await.cloned()
    }

    /// What failed is not kept.
    fn forget(&self, place: &Place, failed: &Cell) {
        let mut kept = self.kept.lock();
        if matches!(kept.cells.get(place), Some((cell, _)) if Arc::ptr_eq(cell, failed)) {
            kept.cells.remove(place);
        }
    }
}

impl Reclaim for Blocks {
    fn reclaim(&self, bytes: u64) -> u64 {
        let mut kept = self.kept.lock();
        let mut freed = 0;
        while freed < bytes {
            let Some(more) = kept.drop_oldest() else {
                break;
            };
            freed += more;
        }
        freed
    }
}
