//! What is counted of files that were there before, and of files that change meanwhile.

use penstock_base::FsError;
use penstock_fileset::{
    check::{apply, check, plan},
    dumps::{FrozenPages, carry},
    engine::{MemoryEngine, Transaction, transact},
    quotas::{self, Counting},
};
use penstock_vfs::{AttributeChanges, Inode, RemoveKind};

use crate::{
    ground::{
        GROUP, USER, bytes, common, files, keys, limit, on_each_engine, quota, until_counted, used,
    },
    support::{Place, ROOT, file, user},
};

on_each_engine!(
    without_a_limit_nothing_is_counted,
    with_the_last_limit_goes_what_was_counted,
    files_are_counted_beside_those_who_change_them,
    counters_that_are_wrong_are_found_and_repaired,
);

async fn without_a_limit_nothing_is_counted(place: &Place) {
    place.store(ROOT, "file", &[1; 5000]).await.unwrap();
    assert_eq!(keys(&*place.engine, b"U").await, 2);
    assert_eq!(keys(&*place.engine, b"l").await, 0);
}

async fn with_the_last_limit_goes_what_was_counted(place: &Place) {
    let above = common(place).await;
    place
        .by(user(7))
        .store(above, "file", &[1; 50])
        .await
        .unwrap();
    limit(place, USER, bytes(0, 1000)).await;
    limit(place, GROUP, bytes(0, 1000)).await;
    place.volume.remove_quota(USER).await.unwrap();
    assert_eq!(used(place, GROUP).await, (50, 1));
    place.volume.remove_quota(GROUP).await.unwrap();
    assert_eq!(keys(&*place.engine, b"U").await, 2);
    assert_eq!(keys(&*place.engine, b"l").await, 0);
    // What changed since is counted when that begins anew.
    place
        .by(user(7))
        .store(above, "more", &[1; 70])
        .await
        .unwrap();
    limit(place, USER, bytes(0, 1000)).await;
    assert_eq!(used(place, USER).await, (120, 2));
    place.is_whole().await;
}

/// Files of several users, more than one step counts.
async fn many(place: &Place, above: Inode) {
    for number in 0..1500u32 {
        let by = place.by(user(7 + number % 3));
        let name = number.to_string();
        by.make(above, &name, file(0o644)).await.unwrap();
    }
}

async fn files_are_counted_beside_those_who_change_them(place: &Place) {
    let above = common(place).await;
    many(place, above).await;
    let limits = files(0, 100_000);
    place.volume.set_quota(USER, limits).await.unwrap();
    let mut next = 0;
    loop {
        // The steps come between changes of files that are counted and of such that are not.
        for number in [next % 50, 700 + next, 1400 - next] {
            let name = number.to_string();
            let inode = place.find(above, &name).await.unwrap().inode;
            let given = AttributeChanges {
                uid: Some(7 + (number + 1) % 3),
                gid: Some(7),
                ..Default::default()
            };
            place.change(inode, given).await.unwrap();
            place
                .store(above, &name, &vec![1; 10 + number as usize])
                .await
                .unwrap();
        }
        let name = format!("new {next}");
        place
            .by(user(7))
            .store(above, &name, &[1; 9])
            .await
            .unwrap();
        let gone = (50 + next).to_string();
        place.remove(above, &gone, RemoveKind::File).await.unwrap();
        next += 1;
        place.is_whole().await;
        if next > 3 && quota(place, USER).await.is_counted {
            break;
        }
    }
    until_counted(place).await;
    for inode in 1..3000 {
        place.forget_all(Inode(inode));
    }
    let owned = owned(place, above, 7).await;
    place
        .until(|| async { used(place, USER).await.1 == owned })
        .await;
    place.is_whole().await;
}

/// Files in a directory that are somebody's.
async fn owned(place: &Place, above: Inode, uid: u32) -> u64 {
    let old = (0..1500).map(|number| number.to_string());
    let new = (0..9).map(|number| format!("new {number}"));
    let mut found = 0;
    for name in old.chain(new) {
        let file = place.find(above, &name).await;
        found += u64::from(file.is_ok_and(|file| file.uid == uid));
    }
    found
}

async fn counters_that_are_wrong_are_found_and_repaired(place: &Place) {
    let above = common(place).await;
    place
        .by(user(7))
        .store(above, "file", &[1; 50])
        .await
        .unwrap();
    limit(place, USER, bytes(0, 1000)).await;
    let damage = |transaction: &mut dyn Transaction| {
        let user = [&b"Uu"[..], &7u32.to_be_bytes(), b"b"].concat();
        transaction.add(&user, 5)?;
        let group = [&b"Ug"[..], &9u32.to_be_bytes(), b"f"].concat();
        transaction.add(&group, 1)?;
        Ok::<_, FsError>(())
    };
    transact(&*place.engine, damage).await.unwrap();
    let report = check(&*place.engine, &*place.bucket, place.ahead.as_ref());
    let findings = report.await.unwrap().findings;
    assert_eq!(
        findings,
        [
            "user 7: 55 bytes are counted, 50 are there",
            "group 9: 1 files are counted, 0 are there"
        ]
    );
    let plan = plan(&*place.engine).await.unwrap();
    apply(place.engine.clone(), plan, &|_| {}).await.unwrap();
    place.is_whole().await;
    assert_eq!(used(place, USER).await, (50, 1));
}

#[tokio::test]
async fn a_count_that_was_cut_off_is_gone_on_with() {
    let mut place = Place::new().await;
    let above = common(&place).await;
    many(&place, above).await;
    quotas::set(&*place.engine, USER, files(0, 1000))
        .await
        .unwrap();
    quotas::count_some(&*place.engine).await.unwrap();
    let counting = quotas::count_some(&*place.engine).await.unwrap();
    assert!(matches!(counting, Counting::Until(1.., _)), "{counting:?}");
    place.engine.sync().await.unwrap();
    place.crash().await;
    // The next mount does it by itself.
    until_counted(&place).await;
    assert_eq!(used(&place, USER).await, (0, 500));
    place.is_whole().await;
}

#[tokio::test]
async fn quotas_are_dumped_and_loaded() {
    let place = Place::new().await;
    let above = common(&place).await;
    place
        .by(user(7))
        .store(above, "file", &[1; 50])
        .await
        .unwrap();
    limit(&place, USER, bytes(10, 60)).await;
    let target = MemoryEngine::default();
    let mut pages = FrozenPages::of(&*place.engine).await.unwrap();
    let carried = carry(&mut pages, (&target, 1), &|_| {}).await.unwrap();
    carried.publish(&target, 0).await.unwrap();
    let there = quotas::list(&target).await.unwrap();
    assert_eq!(there, place.volume.list_quotas().await.unwrap());
    let loaded = Place::sharing(std::sync::Arc::new(target), place.bucket.clone()).await;
    let refused = loaded.by(user(7)).store(above, "more", &[1; 11]).await;
    assert_eq!(refused, Err(FsError::QuotaExceeded));
    loaded.is_whole().await;
}
