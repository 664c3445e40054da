//! Damage to keys, most of all to those of bytes that no object in the bucket has: the file system is opened to be checked
//! and repaired, each file that lost something is named, and nothing that is damaged is read.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::{ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use penstock_base::{BufferPool, FsError, MemoryBudget};
use penstock_fileset::{
    FilesetVolume, Inlined,
    check::{Report, apply, check, check_data, plan},
    engine::{Engine, MemoryEngine, Reads, Transaction, query, transact},
    trash,
};
use penstock_transfer::Transfer;
use penstock_vfs::{NewKind, OpenOptions, RemoveKind, WritePlace, XattrMode};

use support::{
    Place, ROOT, directory, file,
    some::{LENGTH, away, content, name, store_some},
};

type Pairs = Vec<(Vec<u8>, Bytes)>;

/// All keys whose first byte is one of these.
async fn pairs(engine: &dyn Engine, is_wanted: impl Fn(u8) -> bool + Sync) -> Pairs {
    let look = |reads: &dyn Reads| {
        let mut found = Pairs::new();
        reads.scan(&[0][..]..&[u8::MAX][..], &mut |key, value| {
            if is_wanted(key[0]) {
                found.push((key.to_vec(), value.clone()));
            }
            ControlFlow::Continue(())
        })?;
        Ok::<_, FsError>(found)
    };
    query(engine, look).await.unwrap()
}

/// The keys of bytes of files.
async fn contents(engine: &dyn Engine) -> Pairs {
    pairs(engine, |kind| kind == b'd').await
}

/// Puts a pair in place of another one.
async fn replace(engine: &dyn Engine, former: Vec<u8>, new: Option<(Vec<u8>, Bytes)>) {
    let damage = move |transaction: &mut dyn Transaction| {
        transaction.delete(&former);
        if let Some((key, value)) = &new {
            transaction.put(key, value.clone());
        }
        Ok::<_, FsError>(())
    };
    transact(engine, damage).await.unwrap();
}

/// What becomes of a key of bytes.
#[derive(Debug, Clone, Copy)]
enum Damage {
    /// It ends early.
    Short,
    /// It goes on behind its end.
    Long,
    /// It says that they lie where no object reaches to.
    Elsewhere,
    /// It says nothing but what it is of.
    Bare,
    Gone,
}

impl Damage {
    const ALL: [Self; 5] = [
        Self::Short,
        Self::Long,
        Self::Elsewhere,
        Self::Bare,
        Self::Gone,
    ];

    fn of(self, key: &[u8]) -> Option<Vec<u8>> {
        let offset = key.len() - 4;
        match self {
            Self::Short => Some(key[..key.len() - 1].to_vec()),
            Self::Long => Some([key, b"x"].concat()),
            Self::Elsewhere => Some([&key[..offset], &[0xff; 4]].concat()),
            Self::Bare => Some(key[..1].to_vec()),
            Self::Gone => None,
        }
    }
}

/// Three files of which none is in the bucket, which does not answer any more, and of which the second lost its key.
async fn damaged(damage: Damage) -> Place {
    let mut place = Place::inlined().await;
    store_some(&place, 3).await;
    let (key, value) = contents(&*place.engine).await.swap_remove(1);
    let new = damage.of(&key).map(|key| (key, value));
    replace(&*place.engine, key, new).await;
    away(&place);
    place.engine.sync().await.unwrap();
    place.crash().await;
    place
}

async fn report(place: &Place) -> Report {
    let ahead = place.ahead.as_ref();
    check(&*place.engine, &*place.bucket, ahead).await.unwrap()
}

