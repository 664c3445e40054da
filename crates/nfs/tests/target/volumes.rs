//! Volumes without lasting numbers.

use std::sync::{Arc, atomic::Ordering};

use nfs3_types::nfs3::nfsstat3;

use crate::support::*;

fn passing() -> Arc<Shaped> {
    let shape = Shape {
        lasting: false,
        ..Shape::default()
    };
    Arc::new(Shaped::new(shape))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_without_a_lasting_number_is_good_as_long_as_the_server_lives() {
    let target = Target::over(passing()).await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let directory = make_directory(&mut client, &root, "directory").await;
    let file = create(&mut client, &directory, "file").await;
    assert_eq!(
        lookup(&mut client, &directory, "file").await,
        Ok(file.clone())
    );
    assert!(attributes(&mut client, &file).await.is_ok());
    let again = target.again(Making::default()).await;
    assert_eq!(again.handle().await, root, "the root is the root");
    let mut client = again.root().await;
    let stale = Some(nfsstat3::NFS3ERR_STALE);
    assert_eq!(attributes(&mut client, &file).await.err(), stale);
    let found = lookup(&mut client, &root, "directory").await.unwrap();
    assert_ne!(found, directory);
    assert!(attributes(&mut client, &found).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_reference_is_kept_of_each_file_that_a_client_knows() {
    let target = Target::over(passing()).await;
    let mut client = target.root().await;
    let root = target.handle().await;
    create(&mut client, &root, "file").await;
    for _ in 0..10 {
        lookup(&mut client, &root, "file").await.unwrap();
        names(&mut client, &root, 4096).await;
    }
    assert_eq!(target.volume.references.load(Ordering::SeqCst), 1);
    assert_eq!(remove(&mut client, &root, "file").await, nfsstat3::NFS3_OK);
}
