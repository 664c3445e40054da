//! Staged mode: what the next mount makes of what one left that broke off.

use std::sync::LazyLock;
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use penstock_base::{ChecksumKind, Summing, clock};
use penstock_bucket::{BucketSettings, MetadataSettings};
use penstock_object::{ErrorKind, HeadOptions, Key, Operation, PutOptions, Store, UserMetadata};
use penstock_vfs::{
    Allocation, AttributeChanges, Dentry, HandleId, Identity, Inode, OpenOptions, TimeChange,
    Volume, XattrMode,
};

use crate::support::{Bed, READ_WRITE, name, new_file};

static CALLER: LazyLock<Identity> = LazyLock::new(|| Identity::trusted(7, 8));

const TRUNCATE: OpenOptions = OpenOptions {
    truncate: true,
    ..READ_WRITE
};

fn keeping() -> BucketSettings {
    BucketSettings {
        metadata: MetadataSettings {
            keep: true,
            ..MetadataSettings::default()
        },
        ..BucketSettings::default()
    }
}

async fn create(bed: &Bed, path: &str, permissions: u16) -> (HandleId, Inode) {
    let created = bed
        .volume
        .make(
            &CALLER,
            Dentry::new(Inode::ROOT, &name(path)),
            new_file(permissions),
            Some(READ_WRITE),
        )
        .await
        .unwrap();
    (
        created.opened.unwrap().handle,
        created.entry.attributes.inode,
    )
}

async fn stored(bed: &Bed, key: &str) -> UserMetadata {
    let key = Key::new(key).unwrap();
    let info = bed.remote.head(&key, HeadOptions::default()).await;
    info.unwrap().metadata
}

fn value<'metadata>(metadata: &'metadata UserMetadata, name: &str) -> &'metadata str {
    metadata.get(name).map_or("", String::as_str)
}

fn nothing(_: &Path) {}

#[tokio::test]
async fn a_file_that_was_never_stored_is_recovered_with_its_owner_and_mode() {
    let bed = Bed::staged_with(keeping());
    let (handle, inode) = create(&bed, "new", 0o640).await;
    bed.write(handle, 0, "content").await.unwrap();
    bed.probe.fail(Operation::Put, ErrorKind::Unavailable, 9);
    assert!(bed.sync(handle).await.is_err());
    let time = TimeChange::To(UNIX_EPOCH + Duration::from_secs(1000));
    let changes = AttributeChanges {
        permissions: Some(0o4711),
        gid: Some(42),
        modified: Some(time),
        ..AttributeChanges::default()
    };
    bed.volume
        .set_attributes(&CALLER, inode, changes)
        .await
        .unwrap();
    bed.volume
        .set_xattr(&CALLER, inode, b"user.color", b"red", XattrMode::Set)
        .await
        .unwrap();
    let bed = bed.killed(keeping(), nothing).await;
    assert_eq!(bed.object("new").await.unwrap(), b"content");
    let metadata = stored(&bed, "new").await;
    let ids = ["uid", "gid", "mode"].map(|name| value(&metadata, name));
    assert_eq!(ids, ["7", "42", "35273"], "{metadata:?}");
    assert!(value(&metadata, "mtime").starts_with("1000"));
    assert!(value(&metadata, "xattr").contains("user.color"));
    assert_eq!(bed.stat("new").await.unwrap().permissions, 0o4711);
    assert_eq!(bed.journals(), [""; 0]);
}

#[tokio::test]
async fn a_recovered_file_shows_when_it_was_written() {
    let bed = Bed::staged_with(keeping());
    let (handle, inode) = create(&bed, "new", 0o600).await;
    let long_ago = TimeChange::To(UNIX_EPOCH + Duration::from_secs(1000));
    let changes = AttributeChanges {
        modified: Some(long_ago),
        ..AttributeChanges::default()
    };
    bed.volume
        .set_attributes(&CALLER, inode, changes)
        .await
        .unwrap();
    // The time of the write counts, and not one that was set before it.
    bed.write(handle, 0, "content").await.unwrap();
    let yesterday = clock::wall_time() - Duration::from_secs(86_400);
    let bed = bed
        .killed(keeping(), |staging| {
            for entry in fs::read_dir(staging.join("files")).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|ending| ending == "data") {
                    let file = fs::File::options().write(true).open(path).unwrap();
                    file.set_modified(yesterday).unwrap();
                }
            }
        })
        .await;
    let shown = bed.stat("new").await.unwrap().modified;
    let apart = shown.duration_since(yesterday).unwrap_or_default();
    assert!(apart < Duration::from_secs(2), "{shown:?}");
}

