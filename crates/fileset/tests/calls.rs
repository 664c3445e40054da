//! Calls in which names are changed, and which come again: after a crash, or to another machine.

#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    dead_code,
    unused_imports,
    unused_macros
)]

#[path = "database/mod.rs"]
mod database;
#[path = "quotas/ground.rs"]
mod ground;
mod support;

use penstock_base::FsError;
use penstock_vfs::{CallId, Identity, RemoveKind, RenameMode, Volume};

use ground::{keys, two_in_memory, two_on_a_database};
use support::{Place, ROOT, directory, file};

fn call(number: u32) -> Identity {
    Identity {
        call: Some(CallId {
            client: [7; 16],
            number,
            sum: 1,
        }),
        ..Identity::root()
    }
}

/// A call that was carried out by the first machine finds itself on the second one.
async fn is_carried_out_once([first, second]: [Place; 2]) {
    first.make(ROOT, "file", file(0o644)).await.unwrap();
    let removal = [first.by(call(1)), second.by(call(1))];
    let [by_first, by_second] = &removal;
    let remove = async |place: &Place| place.remove(ROOT, "file", RemoveKind::File).await;
    remove(by_first).await.unwrap();
    let new = first.make(ROOT, "file", file(0o600)).await.unwrap();
    remove(by_second).await.unwrap();
    assert_eq!(second.find(ROOT, "file").await.unwrap().inode, new);
    second
        .by(call(2))
        .remove(ROOT, "file", RemoveKind::File)
        .await
        .unwrap();
    // It hears of that in a moment.
    let is_gone = || async { first.find(ROOT, "file").await.is_err() };
    first.until(is_gone).await;
}

/// Both machines carry a call out at the same time, as when one is believed to be dead.
async fn is_one_change_on_both([first, second]: [Place; 2]) {
    for number in 0..30 {
        let name = format!("directory {number}");
        let (first, second) = (first.by(call(number)), second.by(call(number)));
        let (one, other) = tokio::join!(
            first.make(ROOT, &name, directory(0o755)),
            second.make(ROOT, &name, directory(0o755)),
        );
        assert_eq!(one.unwrap(), other.unwrap(), "{number}");
    }
    let again = second.make(ROOT, "directory 0", directory(0o755)).await;
    assert_eq!(again, Err(FsError::AlreadyExists), "in no call");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_another_machine_carried_out_changes_nothing() {
    is_carried_out_once(two_in_memory().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_another_machine_carried_out_changes_nothing_on_a_database() {
    let (places, _own) = two_on_a_database().await;
    is_carried_out_once(places).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_two_machines_carry_out_at_once_is_one_change() {
    is_one_change_on_both(two_in_memory().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_two_machines_carry_out_at_once_is_one_change_on_a_database() {
    let (places, _own) = two_on_a_database().await;
    is_one_change_on_both(places).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_known_after_a_crash() {
    let mut place = Place::new().await;
    let made = place.by(call(1)).make(ROOT, "new", directory(0o755)).await;
    place.crash().await;
    let again = place.by(call(1)).make(ROOT, "new", directory(0o755)).await;
    assert_eq!(again, made);
    let number = call(1).call.unwrap();
    assert!(place.volume.knows_call(&number).await.unwrap());
    place.is_whole().await;
}

/// A client that begins with the same numbers each time asks for the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_file_has_gone_makes_it_anew() {
    let place = Place::new().await;
    let make = async || place.by(call(1)).make(ROOT, "new", file(0o644)).await;
    let first = make().await.unwrap();
    place
        .rename((ROOT, "new"), (ROOT, "old"), RenameMode::Replace)
        .await
        .unwrap();
    let second = make().await.unwrap();
    assert_ne!(first, second);
    assert_eq!(make().await, Ok(second), "a repeat of the second");
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_calls_are_kept_as_a_server_has_under_way() {
    let place = ground::on_memory().await;
    for number in 0..9000 {
        let asked = place.by(call(number));
        match number % 2 {
            0 => drop(asked.make(ROOT, "name", directory(0o755)).await.unwrap()),
            _ => asked
                .remove(ROOT, "name", RemoveKind::Directory)
                .await
                .unwrap(),
        }
    }
    let kept = keys(&*place.engine, b"r").await;
    assert!((8192..8192 + 512).contains(&kept), "{kept}");
    let knows = async |number| {
        let id = call(number).call.unwrap();
        place.volume.knows_call(&id).await.unwrap()
    };
    assert!(!knows(0).await && knows(9000 - 8192).await && knows(8999).await);
}
