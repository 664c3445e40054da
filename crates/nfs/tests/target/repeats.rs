//! Calls that come again.

use std::sync::atomic::Ordering;

use nfs3_types::{
    nfs3::{MKDIR3args, REMOVE3args, RENAME3args, WRITE3args, nfs_fh3, stable_how},
    xdr_codec::Opaque,
};

use crate::support::*;

const NFS: u32 = 100_003;

fn removal(xid: u32, root: &nfs_fh3) -> Vec<u8> {
    let arguments = REMOVE3args {
        object: place(root, "file"),
    };
    record(&call_bytes(
        xid,
        (NFS, 3, 12),
        credential(0, 0, &[]),
        &arguments,
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_has_the_answer_of_the_first_also_over_another_connection() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    create(&mut client, &root, "file").await;
    let mut raw = RawClient::new(&target).await;
    raw.send(&removal(7, &root)).await;
    let first = raw.receive().await.unwrap();
    let mut other = RawClient::new(&target).await;
    for client in [&mut raw, &mut other] {
        client.send(&removal(7, &root)).await;
        assert_eq!(client.receive().await.as_ref(), Some(&first));
    }
    assert_eq!(target.volume.begun.load(Ordering::SeqCst), 1);
    assert_eq!(target.metric("nfs_repeated_total"), 2);
    raw.send(&removal(8, &root)).await;
    assert_eq!(raw.words().await[6], 2, "another call finds nothing");
}

/// Bytes of a call that changes names, as a client sends them again to whom it finds.
fn change<T: nfs3_types::xdr_codec::Pack>(xid: u32, procedure: u32, arguments: &T) -> Vec<u8> {
    let program = (NFS, 3, procedure);
    record(&call_bytes(xid, program, credential(0, 0, &[]), arguments))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_target_changed_that_died_another_one_does_not_change_again() {
    let target = Target::new().await;
    let root = target.handle().await;
    let in_root = |text| place(&root, text);
    let mkdir = |text| MKDIR3args {
        where_: in_root(text),
        attributes: mode(0o755),
    };
    let removal = |text| REMOVE3args {
        object: in_root(text),
    };
    let rename = RENAME3args {
        from: in_root("two"),
        to: in_root("three"),
    };
    let mut client = target.root().await;
    create(&mut client, &root, "file").await;
    create(&mut client, &root, "two").await;
    let calls = [
        change(1, 9, &mkdir("one")),
        change(2, 12, &removal("file")),
        change(3, 14, &rename),
    ];
    let mut raw = RawClient::new(&target).await;
    for call in &calls {
        raw.send(call).await;
        assert_eq!(raw.words().await[6], 0);
    }
    // Somebody else made files of these names meanwhile.
    create(&mut client, &root, "file").await;
    create(&mut client, &root, "two").await;

    let other = target.again(Making::default()).await;
    let mut raw = RawClient::new(&other).await;
    for call in &calls {
        raw.send(call).await;
        assert_eq!(raw.words().await[6], 0, "as the first answered");
    }
    let found = names(&mut client, &root, 4096).await;
    assert_eq!(found, [".", "..", "file", "one", "three", "two"]);
    raw.send(&change(4, 9, &mkdir("one"))).await;
    assert_eq!(raw.words().await[6], 17, "another call finds it there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_waits_while_the_first_is_carried_out() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    create(&mut client, &root, "file").await;
    target.volume.hold_removals(true);
    let (mut first, mut second) = (RawClient::new(&target).await, RawClient::new(&target).await);
    first.send(&removal(7, &root)).await;
    until("it is begun", || {
        target.volume.begun.load(Ordering::SeqCst) == 1
    })
    .await;
    second.send(&removal(7, &root)).await;
    // What is asked after it on the same connection is answered before it.
    let null = call_bytes(
        9,
        (NFS, 3, 0),
        credential(0, 0, &[]),
        &nfs3_types::xdr_codec::Void,
    );
    second.send(&record(&null)).await;
    assert_eq!(second.words().await[0], 9);
    target.volume.hold_removals(false);
    let (first, second) = (first.receive().await, second.receive().await);
    assert!(first.is_some() && first == second);
    assert_eq!(target.volume.begun.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_goes_on_when_its_client_has_gone() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    create(&mut client, &root, "file").await;
    target.volume.hold_removals(true);
    let mut raw = RawClient::new(&target).await;
    raw.send(&removal(7, &root)).await;
    until("it is begun", || {
        target.volume.begun.load(Ordering::SeqCst) == 1
    })
    .await;
    drop(raw);
    target.volume.hold_removals(false);
    let mut again = RawClient::new(&target).await;
    again.send(&removal(7, &root)).await;
    assert_eq!(again.words().await[6], 0, "it was removed, by the first");
    assert_eq!(target.volume.begun.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_number_with_other_arguments_is_another_call() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    create(&mut client, &root, "one").await;
    create(&mut client, &root, "two").await;
    let mut raw = RawClient::new(&target).await;
    for from in ["one", "two"] {
        let arguments = RENAME3args {
            from: place(&root, from),
            to: place(&root, &format!("new {from}")),
        };
        let call = call_bytes(7, (NFS, 3, 14), credential(0, 0, &[]), &arguments);
        raw.send(&record(&call)).await;
        assert_eq!(raw.words().await[6], 0);
    }
    let found = names(&mut client, &root, 4096).await;
    assert_eq!(found, [".", "..", "new one", "new two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_repeated_never_undoes_what_was_written_since() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    let old = WRITE3args {
        file: file.clone(),
        offset: 0,
        count: 5000,
        stable: stable_how::UNSTABLE,
        data: Opaque::owned(vec![b'a'; 5000]),
    };
    let old = record(&call_bytes(7, (NFS, 3, 7), credential(0, 0, &[]), &old));
    target.volume.hold_writes(true);
    let (mut first, mut second) = (RawClient::new(&target).await, RawClient::new(&target).await);
    first.send(&old).await;
    let begun = || target.volume.begun.load(Ordering::SeqCst);
    until("it is begun", || begun() == 1).await;
    second.send(&old).await;
    target.volume.hold_writes(false);
    assert_eq!(first.receive().await, second.receive().await);
    let new = vec![b'b'; 5000];
    write(&mut client, &file, (0, &new), stable_how::UNSTABLE)
        .await
        .unwrap();
    second.send(&old).await;
    assert_eq!(second.words().await[6], 0);
    assert_eq!(read(&mut client, &file, 0, 5000).await, Ok((new, true)));
    assert_eq!(target.volume.written.lock().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_number_with_other_content_is_another_write() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    // One that comes in one piece, and those whose content is received apart.
    for length in [100, 5000, 1 << 20] {
        // Each connection of a client counts for itself, and two of them may do so side by side.
        for byte in [b'a', b'b'] {
            let all = WRITE3args {
                file: file.clone(),
                offset: 0,
                count: length,
                stable: stable_how::UNSTABLE,
                data: Opaque::owned(vec![byte; length as usize]),
            };
            let call = call_bytes(length, (NFS, 3, 7), credential(0, 0, &[]), &all);
            let mut raw = RawClient::new(&target).await;
            raw.send(&record(&call)).await;
            assert_eq!(raw.words().await[6], 0);
            let found = read(&mut client, &file, 0, length).await.unwrap();
            assert!(
                found.0 == vec![byte; length as usize],
                "{length} of {byte} were not written"
            );
        }
    }
}
