//! Disks that are full and file systems that lack what is asked for. Making one takes root.

use std::{process::Command, time::Duration};

use super::*;
use crate::ObjectError;

/// A small file system of its own, unmounted on drop.
struct Mount(TempDir);

impl Mount {
    fn new(kind: &str, options: &str) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let mounted = Command::new("mount")
            .args(["-t", kind, "-o", options, kind])
            .arg(directory.path())
            .output();
        let mounted = mounted.is_ok_and(|output| output.status.success());
        if !mounted {
            penstock_skips::skipped(format_args!("mounting {kind} takes root"));
        }
        mounted.then(|| Self(directory))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

/// What `attempt` comes to once there is room. A child that another test is just starting has all files of this process
/// open until it runs its program, those too that are removed and closed meanwhile, with their locks.
async fn with_room<T>(attempt: impl AsyncFn() -> Result<T, ObjectError>) -> Result<T, ObjectError> {
    const ATTEMPTS: usize = 200;
    for _ in 0..ATTEMPTS {
        match attempt().await {
            Err(error) if matches!(error.kind, ErrorKind::NoSpace | ErrorKind::Unavailable) => {}
            ended => return ended,
        }
        penstock_base::clock::sleep(Duration::from_millis(20)).await;
    }
    attempt().await
}

fn large(length: usize) -> Payload {
    Payload::from(vec![7; length])
}

#[tokio::test]
async fn a_full_disk_fails_writes_and_keeps_nothing_of_them() {
    let Some(mount) = Mount::new("tmpfs", "size=4m") else {
        return;
    };
    let store = open(mount.0.path());
    put(&store, "kept", "before").await;
    let options = PutOptions::default();
    for name in ["kept", "dir/new"] {
        let written = store.put(&key(name), large(5 << 20), options.clone()).await;
        assert_eq!(written.expect_err("it is full").kind, ErrorKind::NoSpace);
    }
    assert_eq!(read(&store, "kept").await.expect("it is there"), "before");
    assert_eq!(all_keys(&store).await, ["kept"]);
    assert!(paths(&mount.0.path().join(".penstock/staging")).is_empty());
    let fits = with_room(|| async {
        let options = options.clone();
        store.put(&key("fits"), large(3 << 20), options).await
    });
    fits.await
        .expect("the room of the failed writes is free again");
    let copied = store
        .copy(&key("fits"), &key("copy"), CopyOptions::default())
        .await;
    assert_eq!(copied.expect_err("it is full").kind, ErrorKind::NoSpace);
    assert_eq!(all_keys(&store).await, ["fits", "kept"]);
}

#[tokio::test]
async fn a_full_disk_leaves_an_upload_and_an_appendable_object_as_they_were() {
    let Some(mount) = Mount::new("tmpfs", "size=4m") else {
        return;
    };
    let store = open(mount.0.path());
    let options = PutOptions::default();
    let upload = store.create_upload(&key("parts"), options.clone()).await;
    let upload = upload.expect("it begins");
    let mut parts = Vec::new();
    for number in [1, 2] {
        let sent = store
            .upload_part(&key("parts"), &upload, number, large(7 << 17))
            .await;
        parts.push(sent.expect("it fits"));
    }
    let begun = store
        .append(&key("log"), 0, large(1 << 20), options.clone())
        .await;
    begun.expect("it fits");
    let complete = || {
        let options = CompleteOptions::default();
        async {
            store
                .complete_upload(&key("parts"), &upload, &parts, options)
                .await
        }
    };
    let completed = complete().await;
    assert_eq!(completed.expect_err("it is full").kind, ErrorKind::NoSpace);
    let before = store
        .head(&key("log"), HeadOptions {})
        .await
        .expect("it is there");
    let grown = store
        .append(&key("log"), 1 << 20, large(3 << 20), options)
        .await;
    assert_eq!(grown.expect_err("it is full").kind, ErrorKind::NoSpace);
    let after = store
        .head(&key("log"), HeadOptions {})
        .await
        .expect("it is there");
    assert_eq!(after, before);
    assert_eq!(all_keys(&store).await, ["log"]);
    store.delete(&key("log")).await.expect("deleting works");
    let completed = with_room(complete).await;
    completed.expect("the upload is still good");
    assert_eq!(all_keys(&store).await, ["parts"]);
}

#[tokio::test]
async fn metadata_is_refused_where_it_cannot_be_kept() {
    let Some(mount) = Mount::new("ramfs", "mode=0755") else {
        return;
    };
    let store = open(mount.0.path());
    let options = PutOptions {
        content_type: Some("text/plain".to_owned()),
        ..PutOptions::default()
    };
    let plain = store.put(&key("plain"), body("x"), options.clone()).await;
    plain.expect("a content type alone is no reason to refuse");
    let options = PutOptions {
        metadata: [("colour".to_owned(), "blue".to_owned())].into(),
        ..options
    };
    let described = store.put(&key("described"), body("x"), options).await;
    let error = described.expect_err("it would be lost");
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.message.contains("user attributes"), "{error}");
    assert_eq!(all_keys(&store).await, ["plain"]);
    store
        .append(&key("log"), 0, body("x"), PutOptions::default())
        .await
        .expect("it begins");
    store
        .append(&key("log"), 1, body("y"), PutOptions::default())
        .await
        .expect("it grows");
}
