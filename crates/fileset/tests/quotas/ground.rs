//! File systems with limits.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use penstock_fileset::{
    FilesetVolume, Format,
    engine::{Engine, MemoryEngine, MemorySession, Reads, query},
    quotas::{Change, LimitChange, Quota, Subject},
};
use penstock_object_testing::MemoryStore;
use penstock_vfs::{Identity, Inode};
use tempfile::TempDir;

use crate::{
    database,
    support::{Place, ROOT, directory},
};

pub const USER: Subject = Subject::User(7);
pub const GROUP: Subject = Subject::Group(7);

/// Limits of bytes.
pub fn bytes(soft: u64, hard: u64) -> Change {
    Change {
        bytes: LimitChange {
            soft: Some(soft),
            hard: Some(hard),
        },
        ..Change::default()
    }
}

/// Limits of files.
pub fn files(soft: u64, hard: u64) -> Change {
    Change {
        files: bytes(soft, hard).bytes,
        ..Change::default()
    }
}

/// The same without a grace time.
pub fn at_once(change: Change) -> Change {
    Change {
        grace: Some(Duration::ZERO),
        ..change
    }
}

/// A directory that all may write.
pub async fn common(place: &Place) -> Inode {
    let made = place.make(ROOT, "common", directory(0o777)).await.unwrap();
    let all = penstock_vfs::AttributeChanges {
        permissions: Some(0o777),
        ..Default::default()
    };
    place.change(made, all).await.unwrap();
    made
}

/// Limits somebody, and waits until that counts.
pub async fn limit(place: &Place, subject: Subject, change: Change) {
    place.volume.set_quota(subject, change).await.unwrap();
    until_counted(place).await;
}

pub async fn until_counted(place: &Place) {
    let is_counted = || async {
        let quotas = place.volume.list_quotas().await.unwrap();
        quotas.iter().all(|quota| quota.is_counted)
    };
    place.until(is_counted).await;
}

pub async fn quota(place: &Place, subject: Subject) -> Quota {
    listed(place, subject).await.unwrap()
}

/// A quota as a machine knows it, which hears of those that another one sets in a moment.
pub async fn listed(place: &Place, subject: Subject) -> Option<Quota> {
    let quotas = place.volume.list_quotas().await.unwrap();
    quotas.into_iter().find(|quota| quota.subject == subject)
}

/// Bytes and files that somebody uses who is limited.
pub async fn used(place: &Place, subject: Subject) -> (u64, u64) {
    let used = quota(place, subject).await.used;
    (used.bytes, used.files)
}

/// Keys that begin so.
pub async fn keys(engine: &dyn Engine, prefix: &'static [u8]) -> usize {
    let look = |reads: &dyn Reads| {
        let (mut found, mut end) = (0, prefix.to_vec());
        end.push(u8::MAX);
        reads.scan(prefix..&end, &mut |_, _| {
            found += 1;
            ControlFlow::Continue(())
        })?;
        Ok::<_, penstock_base::FsError>(found)
    };
    query(engine, look).await.unwrap()
}

async fn formatted(engine: &dyn Engine) {
    FilesetVolume::format(engine, &Identity::root(), Format::new(1))
        .await
        .unwrap();
}

pub async fn on_memory() -> Place {
    let engine = Arc::new(MemoryEngine::default());
    formatted(&*engine).await;
    Place::sharing(engine, Arc::new(MemoryStore::new())).await
}

/// On a database, where one can be had.
pub async fn on_a_database() -> (Place, TempDir) {
    let own = tempfile::tempdir().unwrap();
    let Some(engine) = database::new_engine(own.path()).await else {
        return (on_memory().await, own);
    };
    formatted(&*engine).await;
    let store = Arc::new(MemoryStore::new());
    (Place::sharing(engine, store).await, own)
}

/// Two machines that have one file system.
pub async fn two_in_memory() -> [Place; 2] {
    let first = MemorySession::first();
    let second = first.another();
    formatted(&first).await;
    both(Arc::new(first), Arc::new(second)).await
}

/// The same on a database, where one can be had.
pub async fn two_on_a_database() -> ([Place; 2], [TempDir; 2]) {
    let own = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let Some([first, second]) = database::new_engines(&own).await else {
        return (two_in_memory().await, own);
    };
    formatted(&*first).await;
    (both(first, second).await, own)
}

async fn both(first: Arc<dyn Engine>, second: Arc<dyn Engine>) -> [Place; 2] {
    let store = Arc::new(MemoryStore::new());
    let first = Place::sharing(first, store.clone()).await;
    [first, Place::sharing(second, store).await]
}

/// Makes a module for each engine with a test for each of these functions of a place.
macro_rules! on_each_engine {
    ($($test:ident),* $(,)?) => {
        mod on_the_embedded_engine {
            $(#[tokio::test]
            async fn $test() {
                super::$test(&crate::support::Place::new().await).await;
            })*
        }

        mod with_a_spool {
            $(#[tokio::test]
            async fn $test() {
                super::$test(&crate::support::Place::spooled().await).await;
            })*
        }

        mod on_the_memory_engine {
            $(#[tokio::test]
            async fn $test() {
                super::$test(&crate::ground::on_memory().await).await;
            })*
        }

        mod on_a_database {
            $(#[tokio::test]
            async fn $test() {
                let (place, _own) = crate::ground::on_a_database().await;
                super::$test(&place).await;
            })*
        }
    };
}
pub(crate) use on_each_engine;