#[tokio::test]
async fn a_file_that_was_changed_is_recovered_with_what_it_is_now() {
    let bed = Bed::staged_with(keeping());
    let (handle, inode) = create(&bed, "file", 0o4755).await;
    bed.write(handle, 0, "content").await.unwrap();
    bed.close(handle).await.unwrap();
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    // Takes away the right to run as its owner.
    bed.write(handle, 0, "C").await.unwrap();
    let bed = bed.killed(keeping(), nothing).await;
    assert_eq!(bed.object("file").await.unwrap(), b"Content");
    let shown = bed.stat("file").await.unwrap();
    assert_eq!((shown.uid, shown.permissions), (7, 0o755), "{inode:?}");
}

/// The journal went with the save, before the store was told of the change.
#[tokio::test]
async fn a_chmod_during_a_save_survives_a_kill_after_it() {
    let bed = Bed::staged_with(keeping());
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "content").await.unwrap();
    let inode = bed.inode("file").await.unwrap();
    let held = bed.probe.hold(Operation::Put);
    bed.probe.fail(Operation::Copy, ErrorKind::Unavailable, 100);
    let chmod = async {
        bed.probe.until_held().await;
        let changes = AttributeChanges {
            permissions: Some(0o600),
            ..AttributeChanges::default()
        };
        let changed = bed.volume.set_attributes(&CALLER, inode, changes).await;
        held.add_permits(1);
        changed.map(drop)
    };
    let (synced, changed) = tokio::join!(bed.sync(handle), chmod);
    changed.unwrap();
    synced.expect_err("it cannot be described anew");
    assert_eq!(bed.object("file").await.unwrap(), b"content");
    let bed = killed_as_it_is(&bed, keeping()).await;
    assert_eq!(bed.stat("file").await.unwrap().permissions, 0o600);
    assert_eq!(bed.staging_files("kept"), [""; 0]);
    bed.forget_all();
    assert_eq!(bed.stat("file").await.unwrap().permissions, 0o600);
}

#[tokio::test]
async fn a_change_of_size_before_a_kill_is_recovered() {
    let bed = Bed::staged();
    let handle = bed.create("new").await.unwrap();
    let grow = Allocation::Reserve { keep_size: false };
    // Nothing of it lies in a staging file.
    bed.volume
        .allocate(&CALLER, handle, 0..100, grow)
        .await
        .unwrap();
    let bed = bed.killed(BucketSettings::default(), nothing).await;
    assert_eq!(bed.object("new").await, Some(vec![0; 100]));
    assert_eq!(bed.staging_files("files"), [""; 0]);
}

#[tokio::test]
async fn a_file_that_was_emptied_before_a_kill_is_recovered_empty() {
    let bed = Bed::staged();
    bed.put("file", "old content").await;
    bed.open("file", TRUNCATE).await.unwrap();
    let bed = bed.killed(BucketSettings::default(), nothing).await;
    assert_eq!(bed.object("file").await.unwrap(), b"");
    assert_eq!(bed.staging_files("files"), [""; 0]);
}

#[tokio::test]
async fn a_file_that_was_emptied_is_stored_when_it_is_synced_or_closed() {
    for synced in [false, true] {
        let bed = Bed::staged();
        bed.put("file", "old content").await;
        let handle = bed.open("file", TRUNCATE).await.unwrap();
        if synced {
            bed.sync(handle).await.unwrap();
        } else {
            bed.volume.flush(handle).await.unwrap();
        }
        assert_eq!(bed.object("file").await.unwrap(), b"");
        assert_eq!(bed.staging_files("files"), [""; 0]);
    }
}

