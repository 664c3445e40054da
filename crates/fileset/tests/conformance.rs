//! A fileset does what every volume must, on each engine.

#![allow(clippy::unwrap_used)]

mod database;

use std::sync::Arc;

use penstock_base::{BufferPool, MemoryBudget};
use penstock_fileset::{
    Ahead, FilesetVolume, Format, Inlined, Opening, Spool,
    compression::{self, Compression},
    engine::{EmbeddedEngine, EmbeddedLock, EmbeddedSettings, Engine, MemoryEngine, MemorySession},
    trash,
};
use penstock_object::Store;
use penstock_object_testing::MemoryStore;
use penstock_transfer::Transfer;
use penstock_vfs::Identity;
use penstock_vfs_conformance::{Ground, conformance_tests};

const MEMORY: u64 = 64 << 20;

async fn over(engine: Arc<dyn Engine>, ahead: Option<Ahead>) -> Ground {
    let again = Arc::clone(&engine);
    over_both((engine, again), ahead, 0).await
}

/// The volume and the one that serves it again have engines of their own. Removed files stay for so many days.
async fn over_both(
    (engine, other): (Arc<dyn Engine>, Arc<dyn Engine>),
    ahead: Option<Ahead>,
    days: u32,
) -> Ground {
    let pool = BufferPool::new(MemoryBudget::new(MEMORY));
    let store: Arc<dyn Store> = match &ahead {
        Some(Ahead::Spool(spool)) => spool.clone(),
        Some(Ahead::Inlined(inlined)) => inlined.clone(),
        None => Arc::new(MemoryStore::new()),
    };
    let transfer = Transfer::new(store, pool);
    FilesetVolume::format(&*engine, &Identity::root(), Format::new(1))
        .await
        .unwrap();
    trash::set(&*engine, days).await.unwrap();
    let open = |engine| {
        let how = Opening {
            ahead: ahead.clone(),
            ..Opening::default()
        };
        FilesetVolume::open_with(engine, Arc::clone(&transfer), how)
    };
    let volume = open(engine).await.unwrap();
    let again = open(other).await.unwrap();
    Ground::writable(volume).served_again_by(again)
}

mod on_the_memory_engine {
    use super::*;

    async fn open() -> Ground {
        over(Arc::new(MemoryEngine::default()), None).await
    }

    conformance_tests!(open);
}

mod on_two_machines {
    use super::*;

    async fn open() -> Ground {
        let session = MemorySession::first();
        let other = session.another();
        over_both((Arc::new(session), Arc::new(other)), None, 0).await
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
        over(Arc::new(engine), None).await.keeping(directory)
    }

    conformance_tests!(open);
}

mod with_a_spool {
    use super::*;

    async fn open() -> Ground {
        let directory = tempfile::tempdir().unwrap();
        let settings = EmbeddedSettings {
            directory: directory.path().join("metadata"),
            memory: MEMORY,
        };
        let lock = EmbeddedLock::take(&settings).unwrap();
        let bucket = Arc::new(MemoryStore::new());
        let spool = Spool::open(&directory.path().join("spool"), bucket, &lock).unwrap();
        let engine = EmbeddedEngine::open_locked(lock, Some(spool.clone())).unwrap();
        let ground = over(Arc::new(engine), Some(Ahead::Spool(spool))).await;
        ground.keeping(directory)
    }

    conformance_tests!(open);
}

mod inlined {
    use super::*;

    async fn open() -> Ground {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        let bucket = Arc::new(MemoryStore::new());
        let inlined = Inlined::open(Arc::clone(&engine), bucket).await.unwrap();
        over(engine, Some(Ahead::Inlined(inlined))).await
    }

    conformance_tests!(open);
}

mod compressed {
    use super::*;

    async fn open() -> Ground {
        let engine = Arc::new(MemoryEngine::default());
        let ground = over(engine.clone(), None).await;
        compression::set(&*engine, Compression::Lz4).await.unwrap();
        ground
    }

    conformance_tests!(open);
}

mod on_a_database {
    use super::*;

    async fn open() -> Ground {
        let directory = tempfile::tempdir().unwrap();
        match database::new_engine(directory.path()).await {
            Some(engine) => over(engine, None).await.keeping(directory),
            None => over(Arc::new(MemoryEngine::default()), None).await,
        }
    }

    conformance_tests!(open);
}

mod with_a_trash {
    use super::*;

    async fn open() -> Ground {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        over_both((Arc::clone(&engine), engine), None, 7).await
    }

    conformance_tests!(open);
}

mod with_a_trash_on_two_machines {
    use super::*;

    async fn open() -> Ground {
        let session = MemorySession::first();
        let other = session.another();
        over_both((Arc::new(session), Arc::new(other)), None, 7).await
    }

    conformance_tests!(open);
}
