//! How far an index is.

use std::sync::Arc;

use penstock_base::Mutex;

use crate::{BuildProgress, ListingProgress, ListingStatus};

/// Says how far an index is, while it is made. Nothing is told; a terminal looks as often as it likes.
#[derive(Debug, Default)]
pub struct IndexProgress(Mutex<Step>);

#[derive(Debug, Clone, Default)]
enum Step {
    #[default]
    Looking,
    Listing(Arc<ListingProgress>),
    Building(Arc<BuildProgress>, u64),
}

/// What is going on.
#[derive(Debug, Clone)]
pub enum IndexStage {
    /// A kept index is looked for.
    Looking,
    /// The path is listed, or a manifest read.
    Listing(ListingStatus),
    /// The index is built.
    Building {
        /// Objects that are in it already.
        objects: u64,
        /// Objects that it will have.
        total: u64,
    },
}

impl IndexProgress {
    /// What is going on now.
    pub fn stage(&self) -> IndexStage {
        match &*self.0.lock() {
            Step::Looking => IndexStage::Looking,
            Step::Listing(progress) => IndexStage::Listing(progress.status()),
            Step::Building(progress, total) => IndexStage::Building {
                objects: progress.objects(),
                total: *total,
            },
        }
    }

    /// A listing begins.
    pub(super) fn listing(&self) -> Arc<ListingProgress> {
        let progress = Arc::<ListingProgress>::default();
        *self.0.lock() = Step::Listing(Arc::clone(&progress));
        progress
    }

    /// Building begins, of `total` objects.
    pub(super) fn building(&self, total: u64) -> Arc<BuildProgress> {
        let progress = Arc::<BuildProgress>::default();
        *self.0.lock() = Step::Building(Arc::clone(&progress), total);
        progress
    }
}