#[tokio::test]
async fn what_is_written_during_a_rename_is_recovered_under_the_new_name() {
    let bed = Bed::staged();
    let handle = bed.create("old").await.unwrap();
    bed.write(handle, 0, "stored").await.unwrap();
    bed.sync(handle).await.unwrap();
    bed.write(handle, 0, "saved by the rename").await.unwrap();
    let copies = bed.probe.hold(Operation::Copy);
    let (renamed, ()) = tokio::join!(bed.rename("old", "new"), async {
        while bed.probe.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        bed.write(handle, 0, "SAVED").await.unwrap();
        copies.add_permits(1);
    });
    renamed.unwrap();
    let bed = bed.killed(BucketSettings::default(), nothing).await;
    assert_eq!(bed.keys().await, ["new"]);
    assert_eq!(bed.object("new").await.unwrap(), b"SAVED by the rename");
    assert_eq!(bed.staging_files("kept"), [""; 0]);
}

#[tokio::test]
async fn a_new_file_that_was_renamed_before_its_close_is_recovered_under_its_last_name() {
    let bed = Bed::staged();
    bed.put("new", "before").await;
    let handle = bed.create("old").await.unwrap();
    bed.write(handle, 0, "content").await.unwrap();
    bed.rename("old", "new").await.unwrap();
    let bed = bed.killed(BucketSettings::default(), nothing).await;
    assert_eq!(bed.keys().await, ["new"]);
    assert_eq!(bed.object("new").await.unwrap(), b"content");
    assert_eq!(bed.staging_files("kept"), [""; 0]);
}

#[tokio::test]
async fn what_is_written_during_a_change_of_mode_is_recovered() {
    let bed = Bed::staged_with(keeping());
    let (handle, inode) = create(&bed, "file", 0o644).await;
    bed.write(handle, 0, "content").await.unwrap();
    bed.sync(handle).await.unwrap();
    let copies = bed.probe.hold(Operation::Copy);
    let changes = AttributeChanges {
        permissions: Some(0o600),
        ..AttributeChanges::default()
    };
    let (changed, ()) = tokio::join!(bed.volume.set_attributes(&CALLER, inode, changes), async {
        while bed.probe.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        bed.write(handle, 0, "CONTENT").await.unwrap();
        copies.add_permits(1);
    });
    changed.unwrap();
    assert_eq!(bed.stat("file").await.unwrap().permissions, 0o600);
    let bed = bed.killed(keeping(), nothing).await;
    assert_eq!(bed.object("file").await.unwrap(), b"CONTENT");
    assert_eq!(bed.staging_files("kept"), [""; 0]);
    assert_eq!(bed.stat("file").await.unwrap().permissions, 0o600);
}

#[tokio::test]
async fn a_sync_waits_for_a_change_of_mode_that_came_during_a_save() {
    let bed = Bed::staged_with(keeping());
    let (handle, inode) = create(&bed, "file", 0o644).await;
    bed.write(handle, 0, "content").await.unwrap();
    let (puts, copies) = (
        bed.probe.hold(Operation::Put),
        bed.probe.hold(Operation::Copy),
    );
    let is_held = || async {
        while bed.probe.waiting() == 0 {
            tokio::task::yield_now().await;
        }
    };
    let changes = AttributeChanges {
        permissions: Some(0o600),
        ..AttributeChanges::default()
    };
    let (saved, ()) = tokio::join!(bed.sync(handle), async {
        is_held().await;
        bed.volume
            .set_attributes(&CALLER, inode, changes)
            .await
            .unwrap();
        puts.add_permits(1);
        while bed.object("file").await.is_none() {
            tokio::task::yield_now().await;
        }
        is_held().await;
        // The content is stored, and the mode is not.
        let again = bed.sync(handle);
        let early = penstock_base::clock::deadline(Duration::from_millis(100), again).await;
        assert!(early.is_err(), "{early:?}");
        copies.add_permits(1);
    });
    saved.unwrap();
    bed.sync(handle).await.unwrap();
    assert_eq!(value(&stored(&bed, "file").await, "mode"), "33152");
}

