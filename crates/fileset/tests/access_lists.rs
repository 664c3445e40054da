//! Access lists of a fileset: they and modes say the same, are handed down, and decide who may do what.

#![allow(clippy::unwrap_used)]

mod support;
mod trees;

use std::sync::Arc;

use bytes::Bytes;
use penstock_base::{FsError, FsResult};
use penstock_fileset::{
    check::{apply, check, plan},
    engine::transact,
    format_of,
};
use penstock_vfs::{
    AttributeChanges, FileKind, Identity, Inode, New, NewKind, OpenOptions, RemoveKind, RenameMode,
    SpecialFile, Volume, XattrMode,
};

use support::{Place, ROOT, directory, file, user};
use trees::{ACCESS, DEFAULT, list, seen};

async fn set(place: &Place, inode: Inode, list: (&str, &[u8])) {
    let set = place.set_xattr(inode, list.0, list.1, XattrMode::Set);
    set.await.unwrap();
}

async fn value(place: &Place, inode: Inode, kind: &str) -> FsResult<Bytes> {
    let by = user(0);
    place.volume.xattr(&by, inode, kind.as_bytes()).await
}

async fn chmod(place: &Place, inode: Inode, permissions: u16) {
    let changes = AttributeChanges {
        permissions: Some(permissions),
        ..AttributeChanges::default()
    };
    place.change(inode, changes).await.unwrap();
}

async fn mode(place: &Place, inode: Inode) -> u16 {
    place.attributes(inode).await.permissions
}

#[tokio::test]
async fn a_list_changes_the_mode_and_the_mode_the_list() {
    let place = Place::new().await;
    let made = place.make(ROOT, "file", file(0o4600)).await.unwrap();
    assert_eq!(value(&place, made, ACCESS).await, Err(FsError::NoAttribute));
    set(&place, made, (ACCESS, &list(&[(7, 6)]))).await;
    assert_eq!(mode(&place, made).await, 0o4760);
    assert_eq!(place.xattrs(made).await.unwrap(), [ACCESS]);
    chmod(&place, made, 0o640).await;
    let followed = value(&place, made, ACCESS).await.unwrap();
    // Owner and others by the mode, the mask by what it says of the group, and nobody else.
    assert_eq!(followed[..8], [2, 0, 0, 0, 1, 0, 6, 0]);
    assert_eq!(followed[12..16], [2, 0, 6, 0]);
    assert_eq!(followed[20..24], [4, 0, 4, 0]);
    assert_eq!(followed[28..32], [0x10, 0, 4, 0]);
    assert_eq!(followed[36..40], [0x20, 0, 0, 0]);
    place
        .volume
        .remove_xattr(&user(0), made, ACCESS.as_bytes())
        .await
        .unwrap();
    assert_eq!(mode(&place, made).await, 0o640);
    place
        .volume
        .remove_xattr(&user(0), made, ACCESS.as_bytes())
        .await
        .unwrap();
    assert!(place.xattrs(made).await.unwrap().is_empty());
    let changed = place.attributes(made).await.changed;
    let plain = [
        &2_u32.to_le_bytes()[..],
        &list(&[])[4..20],
        &list(&[])[28..],
    ]
    .concat();
    set(&place, made, (ACCESS, &plain)).await;
    assert_eq!(mode(&place, made).await, 0o740);
    assert!(
        place.xattrs(made).await.unwrap().is_empty(),
        "the mode says it all"
    );
    assert!(place.attributes(made).await.changed > changed);
    place.is_whole().await;
}

#[tokio::test]
async fn who_may_do_what_is_what_the_list_says() {
    let place = Place::new().await;
    place.store(ROOT, "file", b"content").await.unwrap();
    let found = place.find(ROOT, "file").await.unwrap().inode;
    set(&place, found, (ACCESS, &list(&[(7, 4), (8, 0)]))).await;
    let opens = async |uid, options| {
        let place = place.by(user(uid));
        let opened = place.open(found, options).await?;
        place.close(opened).await
    };
    assert_eq!(opens(7, OpenOptions::READ).await, Ok(()));
    for (uid, options) in [
        (7, OpenOptions::WRITE),
        (8, OpenOptions::READ),
        (9, OpenOptions::READ),
    ] {
        assert_eq!(opens(uid, options).await, Err(FsError::PermissionDenied));
    }
    let shared = place.make(ROOT, "shared", directory(0o700)).await.unwrap();
    set(&place, shared, (ACCESS, &list(&[(7, 7), (8, 5)]))).await;
    let (writer, reader) = (place.by(user(7)), place.by(user(8)));
    writer.store(shared, "new", b"x").await.unwrap();
    assert!(reader.find(shared, "new").await.is_ok());
    let refused = reader.make(shared, "another", file(0o600)).await;
    assert_eq!(refused, Err(FsError::PermissionDenied));
    let refused = reader.remove(shared, "new", RemoveKind::File).await;
    assert_eq!(refused, Err(FsError::PermissionDenied));
    let refused = reader.rename((shared, "new"), (shared, "old"), RenameMode::Replace);
    assert_eq!(refused.await, Err(FsError::PermissionDenied));
    let stranger = place.by(user(9)).find(shared, "new").await;
    assert_eq!(stranger, Err(FsError::PermissionDenied));
    writer
        .remove(shared, "new", RemoveKind::File)
        .await
        .unwrap();
    let plain = list(&[]);
    let refused = writer.set_xattr(shared, ACCESS, &plain, XattrMode::Set);
    assert!(
        matches!(refused.await, Err(FsError::NotPermitted(_))),
        "it is root's"
    );
    place.is_whole().await;
}

