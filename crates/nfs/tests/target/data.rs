//! READ, WRITE and COMMIT.

use std::sync::{Arc, atomic::Ordering};

use nfs3_types::nfs3::*;

use crate::support::*;

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 % 251) as u8).collect()
}

fn accepting() -> Arc<Shaped> {
    let shape = Shape {
        accepts: true,
        ..Shape::default()
    };
    Arc::new(Shaped::new(shape))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_read_at_any_place_and_size() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    let all = content(3_000_001);
    for (offset, length) in [
        (2 << 20, 902_849),
        (0, 1 << 20),
        (1 << 20, 5),
        ((1 << 20) + 5, 1_048_571),
    ] {
        let bytes = &all[offset..offset + length];
        write(
            &mut client,
            &file,
            (offset as u64, bytes),
            stable_how::UNSTABLE,
        )
        .await
        .unwrap();
    }
    for (offset, count) in [
        (0, 1 << 20),
        (1, 100_000),
        (2_999_999, 1000),
        (123_456, 1 << 20),
    ] {
        let (bytes, eof) = read(&mut client, &file, offset, count).await.unwrap();
        let end = all.len().min(offset as usize + count as usize);
        assert!(bytes == all[offset as usize..end], "{count} at {offset}");
        assert_eq!(eof, end == all.len());
    }
    assert_eq!(
        read(&mut client, &file, 3_000_001, 5).await,
        Ok((Vec::new(), true))
    );
    assert_eq!(
        read(&mut client, &file, u64::MAX, 5).await,
        Ok((Vec::new(), true))
    );
    let (bytes, _) = read(&mut client, &file, 0, 4 << 20).await.unwrap();
    assert_eq!(bytes.len(), 1 << 20, "no more than FSINFO says");
    let found = attributes(&mut client, &file).await.unwrap();
    assert_eq!(found.size, 3_000_001);
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_are_neither_read_nor_written() {
    let target = Target::new().await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let is_directory = nfsstat3::NFS3ERR_ISDIR;
    assert_eq!(read(&mut client, &root, 0, 1).await, Err(is_directory));
    let written = write(&mut client, &root, (0, b"x"), stable_how::UNSTABLE).await;
    assert_eq!(written, Err(is_directory));
    let file = create(&mut client, &root, "file").await;
    let written = write(
        &mut client,
        &file,
        (u64::MAX - 3, b"xxxxx"),
        stable_how::UNSTABLE,
    )
    .await;
    assert_eq!(written, Err(nfsstat3::NFS3ERR_FBIG));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_file_sync_only_when_it_is_durable() {
    let target = Target::over(accepting()).await;
    let (volume, mut client) = (Arc::clone(&target.volume), target.root().await);
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    let (how, _) = write(&mut client, &file, (0, b"a"), stable_how::UNSTABLE)
        .await
        .unwrap();
    assert_eq!(
        (how, volume.syncs.load(Ordering::SeqCst)),
        (stable_how::UNSTABLE, 0)
    );
    for (wanted, syncs) in [(stable_how::DATA_SYNC, 1), (stable_how::FILE_SYNC, 2)] {
        let (how, _) = write(&mut client, &file, (0, b"a"), wanted).await.unwrap();
        assert_eq!(how, stable_how::FILE_SYNC);
        assert_eq!(volume.syncs.load(Ordering::SeqCst), syncs);
    }
    volume.sync_fails.store(true, Ordering::SeqCst);
    let failed = write(&mut client, &file, (0, b"a"), stable_how::FILE_SYNC).await;
    assert_eq!(failed, Err(nfsstat3::NFS3ERR_IO));
    let durable = Target::new().await;
    let mut client = durable.root().await;
    let root = durable.handle().await;
    let file = create(&mut client, &root, "file").await;
    let (how, _) = write(&mut client, &file, (0, b"a"), stable_how::UNSTABLE)
        .await
        .unwrap();
    assert_eq!(how, stable_how::FILE_SYNC, "the volume says so");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_makes_durable_what_was_written_or_fails() {
    let target = Target::over(accepting()).await;
    let (volume, mut client) = (Arc::clone(&target.volume), target.root().await);
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    let (_, verifier) = write(&mut client, &file, (0, b"a"), stable_how::UNSTABLE)
        .await
        .unwrap();
    volume.sync_fails.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let failed = commit(&mut client, &file).await;
        assert_eq!(
            failed,
            Err(nfsstat3::NFS3ERR_IO),
            "as often as it is asked for"
        );
    }
    volume.sync_fails.store(false, Ordering::SeqCst);
    assert_eq!(commit(&mut client, &file).await, Ok(verifier));
    let syncs = volume.syncs.load(Ordering::SeqCst);
    assert_eq!(commit(&mut client, &file).await, Ok(verifier));
    assert_eq!(
        volume.syncs.load(Ordering::SeqCst),
        syncs,
        "nothing was written since"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_verifier_is_the_epoch_of_the_volume() {
    let target = Target::over(accepting()).await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    let (_, verifier) = write(&mut client, &file, (0, b"a"), stable_how::UNSTABLE)
        .await
        .unwrap();
    assert_eq!(verifier, [1, 2, 3, 4, 5, 6, 7, 8]);
    let again = target.again(Making::default()).await;
    let mut other = again.root().await;
    assert_eq!(
        commit(&mut other, &file).await,
        Ok(verifier),
        "another server of the volume"
    );
    target.volume.epoch.store(9, Ordering::SeqCst);
    assert_ne!(commit(&mut other, &file).await, Ok(verifier));
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_that_overtake_each_other_are_written_in_their_order() {
    let shape = Shape {
        random_writes: false,
        ..Shape::default()
    };
    let target = Target::over(Shaped::new(shape).into()).await;
    let mut client = target.root().await;
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    let all = content(50_000);
    let mut pieces: Vec<_> = (0..5).map(|index| index * 10_000).collect();
    pieces.reverse();
    let mut writes = Vec::new();
    for offset in pieces {
        let mut client = target.root().await;
        let (file, bytes) = (file.clone(), all[offset..offset + 10_000].to_vec());
        writes.push(tokio::spawn(async move {
            write(
                &mut client,
                &file,
                (offset as u64, &bytes),
                stable_how::UNSTABLE,
            )
            .await
        }));
    }
    for write in writes {
        write.await.unwrap().unwrap();
    }
    let written = target.volume.written.lock().unwrap().clone();
    assert_eq!(written, [0, 10_000, 20_000, 30_000, 40_000]);
    let (bytes, eof) = read(&mut client, &file, 0, 100_000).await.unwrap();
    assert!(bytes == all && eof);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_opened_once_for_many_requests_and_closed_when_it_is_idle() {
    let target = Target::new().await;
    let (volume, mut client) = (Arc::clone(&target.volume), target.root().await);
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    for offset in 0..20 {
        write(&mut client, &file, (offset, b"a"), stable_how::UNSTABLE)
            .await
            .unwrap();
        read(&mut client, &file, offset, 1).await.unwrap();
    }
    assert_eq!(volume.opens.load(Ordering::SeqCst), 2);
    until("the reader is closed", || {
        volume.releases.load(Ordering::SeqCst) == 1
    })
    .await;
    assert_eq!(read(&mut client, &file, 0, 1).await.unwrap().0, b"a");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_closed_and_given_back_at_the_end() {
    let target = Target::new().await;
    let (volume, mut client) = (Arc::clone(&target.volume), target.root().await);
    let root = target.handle().await;
    let directory = make_directory(&mut client, &root, "directory").await;
    let file = create(&mut client, &directory, "file").await;
    write(&mut client, &file, (0, b"a"), stable_how::UNSTABLE)
        .await
        .unwrap();
    read(&mut client, &file, 0, 1).await.unwrap();
    names(&mut client, &root, 4096).await;
    remove(&mut client, &directory, "none").await;
    let mut silent = RawClient::new(&target).await;
    let unsaved = target.server.leave(std::time::Duration::from_secs(5)).await;
    assert!(unsaved.is_empty());
    assert_eq!(volume.releases.load(Ordering::SeqCst), 2);
    assert_eq!(volume.references.load(Ordering::SeqCst), 0);
    assert!(target.server.ended().await.is_empty());
    let closed = silent.receive().await;
    assert_eq!(closed, None, "its connection is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_grows_while_it_is_read_does_not_end_where_it_was_read_to() {
    let target = Target::new().await;
    let (mut client, mut other) = (target.root().await, target.root().await);
    let root = target.handle().await;
    let file = create(&mut client, &root, "file").await;
    let all = content(300);
    write(&mut client, &file, (0, &all[..100]), stable_how::UNSTABLE)
        .await
        .unwrap();
    target.volume.hold_reads(true);
    let begun = || target.volume.begun.load(Ordering::SeqCst);
    let before = begun();
    let read = READ3args {
        file: file.clone(),
        offset: 0,
        count: 200,
    };
    let reading = tokio::spawn(async move { other.read(&read).await });
    until("it is being read", || begun() > before).await;
    write(&mut client, &file, (100, &all[100..]), stable_how::UNSTABLE)
        .await
        .unwrap();
    target.volume.hold_reads(false);
    let read = reading.await.unwrap().unwrap().unwrap();
    assert!(read.data.as_ref() == &all[..200]);
    assert!(!read.eof, "there are 100 bytes more");
    assert_eq!(read.file_attributes.unwrap().size, 300);
}