#[tokio::test]
async fn a_change_of_mode_that_could_not_be_stored_is_tried_by_the_next_sync() {
    let bed = Bed::staged_with(keeping());
    let (handle, inode) = create(&bed, "file", 0o644).await;
    bed.write(handle, 0, "content").await.unwrap();
    let puts = bed.probe.hold(Operation::Put);
    bed.probe.fail(Operation::Copy, ErrorKind::Unavailable, 1);
    let changes = AttributeChanges {
        permissions: Some(0o600),
        ..AttributeChanges::default()
    };
    let (saved, ()) = tokio::join!(bed.sync(handle), async {
        while bed.probe.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        bed.volume
            .set_attributes(&CALLER, inode, changes)
            .await
            .unwrap();
        puts.add_permits(1);
    });
    assert!(saved.is_err());
    bed.sync(handle).await.unwrap();
    assert_eq!(value(&stored(&bed, "file").await, "mode"), "33152");
}

#[tokio::test]
async fn a_file_that_was_half_put_aside_is_never_swept() {
    let bed = Bed::staged();
    bed.put("file", "the first version").await;
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, 0, "ours").await.unwrap();
    bed.put("file", "theirs").await;
    let bed = bed
        .killed(BucketSettings::default(), |staging| {
            for entry in fs::read_dir(staging.join("files")).unwrap() {
                let entry = entry.unwrap();
                let kept = staging.join("kept").join(entry.file_name());
                if kept.extension().is_some_and(|ending| ending == "data") {
                    fs::rename(entry.path(), kept).unwrap();
                }
            }
        })
        .await;
    assert_eq!(bed.object("file").await.unwrap(), b"theirs");
    assert_eq!(bed.staging_files("files"), [""; 0]);
    let kept = bed.staging_files("kept");
    let [data, journal] = kept.as_slice() else {
        panic!("{kept:?}");
    };
    assert!(data.ends_with(".data") && journal.ends_with(".journal"));
}

/// The only file of the staging directory with such an ending.
fn only(staging: &Path, ending: &str) -> PathBuf {
    let files = fs::read_dir(staging.join("files")).unwrap();
    let paths = files.map(|entry| entry.unwrap().path());
    let mut found = paths.filter(|path| path.extension().is_some_and(|found| found == ending));
    let path = found.next().unwrap();
    assert_eq!(found.next(), None);
    path
}

/// Changes one byte of the journal, `at` bytes from its beginning.
fn damage_journal(staging: &Path, at: impl FnOnce(usize) -> usize) {
    let path = only(staging, "journal");
    let mut journal = fs::read(&path).unwrap();
    let at = at(journal.len());
    journal[at] ^= 1;
    fs::write(path, journal).unwrap();
}

/// A file of which two writes are unsaved when the mount breaks off.
async fn unsaved_file() -> Bed {
    let bed = Bed::staged();
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "never saved").await.unwrap();
    bed.write(handle, 20, "nor this").await.unwrap();
    bed
}

/// What was written is in the one file that was put aside, and not in the store.
async fn assert_kept(bed: &Bed, expected: &[u8]) {
    assert_eq!(bed.keys().await, [""; 0]);
    assert_eq!(bed.staging_files("files"), [""; 0]);
    let kept = bed.staging_files("kept");
    assert_eq!(kept.len(), 2, "{kept:?}");
    let (data, journal) = (&kept[0], &kept[1]);
    assert!(data.ends_with(".data") && journal.ends_with(".journal"));
    let path = bed.staging_path("kept").join(data);
    assert_eq!(fs::read(path).unwrap(), expected);
}

const WRITTEN: &[u8] = b"never saved\0\0\0\0\0\0\0\0\0nor this";

#[tokio::test]
async fn what_a_journal_with_a_damaged_beginning_tells_of_is_kept() {
    let bed = unsaved_file().await;
    let damage = |staging: &Path| damage_journal(staging, |_| 30);
    let bed = bed.killed(BucketSettings::default(), damage).await;
    assert_kept(&bed, WRITTEN).await;
}

#[tokio::test]
async fn what_a_journal_with_a_damaged_record_tells_of_is_kept() {
    let bed = unsaved_file().await;
    // In the record before the last.
    let damage = |staging: &Path| damage_journal(staging, |length| length - 30);
    let bed = bed.killed(BucketSettings::default(), damage).await;
    assert_kept(&bed, WRITTEN).await;
}

