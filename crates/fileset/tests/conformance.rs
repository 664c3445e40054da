//! A fileset does what every volume must, on each engine.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use penstock_base::{BufferPool, MemoryBudget};
use penstock_fileset::{
    FilesetVolume, Format,
    engine::{EmbeddedEngine, EmbeddedSettings, Engine, MemoryEngine},
};
use penstock_object_testing::MemoryStore;
use penstock_transfer::Transfer;
use penstock_vfs::Identity;
use penstock_vfs_conformance::{Ground, conformance_tests};

const MEMORY: u64 = 64 << 20;

async fn over(engine: Arc<dyn Engine>) -> Ground {
    let pool = BufferPool::new(MemoryBudget::new(MEMORY));
    let transfer = Transfer::new(Arc::new(MemoryStore::new()), pool);
    FilesetVolume::format(&*engine, &Identity::root(), Format::new(1))
        .await
        .unwrap();
    let volume = FilesetVolume::open(Arc::clone(&engine), Arc::clone(&transfer))
        .await
        .unwrap();
    let again = FilesetVolume::open(engine, transfer).await.unwrap();
    Ground::writable(volume).served_again_by(again)
}

mod on_the_memory_engine {
    use super::*;

    async fn open() -> Ground {
        over(Arc::new(MemoryEngine::default())).await
    }

    conformance_tests!(open);
}

mod on_the_embedded_engine {
    use super::*;

    async fn open() -> Ground {
        let directory = tempfile::tempdir().unwrap();
        let settings = EmbeddedSettings {
            directory: directory.path().to_owned(),
            memory: MEMORY,
        };
        let engine = EmbeddedEngine::open(&settings).unwrap();
        over(Arc::new(engine)).await.keeping(directory)
    }

    conformance_tests!(open);
}