#[tokio::test]
async fn a_directory_hands_its_default_list_down() {
    let place = Place::new().await;
    let above = place.make(ROOT, "above", directory(0o755)).await.unwrap();
    let umask = |new: New<'static>| New {
        umask: 0o077,
        ..new
    };
    let masked = place
        .make(above, "masked", umask(file(0o666)))
        .await
        .unwrap();
    assert_eq!(mode(&place, masked).await, 0o600);
    let handed_down = list(&[(7, 6)]);
    set(&place, above, (DEFAULT, &handed_down)).await;
    assert_eq!(
        mode(&place, above).await,
        0o755,
        "it says nothing of the directory itself"
    );
    let made = place.make(above, "file", umask(file(0o664))).await.unwrap();
    assert_eq!(mode(&place, made).await, 0o660);
    assert!(
        place
            .by(user(7))
            .open(made, OpenOptions::READ_WRITE)
            .await
            .is_ok()
    );
    assert_eq!(
        value(&place, made, DEFAULT).await,
        Err(FsError::NoAttribute)
    );
    let pipe = New {
        kind: NewKind::Special(SpecialFile::Pipe),
        ..umask(file(0o620))
    };
    let pipe = place.make(above, "pipe", pipe).await.unwrap();
    assert_eq!(mode(&place, pipe).await, 0o620);
    let link = New {
        kind: NewKind::Symlink(b"file"),
        ..umask(file(0o777))
    };
    let link = place.make(above, "link", link).await.unwrap();
    assert_eq!(mode(&place, link).await, 0o777);
    assert!(place.xattrs(link).await.unwrap().is_empty());
    let below = place
        .make(above, "below", umask(directory(0o777)))
        .await
        .unwrap();
    assert_eq!(value(&place, below, DEFAULT).await.unwrap(), handed_down);
    assert_eq!(mode(&place, below).await, 0o760);
    let deeper = place
        .make(below, "deeper", umask(file(0o600)))
        .await
        .unwrap();
    // Who makes it private masks all who are named.
    assert_eq!(mode(&place, deeper).await, 0o600);
    let refused = place.by(user(7)).open(deeper, OpenOptions::READ).await;
    assert_eq!(refused, Err(FsError::PermissionDenied));
    place
        .volume
        .remove_xattr(&user(0), above, DEFAULT.as_bytes())
        .await
        .unwrap();
    let plain = place
        .make(above, "plain", umask(file(0o666)))
        .await
        .unwrap();
    assert_eq!(mode(&place, plain).await, 0o600);
    place.is_whole().await;
}

#[tokio::test]
async fn only_directories_have_a_default_list() {
    let place = Place::new().await;
    let made = place.make(ROOT, "file", file(0o644)).await.unwrap();
    let link = New {
        kind: NewKind::Symlink(b"file"),
        ..file(0o777)
    };
    let link = place.make(ROOT, "link", link).await.unwrap();
    let handed_down = list(&[(7, 6)]);
    for (of, kind) in [(made, FileKind::Regular), (link, FileKind::Symlink)] {
        let refused = place
            .set_xattr(of, DEFAULT, &handed_down, XattrMode::Set)
            .await;
        let is_told = match kind {
            FileKind::Symlink => matches!(refused, Err(FsError::Unsupported(_))),
            _ => refused == Err(FsError::PermissionDenied),
        };
        assert!(is_told, "{refused:?}");
    }
}

#[tokio::test]
async fn what_is_no_list_is_refused() {
    let place = Place::new().await;
    let made = place.make(ROOT, "file", file(0o600)).await.unwrap();
    let good = list(&[(7, 6)]);
    for wrong in [&good[..3], &good[..11], &good[..good.len() - 8], b""] {
        let refused = place.set_xattr(made, ACCESS, wrong, XattrMode::Set).await;
        assert!(
            matches!(refused, Err(FsError::InvalidArgument(_))),
            "{refused:?}"
        );
    }
    let other = [&3_u32.to_le_bytes()[..], &good[4..]].concat();
    let refused = place.set_xattr(made, ACCESS, &other, XattrMode::Set).await;
    assert!(
        matches!(refused, Err(FsError::Unsupported(_))),
        "{refused:?}"
    );
    let refused = place
        .set_xattr(made, "system.other", b"", XattrMode::Set)
        .await;
    assert!(
        matches!(refused, Err(FsError::Unsupported(_))),
        "{refused:?}"
    );
    assert_eq!(format_of(&*place.engine).await.unwrap().version, 1);
    set(&place, made, (ACCESS, &good)).await;
    assert_eq!(
        format_of(&*place.engine).await.unwrap().version,
        4,
        "older versions refuse it"
    );
}

