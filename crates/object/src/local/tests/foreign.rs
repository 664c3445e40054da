//! Directories that other programs made and change.

use std::{fs, mem::MaybeUninit, os::unix::fs::symlink, path::PathBuf};

use super::*;

fn delimited(prefix: &str) -> ListOptions {
    ListOptions {
        prefix: prefix.to_owned(),
        delimited: true,
        ..ListOptions::default()
    }
}

#[tokio::test]
async fn an_existing_directory_of_files_is_a_bucket() {
    let (directory, store) = bucket();
    let root = directory.path();
    fs::create_dir_all(root.join("photos/2024")).expect("it can be made");
    fs::create_dir_all(root.join("empty/inside")).expect("it can be made");
    for name in [
        "readme.txt",
        ".hidden",
        "photos/2024/a.jpg",
        "photos/cover.jpg",
        "100%",
    ] {
        fs::write(root.join(name), name).expect("it can be written");
    }
    let expected = [
        "100%",
        ".hidden",
        "photos/2024/a.jpg",
        "photos/cover.jpg",
        "readme.txt",
    ];
    let mut sorted = expected.to_vec();
    sorted.sort_unstable();
    assert_eq!(all_keys(&store).await, sorted);
    for name in expected {
        assert_eq!(read(&store, name).await.expect("it is there"), name);
    }
    let (_, prefixes) = list(&store, delimited("")).await;
    assert_eq!(
        prefixes,
        ["photos/"],
        "directories without files are not shown"
    );
}

#[tokio::test]
async fn special_files_and_foreign_escapes_are_hidden() {
    let (directory, store) = bucket();
    let root = directory.path();
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("fifo"), mode).expect("it can be made");
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).expect("it binds");
    for name in [
        ".penstock=plain",
        ".penstock-object",
        ".penstock=",
        ".penstockade",
    ] {
        fs::write(root.join(name), "x").expect("it can be written");
    }
    use std::os::unix::ffi::OsStrExt;
    let not_text = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    fs::write(root.join(not_text), "x").expect("it can be written");
    assert!(all_keys(&store).await.is_empty());
    for name in ["fifo", "socket", "plain", ".penstockade"] {
        let error = read(&store, name).await.expect_err("it is hidden");
        assert_eq!(error.kind, ErrorKind::NotFound, "{name}");
        store
            .delete(&key(name))
            .await
            .expect("deleting nothing succeeds");
    }
    assert!(root.join("fifo").exists() && root.join("socket").exists());
}

#[tokio::test]
async fn links_are_followed_only_inside() {
    let (directory, store) = bucket();
    let outside = tempfile::tempdir().expect("a directory can be made");
    fs::write(outside.path().join("secret"), "secret").expect("it can be written");
    let root = directory.path();
    fs::create_dir_all(root.join("real/deep")).expect("it can be made");
    fs::write(root.join("real/deep/file"), "content").expect("it can be written");
    let links: [(&str, PathBuf); 7] = [
        ("to-file", "real/deep/file".into()),
        ("to-directory", "real/deep".into()),
        ("real/up", "../real/deep/file".into()),
        ("dangling", "missing".into()),
        ("out-file", outside.path().join("secret")),
        ("out-directory", outside.path().to_owned()),
        ("real/out", "../../".into()),
    ];
    for (name, target) in links {
        symlink(target, root.join(name)).expect("it can be made");
    }
    let inside = ["real/deep/file", "real/up", "to-directory/file", "to-file"];
    assert_eq!(all_keys(&store).await, inside);
    for name in inside {
        assert_eq!(read(&store, name).await.expect("it is there"), "content");
    }
    for name in [
        "out-file",
        "out-directory/secret",
        "real/out/etc/passwd",
        "dangling",
    ] {
        let error = read(&store, name).await.expect_err("it is outside");
        assert_eq!(error.kind, ErrorKind::NotFound, "{name}");
    }
    let written = store
        .put(&key("out-directory/new"), body("x"), PutOptions::default())
        .await;
    let error = written.expect_err("it is outside");
    assert_eq!(error.kind, ErrorKind::PermissionDenied);
    assert_eq!(fs::read_dir(outside.path()).expect("it lists").count(), 1);
    put(&store, "to-file", "replaced").await;
    assert_eq!(
        read(&store, "real/deep/file").await.expect("it is there"),
        "content"
    );
}

#[tokio::test]
async fn links_that_lead_up_do_not_make_listings_endless() {
    let (directory, store) = bucket();
    let root = directory.path();
    fs::create_dir_all(root.join("a/b")).expect("it can be made");
    fs::write(root.join("a/b/file"), "x").expect("it can be written");
    symlink("..", root.join("a/b/up")).expect("it can be made");
    symlink(".", root.join("a/b/here")).expect("it can be made");
    symlink("../a", root.join("a/again")).expect("it can be made");
    assert_eq!(all_keys(&store).await, ["a/b/file"]);
    assert_eq!(
        list(&store, delimited("a/b/")).await,
        (vec!["a/b/file".to_owned()], vec![])
    );
}

/// A sink that writes to the file while it is being read.
struct Meddler {
    path: PathBuf,
    body: Vec<u8>,
    memory: [MaybeUninit<u8>; 16],
}

// SAFETY: `unfilled` is the same memory until it is advanced over.
#[allow(unsafe_code)]
unsafe impl BodySink for Meddler {
    fn filled(&self) -> u64 {
        self.body.len() as u64
    }

    fn unfilled(&mut self) -> &mut [MaybeUninit<u8>] {
        &mut self.memory
    }

    unsafe fn advance(&mut self, count: usize) {
        self.body.resize(self.body.len() + count, 0);
        fs::write(&self.path, [b'n'; 64]).expect("it can be written");
    }
}

#[tokio::test]
async fn a_file_that_changes_in_place_is_not_served_as_a_mixture() {
    let (directory, store) = bucket();
    let path = directory.path().join("file");
    fs::write(&path, [b'o'; 64]).expect("it can be written");
    let mut sink = Meddler {
        path,
        body: Vec::new(),
        memory: [MaybeUninit::uninit(); 16],
    };
    let got = store
        .get(&key("file"), GetOptions::default(), &mut sink)
        .await;
    assert_eq!(
        got.expect_err("it changed").kind,
        ErrorKind::PreconditionFailed
    );
}

#[tokio::test]
async fn attributes_of_others_are_no_reason_to_withhold_a_file() {
    let (directory, store) = bucket();
    let path = directory.path().join("file");
    fs::write(&path, "x").expect("it can be written");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&path, "user.penstock", b"not JSON", flags).expect("it can be set");
    assert_eq!(read(&store, "file").await.expect("it is there"), "x");
}
