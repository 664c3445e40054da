//! Two processes in one directory, played by two stores that share nothing.

use futures_util::future::join_all;

use super::*;

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
