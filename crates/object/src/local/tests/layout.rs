//! Which files are made and removed.

use super::*;

#[tokio::test]
async fn objects_are_plain_files_at_their_keys_paths() {
    let (directory, store) = bucket();
    put(&store, "dir/Ünïcödé file.txt", "content").await;
    let path = directory.path().join("dir/Ünïcödé file.txt");
    assert_eq!(
        std::fs::read_to_string(path).expect("it is there"),
        "content"
    );
    assert_eq!(
        paths(directory.path()),
        [
            ".penstock/",
            ".penstock/lock",
            ".penstock/staging/",
            "dir/",
            "dir/Ünïcödé file.txt"
        ]
    );
}

#[tokio::test]
async fn directories_go_with_their_last_object() {
    let (directory, store) = bucket();
    put(&store, "a/b/c", "1").await;
    put(&store, "a/d", "2").await;
    store.delete(&key("a/b/c")).await.expect("deleting works");
    assert!(directory.path().join("a").is_dir() && !directory.path().join("a/b").exists());
    store.delete(&key("a/d")).await.expect("deleting works");
    assert!(!directory.path().join("a").exists());
}

#[tokio::test]
async fn a_file_becomes_a_directory_when_something_is_written_below_it() {
    let (directory, store) = bucket();
    let stored = put(&store, "a", "object").await;
    put(&store, "a/b", "below").await;
    let inner = directory.path().join("a/.penstock-object");
    assert_eq!(
        std::fs::read_to_string(inner).expect("it is there"),
        "object"
    );
    let info = store
        .head(&key("a"), HeadOptions {})
        .await
        .expect("it is there");
    assert_eq!(info.etag, stored.etag, "moving it aside is no new version");
    put(&store, "a", "newer").await;
    assert_eq!(read(&store, "a").await.expect("it is there"), "newer");
    store.delete(&key("a/b")).await.expect("deleting works");
    assert_eq!(read(&store, "a").await.expect("it is there"), "newer");
    store.delete(&key("a")).await.expect("deleting works");
    assert_eq!(
        paths(directory.path()),
        [".penstock/", ".penstock/lock", ".penstock/staging/"]
    );
}

#[tokio::test]
async fn an_empty_directory_gives_way_to_an_object_of_its_name() {
    let (directory, store) = bucket();
    std::fs::create_dir(directory.path().join("a")).expect("it can be made");
    put(&store, "a", "object").await;
    assert!(directory.path().join("a").is_file());
}

#[tokio::test]
async fn metadata_lies_in_one_extended_attribute() {
    let (directory, store) = bucket();
    let options = PutOptions {
        content_type: Some("text/plain".to_owned()),
        metadata: [("colour".to_owned(), "blue".to_owned())].into(),
        ..PutOptions::default()
    };
    let stored = store.put(&key("a"), body("x"), options).await;
    stored.expect("the put succeeds");
    let mut value = vec![0; 1000];
    let path = directory.path().join("a");
    let length = rustix::fs::getxattr(path, "user.penstock", &mut value[..]);
    assert_eq!(
        std::str::from_utf8(&value[..length.expect("it has the attribute")]),
        Ok(r#"{"content_type":"text/plain","metadata":{"colour":"blue"}}"#)
    );
}

#[tokio::test]
async fn long_metadata_comes_back_or_is_refused_for_its_length() {
    let (_directory, store) = bucket();
    let with = |length: usize| PutOptions {
        metadata: [("long".to_owned(), "x".repeat(length))].into(),
        ..PutOptions::default()
    };
    let stored = store.put(&key("a"), body("x"), with(3000)).await;
    stored.expect("three thousand bytes fit everywhere");
    let info = store
        .head(&key("a"), HeadOptions {})
        .await
        .expect("it is there");
    assert_eq!(info.metadata["long"].len(), 3000);
    let refused = store.put(&key("b"), body("x"), with(70_000)).await;
    assert_eq!(refused.expect_err("too long").kind, ErrorKind::TooLarge);
    assert_eq!(all_keys(&store).await, ["a"]);
}

#[tokio::test]
async fn nothing_is_written_to_read_a_bucket() {
    let (directory, store) = bucket();
    std::fs::write(directory.path().join("a"), "x").expect("it can be written");
    assert_eq!(read(&store, "a").await.expect("it is there"), "x");
    let uploads = store
        .list_uploads("", None)
        .await
        .expect("uploads are listed");
    assert_eq!(
        (all_keys(&store).await.len(), uploads.uploads.len()),
        (1, 0)
    );
    assert_eq!(paths(directory.path()), ["a"]);
}

#[test]
fn a_missing_directory_is_a_missing_bucket() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let missing = directory.path().join("missing");
    let error = LocalStore::open(&missing, settings()).expect_err("it is not there");
    assert_eq!(error.kind, ErrorKind::NoSuchBucket);
    assert!(error.message.contains("mkdir -p"), "{error}");
    let file = directory.path().join("file");
    std::fs::write(&file, "x").expect("it can be written");
    let error = LocalStore::open(&file, settings()).expect_err("it is a file");
    assert_eq!(error.kind, ErrorKind::NoSuchBucket);
    assert!(error.message.contains("not a directory"), "{error}");
}

