//! What every volume must do, by a bucket in both modes, with and without metadata.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use penstock_base::{BufferPool, MIB, MemoryBudget, metrics::Registry};
use penstock_bucket::{BucketSettings, BucketVolume, MetadataSettings, Staging, StagingSettings};
use penstock_object_testing::MemoryStore;
use penstock_transfer::Transfer;
use penstock_vfs_conformance::{Ground, conformance_tests};

fn settings(keeps_metadata: bool) -> BucketSettings {
    BucketSettings {
        metadata: MetadataSettings {
            keep: keeps_metadata,
            ..MetadataSettings::default()
        },
        ..BucketSettings::default()
    }
}

fn transfer() -> (Arc<MemoryBudget>, Arc<Transfer>) {
    let budget = MemoryBudget::new(64 * MIB);
    let pool = BufferPool::new(Arc::clone(&budget));
    (
        budget,
        Transfer::new(Arc::new(MemoryStore::like_s3()), pool),
    )
}

fn streaming(keeps_metadata: bool) -> Ground {
    let settings = settings(keeps_metadata);
    Ground::writable(BucketVolume::new(transfer().1, settings, Registry::new()))
}

fn staged(keeps_metadata: bool) -> Ground {
    let scratch = tempfile::tempdir().unwrap();
    let (budget, transfer) = transfer();
    let staging = StagingSettings::new(scratch.path(), "memory");
    let staging = Staging::open(staging, &budget).unwrap();
    let settings = settings(keeps_metadata);
    let volume = BucketVolume::staged(transfer, settings, staging, Registry::new());
    Ground::writable(volume).keeping(scratch)
}

mod streaming_mode {
    use super::*;

    async fn open() -> Ground {
        streaming(false)
    }

    conformance_tests!(open);
}

mod streaming_mode_with_metadata {
    use super::*;

    async fn open() -> Ground {
        streaming(true)
    }

    conformance_tests!(open);
}

mod staged_mode {
    use super::*;

    async fn open() -> Ground {
        staged(false)
    }

    conformance_tests!(open);
}

mod staged_mode_with_metadata {
    use super::*;

    async fn open() -> Ground {
        staged(true)
    }

    conformance_tests!(open);
}
