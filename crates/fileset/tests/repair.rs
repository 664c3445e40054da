//! Keys that were damaged are repaired: a check finds nothing afterwards, and what was not damaged is as it was.

#![allow(clippy::unwrap_used)]

mod database;
mod support;

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use penstock_base::FsError;
use penstock_fileset::{
    check::{apply, check, plan},
    engine::{Engine, Reads, Transaction, query, transact},
};
use penstock_object::Key;
use penstock_object_testing::MemoryStore;
use penstock_vfs::Inode;
use proptest::{prelude::*, test_runner::TestRunner};

use support::{Place, ROOT, directory};

/// Files of the tree under test, with their bytes.
type Tree = BTreeMap<String, Vec<u8>>;

/// Three directories of four files each, one of which has two names.
async fn filled(place: &Place) -> Tree {
    let mut tree = Tree::new();
    for above in 0..3u8 {
        let name = format!("directory-{above}");
        let inside = place.make(ROOT, &name, directory(0o755)).await.unwrap();
        for number in 0..4u8 {
            let (file, content) = (format!("file-{number}"), vec![above * 16 + number; 5000]);
            place.store(inside, &file, &content).await.unwrap();
            tree.insert(format!("{name}/{file}"), content);
        }
        let linked = place.find(inside, "file-0").await.unwrap().inode;
        place.link(linked, (inside, "other")).await.unwrap();
    }
    place.engine.sync().await.unwrap();
    tree
}

async fn content(place: &Place, path: &str) -> Result<Vec<u8>, FsError> {
    let mut at = ROOT;
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    for part in above.split('/').filter(|part| !part.is_empty()) {
        at = place.find(at, part).await?.inode;
    }
    place.content(at, name).await
}

/// All keys that begin with one of these bytes.
async fn keys(engine: &dyn Engine, kinds: &[u8]) -> Vec<(Vec<u8>, Bytes)> {
    let look = |reads: &dyn Reads| {
        let mut found = Vec::new();
        reads.scan(&[0][..]..&[u8::MAX][..], &mut |key, value| {
            if kinds.contains(&key[0]) {
                found.push((key.to_vec(), value.clone()));
            }
            ControlFlow::Continue(())
        })?;
        Ok::<_, FsError>(found)
    };
    query(engine, look).await.unwrap()
}

async fn put(engine: &dyn Engine, key: Vec<u8>, value: Option<Vec<u8>>) {
    let damage = move |transaction: &mut dyn Transaction| {
        match &value {
            Some(value) => transaction.put(&key, Bytes::copy_from_slice(value)),
            None => transaction.delete(&key),
        }
        Ok::<_, FsError>(())
    };
    transact(engine, damage).await.unwrap();
}

async fn repaired(place: &Place) -> Vec<String> {
    let planned = plan(&*place.engine).await.unwrap();
    let texts = planned.iter().map(|repair| repair.text.clone()).collect();
    let engine = Arc::clone(&place.engine);
    apply(engine, planned, &|_| ()).await.unwrap();
    place.is_whole().await;
    let again = plan(&*place.engine).await.unwrap();
    assert!(again.is_empty(), "{again:?}");
    texts
}

fn key(kind: u8, inode: Inode) -> Vec<u8> {
    [&[kind][..], &inode.0.to_be_bytes()].concat()
}

/// Damages one key of a kind: it goes, or the number at `at` of its value is another one.
async fn damage(engine: &dyn Engine, (kind, which, at): (u8, usize, Option<usize>)) {
    let found = keys(engine, &[kind]).await;
    let Some((key, value)) = found.get(which % found.len().max(1)) else {
        return;
    };
    let value = at.map(|at| {
        let mut value = value.to_vec();
        value[at] ^= 1;
        value
    });
    put(engine, key.clone(), value).await;
}

/// Kinds of keys that a run damages: entries, inodes, chunks, objects and counters, and fields of these.
const DAMAGE: [(u8, Option<usize>); 13] = [
    (b'D', None),
    (b'I', None),
    (b'C', None),
    (b'B', None),
    (b'L', None),
    // Links, size, bytes and parent of an inode.
    (b'I', Some(12)),
    (b'I', Some(20)),
    (b'I', Some(28)),
    (b'I', Some(72)),
    // The inode of an entry, the use of an object, counters.
    (b'D', Some(2)),
    (b'B', Some(9)),
    (b'L', Some(0)),
    (b'U', Some(0)),
];

async fn survives(place: &Place, steps: &[(usize, usize)]) {
    filled(place).await;
    for (kind, which) in steps {
        let (kind, at) = DAMAGE[kind % DAMAGE.len()];
        damage(&*place.engine, (kind, *which, at)).await;
    }
    repaired(place).await;
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(work)
}

#[test]
fn a_check_is_clean_after_random_damage_and_a_repair() {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(48));
    let steps = prop::collection::vec((0..DAMAGE.len(), 0usize..64), 1..8);
    let run = runner.run(&steps, |steps| {
        block_on(async { survives(&Place::new().await, &steps).await });
        Ok(())
    });
    run.unwrap();
}

#[tokio::test]
async fn what_is_whole_needs_no_repair() {
    let place = Place::new().await;
    filled(&place).await;
    assert_eq!(repaired(&place).await, Vec::<String>::new());
}