#[test]
fn old_staged_files_are_swept_and_young_ones_kept() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let staging = directory.path().join(".penstock/staging");
    std::fs::create_dir_all(staging.join("tree/deep")).expect("it can be made");
    std::fs::write(staging.join("tree/deep/file"), "x").expect("it can be written");
    std::fs::write(staging.join("file"), "x").expect("it can be written");
    let patient = LocalSettings {
        staging_age_max: Duration::from_secs(3600),
        ..settings()
    };
    LocalStore::open(directory.path(), patient).expect("it opens");
    assert_eq!(paths(&staging).len(), 4);
    open(directory.path());
    assert!(paths(&staging).is_empty());
}

#[tokio::test]
async fn upload_names_are_no_paths() {
    let (directory, store) = bucket();
    std::fs::write(directory.path().join("precious"), "x").expect("it can be written");
    for name in [
        "",
        ".",
        "../..",
        "../../precious",
        "/etc",
        "0123456789abcde/",
    ] {
        let upload = UploadId::new(name);
        let sent = store.upload_part(&key("a"), &upload, 1, body("x")).await;
        assert_eq!(sent.expect_err("no upload").kind, ErrorKind::NoSuchUpload);
        let aborted = store.abort_upload(&key("a"), &upload).await;
        aborted.expect("there is nothing to abort");
    }
    assert!(directory.path().join("precious").exists());
}

#[tokio::test]
async fn completion_checks_the_sum_of_the_parts() {
    let (_directory, store) = bucket();
    let upload = store.create_upload(&key("a"), PutOptions::default()).await;
    let upload = upload.expect("it begins");
    let mut parts = Vec::new();
    for (number, text) in [(1, "12345"), (2, "6789")] {
        let part = store
            .upload_part(&key("a"), &upload, number, body(text))
            .await;
        parts.push(part.expect("it is taken"));
    }
    // The check value of CRC-64/XZ is that of the text 123456789.
    const CHECK: u64 = 0x995D_C9BB_DF19_39FA;
    let with = |sum| CompleteOptions {
        checksum: Some(crate::Checksum::Crc64Ecma(sum)),
        ..CompleteOptions::default()
    };
    let refused = store
        .complete_upload(&key("a"), &upload, &parts, with(CHECK ^ 1))
        .await;
    assert_eq!(
        refused.expect_err("it differs").kind,
        ErrorKind::ChecksumMismatch
    );
    let stored = store
        .complete_upload(&key("a"), &upload, &parts, with(CHECK))
        .await;
    stored.expect("it completes");
    assert_eq!(read(&store, "a").await.expect("it is there"), "123456789");
}