/// The line of a check that says what the second file lost.
async fn lost(place: &Place) -> String {
    let inode = place.find(ROOT, &name(1)).await.unwrap().inode.0;
    let path = name(1);
    format!("/{path} (inode {inode}): bytes 0 to {LENGTH} are lost, reads of them fail with EIO")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_key_of_bytes_keeps_no_other_file_and_is_told_by_name() {
    for damage in Damage::ALL {
        let place = damaged(damage).await;
        for number in [0, 2] {
            let read = place.content(ROOT, &name(number)).await.unwrap();
            assert!(read == content(number), "{damage:?}");
        }
        let read = place.content(ROOT, &name(1)).await;
        let is_failure = matches!(read, Err(FsError::Corrupt(_) | FsError::Io(_)));
        assert!(is_failure, "{damage:?}: {read:?}");
        let report = report(&place).await;
        assert!(!report.is_clean(), "{damage:?}");
        assert_eq!(report.damaged, [lost(&place).await], "{damage:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_removes_what_is_no_key_of_bytes_and_says_which_file_lost_what() {
    for damage in Damage::ALL {
        let place = damaged(damage).await;
        let planned = plan(&*place.engine).await.unwrap();
        let texts: Vec<_> = planned.iter().map(|repair| repair.text.clone()).collect();
        let is_there = !matches!(damage, Damage::Gone);
        assert_eq!(texts.len(), usize::from(is_there), "{damage:?}: {texts:?}");
        let lost = lost(&place).await;
        assert!(texts.iter().all(|text| text.contains(&lost)), "{texts:?}");
        let engine = Arc::clone(&place.engine);
        apply(engine, planned, &|_| ()).await.unwrap();
        assert_eq!(contents(&*place.engine).await.len(), 2);
        assert!(plan(&*place.engine).await.unwrap().is_empty());
        let report = report(&place).await;
        assert_eq!(report.findings.len(), 1, "{damage:?}: {report:?}");
        assert_eq!(report.damaged, [lost], "{damage:?}");
        assert!(place.content(ROOT, &name(1)).await.is_err());
    }
}

/// All that a check cannot see is that they are other ones: who compares them does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_with_the_metadata_that_are_other_ones_are_told_by_name_and_never_read() {
    let place = Place::inlined().await;
    store_some(&place, 3).await;
    let (key, value) = contents(&*place.engine).await.swap_remove(1);
    let mut other = value.to_vec();
    other[100] ^= 1;
    replace(&*place.engine, key.clone(), Some((key, Bytes::from(other)))).await;
    let read = place.content(ROOT, &name(1)).await;
    assert!(matches!(read, Err(FsError::Corrupt(_))), "{read:?}");
    let ahead = place.ahead.as_ref();
    let report = check_data(&*place.engine, place.transfer(), ahead).await;
    let report = report.unwrap();
    assert_eq!(report.findings.len(), 1, "{report:?}");
    assert_eq!(report.damaged, [lost(&place).await]);
}

/// A file system that has keys of most kinds.
async fn filled() -> Place {
    let place = Place::inlined().await;
    trash::set(&*place.engine, 3).await.unwrap();
    store_some(&place, 4).await;
    let above = place.make(ROOT, "above", directory(0o755)).await.unwrap();
    let link = penstock_vfs::New {
        kind: NewKind::Symlink(b"target"),
        ..file(0o777)
    };
    place.make(above, "link", link).await.unwrap();
    place
        .set_xattr(above, "user.name", b"value", XattrMode::Set)
        .await
        .unwrap();
    let all = place.find(ROOT, ".snapshot").await.unwrap().inode;
    place.make(all, "taken", directory(0o755)).await.unwrap();
    for number in 0..2 {
        let removed = place.remove(ROOT, &name(number), RemoveKind::File).await;
        removed.unwrap();
    }
    let open = place.find(ROOT, &name(2)).await.unwrap().inode;
    let handle = place.open(open, OpenOptions::WRITE).await.unwrap();
    let written = place.write(handle, WritePlace::At(0), b"other").await;
    written.unwrap();
    place.close(handle).await.unwrap();
    trash::set(&*place.engine, 0).await.unwrap();
    let removed = place.remove(ROOT, &name(2), RemoveKind::File).await;
    removed.unwrap();
    place
}

/// What a key and its value become when one of them is damaged.
fn spoiled((key, value): &(Vec<u8>, Bytes)) -> Vec<(Vec<u8>, Bytes)> {
    let short = key[..key.len() - 1].to_vec();
    let long = [&key[..], b"\xfe"].concat();
    let mut spoiled = vec![(long, value.clone())];
    if !short.is_empty() {
        spoiled.push((short, value.clone()));
    }
    spoiled.push((key.clone(), value.slice(..value.len() / 2)));
    let other: Vec<u8> = value.iter().map(|byte| !byte).collect();
    spoiled.push((key.clone(), Bytes::from(other)));
    spoiled
}

/// A key, and the beginning of its value.
fn seen((key, value): &(Vec<u8>, Bytes)) -> String {
    let start = &value[..value.len().min(40)];
    format!("{}: {}", key.escape_ascii(), start.escape_ascii())
}

async fn engine_with(pairs: &Pairs) -> Arc<dyn Engine> {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
    let pairs = pairs.clone();
    let put = move |transaction: &mut dyn Transaction| {
        for (key, value) in &pairs {
            transaction.put(key, value.clone());
        }
        Ok::<_, FsError>(())
    };
    transact(&*engine, put).await.unwrap();
    engine
}

/// Only who would serve it needs to know which file system it is. A repair refuses what other keys cannot say: what is not found
/// there is not lost yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_damaged_key_keeps_a_file_system_from_being_checked() {
    let place = filled().await;
    let whole = pairs(&*place.engine, |_| true).await;
    for at in 0..whole.len() {
        let kind = whole[at].0[0];
        for spoiled in spoiled(&whole[at]) {
            let what = format!("{} in place of {}", seen(&spoiled), seen(&whole[at]));
            let mut pairs = whole.clone();
            pairs[at] = spoiled;
            let engine = engine_with(&pairs).await;
            let inlined = Inlined::open(Arc::clone(&engine), Arc::clone(&place.bucket)).await;
            let inlined = inlined.unwrap_or_else(|error| panic!("{what}: {error}"));
            let checked = check(&*engine, &*inlined, None).await;
            checked.unwrap_or_else(|error| panic!("{what}: {error}"));
            let planned = plan(&*engine).await;
            let told = planned.as_ref().map_err(ToString::to_string);
            let is_refused = |text: &String| text.contains("restore the metadata from a backup");
            assert!(
                told.map_or_else(|text| is_refused(&text), |_| true),
                "{what}"
            );
            assert!(kind != b'd' || planned.is_ok(), "{what}: {planned:?}");
            let pool = BufferPool::new(MemoryBudget::new(16 << 20));
            let opened = FilesetVolume::open(engine, Transfer::new(inlined, pool)).await;
            assert_eq!(opened.is_err(), kind == b'F', "{what}: {opened:?}");
        }
    }
}