#[tokio::test]
async fn what_a_journal_with_a_damaged_end_tells_of_is_kept() {
    let bed = unsaved_file().await;
    let damage = |staging: &Path| damage_journal(staging, |length| length - 1);
    let bed = bed.killed(BucketSettings::default(), damage).await;
    assert_kept(&bed, WRITTEN).await;
}

#[tokio::test]
async fn a_record_that_was_not_finished_is_passed_over() {
    let bed = unsaved_file().await;
    let bed = bed
        .killed(BucketSettings::default(), |staging| {
            let journal = only(staging, "journal");
            let file = fs::File::options().write(true).open(&journal).unwrap();
            file.set_len(file.metadata().unwrap().len() - 3).unwrap();
        })
        .await;
    assert_eq!(bed.object("file").await.unwrap(), b"never saved");
    assert_eq!(bed.staging_files("kept"), [""; 0]);
}

#[tokio::test]
async fn what_is_not_certain_after_a_crash_of_the_machine_is_kept() {
    let bed = unsaved_file().await;
    let bed = bed.killed(BucketSettings::default(), another_start).await;
    assert_kept(&bed, WRITTEN).await;
}

/// As if the machine had started again since the journal was begun.
fn another_start(staging: &Path) {
    let now = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let path = only(staging, "journal");
    let mut journal = fs::read(&path).unwrap();
    let now = now.trim().as_bytes();
    let at = journal
        .windows(now.len())
        .position(|text| text == now)
        .unwrap();
    journal[at] = if now[0] == b'0' { b'1' } else { b'0' };
    let length = u32::from_le_bytes(journal[..4].try_into().unwrap()) as usize;
    let sum = crc32c(&journal[8..8 + length]);
    journal[4..8].copy_from_slice(&sum.to_le_bytes());
    fs::write(path, journal).unwrap();
}

fn crc32c(bytes: &[u8]) -> u32 {
    let mut summing = Summing::new(ChecksumKind::Crc32c);
    summing.add(bytes);
    summing.checksum().value() as u32
}

#[tokio::test]
async fn a_staging_file_that_is_shorter_than_its_journal_says_is_kept() {
    let bed = unsaved_file().await;
    let bed = bed
        .killed(BucketSettings::default(), |staging| {
            let data = only(staging, "data");
            let file = fs::File::options().write(true).open(data).unwrap();
            file.set_len(21).unwrap();
        })
        .await;
    assert_kept(&bed, &WRITTEN[..21]).await;
}

#[tokio::test]
async fn a_file_with_very_many_holes_is_saved_while_they_are_punched() {
    let bed = Bed::staged();
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, vec![1; 1 << 20]).await.unwrap();
    for hole in 0..40_000 {
        let hole = hole * 16..hole * 16 + 8;
        let punched = bed
            .volume
            .allocate(&CALLER, handle, hole, Allocation::PunchHole);
        punched.await.unwrap();
    }
    let requests = bed.probe.requests();
    assert!(requests.contains("put 1"), "{requests}");
    let bed = bed.killed(BucketSettings::default(), nothing).await;
    let found = bed.object("file").await.unwrap();
    let expected = |at: usize| u8::from(at >= 640_000 || at % 16 >= 8);
    assert!(
        found
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte == expected(at))
    );
}

