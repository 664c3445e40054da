//! Appends that are cut short, and what others see of them.

use super::*;

async fn append(store: &LocalStore, position: u64, text: &str) -> ObjectResult<Appended> {
    let (key, options) = (key("dir/log"), PutOptions::default());
    store.append(&key, position, body(text), options).await
}

/// What a process that was killed in the middle of an append leaves.
fn die_in_an_append(store: &LocalStore, text: &str) {
    let appends = store
        .private
        .directory(store.tree.root(), APPENDS)
        .expect("it is there");
    append::leave_half_an_append(&store.tree, appends, &key("dir/log"), text.as_bytes())
        .expect("it can be written");
}

#[tokio::test]
async fn opening_the_bucket_takes_back_half_an_append() {
    let (directory, store) = bucket();
    append(&store, 0, "whole").await.expect("it begins");
    die_in_an_append(&store, "hal");
    assert_eq!(
        read(&store, "dir/log").await.expect("it is there"),
        "wholehal"
    );
    drop(store);
    let store = open(directory.path());
    assert_eq!(read(&store, "dir/log").await.expect("it is there"), "whole");
    assert!(paths(&directory.path().join(".penstock/appends")).is_empty());
    append(&store, 5, " again").await.expect("it grows");
    assert_eq!(
        read(&store, "dir/log").await.expect("it is there"),
        "whole again"
    );
}

#[tokio::test]
async fn the_next_append_takes_back_half_an_append() {
    let (directory, store) = bucket();
    append(&store, 0, "whole").await.expect("it begins");
    die_in_an_append(&store, "hal");
    append(&store, 5, " again").await.expect("it grows");
    assert_eq!(
        read(&store, "dir/log").await.expect("it is there"),
        "whole again"
    );
    drop(store);
    let store = open(directory.path());
    assert_eq!(
        read(&store, "dir/log").await.expect("it is there"),
        "whole again"
    );
}

#[tokio::test]
async fn a_record_about_an_object_that_is_gone_harms_none() {
    let (directory, store) = bucket();
    append(&store, 0, "whole").await.expect("it begins");
    die_in_an_append(&store, "hal");
    put(&store, "dir/log", "written anew").await;
    drop(store);
    let store = open(directory.path());
    assert_eq!(
        read(&store, "dir/log").await.expect("it is there"),
        "written anew"
    );
    assert!(paths(&directory.path().join(".penstock/appends")).is_empty());
}

#[tokio::test]
async fn an_append_of_a_living_process_is_left_alone() {
    let (directory, store) = bucket();
    append(&store, 0, "whole").await.expect("it begins");
    let held = append::Growing::hold(&store.tree, &Location::of(&key("dir/log")));
    let _held = held.expect("it can be held").expect("it is there");
    let other = open(directory.path());
    let refused = append(&other, 5, "x")
        .await
        .expect_err("somebody else appends");
    assert_eq!(refused.kind, ErrorKind::Unavailable);
}

/// A child has all files open until it is a program, and with them their locks.
#[tokio::test]
async fn appends_do_not_wait_for_programs_that_are_started() {
    const APPENDS: u64 = 1000;
    let (_directory, store) = bucket();
    let done = std::sync::atomic::AtomicBool::new(false);
    let start_programs = || {
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            let ended = std::process::Command::new("true").status();
            assert!(ended.expect("it starts").success());
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(start_programs);
        scope.spawn(start_programs);
        let grown = (0..APPENDS).try_for_each(|position| {
            let grown = futures_util::FutureExt::now_or_never(append(&store, position, "x"));
            grown.expect("it does not wait").map(drop)
        });
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        grown.expect("every append is done");
    });
}

#[tokio::test]
async fn readers_see_the_version_before_until_an_append_is_done() {
    let (_directory, store) = bucket();
    append(&store, 0, "whole").await.expect("it begins");
    let before = store
        .head(&key("dir/log"), HeadOptions {})
        .await
        .expect("it is there");
    let (_, version) = store
        .tree
        .object(&Location::of(&key("dir/log")), rustix::fs::OFlags::RDONLY)
        .expect("it is there");
    let held_back = store.tree.hold_back(version);
    die_in_an_append(&store, "hal");
    let during = store
        .head(&key("dir/log"), HeadOptions {})
        .await
        .expect("it is there");
    assert_eq!(during, before);
    assert_eq!(read(&store, "dir/log").await.expect("it is there"), "whole");
    let page = store.list(ListOptions::default()).await.expect("it lists");
    assert_eq!(
        (page.objects[0].size, &page.objects[0].etag),
        (5, &before.etag)
    );
    drop(held_back);
    assert_eq!(
        read(&store, "dir/log").await.expect("it is there"),
        "wholehal"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_appends_lose_nothing() {
    const WRITERS: usize = 4;
    const PIECES: usize = 20;
    let (_directory, store) = bucket();
    let store = Arc::new(store);
    append(&store, 0, "").await.expect("it begins");
    let writers = (0..WRITERS).map(|writer| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let piece = format!("{writer}").repeat(10);
            let mut position = 0;
            for _ in 0..PIECES {
                loop {
                    match append(&store, position, &piece).await {
                        Ok(appended) => break position = appended.next_position,
                        Err(error) => assert_eq!(error.kind, ErrorKind::PositionMismatch),
                    }
                    let info = store.head(&key("dir/log"), HeadOptions {}).await;
                    position = info.expect("it is there").size;
                }
            }
        })
    });
    for writer in futures_util::future::join_all(writers).await {
        writer.expect("no writer failed");
    }
    let text = read(&store, "dir/log").await.expect("it is there");
    assert_eq!(text.len(), WRITERS * PIECES * 10);
    let whole = |piece: &[u8]| piece.iter().all(|byte| *byte == piece[0]);
    assert!(text.as_bytes().chunks(10).all(whole), "a mixture: {text}");
}
