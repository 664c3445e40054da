//! What a mount target of a type delivers at most.

use std::time::{Duration, Instant};

use nfs3_types::nfs3::{nfsstat3, stable_how};
use penstock_nfs::TargetType;

use crate::support::*;

async fn standard() -> Target {
    let making = Making {
        target_type: TargetType::Standard,
        ..Making::default()
    };
    Target::made(making, Default::default()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standard_target_answers_as_many_calls_as_its_type_says() {
    let target = standard().await;
    let (mut client, root) = (target.root().await, target.handle().await);
    let before = target.metric("nfs_backend_operations_total");
    let begun = Instant::now();
    for _ in 0..400 {
        let removed = remove(&mut client, &root, "nothing").await;
        assert_eq!(removed, nfsstat3::NFS3ERR_NOENT);
    }
    // 8 operations each of 5,000 a second, a tenth of a second saved up.
    let least = Duration::from_millis(400 * 8 / 5 - 100 - 8);
    assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
    let cost = target.metric("nfs_backend_operations_total") - before;
    assert_eq!(cost, 400 * 8);
    assert!(target.metric("nfs_throttled_total") > 0);
    assert!(target.metric("nfs_throttled_microseconds_total") > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_costs_what_it_gave() {
    let target = standard().await;
    let (mut client, root) = (target.root().await, target.handle().await);
    let file = create(&mut client, &root, "file").await;
    let written = write(&mut client, &file, (0, b"content"), stable_how::FILE_SYNC);
    written.await.unwrap();
    let before = target.metric("nfs_backend_operations_total");
    for _ in 0..50 {
        let read = read(&mut client, &file, 0, 1 << 20).await;
        assert_eq!(read.unwrap().0, b"content");
    }
    let cost = target.metric("nfs_backend_operations_total") - before;
    assert_eq!(cost, 100);
}