#[tokio::test]
async fn counts_are_counted_again_and_files_stay() {
    let place = Place::new().await;
    let tree = filled(&place).await;
    for damaged in [
        (b'I', 3, Some(12)),
        (b'U', 0, Some(0)),
        (b'U', 1, Some(0)),
        (b'L', 0, Some(0)),
    ] {
        damage(&*place.engine, damaged).await;
    }
    damage(&*place.engine, (b'B', 2, Some(9))).await;
    let told = repaired(&place).await;
    assert_eq!(told.len(), 5, "{told:?}");
    for (path, bytes) in &tree {
        assert_eq!(content(&place, path).await.unwrap(), *bytes, "{path}");
    }
}

#[tokio::test]
async fn a_file_that_no_name_leads_to_comes_to_lost_and_found() {
    let place = Place::new().await;
    let tree = filled(&place).await;
    let above = place.find(ROOT, "directory-1").await.unwrap().inode;
    let lost = place.find(above, "file-2").await.unwrap().inode;
    put(
        &*place.engine,
        [&key(b'D', above)[..], b"file-2"].concat(),
        None,
    )
    .await;
    let told = repaired(&place).await;
    assert!(
        told.iter().any(|line| line.contains("lost+found/#")),
        "{told:?}"
    );
    let found = content(&place, &format!("lost+found/#{}", lost.0)).await;
    assert_eq!(found.unwrap(), tree["directory-1/file-2"]);
    assert_eq!(
        content(&place, "directory-1/file-1").await.unwrap(),
        tree["directory-1/file-1"]
    );
}

#[tokio::test]
async fn a_directory_whose_inode_is_gone_keeps_its_names() {
    let place = Place::new().await;
    let tree = filled(&place).await;
    let gone = place.find(ROOT, "directory-1").await.unwrap().inode;
    put(&*place.engine, key(b'I', gone), None).await;
    repaired(&place).await;
    for (path, bytes) in &tree {
        assert_eq!(content(&place, path).await.unwrap(), *bytes, "{path}");
    }
}

#[tokio::test]
async fn directories_that_lie_in_each_other_come_to_lost_and_found() {
    let place = Place::new().await;
    let upper = place.make(ROOT, "upper", directory(0o755)).await.unwrap();
    let lower = place.make(upper, "lower", directory(0o755)).await.unwrap();
    let moved = keys(&*place.engine, b"D").await;
    let at_root = [&key(b'D', ROOT)[..], b"upper"].concat();
    let value = moved
        .iter()
        .find(|(key, _)| *key == at_root)
        .unwrap()
        .1
        .to_vec();
    put(&*place.engine, at_root, None).await;
    put(
        &*place.engine,
        [&key(b'D', lower)[..], b"upper"].concat(),
        Some(value),
    )
    .await;
    repaired(&place).await;
    let found = place.find(ROOT, "lost+found").await.unwrap().inode;
    let back = place.find(found, &format!("#{}", upper.0)).await.unwrap();
    assert_eq!(place.find(back.inode, "lower").await.unwrap().inode, lower);
}

#[tokio::test]
async fn a_plan_changes_nothing_and_a_repair_that_was_cut_off_is_gone_on_with() {
    let place = Place::new().await;
    filled(&place).await;
    for damaged in [(b'D', 2, None), (b'I', 4, Some(12)), (b'U', 0, Some(0))] {
        damage(&*place.engine, damaged).await;
    }
    let all = || async { keys(&*place.engine, &(1..255).collect::<Vec<u8>>()).await };
    let before = all().await;
    let whole = plan(&*place.engine).await.unwrap().len();
    assert_eq!(before, all().await);
    for _ in 0..whole {
        let mut planned = plan(&*place.engine).await.unwrap();
        planned.truncate(1);
        apply(Arc::clone(&place.engine), planned, &|_| ())
            .await
            .unwrap();
    }
    repaired(&place).await;
}

#[tokio::test]
async fn ranges_of_objects_that_are_missing_are_named_and_stay_lost() {
    let place = Place::new().await;
    let tree = filled(&place).await;
    let objects = place.objects().await;
    let gone = Key::new(&objects[0]).unwrap();
    place.bucket.delete_many(&[gone]).await.unwrap();
    assert!(plan(&*place.engine).await.unwrap().is_empty());
    let report = check(&*place.engine, &*place.bucket, None).await.unwrap();
    let told = &report.damaged;
    let is_named = |path: &String| {
        told.iter()
            .any(|line| line.starts_with(&format!("/{path} ")))
    };
    assert!(tree.keys().any(is_named), "{told:?}");
    assert!(told[0].contains("bytes 0 to 5000 are lost"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_system_in_a_database_is_repaired() {
    let directory = tempfile::tempdir().unwrap();
    let Some(engine) = database::new_engine(directory.path()).await else {
        return;
    };
    let by = penstock_vfs::Identity::new(0, 0, []);
    let format = penstock_fileset::Format::new(1);
    penstock_fileset::FilesetVolume::format(&*engine, &by, format)
        .await
        .unwrap();
    let place = Place::sharing(engine, Arc::new(MemoryStore::new())).await;
    survives(
        &place,
        &[(0, 3), (1, 5), (5, 2), (9, 7), (11, 1), (12, 0), (3, 1)],
    )
    .await;
}
