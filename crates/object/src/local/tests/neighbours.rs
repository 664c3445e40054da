//! Two processes in one directory, played by two stores that share nothing.

use futures_util::{FutureExt, future::join_all};

use super::*;

/// Runs what never waits: every operation of a local store ends in one go.
fn block_on<T>(operation: impl Future<Output = T>) -> T {
    operation.now_or_never().expect("it does not wait")
}

/// Objects that lie in each other's way: each is a directory of the next.
const CHAIN: [&str; 4] = ["a", "a/b", "a/b/c", "a/"];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writes_through_two_stores_do_not_lose_each_other() {
    const ROUNDS: usize = 60;
    let (directory, one) = bucket();
    let one = Arc::new(one);
    let two = Arc::new(open(directory.path()));
    for round in 0..ROUNDS {
        let writers = CHAIN.into_iter().enumerate().map(|(index, name)| {
            let store = Arc::clone(if (index + round) % 2 == 0 { &one } else { &two });
            tokio::spawn(async move {
                put(&store, name, name).await;
                assert_eq!(read(&store, name).await.expect("it was just written"), name);
            })
        });
        for writer in join_all(writers).await {
            writer.expect("no writer failed");
        }
        for name in CHAIN {
            assert_eq!(
                read(&one, name).await.expect("it is there"),
                name,
                "round {round}"
            );
        }
        assert_eq!(all_keys(&two).await, ["a", "a/", "a/b", "a/b/c"]);
        let removers = CHAIN.into_iter().enumerate().map(|(index, name)| {
            let store = Arc::clone(if index % 2 == 0 { &one } else { &two });
            tokio::spawn(async move { store.delete(&key(name)).await })
        });
        for removed in join_all(removers).await {
            removed.expect("no task failed").expect("deleting works");
        }
        assert!(all_keys(&one).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_directory_that_is_emptied_takes_no_new_object_with_it() {
    const ROUNDS: usize = 300;
    let (directory, one) = bucket();
    let one = Arc::new(one);
    let two = Arc::new(open(directory.path()));
    for round in 0..ROUNDS {
        put(&one, "d/e/old", "old").await;
        let name = format!("d/e/new-{round}");
        let (writer, remover) = (Arc::clone(&one), Arc::clone(&two));
        let written = tokio::spawn({
            let name = name.clone();
            async move { put(&writer, &name, "new").await }
        });
        let removed = tokio::spawn(async move { remover.delete(&key("d/e/old")).await });
        written.await.expect("the writer succeeds");
        removed
            .await
            .expect("no task failed")
            .expect("deleting works");
        assert_eq!(all_keys(&one).await, [&name[..]]);
        two.delete(&key(&name)).await.expect("deleting works");
    }
}

/// How long two threads get in each other's way.
const STRUGGLE: Duration = Duration::from_millis(700);

/// Runs `disturb` over and over on a thread of its own while `observe` runs over and over here.
#[allow(clippy::disallowed_methods)]
fn struggle(disturb: impl Fn(u64) + Sync, mut observe: impl FnMut()) {
    let end = penstock_base::clock::now() + STRUGGLE;
    let goes_on = || penstock_base::clock::now() < end;
    std::thread::scope(|scope| {
        scope.spawn(|| (0..).take_while(|_| goes_on()).for_each(&disturb));
        while goes_on() {
            observe();
        }
    });
}

#[test]
fn listings_while_directories_come_and_go_show_what_stays() {
    let (directory, one) = bucket();
    let two = open(directory.path());
    block_on(async {
        put(&one, "d/e/stays", "x").await;
        put(&one, "z", "x").await;
    });
    let disturb = |round: u64| {
        let name = ["d/a/b/c", "d/e/f/g", "y/x/w"][round as usize % 3];
        block_on(async {
            put(&two, name, "x").await;
            two.delete(&key(name)).await.expect("deleting works");
        });
    };
    struggle(disturb, || {
        block_on(async {
            let keys = all_keys(&one).await;
            for stays in ["d/e/stays", "z"] {
                assert!(keys.iter().any(|key| key == stays), "{keys:?}");
            }
            let delimited = ListOptions {
                delimited: true,
                ..ListOptions::default()
            };
            let (keys, prefixes) = list(&one, delimited).await;
            assert_eq!(keys, ["z"]);
            assert_eq!(prefixes[0], "d/", "{prefixes:?}");
        });
    });
}

#[test]
fn what_is_removed_while_its_name_becomes_a_directory_does_not_come_back() {
    let (_directory, store) = bucket();
    let disturb = |_| {
        block_on(async {
            put(&store, "a/b", "x").await;
            store.delete(&key("a/b")).await.expect("deleting works");
        });
    };
    struggle(disturb, || {
        block_on(async {
            put(&store, "a", "x").await;
            store.delete(&key("a")).await.expect("deleting works");
            let found = store.head(&key("a"), HeadOptions::default()).await;
            let kind = found.map_err(|error| error.kind).map(|_| ());
            assert_eq!(kind, Err(ErrorKind::NotFound));
        });
    });
}
