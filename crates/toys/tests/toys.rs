//! The toy volume does what every volume must; the toy door walks it, and a volume that counts references.

#![allow(clippy::unwrap_used)]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use penstock_base::{FileName, FsError, clock};
use penstock_toys::{GeneratedVolume, Walked, walk};
use penstock_vfs::{
    Dentry, Exclusivity, Identity, Inode, Made, New, NewKind, OpenOptions, RemoveKind, Volume,
    WritePlace,
};
use penstock_vfs_conformance::{FILES, Ground, MemoryVolume, conformance_tests};

fn generated() -> GeneratedVolume {
    FILES.into_iter().fold(
        GeneratedVolume::new(clock::wall_time()),
        |volume, (path, content)| {
            let generator = Box::new(|| Bytes::from_static(content));
            volume.with(path, generator).unwrap()
        },
    )
}

async fn open() -> Ground {
    Ground::filled(Arc::new(generated()))
}

conformance_tests!(open);

async fn walked(volume: &dyn Volume) -> (Walked, Vec<String>) {
    let mut out = Vec::new();
    let walked = walk(volume, &Identity::root(), &mut out).await.unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines = text.lines().map(|line| line.trim_start().to_owned());
    (walked, lines.collect())
}

#[tokio::test]
async fn a_walk_tells_every_file_with_its_bytes() {
    let (found, lines) = walked(&generated()).await;
    let bytes = FILES.iter().map(|(_, content)| content.len() as u64).sum();
    let expected = Walked {
        directories: 3,
        files: 6,
        bytes,
    };
    assert_eq!(found, expected);
    assert_eq!(
        lines,
        [
            "9 /a", "0 /d", "8 /z", "10 /d/b", "1 /d/c", "0 /d/e", "40 /d/e-", "4 /d/e/f"
        ]
    );
}

#[tokio::test]
async fn a_file_is_generated_each_time_it_is_looked_at() {
    let length = Arc::new(AtomicUsize::new(1));
    let bytes = {
        let length = Arc::clone(&length);
        Box::new(move || Bytes::from(vec![b'x'; length.load(Ordering::Relaxed)]))
    };
    let volume = GeneratedVolume::new(clock::wall_time());
    let volume = volume.with("file", bytes).unwrap();
    assert_eq!(walked(&volume).await.1, ["1 /file"]);
    length.store(7, Ordering::Relaxed);
    assert_eq!(walked(&volume).await.1, ["7 /file"]);
}

/// Makes something that is root's alone, with the name `x`; a regular file is open.
async fn make(volume: &MemoryVolume, kind: NewKind<'_>) -> Made {
    let new = New {
        kind,
        permissions: 0o700,
        umask: 0,
        exclusivity: Exclusivity::New,
    };
    let (by, name) = (Identity::root(), FileName::new(b"x").unwrap());
    let open = (kind == NewKind::Regular).then_some(OpenOptions::WRITE);
    let dentry = Dentry::new(Inode::ROOT, &name);
    volume.make(&by, dentry, new, open).await.unwrap()
}

#[tokio::test]
async fn a_walk_gives_back_what_it_took() {
    let (volume, by) = (MemoryVolume::new(), Identity::root());
    let made = make(&volume, NewKind::Regular).await;
    let (file, handle) = (made.entry.attributes.inode, made.opened.unwrap().handle);
    let (place, data) = (WritePlace::At(0), Bytes::from_static(b"1234"));
    volume.write(&by, handle, place, data).await.unwrap();
    volume.release(handle).await;
    assert_eq!(walked(&volume).await.1, ["4 /x"]);
    let name = FileName::new(b"x").unwrap();
    let removed = volume.remove(&by, Dentry::new(Inode::ROOT, &name), RemoveKind::File);
    removed.await.unwrap();
    let held = volume.attributes(&by, file).await;
    assert!(held.is_ok(), "the reference of its maker is left");
    volume.forget(file, 1);
    let held = volume.attributes(&by, file).await;
    assert_eq!(held.err(), Some(FsError::Stale), "and no other");
}

#[tokio::test]
async fn a_walk_of_somebody_who_may_not_list_fails() {
    let volume = MemoryVolume::new();
    make(&volume, NewKind::Directory).await;
    let stranger = Identity::new(4711, 4711, []);
    let walked = walk(&volume, &stranger, &mut Vec::new()).await;
    assert_eq!(walked.err(), Some(FsError::PermissionDenied));
}