#[tokio::test(start_paused = true)]
async fn recovered_files_are_there_before_they_are_saved() {
    let bed = unsaved_file().await;
    bed.put("other", "content").await;
    let bed = bed.broken_off(BucketSettings::default(), |bed| {
        bed.probe
            .fail(Operation::Put, ErrorKind::Unavailable, usize::MAX);
    });
    assert_eq!(bed.requests(), "");
    assert_eq!(bed.stat("file").await.unwrap().size, WRITTEN.len() as u64);
    assert_eq!(bed.read_file("file").await.unwrap(), WRITTEN);
    assert_eq!(bed.ls("").await.unwrap(), ["file", "other"]);
    assert_eq!(bed.metric("bucket_recovering_files"), 1);
    assert_eq!(bed.metric("bucket_recovering_bytes"), 19);
    // What is written to one goes on where it was.
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, 0, "NEVER").await.unwrap();
    bed.volume.release(handle).await;
    bed.rename("other", "renamed").await.unwrap();
    assert!(
        bed.rename("file", "moved").await.is_err(),
        "it cannot be saved"
    );
    bed.probe.mend();
    bed.recovered().await;
    let found = bed.object("file").await.unwrap();
    assert_eq!(found, [b"NEVER", &WRITTEN[5..]].concat());
    assert_eq!(bed.staging_files("kept"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_recovered_file_that_is_removed_is_not_saved() {
    let bed = unsaved_file().await;
    let bed = bed.broken_off(BucketSettings::default(), |bed| {
        bed.probe
            .fail(Operation::Put, ErrorKind::Unavailable, usize::MAX);
    });
    bed.unlink("file").await.unwrap();
    bed.probe.mend();
    bed.recovered().await;
    assert_eq!(bed.keys().await, [""; 0]);
    bed.expect_swept().await;
}

/// Who was to save the others let go of them, and with that of their names.
#[tokio::test]
async fn what_a_kill_left_is_saved_by_a_mount_that_ends_at_once() {
    const FILES: usize = 100;
    let bed = Bed::staged();
    for number in 0..FILES {
        let handle = bed.create(&number.to_string()).await.unwrap();
        bed.write(handle, 0, "content").await.unwrap();
    }
    let mut held = None;
    let bed = bed.broken_off(BucketSettings::default(), |bed| {
        held = Some(bed.probe.hold(Operation::Put));
    });
    bed.probe.until_held().await;
    let release = async {
        clock::sleep(Duration::from_millis(20)).await;
        held.unwrap().add_permits(FILES);
    };
    let (lost, ()) = tokio::join!(bed.volume.shut_down(), release);
    assert_eq!(lost, []);
    assert_eq!(bed.keys().await.len(), FILES);
}

/// The mount after one that goes on trying to save its one file, of another bucket.
async fn killed_as_it_is(bed: &Bed, settings: BucketSettings) -> Bed {
    let left = bed.staging_path(".");
    let leave = |staging: &Path| {
        for kind in ["journal", "data"] {
            let copy = staging.join("files/x").with_extension(kind);
            fs::copy(only(&left, kind), copy).unwrap();
        }
    };
    let next = Bed::staged_with(settings.clone());
    next.killed(settings, leave).await
}

#[tokio::test(start_paused = true)]
async fn what_was_doubted_after_a_crash_of_the_machine_is_doubted_after_a_kill_too() {
    let bed = Bed::staged();
    let handle = bed.create("file").await.unwrap();
    bed.write(handle, 0, "sure").await.unwrap();
    let until_synced = Duration::from_secs(12);
    clock::sleep(until_synced).await;
    bed.write(handle, 4, " hope").await.unwrap();
    let bed = bed.broken_off(BucketSettings::default(), |bed| {
        another_start(&bed.staging_path("."));
        bed.probe
            .fail(Operation::Put, ErrorKind::Unavailable, usize::MAX);
    });
    assert_eq!(bed.read_file("file").await.unwrap(), b"sure");
    clock::sleep(until_synced).await;
    let next = killed_as_it_is(&bed, BucketSettings::default()).await;
    assert_eq!(next.object("file").await.unwrap(), b"sure");
}

#[tokio::test(start_paused = true)]
async fn what_is_written_to_a_recovered_file_survives_the_next_kill() {
    let bed = unsaved_file().await;
    let fails = |bed: &Bed| {
        bed.probe
            .fail(Operation::Put, ErrorKind::Unavailable, usize::MAX);
    };
    let bed = bed.broken_off(BucketSettings::default(), fails);
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(handle, 30, "a second mount").await.unwrap();
    assert_eq!(bed.read(handle, 0, 100).await.unwrap().len(), 44);
    let next = killed_as_it_is(&bed, BucketSettings::default()).await;
    let expected = [WRITTEN, b"\0\0", b"a second mount"].concat();
    assert_eq!(next.object("file").await.unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_directory_stays_as_long_as_something_below_it_is_unsaved() {
    let bed = Bed::staged();
    bed.put("folder/", "").await;
    let handle = bed.create("folder/file").await.unwrap();
    bed.write(handle, 0, "unsaved").await.unwrap();
    bed.delete("folder/").await;
    let fails = |bed: &Bed| {
        bed.probe
            .fail(Operation::Put, ErrorKind::Unavailable, usize::MAX);
    };
    let bed = bed.broken_off(BucketSettings::default(), fails);
    assert_eq!(bed.read_file("folder/file").await.unwrap(), b"unsaved");
    bed.probe.mend();
    bed.recovered().await;
    assert_eq!(bed.object("folder/file").await.unwrap(), b"unsaved");
}

#[tokio::test(start_paused = true)]
async fn a_recovered_file_that_another_client_changed_stays_while_it_is_open() {
    let bed = unsaved_file().await;
    let bed = bed.broken_off(BucketSettings::default(), |_| {});
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.put("file", "theirs").await;
    for _ in 0..20 {
        clock::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(bed.read(handle, 0, 11).await.unwrap(), b"never saved");
    assert!(bed.volume.flush(handle).await.is_err());
    bed.volume.release(handle).await;
    bed.recovered().await;
    assert_eq!(bed.read_file("file").await.unwrap(), b"theirs");
    assert_eq!(bed.staging_files("kept").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_file_in_conflict_is_put_aside_as_soon_as_nobody_has_it_open() {
    let bed = unsaved_file().await;
    let bed = bed.broken_off(BucketSettings::default(), |_| {});
    let handle = bed.open("file", READ_WRITE).await.unwrap();
    bed.put("file", "theirs").await;
    clock::sleep(Duration::from_secs(200)).await;
    assert_eq!(bed.read(handle, 0, 11).await.unwrap(), b"never saved");
    bed.volume.release(handle).await;
    clock::sleep(Duration::from_secs(2)).await;
    assert_eq!(bed.read_file("file").await.unwrap(), b"theirs");
    assert_eq!(bed.staging_files("kept").len(), 2);
}

/// A listing before that left out what the store has under the name.
#[tokio::test(start_paused = true)]
async fn a_name_shows_another_clients_object_as_soon_as_a_new_file_is_put_aside() {
    let bed = unsaved_file().await;
    let mut puts = None;
    let bed = bed.broken_off(BucketSettings::default(), |bed| {
        puts = Some(bed.probe.hold(Operation::Put));
    });
    bed.put("file", "theirs").await;
    assert_eq!(bed.ls("").await.unwrap(), ["file"]);
    puts.expect("it was mounted").add_permits(9);
    while bed.staging_files("kept").len() < 2 {
        clock::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(bed.read_file("file").await.unwrap(), b"theirs");
}

#[tokio::test(start_paused = true)]
async fn what_is_written_while_a_file_is_put_aside_stays() {
    let bed = Bed::staged();
    bed.put("file", "the first version").await;
    let first = bed.open("file", READ_WRITE).await.unwrap();
    bed.write(first, 0, "ours").await.unwrap();
    bed.put("file", "theirs").await;
    let (puts, deletes) = (
        bed.probe.hold(Operation::Put),
        bed.probe.hold(Operation::Delete),
    );
    bed.probe.fail(Operation::Delete, ErrorKind::Unavailable, 1);
    let waiting = async || {
        bed.probe.until_held().await;
    };
    let (second, unlinked, ()) = tokio::join!(
        async {
            // The last close fails, and leaves the file to be put aside,
            bed.volume.release(first).await;
            clock::sleep(Duration::from_millis(50)).await;
            waiting().await;
            // which waits for the removal. Meanwhile somebody opens and writes it.
            let second = bed.open("file", READ_WRITE).await.unwrap();
            bed.write(second, 0, "precious").await.unwrap();
            deletes.add_permits(1);
            second
        },
        async {
            waiting().await;
            bed.unlink("file").await
        },
        async {
            waiting().await;
            clock::sleep(Duration::from_millis(50)).await;
            puts.add_permits(100);
        }
    );
    assert!(unlinked.is_err());
    clock::sleep(Duration::from_secs(300)).await;
    assert_eq!(bed.read(second, 0, 8).await.unwrap(), b"precious");
    assert_eq!(bed.staging_files("kept"), [""; 0]);
    bed.volume.release(second).await;
    clock::sleep(Duration::from_secs(300)).await;
    assert_eq!(bed.staging_files("kept").len(), 2);
}

/// Texts as the note of an upload has them.
fn noted(texts: &[&str]) -> Vec<u8> {
    let mut body = Vec::new();
    for text in texts {
        body.extend((text.len() as u32).to_le_bytes());
        body.extend(text.as_bytes());
    }
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(crc32c(&body).to_le_bytes());
    bytes.extend(body);
    bytes
}

#[tokio::test]
async fn uploads_that_were_cut_off_are_removed_and_no_others() {
    let bed = Bed::staged();
    let begin = async |key: &str| {
        let key = Key::new(key).unwrap();
        let begun = bed.remote.create_upload(&key, PutOptions::default());
        begun.await.unwrap()
    };
    let named = begin("named").await;
    // Of the same object, by another client.
    begin("named").await;
    begin("nameless").await;
    begin("nameless too").await;
    let now = clock::wall_time().duration_since(UNIX_EPOCH);
    let now = now.unwrap().as_secs();
    let notes = [
        [
            noted(&["memory", "named", &now.to_string()]),
            noted(&[named.as_str()]),
        ]
        .concat(),
        noted(&["memory", "nameless", &now.to_string()]),
        noted(&["memory", "nameless too", &(now - 3600).to_string()]),
        noted(&["another volume", "nameless too", &now.to_string()]),
        b"damaged".to_vec(),
    ];
    let bed = bed
        .killed(BucketSettings::default(), |staging| {
            for (number, note) in notes.iter().enumerate() {
                fs::write(staging.join(format!("files/{number}.upload")), note).unwrap();
            }
        })
        .await;
    while bed.staging_files("files").len() > 1 {
        clock::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(bed.unfinished_uploads().await, ["named", "nameless too"]);
}

#[tokio::test]
async fn a_store_that_removes_no_upload_holds_up_no_save() {
    let now = clock::wall_time().duration_since(UNIX_EPOCH);
    let begun = noted(&["memory", "file", &now.unwrap().as_secs().to_string()]);
    let named = [begun.clone(), noted(&["its name"])].concat();
    for (operation, note) in [
        (Operation::AbortUpload, named),
        (Operation::ListUploads, begun),
    ] {
        for kind in [ErrorKind::PermissionDenied, ErrorKind::Unavailable] {
            let bed = Bed::staged();
            let handle = bed.create("file").await.unwrap();
            let content = vec![7; 40 << 20];
            bed.write(handle, 0, &content).await.unwrap();
            let bed = bed.broken_off(BucketSettings::default(), |bed| {
                fs::write(bed.staging_path("files/0.upload"), &note).unwrap();
                bed.probe.fail(operation, kind, usize::MAX);
            });
            bed.recovered().await;
            assert!(bed.object("file").await.unwrap() == content, "{kind:?}");
            let left = bed.staging_files("files");
            assert!(left.contains(&"0.upload".to_owned()), "{left:?}");
        }
    }
}

/// Nothing was saved, so nothing that the store has can be ours, however like it the part is that
/// was changed.
#[tokio::test]
async fn another_clients_object_is_not_taken_for_a_recovered_file_by_a_part_of_it() {
    for (write, size, theirs) in [
        (None, 5, "THEIR"),
        (Some("012"), 10, "0123THEIRS"),
        (Some("0123"), 5, "0123!"),
    ] {
        let bed = Bed::staged();
        bed.put("file", "0123456789").await;
        let handle = bed.open("file", READ_WRITE).await.unwrap();
        let inode = bed.stat("file").await.unwrap().inode;
        if let Some(text) = write {
            bed.write(handle, 0, text).await.unwrap();
        }
        let changes = AttributeChanges {
            size: Some(size),
            handle: Some(handle),
            ..AttributeChanges::default()
        };
        bed.volume
            .set_attributes(&CALLER, inode, changes)
            .await
            .unwrap();
        bed.put("file", theirs).await;
        let bed = bed.killed(BucketSettings::default(), nothing).await;
        assert_eq!(bed.object("file").await.unwrap(), theirs.as_bytes());
        assert!(!bed.staging_files("kept").is_empty(), "{theirs}");
    }
}