#[tokio::test]
async fn a_listing_of_attributes_has_room_for_both_lists() {
    let place = Place::new().await;
    let made = place.make(ROOT, "above", directory(0o700)).await.unwrap();
    let add = async |length: usize, number: usize| {
        let attribute = format!("user.{number:0>width$}", width = length - 5);
        let set = place.set_xattr(made, &attribute, b"", XattrMode::Set);
        set.await
    };
    let mut number = 0;
    while add(255, number).await.is_ok() {
        number += 1;
    }
    // The longest name for which there is room still.
    let mut lengths = (10..255).rev();
    while add(lengths.next().unwrap(), number).await.is_err() {}
    let listing = async || {
        let names = place.xattrs(made).await.unwrap();
        names.iter().map(|name| name.len() + 1).sum::<usize>()
    };
    let names = listing().await;
    assert!(names > 65_000, "{names} bytes are listed");
    set(&place, made, (ACCESS, &list(&[(7, 6)]))).await;
    set(&place, made, (DEFAULT, &list(&[(7, 6)]))).await;
    let names = listing().await;
    assert!(names <= 64 << 10, "the kernel lists no {names} bytes");
}

#[tokio::test]
async fn a_stranger_to_the_group_takes_its_bit_away_with_a_list() {
    let place = Place::new().await;
    let owner = place.by(Identity::new(5, 6, []));
    chmod(&place, ROOT, 0o777).await;
    let made = owner.make(ROOT, "file", file(0o750)).await.unwrap();
    chmod(&place, made, 0o2750).await;
    set(&owner, made, (ACCESS, &list(&[]))).await;
    assert_eq!(mode(&place, made).await, 0o2740);
    let stranger = place.by(Identity::new(5, 7, []));
    set(&stranger, made, (ACCESS, &list(&[]))).await;
    assert_eq!(mode(&place, made).await, 0o740);
}

#[tokio::test]
async fn snapshots_keep_access_lists() {
    let place = Place::new().await;
    let made = place.make(ROOT, "file", file(0o600)).await.unwrap();
    set(&place, made, (ACCESS, &list(&[(7, 4)]))).await;
    let then = seen(&place, made).await;
    let shelf = place.find(ROOT, ".snapshot").await.unwrap().inode;
    let shown = place.make(shelf, "then", directory(0o755)).await.unwrap();
    set(&place, made, (ACCESS, &list(&[(8, 6)]))).await;
    let kept = place.find(shown, "file").await.unwrap().inode;
    assert_eq!(seen(&place, kept).await, then);
    let opens = |uid, inode| {
        let place = place.by(user(uid));
        async move { place.open(inode, OpenOptions::READ).await.is_ok() }
    };
    assert!(opens(7, kept).await && !opens(8, kept).await);
    assert!(!opens(7, made).await && opens(8, made).await);
    let refused = place
        .set_xattr(kept, ACCESS, &list(&[]), XattrMode::Set)
        .await;
    assert_eq!(refused, Err(FsError::ReadOnly));
    place.is_whole().await;
}

#[tokio::test]
async fn a_list_that_does_not_fit_its_mode_is_found_and_repaired() {
    let place = Place::new().await;
    let made = place.make(ROOT, "file", file(0o600)).await.unwrap();
    set(&place, made, (ACCESS, &list(&[(7, 4)]))).await;
    let key = [&b"I"[..], &made.0.to_be_bytes()].concat();
    let broken = transact(&*place.engine, move |transaction| {
        let mut value = transaction.get(&key)?.unwrap().to_vec();
        // The nine bits of the mode.
        value[2..4].copy_from_slice(&0o700_u16.to_le_bytes());
        transaction.put(&key, value.into());
        Ok::<_, FsError>(())
    });
    broken.await.unwrap();
    let report = check(&*place.engine, &*place.bucket, None).await.unwrap();
    assert_eq!(report.findings.len(), 1, "{report:?}");
    assert!(report.findings[0].contains("access list"), "{report:?}");
    let planned = plan(&*place.engine).await.unwrap();
    assert_eq!(planned.len(), 1, "{planned:?}");
    let engine = Arc::clone(&place.engine);
    apply(engine, planned, &|_| ()).await.unwrap();
    place.is_whole().await;
    // What the mode does not allow the list does not either.
    assert_eq!(mode(&place, made).await, 0o700);
    let refused = place.by(user(7)).open(made, OpenOptions::READ).await;
    assert_eq!(refused, Err(FsError::PermissionDenied));
}
