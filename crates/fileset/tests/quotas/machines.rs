//! Limits where several machines have the file system.

use penstock_base::FsError;

use crate::{
    ground::{
        USER, bytes, common, files, limit, listed, two_in_memory, two_on_a_database, until_counted,
        used,
    },
    support::{Place, file, user},
};

async fn a_limit_that_one_machine_sets_holds_on_all([one, other]: &[Place; 2]) {
    let above = common(one).await;
    limit(one, USER, files(0, 4)).await;
    let (mine, theirs) = (one.by(user(7)), other.by(user(7)));
    mine.store(above, "a", &[1; 10]).await.unwrap();
    theirs.store(above, "b", &[1; 10]).await.unwrap();
    mine.store(above, "c", &[1; 10]).await.unwrap();
    theirs.store(above, "d", &[1; 10]).await.unwrap();
    for by in [&mine, &theirs] {
        let refused = by.make(above, "e", file(0o644)).await;
        assert_eq!(refused, Err(FsError::QuotaExceeded));
    }
    other.volume.set_quota(USER, files(0, 5)).await.unwrap();
    mine.make(above, "e", file(0o644)).await.unwrap();
    until_counted(other).await;
    other
        .until(|| async { used(other, USER).await == (40, 5) })
        .await;
    one.is_whole().await;
}

async fn creates_on_all_machines_at_once_end_at_the_limit([one, other]: &[Place; 2]) {
    let above = common(one).await;
    limit(one, USER, files(0, 40)).await;
    let create = async |place: &Place, letter: &str| {
        let by = place.by(user(7));
        let mut made = 0;
        for number in 0..30 {
            let name = format!("{letter}{number}");
            match by.make(above, &name, file(0o644)).await {
                Ok(_) => made += 1,
                Err(error) => assert_eq!(error, FsError::QuotaExceeded),
            }
        }
        made
    };
    let made = futures_util::future::join(create(one, "a"), create(other, "b")).await;
    assert_eq!(made.0 + made.1, 40);
    one.is_whole().await;
}

async fn a_write_knows_what_other_machines_saved([one, other]: &[Place; 2]) {
    let above = common(one).await;
    limit(one, USER, bytes(0, 100_000)).await;
    let (mine, theirs) = (one.by(user(7)), other.by(user(7)));
    mine.store(above, "a", &[1; 60_000]).await.unwrap();
    let is_known = || async {
        let quota = listed(other, USER).await;
        quota.is_some_and(|quota| quota.used.bytes == 60_000)
    };
    other.until(is_known).await;
    let refused = theirs.store(above, "b", &[1; 40_001]).await;
    assert_eq!(refused, Err(FsError::QuotaExceeded));
    theirs.store(above, "b", &[1; 40_000]).await.unwrap();
    one.is_whole().await;
}

macro_rules! on_two_machines {
    ($($test:ident),* $(,)?) => {
        mod in_memory {
            $(#[tokio::test]
            async fn $test() {
                super::$test(&super::two_in_memory().await).await;
            })*
        }

        mod on_a_database {
            $(#[tokio::test]
            async fn $test() {
                let (places, _own) = super::two_on_a_database().await;
                super::$test(&places).await;
            })*
        }
    };
}

on_two_machines!(
    a_limit_that_one_machine_sets_holds_on_all,
    creates_on_all_machines_at_once_end_at_the_limit,
    a_write_knows_what_other_machines_saved,
);
