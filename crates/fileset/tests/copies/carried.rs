//! Files that share objects: in another engine, when an object is damaged or lost, and when the metadata is repaired.

use std::{ops::ControlFlow, sync::Arc};

use bytes::{Buf, Bytes};
use penstock_base::FsError;
use penstock_fileset::{
    check::{apply, check, check_data, plan},
    compression::Compression,
    dumps::{FrozenPages, carry},
    engine::{Engine, MemoryEngine, Transaction, transact},
};
use penstock_object::{GetOptions, Key, PutOptions};
use penstock_vfs::{AttributeChanges, OpenOptions, WritePlace};

use crate::{
    ground::{
        collect, content, copied, copy, copy_all, counted, drop_snapshot, ends_empty, opened,
        remove, snapshot,
    },
    support::{Place, ROOT},
};

/// Names and what is to be read under them.
type Contents = Vec<(&'static str, Vec<u8>)>;

async fn compressing(setting: Compression) -> Place {
    let place = Place::new().await;
    place.volume.set_compression(setting).await.unwrap();
    place
}

/// Files that show parts of the same objects: a source that was overwritten and cut, a copy, a part of that copy, and a
/// clone of what a snapshot has of the source.
async fn shared(place: &Place) -> Contents {
    let (bytes, source, target) = copied(place).await;
    let then = snapshot(place, "then").await;
    let part = opened(place, "part").await;
    let made = copy(place, (target, 4_000_001), (part, 77), 1_000_003).await;
    assert_eq!(made, Ok(1_000_003));
    let over = vec![9; 3_000_000];
    let written = place.write(source, WritePlace::At(100), &over).await;
    written.unwrap();
    place.sync(source).await.unwrap();
    let cut = AttributeChanges {
        size: Some(5_000_000),
        ..AttributeChanges::default()
    };
    let inode = place.find(ROOT, "source").await.unwrap().inode;
    place.change(inode, cut).await.unwrap();
    let kept = place.find(then, "source").await.unwrap().inode;
    let kept = place.open(kept, OpenOptions::READ).await.unwrap();
    let clone = opened(place, "clone").await;
    copy_all(place, kept, clone).await;
    for handle in [source, target, part, kept, clone] {
        place.close(handle).await.unwrap();
    }
    let mut of_source = bytes[..5_000_000].to_vec();
    of_source[100..3_000_100].fill(9);
    let of_part = [&[0; 77][..], &bytes[4_000_001..5_000_004]].concat();
    vec![
        ("source", of_source),
        ("target", bytes.clone()),
        ("part", of_part),
        ("clone", bytes),
    ]
}

async fn are_shown(place: &Place, contents: &[(&str, Vec<u8>)]) {
    for (name, bytes) in contents {
        assert!(place.content(ROOT, name).await.unwrap() == *bytes, "{name}");
    }
}

/// The same file system with its metadata in another engine, as `move` and `load` bring it there.
async fn moved(place: &Place) -> Place {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
    let mut pages = FrozenPages::of(&*place.engine).await.unwrap();
    let carried = carry(&mut pages, (&*engine, 1), &|_| {}).await.unwrap();
    carried.publish(&*engine, 0).await.unwrap();
    Place::sharing(engine, Arc::clone(&place.bucket)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_share_objects_do_so_in_the_engine_to_which_they_are_moved() {
    for setting in [Compression::None, Compression::Zstd(3)] {
        let place = compressing(setting).await;
        let contents = shared(&place).await;
        place.is_whole().await;
        let place = moved(&place).await;
        place.is_whole().await;
        for (index, (name, _)) in contents.iter().enumerate() {
            are_shown(&place, &contents[index..]).await;
            remove(&place, name).await;
            collect(&place).await;
            place.is_whole().await;
        }
        drop_snapshot(&place, "then").await;
        ends_empty(&place).await;
    }
}

/// The object that has the first bytes of all files but the part.
async fn first_object(place: &Place) -> (Key, Vec<u8>) {
    let mut found = None;
    for key in place.objects().await {
        let key = Key::new(key).unwrap();
        let mut bytes = Vec::new();
        let got = place.bucket.get(&key, GetOptions::default(), &mut bytes);
        got.await.unwrap();
        if bytes.starts_with(&counted(64)) {
            found = Some((key, bytes));
        }
    }
    found.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_an_object_is_told_of_each_file_that_shows_it() {
    let mut place = Place::new().await;
    let (bytes, source, target) = copied(&place).await;
    for handle in [source, target] {
        place.close(handle).await.unwrap();
    }
    let inodes = [place.find(ROOT, "source"), place.find(ROOT, "target")];
    let inodes = futures_util::future::join_all(inodes).await;
    let (key, mut damaged) = first_object(&place).await;
    damaged[70] ^= 1;
    let put = place
        .bucket
        .put(&key, damaged.into(), PutOptions::default());
    put.await.unwrap();
    place.crash().await;
    let report = check_data(&*place.engine, place.transfer(), None).await;
    let found = report.unwrap().findings;
    assert_eq!(found.len(), 2, "{found:?}");
    for inode in inodes {
        let whose = format!("inode {}: ", inode.unwrap().inode.0);
        assert!(
            found.iter().any(|line| line.starts_with(&whose)),
            "{found:?}"
        );
    }
    place.bucket.delete(&key).await.unwrap();
    place.crash().await;
    let report = check(&*place.engine, &*place.bucket, None).await.unwrap();
    assert_eq!(report.damaged.len(), 2, "{report:?}");
    for (name, line) in ["source", "target"].into_iter().zip(&report.damaged) {
        assert!(line.starts_with(&format!("/{name} ")), "{line}");
        let read = place.content(ROOT, name).await;
        assert!(matches!(read, Err(FsError::Corrupt(_))), "{read:?}");
    }
    // Whoever writes that anew has a whole file, and the other one what is left.
    let source = opened(&place, "source").await;
    let mended = place.write(source, WritePlace::At(0), &bytes).await;
    mended.unwrap();
    place.sync(source).await.unwrap();
    assert!(place.content(ROOT, "source").await.unwrap() == bytes);
    let report = check(&*place.engine, &*place.bucket, None).await.unwrap();
    assert_eq!(report.damaged.len(), 1, "{report:?}");
    assert!(report.damaged[0].starts_with("/target "), "{report:?}");
}

async fn repair(place: &Place) {
    let repairs = plan(&*place.engine).await.unwrap();
    assert!(!repairs.is_empty());
    let repaired = apply(Arc::clone(&place.engine), repairs, &|_| {});
    repaired.await.unwrap();
    place.is_whole().await;
}

/// Uses of which those of copies are not counted: the objects would go with the first of the files.
#[tokio::test(flavor = "multi_thread")]
async fn uses_that_are_counted_too_low_are_repaired_before_an_object_goes() {
    for setting in [Compression::None, Compression::Lz4] {
        let mut place = compressing(setting).await;
        let contents = shared(&place).await;
        place.crash().await;
        let forget = |transaction: &mut dyn Transaction| {
            let mut found = Vec::new();
            transaction.scan(b"B"..b"C", &mut |key, value| {
                found.push((key.to_vec(), value.clone()));
                ControlFlow::Continue(())
            })?;
            for (key, value) in found {
                let mut used = &value[9..17];
                let used = used.get_u64_le() / 3;
                let changed = [&value[..9], &used.to_le_bytes()[..], &value[17..]].concat();
                transaction.put(&key, Bytes::from(changed));
            }
            Ok::<_, FsError>(())
        };
        transact(&*place.engine, forget).await.unwrap();
        repair(&place).await;
        for (index, (name, _)) in contents.iter().enumerate() {
            are_shown(&place, &contents[index..]).await;
            remove(&place, name).await;
            collect(&place).await;
        }
        drop_snapshot(&place, "then").await;
        ends_empty(&place).await;
    }
}

/// A file of which nothing but its parts is left comes back without taking anything from those that share them.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_of_a_file_leaves_those_that_share_its_objects_as_they_are() {
    let mut place = Place::new().await;
    let contents = shared(&place).await;
    place.crash().await;
    let lost = place.find(ROOT, "source").await.unwrap().inode;
    place.crash().await;
    let lose = move |transaction: &mut dyn Transaction| {
        let of_file = |kind: u8| [&[kind], &lost.0.to_be_bytes()[..]].concat();
        transaction.delete(&of_file(b'I'));
        Ok::<_, FsError>(())
    };
    transact(&*place.engine, lose).await.unwrap();
    repair(&place).await;
    place.crash().await;
    are_shown(&place, &contents).await;
    let handle = opened(&place, "source").await;
    assert!(content(&place, handle, "source").await == contents[0].1);
}
