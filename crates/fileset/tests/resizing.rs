//! What becomes of a file whose size is changed while others write to it, or when the disk has no room for that.

#![allow(clippy::unwrap_used)]

mod support;

use std::{sync::Arc, time::Duration};

use penstock_base::{FsError, clock};
use penstock_fileset::BLOCK_SIZE;
use penstock_vfs::{Allocation, AttributeChanges, HandleId, Inode, OpenOptions, WritePlace};

use support::{Gate, Place, ROOT, file};

/// A file with this content, saved, and a handle of it.
async fn saved(content: &[u8]) -> (Place, Arc<Gate>, Inode, HandleId) {
    let (place, gate) = Place::gated().await;
    let inode = place.make(ROOT, "file", file(0o644)).await.unwrap();
    let handle = place.open(inode, OpenOptions::READ_WRITE).await.unwrap();
    write(&place, handle, (0, content)).await;
    place.sync(handle).await.unwrap();
    (place, gate, inode, handle)
}

async fn write(place: &Place, handle: HandleId, (offset, data): (u64, &[u8])) {
    let written = place.write(handle, WritePlace::At(offset), data);
    written.await.unwrap();
}

async fn cut(place: &Place, inode: Inode, size: u64) -> Result<(), FsError> {
    let changes = AttributeChanges {
        size: Some(size),
        ..AttributeChanges::default()
    };
    place.change(inode, changes).await.map(drop)
}

/// What is read now, and once it is saved.
async fn expect(place: &Place, handle: HandleId, content: &[u8]) {
    let length = content.len() as u32 + 100;
    let read = place.read(handle, 0, length).await.unwrap();
    assert!(read == content, "{} bytes", read.len());
    place.sync(handle).await.unwrap();
    let read = place.read(handle, 0, length).await.unwrap();
    assert!(read == content, "{} bytes, once saved", read.len());
}

async fn end(place: &Place, handle: HandleId) {
    place.close(handle).await.unwrap();
    place.is_whole().await;
}

/// The file was empty to who looked, and what had been in it came back when it grew.
#[tokio::test]
async fn a_file_that_could_not_be_cut_has_its_size_and_its_bytes() {
    let (place, gate, inode, handle) = saved(&[1; 100]).await;
    gate.refuse(1);
    assert_eq!(cut(&place, inode, 0).await, Err(FsError::NoSpace));
    assert_eq!(place.attributes(inode).await.size, 100);
    write(&place, handle, (0, &[2; 10])).await;
    let expected = [vec![2; 10], vec![1; 90]].concat();
    expect(&place, handle, &expected).await;
    end(&place, handle).await;
}

#[tokio::test]
async fn a_cut_that_fails_takes_away_nothing_that_was_written_and_not_saved() {
    let (place, gate, inode, handle) = saved(&[1; 100]).await;
    write(&place, handle, (40, &[2; 100])).await;
    for size in [50, 10] {
        gate.refuse(1);
        assert_eq!(cut(&place, inode, size).await, Err(FsError::NoSpace));
    }
    let expected = [vec![1; 40], vec![2; 100]].concat();
    expect(&place, handle, &expected).await;
    end(&place, handle).await;
}

#[tokio::test]
async fn a_cut_that_fails_between_its_steps_leaves_a_file_that_was_cut_less() {
    let (place, gate, inode, handle) = saved(&[]).await;
    for chunk in 0..2500 {
        write(&place, handle, (chunk * BLOCK_SIZE, b"x")).await;
    }
    place.sync(handle).await.unwrap();
    // The first one finds more than a step.
    gate.refuse(3);
    assert_eq!(cut(&place, inode, 0).await, Err(FsError::NoSpace));
    assert_eq!(place.attributes(inode).await.size, 1500 * BLOCK_SIZE);
    cut(&place, inode, 1).await.unwrap();
    expect(&place, handle, b"x").await;
    end(&place, handle).await;
}

#[tokio::test]
async fn a_hole_that_could_not_be_made_takes_away_nothing_that_was_written_and_not_saved() {
    let (place, gate, _, handle) = saved(&[1; 100]).await;
    write(&place, handle, (40, &[2; 20])).await;
    gate.refuse(1);
    let punched = place.allocate(handle, 30..50, Allocation::PunchHole);
    assert_eq!(punched.await, Err(FsError::NoSpace));
    let expected = [vec![1; 40], vec![2; 20], vec![1; 40]].concat();
    expect(&place, handle, &expected).await;
    end(&place, handle).await;
}

/// The size was looked at, a save was waited for, and then the file was cut to what was to be reserved.
#[tokio::test]
async fn room_that_is_reserved_cuts_off_nothing_that_others_write_meanwhile() {
    let (place, gate, _, handle) = saved(&[1; 10]).await;
    write(&place, handle, (0, &[2; 10])).await;
    gate.hold(1);
    let by = place.clone();
    let saving = tokio::spawn(async move { by.sync(handle).await });
    gate.reached.notified().await;
    let by = place.clone();
    let reserving = tokio::spawn(async move {
        let keep_size = false;
        let reserved = by.allocate(handle, 0..20, Allocation::Reserve { keep_size });
        reserved.await
    });
    clock::sleep(Duration::from_millis(50)).await;
    write(&place, handle, (10, &[3; 90])).await;
    gate.go_on();
    saving.await.unwrap().unwrap();
    reserving.await.unwrap().unwrap();
    let expected = [vec![2; 10], vec![3; 90]].concat();
    expect(&place, handle, &expected).await;
    end(&place, handle).await;
}
