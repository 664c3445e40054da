//! A fileset does what every volume must, on a cluster.

use std::sync::Arc;

use penstock_base::{BufferPool, MemoryBudget};
use penstock_fileset::{
    FilesetVolume, Format,
    engine::{Engine, MemoryEngine},
};
use penstock_object_testing::MemoryStore;
use penstock_transfer::Transfer;
use penstock_vfs::Identity;
use penstock_vfs_conformance::{Ground, conformance_tests};

use crate::database;

const MEMORY: u64 = 64 << 20;

async fn over(engine: Arc<dyn Engine>) -> Ground {
    let pool = BufferPool::new(MemoryBudget::new(MEMORY));
    let transfer = Transfer::new(Arc::new(MemoryStore::new()), pool);
    FilesetVolume::format(&*engine, &Identity::root(), Format::new(1))
        .await
        .unwrap();
    let open = |engine| FilesetVolume::open(engine, Arc::clone(&transfer));
    let volume = open(Arc::clone(&engine)).await.unwrap();
    let again = open(engine).await.unwrap();
    Ground::writable(volume).served_again_by(again)
}

async fn open() -> Ground {
    let directory = tempfile::tempdir().unwrap();
    match database::new_engine(directory.path()).await {
        Some(engine) => over(engine).await.keeping(directory),
        None => over(Arc::new(MemoryEngine::default())).await,
    }
}

conformance_tests!(open);
