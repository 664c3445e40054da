//! What goes from the trash: when it is old enough, or when somebody says so.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use penstock_base::clock;
use penstock_fileset::{
    FilesetVolume, Format,
    dumps::{DumpObjectSource, FrozenPages, Reading, carry},
    engine::{Engine, EngineResult, MemoryEngine, Operation, Query},
    format_of, trash,
};
use penstock_object_testing::MemoryStore;
use penstock_vfs::Identity;

use crate::{
    bins::{age, all, count, items, names, remove, set},
    ground::{on_each_engine, on_memory},
    support::{Place, ROOT},
};

const HOUR: u64 = 60 * 60;

on_each_engine!(
    what_is_old_enough_goes_by_itself,
    files_go_when_their_days_are_over,
    what_is_older_is_purged_and_what_is_left_too,
    many_files_are_listed_and_purged_in_steps,
);

async fn removed(place: &Place, texts: &[&str]) {
    for text in texts {
        place.store(ROOT, text, b"12345").await.unwrap();
        let inode = place.find(ROOT, text).await.unwrap().inode;
        remove(place, ROOT, text).await;
        place.forget_all(inode);
    }
}

async fn what_is_old_enough_goes_by_itself(place: &Place) {
    set(place, 1).await;
    removed(place, &["old"]).await;
    age(&*place.engine, 3).await;
    removed(place, &["new"]).await;
    assert_eq!(count(place).await, (2, 10));
    // It looks when it is told something.
    set(place, 2).await;
    place.until(|| async { count(place).await == (1, 5) }).await;
    assert!(items(place).await[0].entry.ends_with("-new"));
    place
        .until(|| async { place.objects().await.len() <= 1 })
        .await;
    place.is_whole().await;
}

async fn files_go_when_their_days_are_over(place: &Place) {
    set(place, 7).await;
    removed(place, &["a", "b"]).await;
    let now = clock::wall_time();
    let later = |hours: u64| now + Duration::from_secs(hours * HOUR);
    place.volume.expire_trash(later(7 * 24)).await.unwrap();
    assert_eq!(count(place).await, (2, 10));
    // An hour is over when its last minute is.
    place.volume.expire_trash(later(7 * 24 + 1)).await.unwrap();
    assert_eq!(count(place).await, (0, 0));
    assert!(all(place).await.is_empty());
    set(place, 0).await;
    place.volume.expire_trash(later(24 * 365)).await.unwrap();
    place.is_whole().await;
}

async fn what_is_older_is_purged_and_what_is_left_too(place: &Place) {
    set(place, 7).await;
    removed(place, &["a", "b"]).await;
    age(&*place.engine, 3).await;
    removed(place, &["c"]).await;
    let day = Duration::from_secs(24 * HOUR);
    let none = place.volume.purge_some(Some(day * 5)).await.unwrap();
    assert_eq!((none.files, none.is_done), (0, true));
    let old = place.volume.purge_some(Some(day)).await.unwrap();
    assert_eq!((old.files, old.is_done), (2, true));
    assert_eq!(items(place).await.len(), 1);
    let rest = place.volume.purge_some(None).await.unwrap();
    assert_eq!((rest.files, rest.is_done), (1, true));
    place
        .until(|| async { place.objects().await.is_empty() })
        .await;
    place.is_whole().await;
}

async fn many_files_are_listed_and_purged_in_steps(place: &Place) {
    set(place, 7).await;
    let texts: Vec<_> = (0..450).map(|number| format!("file-{number}")).collect();
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    removed(place, &texts[..250]).await;
    age(&*place.engine, 1).await;
    removed(place, &texts[250..]).await;
    let listed = items(place).await;
    let mut entries: Vec<_> = listed.iter().map(|item| &item.entry).collect();
    assert_eq!(entries.len(), 450);
    entries.dedup();
    assert_eq!(entries.len(), 450);
    assert_eq!(place.volume.purge_some(None).await.unwrap().files, 450);
    place.is_whole().await;
}

#[tokio::test]
async fn a_file_system_that_nobody_has_open_has_its_trash_restored_and_purged() {
    let place = on_memory().await;
    set(&place, 7).await;
    removed(&place, &["a", "b"]).await;
    assert!(
        penstock_vfs::Volume::shut_down(&*place.volume)
            .await
            .is_empty()
    );
    let engine = Arc::clone(&place.engine);
    let listed = trash::list(&*engine, None).await.unwrap();
    let restored = trash::restore(engine.clone(), listed[0].entry.clone(), None).await;
    assert_eq!(restored, Ok("/a".to_owned()));
    let purged = trash::purge_some(engine.clone(), None).await.unwrap();
    assert_eq!((purged.files, purged.is_done), (1, true));
    assert_eq!(trash::state(&*engine).await.unwrap().files, 0);
    place.is_whole().await;
}

#[tokio::test]
async fn the_trash_is_carried_to_another_engine() {
    let place = Place::new().await;
    set(&place, 7).await;
    removed(&place, &["a"]).await;
    let target = Arc::new(MemoryEngine::default());
    let mut pages = FrozenPages::of(&*place.engine).await.unwrap();
    let carried = carry(&mut pages, (&*target, 1), &|_| {}).await.unwrap();
    carried.publish(&*target, 1).await.unwrap();
    assert_eq!(format_of(&*target).await.unwrap().version, 6);
    let copy = Place::sharing(target, Arc::clone(&place.bucket)).await;
    assert_eq!(count(&copy).await, (1, 5));
    let (hour, entry) = all(&copy).await.remove(0);
    assert_eq!(copy.content(hour, &entry).await.unwrap(), b"12345");
    copy.is_whole().await;
}

/// An engine that may be slow.
#[derive(Debug, Default)]
struct Slow {
    inner: MemoryEngine,
    is_slow: AtomicBool,
}

#[async_trait]
impl Engine for Slow {
    async fn run_query(&self, query: Query<'_>) -> EngineResult<()> {
        self.inner.run_query(query).await
    }

    async fn run(&self, operation: Operation) -> EngineResult<()> {
        if self.is_slow.load(Ordering::Relaxed) {
            clock::sleep(Duration::from_secs(15)).await;
        }
        self.inner.run(operation).await
    }

    async fn sync(&self) -> EngineResult<()> {
        self.inner.sync().await
    }

    async fn close(&self) -> EngineResult<()> {
        self.inner.close().await
    }
}

/// Whoever orders it waits for a minute, and asks for the rest then.
#[tokio::test]
async fn a_call_that_empties_the_trash_of_a_slow_engine_is_answered_in_time() {
    let engine = Arc::new(Slow::default());
    FilesetVolume::format(&*engine, &Identity::root(), Format::new(1))
        .await
        .unwrap();
    let place = Place::sharing(engine.clone(), Arc::new(MemoryStore::new())).await;
    set(&place, 7).await;
    let texts: Vec<_> = (0..900).map(|number| format!("file-{number}")).collect();
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    removed(&place, &texts).await;
    engine.is_slow.store(true, Ordering::Relaxed);
    tokio::time::pause();
    let mut files = 0;
    loop {
        let begun = clock::now();
        let emptied = place.volume.purge_some(None).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(60), "{emptied:?}");
        files += emptied.files;
        if emptied.is_done {
            break;
        }
    }
    assert_eq!(files, 900);
}
