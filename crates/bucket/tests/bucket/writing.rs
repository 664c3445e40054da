//! Writing files.

use crate::support::Bed;

#[tokio::test(start_paused = true)]
async fn a_file_is_visible_in_the_store_only_when_closed() {
    let bed = Bed::new();
    let handle = bed.create("file").await.unwrap();
    assert_eq!(bed.requests(), "head 1, list 1");
    bed.write(handle, 0, "hello ").await.unwrap();
    bed.write(handle, 6, "world").await.unwrap();
    assert!(bed.keys().await.is_empty());
    assert_eq!(bed.requests(), "");
    bed.close(handle).await.unwrap();
    assert_eq!(bed.object("file").await.unwrap(), b"hello world");
    assert_eq!(bed.requests(), "put 1");
    assert_eq!(bed.read_file("file").await.unwrap(), b"hello world");
}
